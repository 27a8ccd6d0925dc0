//! Which processes are ranks of one tensor-parallel group, told by how engines title their workers
//! (`VLLM::Worker_TP0`, `sglang::scheduler_TP1`).

use ebbtide_core::{Absent, Bytes, GpuSample, Owner, ProcInfo, ProcSample, Reading, Sample};

/// A rank: its group, and its number in it.
#[derive(Debug, PartialEq, Eq)]
struct Rank<'a> {
    owner: &'a Owner,
    /// The title before the number: stages of a pipeline and replicas stand in it and are groups of their own.
    title: &'a str,
    number: &'a str,
}

impl<'a> Rank<'a> {
    fn of(info: &'a ProcInfo) -> Option<Self> {
        // The kernel cuts a name to 15 bytes, which may cost it its number; a worker's title replaces its command line.
        let named = |text: &'a Reading<String>| {
            let text = text.as_ref().ok()?.split_whitespace().next()?;
            let (title, rest) = text.rsplit_once("TP")?;
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            (digits > 0).then(|| Self { owner: &info.owner, title, number: &rest[..digits] })
        };
        named(&info.command).or_else(|| named(&info.name))
    }
}

/// What the other ranks of the group of `process` hold: the median. Absent where it is no rank, is alone, or one of them
/// cannot be read, and where two bear one number: then they are of two engines, and nobody knows which.
pub(super) fn peers(sample: &Sample, gpu: &GpuSample, process: &ProcSample) -> Reading<Bytes> {
    let own = Rank::of(&process.info).ok_or(Absent::NotSupported)?;
    let mut numbers = vec![own.number];
    let mut held = Vec::new();
    for (other, process) in sample.gpus.iter().filter(|other| other.uuid != gpu.uuid).flat_map(entries) {
        let Some(rank) = Rank::of(&process.info) else { continue };
        if (rank.owner, rank.title) != (own.owner, own.title) {
            continue;
        }
        if numbers.contains(&rank.number) || other.kind != gpu.kind {
            return Err(Absent::NotSupported);
        }
        numbers.push(rank.number);
        held.push(process.memory?);
    }
    held.sort_unstable();
    held.get(held.len() / 2).copied().ok_or(Absent::NotSupported)
}

fn entries(gpu: &GpuSample) -> impl Iterator<Item = (&GpuSample, &ProcSample)> {
    let list = gpu.processes.as_ref().map_or(&[][..], |list| list.entries.as_slice());
    list.iter().map(move |process| (gpu, process))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn titled(command: &str, name: &str) -> ProcInfo {
        ProcInfo {
            command: Ok(command.to_owned()),
            name: Ok(name.to_owned()),
            ..ProcInfo::absent(Absent::NotSupported)
        }
    }

    #[test]
    fn a_worker_is_known_by_its_title_and_nobody_else_is_a_rank() {
        let rank = |command: &str, name: &str| {
            let info = titled(command, name);
            Rank::of(&info).map(|rank| (rank.title.to_owned(), rank.number.to_owned()))
        };
        let found = |title: &str, number: &str| Some((title.to_owned(), number.to_owned()));
        assert_eq!(rank("VLLM::Worker_TP3", "VLLM::Worker_TP"), found("VLLM::Worker_", "3"));
        assert_eq!(rank("VLLM::Worker_PP1_TP0_EP0", ""), found("VLLM::Worker_PP1_", "0"));
        assert_eq!(rank("python -m x", "sglang_TP12"), found("sglang_", "12"));
        assert_eq!(rank("python serve.py --TP 4", "python"), None);
        assert_eq!(rank("/usr/bin/HTTPd", "HTTPd"), None);
    }
}
