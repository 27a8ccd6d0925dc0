//! Sample in, effects out: live view, replay of history and backtest of a file all go through here.
//!
//! Synchronous, deterministic, no I/O, no clock: the same samples give the same effects. Whoever drives it executes
//! the effects.

mod detectors;
mod endings;
mod status;
mod timeline;

use std::collections::BTreeMap;

use ebbtide_core::{
    Alert, AlertEvent, Finding, FindingEvent, FindingKey, Frame, GpuUuid, Incident, Ledger, Sample,
    SeriesPart, Tick, TickRecord,
};
use ebbtide_detect::DetectConfig;
use ebbtide_notify::{Policy, PolicyConfig};

use crate::record::Recorder;
use detectors::Detectors;
use endings::Endings;
use timeline::Timeline;

/// What the pipeline is told.
#[derive(Debug, Clone)]
pub enum Input {
    /// The world was read.
    Sample(Sample),
}

/// What is to be done because of it.
#[derive(Debug, Clone)]
pub enum Effect {
    /// Keep this tick.
    Persist(TickRecord),
    /// Keep what happened to a finding.
    Record(FindingEvent),
    /// Keep this, and tell people.
    Deliver(AlertEvent),
    /// Keep this end of a process, with the ticks before it.
    Freeze(Box<Incident>),
}

/// What an earlier run left behind.
#[derive(Debug, Default)]
pub struct Past {
    /// Findings that were open.
    pub findings: Vec<Finding>,
    /// Alerts that were pending or firing.
    pub alerts: Vec<Alert>,
}

/// How the pipeline decides.
#[derive(Debug, Clone, Default)]
pub struct PipelineConfig {
    /// Name of the machine.
    pub host: String,
    /// How memory is judged.
    pub detect: DetectConfig,
    /// When people are told.
    pub policy: PolicyConfig,
}

/// The one task that derives, judges and decides.
pub struct Pipeline {
    host: String,
    detectors: Detectors,
    policy: Policy,
    recorder: Recorder,
    timeline: Timeline,
    endings: Endings,
    open: BTreeMap<FindingKey, Finding>,
    /// Findings that an earlier run left open: they keep the time they opened at, for it is part of their identity.
    /// What resolves and opens again during a replay is among them still, for to that run it never resolved.
    opened_before: BTreeMap<FindingKey, Finding>,
    ledgers: BTreeMap<GpuUuid, Ledger>,
    last: Option<Tick>,
    /// The frame of the newest step, for whoever wants to see it.
    newest: Option<Frame>,
}

impl Pipeline {
    /// A pipeline that has seen nothing.
    #[must_use]
    pub fn new(config: PipelineConfig) -> Self {
        Self {
            host: config.host,
            detectors: Detectors::new(config.detect),
            policy: Policy::new(config.policy),
            recorder: Recorder::default(),
            timeline: Timeline::default(),
            endings: Endings::default(),
            open: BTreeMap::new(),
            opened_before: BTreeMap::new(),
            ledgers: BTreeMap::new(),
            last: None,
            newest: None,
        }
    }

    /// Takes up where an earlier run stopped: what was open, before its samples are replayed.
    pub fn restore(&mut self, past: Past) {
        self.opened_before = past.findings.into_iter().map(|f| (f.key.clone(), f)).collect();
        self.policy.restore(past.alerts);
    }

    /// Feeds a sample of an earlier run to the detectors, without telling anybody.
    pub fn replay(&mut self, sample: Sample) {
        let frame = self.frame(sample);
        for event in self.detectors.observe(&frame) {
            self.keep(event);
        }
    }

    /// Ends the replay and says what has changed by it. A restart neither repeats an alert nor forgets one. Where
    /// there was nothing to replay, the first live step says it.
    pub fn go_live(&mut self) -> Vec<Effect> {
        self.last.map_or_else(Vec::new, |tick| self.settle(tick))
    }

