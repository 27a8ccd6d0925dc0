//! Engines' pages to findings: what an engine says of its pool, told by the second to the pipeline, and what a person
//! reads then. No clock: seconds are ticks.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::HashSet;
use std::sync::Arc;

use ebbtide_api::explain::{Explanation, explain, named};
use ebbtide_api::wire::Status;
use ebbtide_core::units::GIB;
use ebbtide_core::*;
use ebbtide_daemon::pipeline::{Input, Pipeline, PipelineConfig};
use ebbtide_probe::engine::page::Page;
use ebbtide_probe::engine::table::Format;
use ebbtide_probe::engine::{Quantities, Tables};

const VLLM: &str = include_str!("../../tests/fixtures/engines/vllm-0.33.0.prom");
const SGLANG: &str = include_str!("../../tests/fixtures/engines/sglang-0.5.23.prom");

/// Between two ticks; the detector judges alike at any interval.
const STEP_S: u64 = 5;

/// An engine whose page can be set.
struct Engine {
    page: String,
    tables: Tables,
    /// The metrics of fill (or use), and of running and waiting requests.
    gauges: [&'static str; 3],
}

impl Engine {
    fn new(page: &str, gauges: [&'static str; 3]) -> Self {
        let tables = Tables::embedded();
        let read: HashSet<&str> =
            tables.on("/metrics", None).flat_map(|(_, table)| table.metrics()).collect();
        // Histograms make a page long, and nothing here reads them.
        let is_read = |line: &&str| line.split(['{', ' ']).next().is_some_and(|name| read.contains(name));
        let page = page.lines().filter(is_read).map(|line| format!("{line}\n")).collect();
        Self { page, tables, gauges }
    }

    fn vllm() -> Self {
        Self::new(
            VLLM,
            ["vllm:kv_cache_usage_perc", "vllm:num_requests_running", "vllm:num_requests_waiting"],
        )
    }

    /// With its gauges at these values.
    fn says(&self, values: [f64; 3]) -> EngineSample {
        let line =
            |line: &str| match self.gauges.iter().position(|gauge| line.starts_with(&format!("{gauge}{{"))) {
                Some(place) => format!("{} {}\n", line.rsplit_once(' ').unwrap().0, values[place]),
                None => format!("{line}\n"),
            };
        let text: String = self.page.lines().map(line).collect();
        let wanted = self.tables.on("/metrics", None).flat_map(|(_, table)| table.metrics()).collect();
        let page = Page::read(text.as_bytes(), Format::Exposition, &wanted).unwrap();
        let said = Quantities::of(&page, "/metrics", &self.tables, None).unwrap();
        // Llama-3.1-8B on one GPU: 128 KiB a token.
        said.sample("127.0.0.1:8000", Some(131_072))
    }
}

/// A GPU whose one process holds 72 GiB whatever happens.
fn sample(second: u64, engine: EngineSample) -> Sample {
    let tick =
        Tick { seq: second + 1, at: Ts(1_790_000_000_000 + second as i64 * 1000), mono_ms: second * 1000 };
    let (total, held) = (Bytes(80 * GIB), Bytes(72 * GIB));
    let process = ProcSample {
        key: ProcKey { pid: 4711, start_ticks: Some(1) },
        memory: Ok(held),
        kinds: ProcKinds { compute: true, ..ProcKinds::default() },
        liveness: Liveness::Alive,
        info: Arc::new(ProcInfo { name: Ok("vllm".to_owned()), ..ProcInfo::absent(Absent::NotYet) }),
        rss: Err(Absent::NotYet),
        host_limit: Err(Absent::NotSupported),
        engine: Some(engine),
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
        utilization: Ok(Percent(50)),
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

/// Plays an engine from `span.0` to `span.1` seconds; the status after each step.
fn play(
    pipeline: &mut Pipeline,
    engine: &Engine,
    span: (u64, u64),
    gauges: impl Fn(u64) -> [f64; 3],
) -> Vec<Status> {
    let seconds = (span.0..span.1).step_by(usize::try_from(STEP_S).unwrap());
    let published = seconds.map(|second| {
        pipeline.step(Input::Sample(sample(second, engine.says(gauges(second)))));
        pipeline.status().unwrap()
    });
    published.collect()
}

fn pipeline() -> Pipeline {
    Pipeline::new(PipelineConfig { host: "test".to_owned(), ..PipelineConfig::default() })
}

fn kinds(status: &Status) -> Vec<FindingKind> {
    status.findings.iter().map(|finding| finding.key.kind).collect()
}

fn explained(status: &Status) -> Explanation {
    explain(status, &named(status, "4711")[0]).unwrap()
}

fn answer(status: &Status, topic: &str) -> String {
    explained(status).answers.into_iter().find(|answer| answer.topic == topic).unwrap().answer
}

/// Half an hour in which requests come and go and fill ever more of the pool, while the driver sees nothing move.
fn busy(second: u64) -> [f64; 3] {
    let fill = 0.1 + 0.7 * second as f64 / 1800.0;
    [fill, (fill * 100.0).round(), 0.0]
}

#[test]
fn a_pool_that_fills_moves_within_the_ledger_and_is_steady() {
    let (engine, mut pipeline) = (Engine::vllm(), pipeline());
    let statuses = play(&mut pipeline, &engine, (0, 1800), busy);
    let ledger = |status: &Status| status.gpus[0].ledger.engines[0].clone();
    let (first, last) = (ledger(&statuses[0]), ledger(statuses.last().unwrap()));
    assert_eq!((first.vram, first.pool), (last.vram, last.pool));
    let (used, spare) = (|l: &EngineLedger| l.used.unwrap().bytes, |l: &EngineLedger| l.spare.unwrap().bytes);
    assert!(used(&last) > used(&first) + Bytes(30 * GIB), "{last:?}");
    assert_eq!(used(&first) + spare(&first), used(&last) + spare(&last), "idle became used");
    for status in &statuses {
        assert_eq!(kinds(status), []);
        for judgement in &status.gpus[0].judgements {
            let calm = [Diagnosis::Inconclusive, Diagnosis::Steady, Diagnosis::Reserved];
            assert!(calm.contains(&judgement.diagnosis), "{judgement:?}");
        }
    }
    let last = statuses.last().unwrap();
    // Steady, and known to be because the pool was reserved ahead.
    assert_eq!(last.gpus[0].judgements[0].diagnosis, Diagnosis::Reserved);
    let reserved = answer(last, "reserved");
    assert!(
        reserved.starts_with("vLLM reserved a pool of 54.2 GiB (gpu_memory_utilization 0.92); 43."),
        "{reserved}"
    );
    assert!(answer(last, "kept").starts_with("No: level at 72.0 GiB"), "{}", answer(last, "kept"));
}

#[test]
fn blocks_that_nobody_asks_for_are_a_leak_of_the_pool_within_minutes() {
    let (engine, mut pipeline) = (Engine::vllm(), pipeline());
    play(&mut pipeline, &engine, (0, 600), |second| busy(second * 3));
    let idle = play(&mut pipeline, &engine, (600, 1200), |_| [0.2, 0.0, 0.0]);
    let found = idle.iter().position(|status| kinds(status).contains(&FindingKind::KvPoolLeak)).unwrap();
    let after = found as u64 * STEP_S;
    assert!((300..=330).contains(&after), "called {after} s after the last request");
    let last = idle.last().unwrap();
    let leak = last.findings.iter().find(|finding| finding.key.kind == FindingKind::KvPoolLeak).unwrap();
    assert_eq!(leak.subject.process, "vllm");
    assert!(
        answer(last, "kept").starts_with("Yes, as it looks: vllm (process 4711):"),
        "{:?}",
        explained(last)
    );
    // The requests that come back find what is left of the pool, and the finding ends with the idleness.
    let busy_again = play(&mut pipeline, &engine, (1200, 1500), |_| [0.3, 12.0, 0.0]);
    assert!(!kinds(busy_again.last().unwrap()).contains(&FindingKind::KvPoolLeak));
}

/// Blocks in flight come and go with the requests; what is held at the calmest moment rises all the same.
#[test]
fn a_rising_floor_of_what_is_held_is_a_leak_of_the_pool_under_steady_load() {
    let load = |leak_a_minute: f64| {
        move |second: u64| {
            let running = 4 + (second / STEP_S) % 5;
            [0.05 + running as f64 * 0.02 + leak_a_minute * second as f64 / 60.0, running as f64, 0.0]
        }
    };
    let engine = Engine::vllm();
    let ends = |leak: f64| play(&mut pipeline(), &engine, (0, 2 * 3600), load(leak)).pop().unwrap();
    assert_eq!(kinds(&ends(0.0)), []);
    let leaking = ends(0.001);
    assert_eq!(kinds(&leaking), [FindingKind::KvPoolLeak]);
    assert!(answer(&leaking, "growing").contains("vllm (process 4711):"), "{:?}", explained(&leaking));
}

/// SGLang says which part it plays: a prefill node's blocks wait for the peer that writes the answers.
#[test]
fn a_prefill_node_holds_blocks_for_its_peer_and_leaks_nothing() {
    let gauges = ["sglang:kv_used_tokens", "sglang:num_running_reqs", "sglang:num_queue_reqs"];
    let of_role = |role: &str| {
        let engine = Engine::new(&SGLANG.replace("engine_type=\"unified\"", role), gauges);
        play(&mut pipeline(), &engine, (0, 900), |_| [100_000.0, 0.0, 0.0]).pop().unwrap()
    };
    assert_eq!(kinds(&of_role("engine_type=\"unified\"")), [FindingKind::KvPoolLeak]);
    let prefill = of_role("engine_type=\"prefill\"");
    assert_eq!(kinds(&prefill), []);
    assert!(answer(&prefill, "kept").contains("is a prefill node and holds"), "{:?}", explained(&prefill));
}
