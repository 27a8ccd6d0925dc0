//! Partitioned GPUs.

use std::ffi::c_uint;

use ebbtide_core::units::MIB;

use crate::abi::{Attributes, Handle, Out};
use crate::code::{Answer, Code};
use crate::entry::device_calls;
use crate::target::Target;

/// Most instances a GPU can be cut into.
const MOST: c_uint = 7;

device_calls! {
    fn nvmlDeviceGetMigMode(target, current: Out<c_uint>, pending: Out<c_uint>) {
        target.whole()?;
        let on = c_uint::from(!target.gpu.mig.is_empty());
        current.set(on)?;
        pending.set(on)
    }
    fn nvmlDeviceGetMaxMigDeviceCount(target, count: Out<c_uint>) {
        target.whole()?;
        count.set(if target.gpu.mig.is_empty() { 0 } else { MOST })
    }
    fn nvmlDeviceGetMigDeviceHandleByIndex(target, index: c_uint, device: Out<Handle>) {
        target.whole()?;
        if index as usize >= target.gpu.mig.len() {
            return Err(Code::NOT_FOUND);
        }
        device.set(Handle::new(target.index, Some(index as usize), target.generation))
    }
    fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(target, device: Out<Handle>) {
        instance(target)?;
        device.set(Handle::new(target.index, None, target.generation))
    }
    fn nvmlDeviceIsMigDeviceHandle(target, is: Out<c_uint>) { is.set(target.mig.is_some().into()) }
    fn nvmlDeviceGetGpuInstanceId(target, id: Out<c_uint>) { id.set(instance(target)?.gpu_instance) }
    fn nvmlDeviceGetComputeInstanceId(target, id: Out<c_uint>) { id.set(instance(target)?.compute_instance) }
    fn nvmlDeviceGetAttributes(target, attributes: Out<Attributes>) { describe(target, &attributes) }
    fn nvmlDeviceGetAttributes_v2(target, attributes: Out<Attributes>) { describe(target, &attributes) }
}

fn instance<'a>(target: &Target<'a>) -> Result<&'a ebbtide_testkit::MigInstance, Code> {
    target.mig.ok_or(Code::INVALID_ARGUMENT)
}

/// What an instance is made of. Its slices stand before the `g` of its profile.
fn describe(target: &Target<'_>, attributes: &Out<Attributes>) -> Answer {
    let instance = target.mig.ok_or(Code::NOT_SUPPORTED)?;
    let slices = instance.profile.split('g').next().and_then(|digits| digits.parse().ok()).unwrap_or(1);
    attributes.set(Attributes {
        // 16 of an H100's 132 multiprocessors belong to a slice.
        multiprocessors: 16 * slices,
        engines: [slices, slices, 0, slices, 0],
        gpu_slices: slices,
        compute_slices: slices,
        memory_mib: instance.total.0 / MIB,
    })
}