    /// One step.
    pub fn step(&mut self, input: Input) -> Vec<Effect> {
        let Input::Sample(sample) = input;
        let is_first = self.last.is_none();
        let frame = self.frame(sample);
        let tick = frame.sample.tick;
        let mut effects = vec![Effect::Persist(self.recorder.record(&frame))];
        let incidents = self.endings.note(&frame, &self.open);
        effects.extend(incidents.into_iter().map(|incident| Effect::Freeze(Box::new(incident))));
        // All are entered before any is told: a device's finding comes before that of the process that explains it.
        let events: Vec<FindingEvent> =
            self.detectors.observe(&frame).into_iter().map(|event| self.keep(event)).collect();
        for event in events {
            let key = &event.finding().key;
            let has_resolved = matches!(event, FindingEvent::Resolved(_));
            if has_resolved {
                self.opened_before.remove(key);
            }
            if has_resolved || !self.is_told_by_a_part(key) {
                effects.extend(self.policy.on_finding(&event, tick).into_iter().map(Effect::Deliver));
            }
            effects.push(Effect::Record(event));
        }
        if is_first {
            effects.extend(self.settle(tick));
        }
        effects.extend(self.policy.on_tick(tick).into_iter().map(Effect::Deliver));
        self.newest = Some(frame);
        effects
    }

    fn frame(&mut self, mut sample: Sample) -> Frame {
        sample.tick = self.timeline.place(sample.tick);
        for list in sample.gpus.iter_mut().filter_map(|gpu| gpu.processes.as_mut().ok()) {
            if list.listed.seq == sample.tick.seq {
                list.listed = sample.tick;
            }
        }
        self.last = Some(sample.tick);
        let frame = Frame::of(sample);
        for (gpu, ledger) in frame.sample.gpus.iter().zip(&frame.ledgers) {
            let claimed = ledger.balances().is_some();
            if claimed || self.ledgers.get(&gpu.uuid).is_none_or(|kept| kept.balances().is_none()) {
                self.ledgers.insert(gpu.uuid.clone(), ledger.clone());
            }
        }
        if self.ledgers.len() > frame.ledgers.len() {
            self.ledgers.retain(|uuid, _| frame.sample.gpus.iter().any(|gpu| gpu.uuid == *uuid));
        }
        frame
    }

    /// Enters an event into what is open, under the time at which the finding first opened.
    fn keep(&mut self, mut event: FindingEvent) -> FindingEvent {
        let (FindingEvent::Opened(finding)
        | FindingEvent::Updated(finding)
        | FindingEvent::Resolved(finding)) = &mut event;
        if let Some(before) = self.opened_before.get(&finding.key) {
            finding.opened_at = before.opened_at;
        }
        let finding = finding.clone();
        if matches!(event, FindingEvent::Resolved(_)) {
            self.open.remove(&finding.key);
        } else {
            self.open.insert(finding.key.clone(), finding);
        }
        event
    }

    /// The same growth shows in a process and in the device that holds it: people are told once, with the process.
    fn is_told_by_a_part(&self, FindingKey { series, kind }: &FindingKey) -> bool {
        series.part == SeriesPart::Device
            && self.open.keys().any(|key| {
                let is_part = matches!(key.series.part, SeriesPart::Process(_) | SeriesPart::Unattributed);
                is_part && key.kind == *kind && key.series.gpu == series.gpu
            })
    }

    /// After a replay: what was open and is no longer has resolved; what is open goes to policy as it stands.
    fn settle(&mut self, tick: Tick) -> Vec<Effect> {
        let mut effects: Vec<Effect> =
            self.open.values().cloned().map(FindingEvent::Opened).map(Effect::Record).collect();
        let (open, before) = (&self.open, std::mem::take(&mut self.opened_before));
        let (still, gone): (BTreeMap<_, _>, BTreeMap<_, _>) =
            before.into_iter().partition(|(key, _)| open.contains_key(key));
        self.opened_before = still;
        for mut finding in gone.into_values() {
            finding.resolved_at = Some(tick.at);
            effects.push(Effect::Record(FindingEvent::Resolved(finding)));
        }
        let told: Vec<Finding> =
            self.open.values().filter(|finding| !self.is_told_by_a_part(&finding.key)).cloned().collect();
        effects.extend(self.policy.reconcile(&told, tick).into_iter().map(Effect::Deliver));
        effects
    }
}

#[cfg(test)]
mod tests;
