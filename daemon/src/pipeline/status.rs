//! What is shown after a step.

use ebbtide_api::wire::{GpuStatus, Health, Level, SCHEMA, Status};
use ebbtide_core::{Finding, Frame, GpuState, Judgement};

use super::Pipeline;

impl Pipeline {
    /// The status after the newest step, made of words and copies, so ask for it only to show it; `None` before the
    /// first. Of the daemon's own health it has the probe's part.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        let Frame { sample, ledgers } = self.newest.as_ref()?;
        // A device's own finding says nothing beside that of the part it comes from.
        let mut findings: Vec<Finding> = self
            .open
            .iter()
            .filter(|(key, _)| !self.is_told_by_a_part(key))
            .map(|(_, f)| f.clone())
            .collect();
        findings.sort_by(|a, b| b.severity.cmp(&a.severity).then_with(|| a.key.cmp(&b.key)));
        let gpus = sample.gpus.iter().zip(ledgers).map(|(gpu, now)| GpuStatus {
            ledger: self.ledgers.get(&gpu.uuid).unwrap_or(now).clone(),
            judgements: self.detectors.judgements(&gpu.uuid),
            gpu: gpu.clone(),
        });
        let gpus: Vec<GpuStatus> = gpus.collect();
        Some(Status {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            host: self.host.clone(),
            tick: sample.tick,
            level: level(&gpus, &findings),
            gpus,
            machine: sample.host.clone(),
            findings,
            alerts: self.policy.alerts().cloned().collect(),
            health: Health { probe: sample.probe.clone(), ..Health::default() },
        })
    }

    /// What is said of every series now.
    #[must_use]
    pub fn judgements(&self) -> Vec<Judgement> {
        let gpus = self.newest.iter().flat_map(|frame| &frame.sample.gpus);
        gpus.flat_map(|gpu| self.detectors.judgements(&gpu.uuid)).collect()
    }
}

/// The worst of what is open; a lost GPU is as bad as it gets, one that does not answer is worth a look, and without
/// any reading nothing is known.
fn level(gpus: &[GpuStatus], findings: &[Finding]) -> Level {
    if gpus.iter().any(|g| g.gpu.state == GpuState::Lost) {
        return Level::Critical;
    }
    if gpus.iter().all(|g| g.gpu.memory.is_err()) {
        return Level::Unknown;
    }
    let silent = gpus.iter().any(|g| g.gpu.state == GpuState::Stale).then_some(Level::Warning);
    let worst = findings.iter().map(|finding| Level::from(finding.severity)).max();
    silent.max(worst).unwrap_or(Level::Ok)
}
