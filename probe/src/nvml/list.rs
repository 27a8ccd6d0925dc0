//! The driver's three process lists, made one.

use ebbtide_core::{Absent, Bytes, ProcKinds, Reading};

use super::account::NOT_AVAILABLE;
use crate::source::RawProcess;

/// Linux gives out no PID from here on (`PID_MAX_LIMIT`, 2^22 on 64-bit kernels).
const PID_LIMIT: u32 = 1 << 22;

/// Which list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListKind {
    /// Processes with a compute channel.
    Compute,
    /// Processes with a graphics channel.
    Graphics,
    /// Clients of an MPS server.
    Mps,
}

impl ListKind {
    /// In the order in which they are read.
    pub(super) const ALL: [Self; 3] = [Self::Compute, Self::Graphics, Self::Mps];

    /// The kinds of a process that stands in this list alone.
    const fn kinds(self) -> ProcKinds {
        let none = ProcKinds { compute: false, graphics: false, mps: false };
        match self {
            Self::Compute => ProcKinds { compute: true, ..none },
            Self::Graphics => ProcKinds { graphics: true, ..none },
            Self::Mps => ProcKinds { mps: true, ..none },
        }
    }
}

/// One record of one list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) pid: u32,
    pub(super) bytes: u64,
}

impl Record {
    /// Whether the record can be one: records of another size than ours, which some drivers wrote, show as PIDs
    /// that no kernel gives out.
    pub(super) const fn is_plausible(self) -> bool {
        self.pid > 0 && self.pid < PID_LIMIT
    }

    fn memory(self, total: Option<Bytes>) -> Reading<Bytes> {
        let possible = total.is_none_or(|total| self.bytes <= total.0);
        if self.bytes == NOT_AVAILABLE || !possible {
            return Err(Absent::NotSupported);
        }
        Ok(Bytes(self.bytes))
    }
}

/// Adds the records of one list to those of the others. More bytes than `total` are nobody's.
pub(super) fn append(
    entries: &mut Vec<RawProcess>,
    kind: ListKind,
    records: impl Iterator<Item = Record>,
    total: Option<Bytes>,
) {
    let kinds = kind.kinds();
    entries.extend(records.map(|r| RawProcess { pid: r.pid, memory: r.memory(total), kinds }));
}

/// Each PID once, ordered, with the largest memory that any list gave: the lists repeat each other's memory, so a
/// sum would count it twice.
pub(super) fn merge(entries: &mut Vec<RawProcess>) {
    entries.sort_unstable_by_key(|p| p.pid);
    entries.dedup_by(|next, kept| {
        let same = next.pid == kept.pid;
        if same {
            kept.memory = largest(kept.memory, next.memory);
            kept.kinds.compute |= next.kinds.compute;
            kept.kinds.graphics |= next.kinds.graphics;
            kept.kinds.mps |= next.kinds.mps;
        }
        same
    });
}

fn largest(a: Reading<Bytes>, b: Reading<Bytes>) -> Reading<Bytes> {
    match (a, b) {
        (Ok(a), Ok(b)) => Ok(a.max(b)),
        (known @ Ok(_), Err(_)) | (Err(_), known) => known,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn record(pid: u32, bytes: u64) -> Record {
        Record { pid, bytes }
    }

    #[test]
    fn a_process_in_two_lists_is_one_with_the_larger_memory() {
        let mut entries = Vec::new();
        let total = Some(Bytes(1_000));
        append(
            &mut entries,
            ListKind::Compute,
            [record(7, 100), record(3, NOT_AVAILABLE)].into_iter(),
            total,
        );
        append(&mut entries, ListKind::Graphics, [record(7, 140), record(3, 5)].into_iter(), total);
        append(&mut entries, ListKind::Mps, [record(9, 2_000)].into_iter(), total);
        merge(&mut entries);
        let both = ProcKinds { compute: true, graphics: true, mps: false };
        assert_eq!(
            entries,
            [
                RawProcess { pid: 3, memory: Ok(Bytes(5)), kinds: both },
                RawProcess { pid: 7, memory: Ok(Bytes(140)), kinds: both },
                RawProcess { pid: 9, memory: Err(Absent::NotSupported), kinds: ListKind::Mps.kinds() },
            ]
        );
    }

    #[test]
    fn pids_that_no_kernel_gives_out_are_implausible() {
        assert!(!record(0, 1).is_plausible() && !record(PID_LIMIT, 1).is_plausible());
        assert!(record(1, 1).is_plausible() && record(PID_LIMIT - 1, 1).is_plausible());
    }

    proptest! {
        #[test]
        fn every_pid_appears_once_with_its_largest_memory(
            lists in proptest::collection::vec(proptest::collection::vec((1u32..40, 0u64..1_000), 0..40), 3),
        ) {
            let mut entries = Vec::new();
            let mut expected: BTreeMap<u32, u64> = BTreeMap::new();
            for (kind, list) in ListKind::ALL.into_iter().zip(&lists) {
                append(&mut entries, kind, list.iter().map(|&(pid, bytes)| record(pid, bytes)), None);
                for &(pid, bytes) in list {
                    let most = expected.entry(pid).or_default();
                    *most = bytes.max(*most);
                }
            }
            merge(&mut entries);
            let merged: Vec<(u32, u64)> = entries.iter().map(|p| (p.pid, p.memory.unwrap().0)).collect();
            prop_assert_eq!(merged, expected.into_iter().collect::<Vec<_>>());
        }
    }
}
