//! From an engine's page to a finding: what tables read reaches the rules that ask for it.

use std::collections::HashSet;

use ebbtide_core::{EngineSample, Finding};
use ebbtide_probe::engine::page::Page;
use ebbtide_probe::engine::table::Format;
use ebbtide_probe::engine::{Quantities, Tables};

use super::*;

/// Seconds between samples: hours of one a second would take the test a minute.
const EACH_S: u64 = 10;

fn fixture(name: &str) -> String {
    let path = format!("{}/../tests/fixtures/engines/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).expect("the repository has its fixtures")
}

/// What the engine says whose page this is.
fn read(page: &str, tables: &Tables) -> EngineSample {
    let wanted: HashSet<&str> = tables.on("/metrics", None).flat_map(|(_, table)| table.metrics()).collect();
    let page = Page::read(page.as_bytes(), Format::Exposition, &wanted).expect("a sound page");
    Quantities::of(&page, "/metrics", tables, None).expect("a page of the tables").sample("test", None)
}

/// The findings about the process after so long, whose page and memory in MiB follow time.
fn found(seconds: u64, page: impl Fn(u64) -> String, held: impl Fn(u64) -> f64) -> Vec<Finding> {
    let (mut pipeline, tables) = (new(), Tables::embedded());
    for second in (0..seconds).step_by(EACH_S as usize) {
        let mut sample = sample(second, u64::MAX);
        let held = Bytes((held(second) * MIB as f64) as u64);
        let memory = sample.gpus[0].memory.as_mut().expect("it was read");
        (memory.used, memory.free) = (held, memory.total.saturating_sub(held));
        let process = &mut sample.gpus[0].processes.as_mut().expect("it was listed").entries[0];
        process.memory = Ok(held);
        process.engine = Some(read(&page(second), &tables));
        pipeline.step(Input::Sample(sample));
    }
    pipeline.status().expect("it has stepped").findings.clone()
}

#[test]
fn what_each_request_leaves_behind_is_told_by_the_requests_that_an_engine_counts() {
    let text = fixture("vllm-0.33.0.prom");
    let ended = |second: u64| 2 * second - second * second / 36_000;
    let page = |second: u64| {
        let is_count = |line: &str| {
            line.starts_with("vllm:request_success_total{") && line.contains("finished_reason=\"stop\"")
        };
        let told = |line: &str| match line.rsplit_once(' ') {
            Some((series, _)) if is_count(line) => format!("{series} {}\n", ended(second)),
            _ => format!("{line}\n"),
        };
        text.lines().map(told).collect()
    };
    let findings = found(5 * 3600, page, |second| 20_480.0 + 0.05 * ended(second) as f64);
    let leak = findings.iter().find(|finding| finding.key.kind == FindingKind::Leak);
    let leak = leak.unwrap_or_else(|| panic!("{findings:?}"));
    assert!(leak.summary.contains("with each 1,000 requests"), "{}", leak.summary);
    let each = leak.evidence.iter().find(|evidence| evidence.what == "each").expect("it is evidence");
    assert!((each.value / 0.05 - 1.0).abs() < 0.05, "{each:?}");
}

#[test]
fn an_allocator_in_pieces_is_told_by_what_an_engine_says_of_its_arena() {
    let text = fixture("ebbtide-0.1.prom");
    let page = |second: u64| {
        let bytes = |mib: u64| mib * MIB;
        let told = |line: &str| match line.rsplit_once(' ') {
            Some((series @ "ebbtide_engine_kv_held_bytes", _)) => {
                format!("{series} {}\n", bytes(12_288 + second / 2))
            }
            Some((series @ "ebbtide_engine_kv_bytes{state=\"used\"}", _)) => {
                format!("{series} {}\n", bytes(6144))
            }
            _ => format!("{line}\n"),
        };
        text.lines().map(told).collect()
    };
    let findings = found(1800, page, |second| 20_480.0 + second as f64 / 2.0);
    assert!(findings.iter().any(|finding| finding.key.kind == FindingKind::Fragmented), "{findings:?}");
}
