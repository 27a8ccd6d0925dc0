//! What is shown after a step.

use ebbtide_api::wire::{GpuStatus, Health, Level, SCHEMA, Status};
use ebbtide_core::{Finding, Frame, GpuState, Ledger, Sample};

use super::Pipeline;

impl Pipeline {
    /// The status after `frame`; of the daemon's own health only the probe's part.
    pub(super) fn status(&self, frame: Frame) -> Status {
        let Frame { sample, ledgers } = frame;
        let Sample { tick, gpus, host, probe, .. } = sample;
        // A device's own finding says nothing beside that of the part it comes from.
        let mut findings: Vec<Finding> = self
            .open
            .iter()
            .filter(|(key, _)| !self.is_told_by_a_part(key))
            .map(|(_, f)| f.clone())
            .collect();
        findings.sort_by(|a, b| b.severity.cmp(&a.severity).then_with(|| a.key.cmp(&b.key)));
        let gpus: Vec<GpuStatus> = gpus
            .into_iter()
            .zip(ledgers)
            .map(|(gpu, now)| GpuStatus {
                ledger: self.claimed_ledger(&gpu.uuid, now),
                judgements: self.detectors.judgements(&gpu.uuid),
                gpu,
            })
            .collect();
        Status {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            host: self.host.clone(),
            tick,
            level: level(&gpus, &findings),
            gpus,
            machine: host,
            findings,
            alerts: self.policy.alerts().cloned().collect(),
            health: Health { probe, ..Health::default() },
        }
    }

    fn claimed_ledger(&self, gpu: &ebbtide_core::GpuUuid, now: Ledger) -> Ledger {
        self.ledgers.get(gpu).cloned().unwrap_or(now)
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
