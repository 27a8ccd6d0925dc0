//! The pipeline as its drivers use it: live, restarted, replayed.

use std::sync::Arc;

use ebbtide_core::{
    Absent, AlertTransition, Bytes, DeviceMemory, FindingKind, GpuKind, GpuSample, GpuState, HostSample,
    Liveness, MemorySource, Percent, ProbeHealth, ProcInfo, ProcKey, ProcKinds, ProcSample, ProcessList, Ts,
};

use super::*;
use crate::record::Replayer;

mod pages;

const MIB: u64 = 1 << 20;
const STEP_MS: u64 = 1_000;

/// A card of 80 GiB whose one process holds 20 GiB and from `leak_from` on 4 MiB more each second.
pub(super) fn sample(second: u64, leak_from: u64) -> Sample {
    let tick = Tick {
        seq: second + 1,
        at: Ts(1_790_000_000_000 + (second * STEP_MS) as i64),
        mono_ms: second * STEP_MS,
    };
    let held = Bytes((20 * 1024 + second.saturating_sub(leak_from) * 4) * MIB);
    let total = Bytes(80 * 1024 * MIB);
    let process = ProcSample {
        key: ProcKey { pid: 4711, start_ticks: Some(1) },
        memory: Ok(held),
        kinds: ProcKinds { compute: true, ..ProcKinds::default() },
        liveness: Liveness::Alive,
        info: Arc::new(ProcInfo { name: Ok("vllm".to_owned()), ..ProcInfo::absent(Absent::NotYet) }),
        rss: Err(Absent::NotYet),
        host_limit: Err(Absent::NotSupported),
        engine: None,
    };
    let gpu = GpuSample {
        uuid: GpuUuid::new("GPU-1"),
        index: 0,
        name: "card".into(),
        kind: GpuKind::Discrete,
        state: GpuState::Present,
        memory: Ok(DeviceMemory {
            total,
            used: held,
            free: total.saturating_sub(held),
            reserved: Ok(Bytes::ZERO),
            source: MemorySource::NvmlV2,
        }),
        utilization: Ok(Percent(90)),
        processes: Ok(ProcessList { listed: tick, entries: vec![process] }),
        holders: Vec::new(),
    };
    Sample {
        tick,
        gpus: vec![gpu],
        host: HostSample { total: Err(Absent::NotYet), available: Err(Absent::NotYet) },
        events: Vec::new(),
        endings: Vec::new(),
        probe: ProbeHealth::default(),
    }
}

/// A quarter of an hour of calm, then the leak.
const CALM_S: u64 = 900;

pub(super) fn new() -> Pipeline {
    Pipeline::new(PipelineConfig { host: "test".to_owned(), ..PipelineConfig::default() })
}

/// All effects of the seconds in `span`.
fn play(pipeline: &mut Pipeline, span: std::ops::Range<u64>) -> Vec<Effect> {
    span.flat_map(|second| pipeline.step(Input::Sample(sample(second, CALM_S)))).collect()
}

fn told(effects: &[Effect]) -> Vec<(AlertTransition, FindingKind, SeriesPart)> {
    let of = |effect: &Effect| match effect {
        Effect::Deliver(event) => {
            let key = &event.alert.finding.key;
            Some((event.transition, key.kind, key.series.part))
        }
        _ => None,
    };
    effects.iter().filter_map(of).collect()
}

fn records(effects: Vec<Effect>) -> Vec<TickRecord> {
    effects
        .into_iter()
        .filter_map(|e| if let Effect::Persist(record) = e { Some(record) } else { None })
        .collect()
}

/// Seconds until a leak has surely been called: without an engine's counters that takes the detector 34 minutes.
const CALLED_S: u64 = CALM_S + 2_700;

#[test]
fn the_same_samples_give_the_same_effects() {
    let debug = |effects: &[Effect]| format!("{effects:?}");
    let (first, second) = (play(&mut new(), 0..CALLED_S), play(&mut new(), 0..CALLED_S));
    assert_eq!(debug(&first), debug(&second));
}

