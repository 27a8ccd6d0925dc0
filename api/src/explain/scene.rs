//! What a status says about one GPU, or about one process on it.

use ebbtide_core::{
    Bytes, Diagnosis, EngineLedger, Finding, FindingKind, Judgement, ProcKey, ProcSample, Reading, SeriesPart,
};

use super::About;
use super::words;
use crate::wire::{GpuStatus, Status};

/// The part of a status that an explanation is about.
pub(super) struct Scene<'a> {
    pub(super) status: &'a Status,
    pub(super) gpu: &'a GpuStatus,
    /// The process that is asked about; `None` for the whole GPU.
    pub(super) process: Option<&'a ProcSample>,
}

impl<'a> Scene<'a> {
    pub(super) fn of(status: &'a Status, about: &About) -> Option<Self> {
        let (About::Gpu(uuid) | About::Process(uuid, _)) = about;
        let gpu = status.gpus.iter().find(|gpu| gpu.gpu.uuid == *uuid)?;
        let process = match about {
            About::Gpu(_) => None,
            About::Process(_, key) => Some(entries(gpu).iter().find(|process| process.key == *key)?),
        };
        Some(Self { status, gpu, process })
    }

    pub(super) fn title(&self) -> String {
        let gpu = &self.gpu.gpu;
        match self.process {
            None => format!("GPU {} ({})", gpu.index, gpu.name),
            Some(process) => format!("{} on GPU {} ({})", words::process(process), gpu.index, gpu.name),
        }
    }

    /// The processes it is about, the largest first.
    pub(super) fn processes(&self) -> Vec<&'a ProcSample> {
        let mut all: Vec<_> = match self.process {
            Some(process) => vec![process],
            None => entries(self.gpu).iter().collect(),
        };
        all.sort_by_key(|process| (std::cmp::Reverse(process.memory.ok()), process.key));
        all
    }

    /// Those of them with a known engine, and what their memory is for.
    pub(super) fn engines(&self) -> Vec<(&'a ProcSample, EngineLedger)> {
        let of = |process: &'a ProcSample| Some((process, EngineLedger::of(process)?));
        self.processes().into_iter().filter_map(of).collect()
    }

    /// What it holds.
    pub(super) fn used(&self) -> Reading<Bytes> {
        self.process.map_or_else(|| self.gpu.gpu.memory.map(|memory| memory.used), |process| process.memory)
    }

    /// The part of the GPU's memory that it is about.
    pub(super) fn part(&self) -> SeriesPart {
        self.process.map_or(SeriesPart::Device, |process| SeriesPart::Process(process.key))
    }

    /// What is said of it.
    pub(super) fn judgement(&self) -> Option<&'a Judgement> {
        self.judgement_of(self.part())
    }

    pub(super) fn judgement_of(&self, part: SeriesPart) -> Option<&'a Judgement> {
        self.gpu.judgements.iter().find(|judgement| judgement.series.part == part)
    }

    /// The first judgement of one of these causes among the parts that it is about.
    pub(super) fn judged(&self, causes: &[Diagnosis]) -> Option<&'a Judgement> {
        let mut all = self.gpu.judgements.iter().filter(|judgement| self.concerns(judgement.series.part));
        all.find(|judgement| causes.contains(&judgement.diagnosis))
    }

    /// The most severe open finding of one of these kinds.
    pub(super) fn finding(&self, kinds: &[FindingKind]) -> Option<&'a Finding> {
        self.status.findings.iter().find(|finding| {
            let series = &finding.key.series;
            kinds.contains(&finding.key.kind) && series.gpu == self.gpu.gpu.uuid && self.concerns(series.part)
        })
    }

    fn concerns(&self, part: SeriesPart) -> bool {
        let of = |key: ProcKey| self.process.is_none_or(|process| process.key == key);
        match part {
            SeriesPart::Device | SeriesPart::Unattributed => self.process.is_none(),
            SeriesPart::Process(key) | SeriesPart::Host(key) => of(key),
        }
    }
}

/// The processes that a GPU lists.
pub(super) fn entries(gpu: &GpuStatus) -> &[ProcSample] {
    gpu.gpu.processes.as_ref().map_or(&[], |list| &list.entries)
}
