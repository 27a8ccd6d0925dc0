//! A card's account adds up, whatever the scenario says of it.

use ebbtide_core::Bytes;
use ebbtide_testkit::{Curve, FakeDriver, Gpu, Process, Scenario};
use nvml_wrapper::Nvml;
use proptest::prelude::*;

proptest! {
    // Each case waits for the next millisecond of the wall clock, so that the library sees its file.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn total_is_free_and_used_and_reserved(
        total in 0_u64..1 << 40,
        reserved in 0_u64..1 << 32,
        held in prop::collection::vec(0_u64..1 << 39, 0..5),
        (nobodys, shared) in (0_u64..1 << 36, 0_u64..1 << 36),
    ) {
        let curve = |bytes| Curve::Constant(Bytes(bytes));
        let bare = Gpu::h100(0).memory(Bytes(total), Bytes(reserved)).unattributed(curve(nobodys)).shared(curve(shared));
        let gpu = (1..).zip(&held).fold(bare, |gpu, (pid, bytes)| gpu.process(Process::compute(pid, curve(*bytes))));
        let driver = FakeDriver::new(&Scenario::new().gpu(gpu)).unwrap();
        let nvml = Nvml::builder().lib_path(driver.library_path().as_os_str()).init().unwrap();
        let memory = nvml.device_by_index(0).unwrap().memory_info().unwrap();
        prop_assert_eq!(memory.total, total);
        let reserved = memory.reserved.min(total);
        prop_assert_eq!(memory.free + memory.used + reserved, total);
        let fits = (held.iter().sum::<u64>() + nobodys).saturating_sub(shared);
        prop_assert_eq!(memory.used, fits.min(total - reserved));
    }
}