#[test]
fn a_leak_is_told_with_its_process_and_nothing_before_it_began() {
    let mut pipeline = new();
    assert_eq!(told(&play(&mut pipeline, 0..CALM_S)), []);
    let effects = play(&mut pipeline, CALM_S..CALLED_S);
    let leak = effects.iter().find_map(|effect| match effect {
        Effect::Deliver(event) if event.alert.finding.key.kind == FindingKind::Leak => {
            Some(&event.alert.finding)
        }
        _ => None,
    });
    assert_eq!(leak.expect("a leak is told").subject.gpu_index, Some(0));
    let named = told(&effects).into_iter().any(|(_, kind, part)| {
        kind == FindingKind::Leak && matches!(part, SeriesPart::Process(key) if key.pid == 4711)
    });
    assert!(named, "{:?}", told(&effects));
}

#[test]
fn what_a_process_explains_is_shown_once() {
    let mut pipeline = new();
    play(&mut pipeline, 0..CALLED_S);
    let status = pipeline.status().expect("it has stepped");
    let shown: Vec<SeriesPart> = status.findings.iter().map(|finding| finding.key.series.part).collect();
    assert!(!shown.is_empty());
    assert!(shown.iter().all(|part| matches!(part, SeriesPart::Process(_))), "{shown:?}");
}

#[test]
fn a_restart_neither_repeats_an_alert_nor_forgets_it() {
    let mut before = new();
    let effects = play(&mut before, 0..CALLED_S);
    let past = Past {
        findings: before.open.values().cloned().collect(),
        alerts: before.policy.alerts().cloned().collect(),
    };
    assert!(!past.alerts.is_empty());
    let (open, firing) = (past.findings.len(), past.alerts.len());

    let mut after = new();
    after.restore(past);
    let mut replayer = Replayer::default();
    records(effects).into_iter().for_each(|record| after.replay(replayer.sample(record)));
    assert_eq!(told(&after.go_live()), []);
    assert_eq!(told(&play(&mut after, CALLED_S..CALLED_S + 60)), []);
    assert_eq!(after.open.len(), open);
    assert_eq!(after.policy.alerts().count(), firing);
    for (key, finding) in &after.open {
        assert_eq!(finding.opened_at, before.open[key].opened_at, "{key:?}");
    }
}

#[test]
fn what_ended_during_a_restart_is_said_to_have_resolved() {
    let mut before = new();
    play(&mut before, 0..CALLED_S);
    let past = Past {
        findings: before.open.values().cloned().collect(),
        alerts: before.policy.alerts().cloned().collect(),
    };
    let mut after = new();
    after.restore(past);
    // The process was restarted while nobody looked: a fresh one holds less and does not grow.
    (0..60).for_each(|second| after.replay(sample(CALLED_S + second, u64::MAX)));
    let resolved = |effect: &Effect| matches!(effect, Effect::Record(FindingEvent::Resolved(_)));
    assert!(after.go_live().iter().any(resolved));
    assert!(after.open.is_empty());
}

#[test]
fn what_a_process_explains_is_told_once() {
    let mut pipeline = new();
    let told = told(&play(&mut pipeline, 0..CALLED_S + 1_800));
    assert!(!told.is_empty());
    assert!(told.iter().all(|(_, _, part)| matches!(part, SeriesPart::Process(_))), "{told:?}");
}

/// What is open in `pipeline`, as a next run finds it.
fn past_of(pipeline: &Pipeline) -> Past {
    Past {
        findings: pipeline.open.values().cloned().collect(),
        alerts: pipeline.policy.alerts().cloned().collect(),
    }
}

