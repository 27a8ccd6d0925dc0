//! Every byte of a GPU has an owner.
//!
//! `total = free + driver_reserved + sum(processes) + unattributed`. `unattributed` is signed: managed memory,
//! contexts of foreign namespaces and orphans make it positive; memory shared between processes, which the driver
//! counts twice, makes it negative.

use serde::{Deserialize, Serialize};

use crate::engine_ledger::EngineLedger;
use crate::reading::{self, Absent, Reading};
use crate::sample::GpuSample;
use crate::units::{Bytes, SignedBytes, Tick};

/// Who holds a GPU's memory at one instant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    /// The instant that all terms belong to.
    pub tick: Tick,
    /// All memory of the device.
    #[serde(with = "reading")]
    pub total: Reading<Bytes>,
    /// Nobody's.
    #[serde(with = "reading")]
    pub free: Reading<Bytes>,
    /// The driver's and the firmware's.
    #[serde(with = "reading")]
    pub driver_reserved: Reading<Bytes>,
    /// The sum over listed processes.
    #[serde(with = "reading")]
    pub processes: Reading<Bytes>,
    /// What no term explains. Absent where any term is.
    #[serde(with = "reading")]
    pub unattributed: Reading<SignedBytes>,
    /// Terms that are absent: while there are any, the identity is not claimed.
    pub missing: Vec<Term>,
    /// What the memory of each process with a known engine is for, as the newest list has it and in its order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub engines: Vec<EngineLedger>,
}

/// A term of the ledger's identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Term {
    /// The device's total and free memory.
    Device,
    /// What driver and firmware reserve.
    DriverReserved,
    /// The list of processes, or the list of this very tick.
    Processes,
    /// The memory of at least one listed process.
    ProcessMemory,
}

impl Ledger {
    /// The ledger of one GPU at `tick`.
    ///
    /// A process list that is older than the memory figures is no term of this instant, so the ledger then names
    /// [`Term::Processes`] as missing instead of inventing a remainder.
    #[must_use]
    pub fn of(gpu: &GpuSample, tick: Tick) -> Self {
        let device = gpu.memory;
        let processes = process_sum(gpu, tick);
        let reserved = device.and_then(|m| m.reserved);
        let mut missing = Vec::new();
        if device.is_err() {
            missing.push(Term::Device);
        }
        if reserved.is_err() {
            missing.push(Term::DriverReserved);
        }
        if let Err((term, _)) = processes {
            missing.push(term);
        }
        let processes = processes.map_err(|(_, why)| why);
        Self {
            tick,
            total: device.map(|m| m.total),
            free: device.map(|m| m.free),
            driver_reserved: reserved,
            processes,
            unattributed: unattributed(device.map(|m| (m.total, m.free)), reserved, processes),
            missing,
            engines: engines(gpu),
        }
    }

    /// Whether the terms add up; `None` while one is missing.
    #[must_use]
    pub fn balances(&self) -> Option<bool> {
        let (Ok(total), Ok(free), Ok(reserved), Ok(processes), Ok(rest)) =
            (self.total, self.free, self.driver_reserved, self.processes, self.unattributed)
        else {
            return None;
        };
        let sum = i128::from(free.0) + i128::from(reserved.0) + i128::from(processes.0) + i128::from(rest.0);
        Some(sum == i128::from(total.0))
    }
}

fn engines(gpu: &GpuSample) -> Vec<EngineLedger> {
    let entries = gpu.processes.as_ref().map_or(&[][..], |list| &list.entries);
    entries.iter().filter_map(EngineLedger::of).collect()
}

fn process_sum(gpu: &GpuSample, tick: Tick) -> Result<Bytes, (Term, Absent)> {
    let list = gpu.processes.as_ref().map_err(|&why| (Term::Processes, why))?;
    if list.listed.seq != tick.seq {
        return Err((Term::Processes, Absent::NotYet));
    }
    list.entries.iter().map(|p| p.memory.map_err(|why| (Term::ProcessMemory, why))).sum()
}

