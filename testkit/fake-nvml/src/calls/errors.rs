//! Error correction and remapped rows.

use std::ffi::{c_uint, c_ulonglong};

use ebbtide_testkit::Ecc;

use crate::abi::{Out, RemapperHistogram};
use crate::code::{Answer, Code};
use crate::entry::device_calls;
use crate::target::Target;

/// Memory error kinds: corrected.
const CORRECTED: c_uint = 0;
/// Memory error kinds: uncorrected.
const UNCORRECTED: c_uint = 1;
/// The location that counts device memory.
const DEVICE_MEMORY: c_uint = 2;
/// Spare banks of an H100, as its idle histogram shows them.
const BANKS: c_uint = 2560;

device_calls! {
    fn nvmlDeviceGetEccMode(target, current: Out<c_uint>, pending: Out<c_uint>) {
        ecc(target)?;
        current.set(1)?;
        pending.set(1)
    }
    fn nvmlDeviceGetDefaultEccMode(target, mode: Out<c_uint>) { ecc(target)?; mode.set(1) }
    fn nvmlDeviceGetTotalEccErrors(target, kind: c_uint, _counter: c_uint, count: Out<c_ulonglong>) {
        errors(target, kind, &count)
    }
    fn nvmlDeviceGetMemoryErrorCounter(
        target, kind: c_uint, _counter: c_uint, location: c_uint, count: Out<c_ulonglong>
    ) {
        if location != DEVICE_MEMORY {
            ecc(target)?;
            return count.set(0);
        }
        errors(target, kind, &count)
    }
    fn nvmlDeviceGetRemappedRows(
        target,
        correctable: Out<c_uint>,
        uncorrectable: Out<c_uint>,
        pending: Out<c_uint>,
        failed: Out<c_uint>
    ) {
        let ecc = unpartitioned_ecc(target)?;
        correctable.set(ecc.remapped_correctable)?;
        uncorrectable.set(ecc.remapped_uncorrectable)?;
        pending.set(ecc.remapping_pending.into())?;
        failed.set(ecc.remapping_failed.into())
    }
    fn nvmlDeviceGetRowRemapperHistogram(target, histogram: Out<RemapperHistogram>) {
        unpartitioned_ecc(target)?;
        histogram.set(RemapperHistogram { max: BANKS, high: 0, partial: 0, low: 0, none: 0 })
    }
    // Pages were retired before Ampere; rows are remapped since.
    fn nvmlDeviceGetRetiredPages(_target, _cause: c_uint, _count: Out<c_uint>, _pages: Out<c_ulonglong>) {
        Err(Code::NOT_SUPPORTED)
    }
    fn nvmlDeviceGetRetiredPages_v2(
        _target, _cause: c_uint, _count: Out<c_uint>, _pages: Out<c_ulonglong>, _stamps: Out<c_ulonglong>
    ) {
        Err(Code::NOT_SUPPORTED)
    }
    fn nvmlDeviceGetRetiredPagesPendingStatus(_target, _pending: Out<c_uint>) { Err(Code::NOT_SUPPORTED) }
}

fn errors(target: &Target<'_>, kind: c_uint, count: &Out<c_ulonglong>) -> Answer {
    let ecc = ecc(target)?;
    match kind {
        CORRECTED => count.set(ecc.corrected),
        UNCORRECTED => count.set(ecc.uncorrected),
        _ => Err(Code::INVALID_ARGUMENT),
    }
}

/// The card's error correction, which instances share with it.
pub(super) fn ecc<'a>(target: &Target<'a>) -> Result<&'a Ecc, Code> {
    target.gpu.ecc.as_ref().ok_or(Code::NOT_SUPPORTED)
}

/// The same, for what a partitioned GPU does not answer.
pub(super) fn unpartitioned_ecc<'a>(target: &Target<'a>) -> Result<&'a Ecc, Code> {
    target.unpartitioned()?;
    ecc(target)
}