#[test]
fn what_resolves_and_opens_again_in_a_replay_alone_is_still_the_old_finding() {
    let mut before = new();
    play(&mut before, 0..CALLED_S);
    let mut after = new();
    after.restore(past_of(&before));
    for second in 0..CALLED_S + 3_600 {
        let mut sample = sample(second, CALM_S);
        // One list lacks the process, so that all that is said of it resolves and is said anew.
        if second == CALLED_S {
            sample.gpus[0].processes.iter_mut().for_each(|list| list.entries.clear());
        }
        after.replay(sample);
    }
    after.go_live();
    let of_process = |open: &BTreeMap<FindingKey, Finding>| -> Vec<(FindingKey, Ts)> {
        let of = open.values().filter(|f| matches!(f.key.series.part, SeriesPart::Process(_)));
        of.map(|f| (f.key.clone(), f.opened_at)).collect()
    };
    let old = of_process(&before.open);
    assert!(!old.is_empty());
    let new = of_process(&after.open);
    assert!(old.iter().all(|finding| new.contains(finding)), "{old:?}\n{new:?}");
}

#[test]
fn what_was_open_resolves_even_where_no_history_can_be_replayed() {
    let mut before = new();
    play(&mut before, 0..CALLED_S);
    let mut after = new();
    after.restore(past_of(&before));
    assert!(after.go_live().is_empty());
    let hour = |second| {
        let mut sample = sample(CALLED_S + second, u64::MAX);
        sample.gpus[0].uuid = GpuUuid::new("GPU-2");
        sample
    };
    let effects: Vec<Effect> =
        (0..3_600).flat_map(|second| after.step(Input::Sample(hour(second)))).collect();
    let resolved = effects.iter().filter(|e| matches!(e, Effect::Record(FindingEvent::Resolved(_)))).count();
    assert_eq!(resolved, before.open.len());
    let firing = before.policy.alerts().count();
    assert_eq!(told(&effects).iter().filter(|(t, _, _)| *t == AlertTransition::Resolved).count(), firing);
    assert_eq!(after.policy.alerts().count(), 0);
}

#[test]
fn a_gpu_that_is_no_longer_listed_leaves_nothing_open_and_one_without_a_driver_does() {
    let mut pipeline = new();
    play(&mut pipeline, 0..CALLED_S);
    let open = pipeline.open.len();
    let mut nobody = sample(CALLED_S, CALM_S);
    nobody.gpus.clear();
    pipeline.step(Input::Sample(nobody));
    assert_eq!(pipeline.open.len(), open, "the driver is away");
    let mut other = sample(CALLED_S + 1, u64::MAX);
    other.gpus[0].uuid = GpuUuid::new("MIG-2");
    pipeline.step(Input::Sample(other));
    assert!(pipeline.open.is_empty());
    assert_eq!(pipeline.ledgers.len(), 1);
}

#[test]
fn one_gpu_that_does_not_answer_is_not_all_fine() {
    let mut sample = sample(0, u64::MAX);
    let mut silent = sample.gpus[0].clone();
    silent.uuid = GpuUuid::new("GPU-2");
    silent.state = GpuState::Stale;
    silent.memory = Err(Absent::Timeout);
    sample.gpus.push(silent);
    let mut pipeline = new();
    pipeline.step(Input::Sample(sample));
    assert_eq!(pipeline.status().map(|status| status.level), Some(ebbtide_api::wire::Level::Warning));
}

#[test]
fn a_process_that_gets_its_name_late_is_named_all_the_same() {
    let mut pipeline = new();
    for second in 0..CALLED_S {
        let mut sample = sample(second, CALM_S);
        if second == 0 {
            let unnamed = Arc::new(ProcInfo::absent(Absent::NotYet));
            let list = sample.gpus[0].processes.iter_mut();
            list.for_each(|list| list.entries[0].info = Arc::clone(&unnamed));
        }
        pipeline.step(Input::Sample(sample));
    }
    let of_process = |f: &&Finding| matches!(f.key.series.part, SeriesPart::Process(_));
    let names: Vec<&str> =
        pipeline.open.values().filter(of_process).map(|f| f.subject.process.as_str()).collect();
    assert!(!names.is_empty() && names.iter().all(|name| *name == "vllm"), "{names:?}");
}
