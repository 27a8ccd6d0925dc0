//! Where a device sits.

use std::ffi::{c_char, c_uint};

use crate::abi::{Out, Pci, PciExt, PciLegacy, version_of};
use crate::code::Code;
use crate::entry::device_calls;
use crate::target::Target;

/// Device and vendor of an H100 SXM, as lspci shows them.
const DEVICE_ID: c_uint = 0x2330_10de;
/// Its subsystem.
const SUBSYSTEM_ID: c_uint = 0x16c1_10de;
/// Class 3.2: a 3D controller.
const CLASS: (c_uint, c_uint) = (3, 2);
/// PCI express 5.
const GENERATION: c_uint = 5;
/// Sixteen lanes.
const LANES: c_uint = 16;
/// A trickle, KiB a second.
const THROUGHPUT_KIB_S: c_uint = 2048;

device_calls! {
    // Versions one and two end after the part that all share.
    fn nvmlDeviceGetPciInfo(target, pci: Out<PciLegacy>) { pci.set(legacy(target)) }
    fn nvmlDeviceGetPciInfo_v2(target, pci: Out<PciLegacy>) { pci.set(legacy(target)) }
    fn nvmlDeviceGetPciInfo_v3(target, pci: Out<Pci>) {
        pci.set(Pci { legacy: legacy(target), bus_id: address(target, 8) })
    }
    fn nvmlDeviceGetPciInfoExt(target, pci: Out<PciExt>) {
        let asked = pci.get()?;
        if asked.version != version_of::<PciExt>(1) {
            return Err(Code::ARGUMENT_VERSION_MISMATCH);
        }
        pci.set(PciExt {
            domain: 0,
            bus: target.gpu.pci_bus,
            device: 0,
            device_id: DEVICE_ID,
            subsystem_id: SUBSYSTEM_ID,
            base_class: CLASS.0,
            sub_class: CLASS.1,
            bus_id: address(target, 8),
            ..asked
        })
    }
    fn nvmlDeviceGetMaxPcieLinkGeneration(_target, generation: Out<c_uint>) { generation.set(GENERATION) }
    fn nvmlDeviceGetCurrPcieLinkGeneration(_target, generation: Out<c_uint>) { generation.set(GENERATION) }
    fn nvmlDeviceGetGpuMaxPcieLinkGeneration(_target, generation: Out<c_uint>) { generation.set(GENERATION) }
    fn nvmlDeviceGetMaxPcieLinkWidth(_target, lanes: Out<c_uint>) { lanes.set(LANES) }
    fn nvmlDeviceGetCurrPcieLinkWidth(_target, lanes: Out<c_uint>) { lanes.set(LANES) }
    fn nvmlDeviceGetPcieThroughput(target, _counter: c_uint, kib_s: Out<c_uint>) {
        target.whole()?;
        kib_s.set(THROUGHPUT_KIB_S)
    }
    fn nvmlDeviceGetPcieReplayCounter(target, replays: Out<c_uint>) { target.whole()?; replays.set(0) }
}

fn legacy(target: &Target<'_>) -> PciLegacy {
    PciLegacy {
        bus_id: address(target, 4),
        domain: 0,
        bus: target.gpu.pci_bus,
        device: 0,
        device_id: DEVICE_ID,
        subsystem_id: SUBSYSTEM_ID,
    }
}

/// The address in a zero-filled buffer, with so many digits for the domain.
fn address<const ROOM: usize>(target: &Target<'_>, digits: usize) -> [c_char; ROOM] {
    let text = format!("{:0digits$X}:{:02X}:00.0", 0, target.gpu.pci_bus);
    let mut buffer = [0; ROOM];
    // One byte less, so that a zero always ends it.
    for (place, byte) in buffer[..ROOM - 1].iter_mut().zip(text.bytes()) {
        *place = byte as c_char;
    }
    buffer
}
