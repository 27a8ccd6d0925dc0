//! What a device is.

use std::ffi::{c_int, c_uint};

use crate::abi::{Out, Text};
use crate::code::Code;
use crate::entry::device_calls;
use crate::target::Target;

/// NVML_BRAND_NVIDIA, as data-centre cards report.
const BRAND_NVIDIA: c_uint = 14;
/// GSP firmware runs, as it does on data-centre cards.
const GSP_ENABLED: c_uint = 1;

device_calls! {
    fn nvmlDeviceGetName(target, text: Text, room: c_uint) { text.set(room, &name(target)) }
    fn nvmlDeviceGetUUID(target, text: Text, room: c_uint) {
        text.set(room, target.mig.map_or(&target.gpu.uuid, |instance| &instance.uuid))
    }
    fn nvmlDeviceGetIndex(target, index: Out<c_uint>) {
        index.set(target.place.map_or(target.index, |place| place as c_uint))
    }
    fn nvmlDeviceGetMinorNumber(target, minor: Out<c_uint>) { minor.set(target.index) }
    fn nvmlDeviceGetSerial(target, text: Text, room: c_uint) {
        target.whole()?;
        text.set(room, &format!("16525{:08}", target.index))
    }
    fn nvmlDeviceGetBoardId(target, board: Out<c_uint>) { board.set(target.gpu.pci_bus << 8) }
    fn nvmlDeviceGetBoardPartNumber(_target, text: Text, room: c_uint) { text.set(room, "692-2G520-0200-000") }
    fn nvmlDeviceGetVbiosVersion(target, text: Text, room: c_uint) {
        target.whole()?;
        text.set(room, "96.00.74.00.01")
    }
    fn nvmlDeviceGetInforomImageVersion(_target, text: Text, room: c_uint) { text.set(room, "G520.0200.00.05") }
    fn nvmlDeviceGetBrand(_target, brand: Out<c_uint>) { brand.set(BRAND_NVIDIA) }
    fn nvmlDeviceGetArchitecture(target, architecture: Out<c_uint>) { architecture.set(target.gpu.architecture) }
    fn nvmlDeviceGetCudaComputeCapability(target, major: Out<c_int>, minor: Out<c_int>) {
        // Architecture 9 is compute capability 9.0, 10 is 10.0: near enough for a part that computes nothing.
        major.set(target.gpu.architecture as c_int)?;
        minor.set(0)
    }
    fn nvmlDeviceGetNumGpuCores(target, cores: Out<c_uint>) { target.whole()?; cores.set(16_896) }
    fn nvmlDeviceGetMemoryBusWidth(target, bits: Out<c_uint>) { target.whole()?; bits.set(5120) }
    fn nvmlDeviceGetMultiGpuBoard(_target, several: Out<c_uint>) { several.set(0) }
    fn nvmlDeviceGetNumaNodeId(_target, _node: Out<c_uint>) { Err(Code::NOT_SUPPORTED) }
    fn nvmlDeviceGetGspFirmwareMode(_target, enabled: Out<c_uint>, default: Out<c_uint>) {
        enabled.set(GSP_ENABLED)?;
        default.set(GSP_ENABLED)
    }
    fn nvmlDeviceGetGspFirmwareVersion(target, text: Text) {
        // The only text call without a length: its buffer has 0x40 bytes (NVML_GSP_FIRMWARE_VERSION_BUF_SIZE).
        text.set(0x40, &target.scenario.driver_version)
    }
    fn nvmlDeviceGetPersistenceMode(target, mode: Out<c_uint>) { target.whole()?; mode.set(1) }
    fn nvmlDeviceGetComputeMode(_target, mode: Out<c_uint>) { mode.set(0) }
    fn nvmlDeviceGetDisplayMode(target, mode: Out<c_uint>) { target.whole()?; mode.set(0) }
    fn nvmlDeviceGetDisplayActive(target, active: Out<c_uint>) { target.whole()?; active.set(0) }
    // Driver models are a thing of Windows; nvitop insists on the symbol all the same.
    fn nvmlDeviceGetDriverModel(_target, _current: Out<c_uint>, _pending: Out<c_uint>) { Err(Code::NOT_SUPPORTED) }
    fn nvmlDeviceGetDriverModel_v2(_target, _current: Out<c_uint>, _pending: Out<c_uint>) { Err(Code::NOT_SUPPORTED) }
    fn nvmlDeviceGetVirtualizationMode(_target, mode: Out<c_uint>) { mode.set(0) }
}

/// The product, or the product and the profile of an instance, as nvidia-smi prints them.
fn name(target: &Target<'_>) -> String {
    match target.mig {
        Some(instance) => format!("{} MIG {}", target.gpu.name, instance.profile),
        None => target.gpu.name.clone(),
    }
}