fn unattributed(
    device: Reading<(Bytes, Bytes)>,
    reserved: Reading<Bytes>,
    processes: Reading<Bytes>,
) -> Reading<SignedBytes> {
    let ((total, free), reserved, processes) = (device?, reserved?, processes?);
    let rest = i128::from(total.0) - i128::from(free.0) - i128::from(reserved.0) - i128::from(processes.0);
    i64::try_from(rest).map(SignedBytes).map_err(|_| Absent::NotSupported)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{GpuUuid, ProcKey};
    use crate::sample::*;
    use proptest::prelude::*;
    use std::sync::Arc;

    fn gpu(memory: Reading<DeviceMemory>, processes: Vec<Reading<Bytes>>, listed: u64) -> GpuSample {
        let entry = |(pid, memory): (usize, Reading<Bytes>)| ProcSample {
            key: ProcKey { pid: pid as u32 + 1, start_ticks: Some(1) },
            memory,
            kinds: ProcKinds::default(),
            liveness: Liveness::Alive,
            info: Arc::new(ProcInfo::absent(Absent::NotYet)),
            rss: Err(Absent::NotYet),
            host_limit: Err(Absent::NotSupported),
            engine: None,
        };
        GpuSample {
            uuid: GpuUuid::new("GPU-0"),
            index: 0,
            name: "test".into(),
            kind: GpuKind::Discrete,
            state: GpuState::Present,
            memory,
            utilization: Err(Absent::NotYet),
            processes: Ok(ProcessList {
                listed: Tick { seq: listed, ..Tick::default() },
                entries: processes.into_iter().enumerate().map(entry).collect(),
            }),
            holders: Vec::new(),
        }
    }

    fn device(total: u64, free: u64, reserved: Reading<Bytes>) -> DeviceMemory {
        DeviceMemory {
            total: Bytes(total),
            used: Bytes(total).saturating_sub(Bytes(free)),
            free: Bytes(free),
            reserved,
            source: MemorySource::NvmlV2,
        }
    }

    fn tick(seq: u64) -> Tick {
        Tick { seq, ..Tick::default() }
    }

    proptest! {
        /// Any figures the driver may give, shared and double-counted memory included.
        #[test]
        fn all_terms_together_give_the_total(
            total in 0u64..1 << 48, free in 0u64..1 << 48, reserved in 0u64..1 << 40,
            processes in proptest::collection::vec(0u64..1 << 46, 0..40),
        ) {
            let processes = processes.into_iter().map(|b| Ok(Bytes(b))).collect();
            let ledger = Ledger::of(&gpu(Ok(device(total, free, Ok(Bytes(reserved)))), processes, 7), tick(7));
            prop_assert_eq!(ledger.balances(), Some(true));
            prop_assert!(ledger.missing.is_empty());
        }

        /// Whatever term is absent, no identity is claimed and the term is named.
        #[test]
        fn an_absent_term_is_named_and_nothing_is_claimed(which in 0usize..4) {
            let memory = if which == 0 {
                Err(Absent::DeviceLost)
            } else {
                Ok(device(100, 40, if which == 1 { Err(Absent::NotSupported) } else { Ok(Bytes(5)) }))
            };
            let process = if which == 2 { Err(Absent::NotSupported) } else { Ok(Bytes(30)) };
            let listed = if which == 3 { 6 } else { 7 };
            let ledger = Ledger::of(&gpu(memory, vec![process], listed), tick(7));
            let named = [Term::Device, Term::DriverReserved, Term::ProcessMemory, Term::Processes][which];
            prop_assert_eq!(ledger.balances(), None);
            prop_assert!(ledger.unattributed.is_err());
            prop_assert!(ledger.missing.contains(&named));
        }
    }

    #[test]
    fn memory_counted_twice_makes_the_rest_negative() {
        let ledger = Ledger::of(
            &gpu(Ok(device(100, 40, Ok(Bytes(0)))), vec![Ok(Bytes(50)), Ok(Bytes(50))], 1),
            tick(1),
        );
        assert_eq!(ledger.unattributed, Ok(SignedBytes(-40)));
    }
}
