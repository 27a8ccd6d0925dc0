//! Values by number.

use std::ffi::{c_int, c_uint};

use crate::abi::{FieldValue, Out};
use crate::code::{Answer, Code};
use crate::entry::device_calls;
use crate::target::Target;

use super::errors::{ecc, unpartitioned_ecc};

/// Value type: 32 bits without sign.
const UNSIGNED_INT: c_uint = 1;
/// Value type: 64 bits without sign.
const UNSIGNED_LONG_LONG: c_uint = 3;

device_calls! {
    fn nvmlDeviceGetFieldValues(target, count: c_int, values: Out<FieldValue>) {
        answer_all(target, count, &values)
    }
    fn nvmlDeviceClearFieldValues(_target, _count: c_int, _values: Out<FieldValue>) { Err(Code::NO_PERMISSION) }
}

/// Answers each field by itself: one that is not supported fails alone.
fn answer_all(target: &Target<'_>, count: c_int, values: &Out<FieldValue>) -> Answer {
    let count = usize::try_from(count).map_err(|_| Code::INVALID_ARGUMENT)?;
    for place in 0..count {
        let entry = values.at(place);
        let asked = entry.get()?;
        let (kind, code, value) = match value(target, asked.field) {
            Ok((kind, value)) => (kind, 0, value),
            Err(code) => (UNSIGNED_INT, code.0, 0),
        };
        entry.set(FieldValue {
            at_us: target.wall_us() as i64,
            latency_us: 1,
            kind,
            code,
            value,
            ..asked
        })?;
    }
    Ok(())
}

/// A field's type and value. Numbers are `NVML_FI_DEV_*`.
fn value(target: &Target<'_>, field: c_uint) -> Result<(c_uint, u64), Code> {
    let gpu = target.gpu;
    let number = match field {
        1 | 2 => ecc(target).map(|_| 1)?,
        3 | 5 => return Ok((UNSIGNED_LONG_LONG, ecc(target)?.corrected)),
        4 | 6 => return Ok((UNSIGNED_LONG_LONG, ecc(target)?.uncorrected)),
        82 => gpu.temperature_c,
        83 => return Ok((UNSIGNED_LONG_LONG, u64::from(gpu.power_mw) * (target.at_ms.max(0) as u64 / 1000))),
        142 => unpartitioned_ecc(target)?.remapped_correctable,
        143 => unpartitioned_ecc(target)?.remapped_uncorrectable,
        144 => unpartitioned_ecc(target)?.remapping_pending.into(),
        145 => unpartitioned_ecc(target)?.remapping_failed.into(),
        185 | 186 => gpu.power_mw,
        230 => ecc(target)?.recovery_action,
        _ => return Err(Code::NOT_SUPPORTED),
    };
    Ok((UNSIGNED_INT, number.into()))
}
