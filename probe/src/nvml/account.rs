//! Device memory as ebbtide counts it, from what the driver says in either of its two accounts.

use ebbtide_core::{Absent, Bytes, DeviceMemory, MemorySource, Reading};

/// Figures of one device that are not read atomically may miss their sum by this much.
const SLACK: u64 = 16 << 20;

/// The driver's "not available" for an amount: all ones.
pub(super) const NOT_AVAILABLE: u64 = u64::MAX;

/// What the driver said of a device's memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Figures {
    pub(super) total: u64,
    pub(super) used: u64,
    pub(super) free: u64,
    /// `None` from version 1, which does not tell it apart from used.
    pub(super) reserved: Option<u64>,
}

impl Figures {
    /// Whether the driver keeps no account of its own, as parts with unified memory do.
    pub(super) const fn is_empty(self) -> bool {
        self.total == 0
    }

    /// The device's memory, `used` without reserved where reserved is known.
    ///
    /// NVIDIA's texts disagree whether version 2 counts reserved into used (yes in those of R525, no in nvml.h of
    /// R590 and in practice), so the sum that equals the total decides. Where neither does, reserved is absent
    /// rather than guessed at. Figures that no device can have are absent too.
    pub(super) fn memory(self) -> Reading<DeviceMemory> {
        let Self { total, used, free, .. } = self;
        if total == NOT_AVAILABLE || total == 0 || used > total || free > total {
            return Err(Absent::NotSupported);
        }
        let (used, reserved) = match self.reserved {
            None => (used, Err(Absent::NotSupported)),
            Some(reserved) if reserved > total => (used, Err(Absent::NotSupported)),
            Some(reserved) => self.split(reserved),
        };
        Ok(DeviceMemory {
            total: Bytes(total),
            used: Bytes(used),
            free: Bytes(free),
            reserved: reserved.map(Bytes),
            source: if self.reserved.is_some() { MemorySource::NvmlV2 } else { MemorySource::NvmlV1 },
        })
    }

    fn split(self, reserved: u64) -> (u64, Reading<u64>) {
        let miss = |sum: u128| sum.abs_diff(u128::from(self.total));
        let held = u128::from(self.used) + u128::from(self.free);
        let (apart, within) = (miss(held + u128::from(reserved)), miss(held));
        if apart <= within && apart <= u128::from(SLACK) {
            return (self.used, Ok(reserved));
        }
        if within <= u128::from(SLACK) && reserved <= self.used {
            return (self.used - reserved, Ok(reserved));
        }
        (self.used, Err(Absent::NotSupported))
    }
}

/// The memory of a part that shares the host's: what its processes hold, within the host's total.
///
/// `MemTotal - MemAvailable` is no substitute: it counts what everybody else on the host holds.
pub(super) fn unified(host_total: Reading<Bytes>, processes: Reading<Bytes>) -> Reading<DeviceMemory> {
    let (total, used) = (host_total?, processes?);
    Ok(DeviceMemory {
        total,
        used,
        free: total.saturating_sub(used),
        reserved: Err(Absent::NotSupported),
        source: MemorySource::ProcessSum,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GIB: u64 = 1 << 30;

    fn v2(total: u64, used: u64, free: u64, reserved: u64) -> Reading<DeviceMemory> {
        Figures { total, used, free, reserved: Some(reserved) }.memory()
    }

    #[test]
    fn used_excludes_reserved_whichever_way_the_driver_counts() {
        let apart = v2(80 * GIB, 10 * GIB, 69 * GIB, GIB).unwrap();
        let within = v2(80 * GIB, 11 * GIB, 69 * GIB, GIB).unwrap();
        assert_eq!(apart, within);
        assert_eq!(apart.used, Bytes(10 * GIB));
    }

    #[test]
    fn reserved_is_absent_where_no_sum_fits_and_where_version_1_hides_it() {
        let odd = v2(80 * GIB, 10 * GIB, 20 * GIB, GIB).unwrap();
        assert_eq!((odd.used, odd.reserved), (Bytes(10 * GIB), Err(Absent::NotSupported)));
        let old = Figures { total: 10, used: 4, free: 6, reserved: None }.memory().unwrap();
        assert_eq!((old.reserved, old.source), (Err(Absent::NotSupported), MemorySource::NvmlV1));
    }

    #[test]
    fn figures_that_cannot_be_are_absent() {
        for (total, used, free) in [(0, 0, 0), (u64::MAX, 1, 1), (10, u64::MAX, 1), (10, 11, 0), (10, 1, 11)]
        {
            assert_eq!(v2(total, used, free, 0), Err(Absent::NotSupported));
        }
    }

    proptest! {
        /// Whichever of the two conventions the driver follows, the identity holds and the split is the same.
        #[test]
        fn the_identity_holds_under_both_conventions(
            used in 0u64..1 << 38, free in 0u64..1 << 38, reserved in 0u64..1 << 33, within: bool,
        ) {
            let total = used + free + reserved;
            prop_assume!(total > 0);
            let said = if within { used + reserved } else { used };
            let memory = v2(total, said, free, reserved).unwrap();
            let known = memory.reserved.unwrap();
            // Below the slack the two conventions cannot be told apart, and need not be.
            if reserved > 2 * SLACK {
                prop_assert_eq!((memory.used, known), (Bytes(used), Bytes(reserved)));
            }
            let sum = memory.used.0 + memory.free.0 + known.0;
            prop_assert!(sum.abs_diff(total) <= SLACK);
        }
    }
}
