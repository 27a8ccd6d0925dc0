//! Every page in `tests/fixtures/engines` is recognised, and gives the figures that a person reads on it.

#![allow(clippy::unwrap_used, reason = "clippy exempts functions marked #[test], not their helpers")]

use std::collections::{BTreeSet, HashSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use ebbtide_core::{Bytes, EngineRole, EngineSample, Reading};
use ebbtide_probe::engine::page::Page;
use ebbtide_probe::engine::table::Format;
use ebbtide_probe::engine::{Quantities, Tables};
use proptest::prelude::*;

/// Page, path, and what is read on it: engine, what used means, the cache (used + cached / pool, tokens a unit),
/// its fill, requests (running + waiting), what else is told, the work done, and the allocator.
// tidy: table
const READ: [(&str, &str, &str); 28] = [
    (
        "vllm-0.6.6.post1.prom",
        "/metrics",
        "vLLM [V0, up to 0.10] Referenced block 11261 + - / 27284 x16 fill 0.4127 requests 14 + 3 model meta-llama/Llama-3.1-8B-Instruct share 0.9 kv auto served 400 tokens 2246038",
    ),
    (
        "vllm-0.8.5.prom",
        "/metrics",
        "vLLM [V1, 0.8.0 to 0.9.1] Referenced fill 0.2874 requests 21 + 0 model meta-llama/Llama-3.1-8B-Instruct share 0.9 kv auto served 402 tokens 2246038",
    ),
    (
        "vllm-0.10.2.prom",
        "/metrics",
        "vLLM [0.9.2 and later] Referenced block 7841 + - / 27284 x16 fill 0.2874 requests 21 + 0 model meta-llama/Llama-3.1-8B-Instruct share 0.9 kv auto served 402 tokens 2246038",
    ),
    (
        "vllm-0.14.1.prom",
        "/metrics",
        "vLLM [0.9.2 and later] Referenced block 18504 + - / 54568 x16 fill 0.3391 requests 42 + 1 model meta-llama/Llama-3.1-8B-Instruct awake share 0.9 kv fp8 served 402 tokens 2246038",
    ),
    (
        "vllm-0.33.0.prom",
        "/metrics",
        "vLLM [0.9.2 and later] Referenced block 11448 + - / 27740 x16 fill 0.4127 requests 42 + 3 model meta-llama/Llama-3.1-8B-Instruct awake share 0.92 kv auto offloaded 3489660928 served 402 tokens 2246038",
    ),
    (
        "vllm-0.33.0-dp2-hybrid.prom",
        "/metrics",
        "vLLM [0.9.2 and later] Referenced block 14280 + - / 137312 x16 fill 0.1040 requests 19 + 0 model openai/gpt-oss-20b awake share 0.92 kv auto ranks 2 served 804 tokens 4492076",
    ),
    (
        "aphrodite-0.24.1.prom",
        "/metrics",
        "Aphrodite [0.24] Referenced block 6105 + - / 27740 x16 fill 0.2201 requests 6 + 0 model mistralai/Mistral-Nemo-Instruct-2407 awake share 0.92 kv auto served 402 tokens 2246038",
    ),
    (
        "ray-serve-llm-2.60.0.prom",
        "/metrics",
        "Ray Serve LLM (vLLM) [Ray 2.60 with vLLM 0.9.2 and later] Referenced block 2828 + - / 91234 x16 fill 0.0310 requests 3 + 0 model qwen-0.5b share 0.9 kv auto served - tokens 108331",
    ),
    (
        "sglang-0.4.6.post5.prom",
        "/metrics",
        "SGLang [up to 0.5.6] Referenced token 61203 + - / - x1 fill 0.1600 requests 18 + 0 model Qwen/Qwen3-8B role Both served 402 tokens 2246109",
    ),
    (
        "sglang-0.5.9.prom",
        "/metrics",
        "SGLang [0.5.7 to 0.5.10] Referenced token 61203 + - / 386512 x1 fill 0.1583 requests 18 + 0 model Qwen/Qwen3-8B role Both served 402 tokens 2246109",
    ),
    (
        "sglang-0.5.23.prom",
        "/metrics",
        "SGLang [0.5.11 and later] Referenced token 61203 + 85290 / 386512 x1 fill 0.1583 requests 18 + 0 model Qwen/Qwen3-8B role Both bytes 9024690790 + 12576440330 / 56993142276 weights 16396037652 graphs 1449551462 served 402 tokens 2246109",
    ),
    (
        "sglang-server_info-0.5.23.json",
        "/server_info",
        "SGLang [0.5.2 and later, server info] Referenced token - + - / 386512 x1 requests - + - model Qwen/Qwen3-8B share 0.861 kv auto bytes - + - / 56993142276 weights 16396037652 graphs 1449551462",
    ),
    (
        "llamacpp-b4753-2025-02.prom",
        "/metrics",
        "llama.cpp [up to mid 2025, and ik_llama.cpp] ReferencedAndCached token 13512 + - / - x1 fill 0.4124 requests 2 + 0 served - tokens 2246038",
    ),
    (
        "llamacpp-2026.prom",
        "/metrics",
        "llama.cpp [since mid 2025] ReferencedAndCached requests 2 + 0 served - tokens 2246038",
    ),
    (
        "llamacpp-slots-2026.json",
        "/slots",
        "llama.cpp [2026, slots] ReferencedAndCached token 9012 + - / 32768 x1 fill 0.2750 requests 1 + -",
    ),
    (
        "llamacpp-props-2026.json",
        "/props",
        "llama.cpp [2026, properties] ReferencedAndCached token - + - / 32768 x1 requests - + - model qwen3-8b awake",
    ),
    (
        "ollama-api-ps-2026-08.json",
        "/api/ps",
        "Ollama [2026] Unknown token - + - / 8192 x1 requests - + - model qwen3:8b device 6540374016",
    ),
    (
        "tgi-3.3.6-dev0.prom",
        "/metrics",
        "Text Generation Inference [3.3] Reserved token 31488 + - / 389152 x1 fill 0.0809 requests 11 + 2 served 402 tokens 253276",
    ),
    (
        "trtllm-serve-2026-09.prom",
        "/prometheus/metrics",
        "TensorRT-LLM [trtllm-serve, 2026] Unknown block 3767 + - / 13402 x32 fill 0.2811 requests 12 + 0 model llama-3.1-8b device 73501000000 served 402 tokens 2246038",
    ),
    (
        "trtllm-serve-metrics-2026.json",
        "/metrics",
        "TensorRT-LLM [trtllm-serve, iteration records] Unknown block 3767 + - / 13402 x32 fill 0.2811 requests 12 + 0 device 73501000000",
    ),
    (
        "triton-tensorrtllm-2026-08.prom",
        "/metrics",
        "Triton with TensorRT-LLM [2026] Unknown block 3767 + - / 13402 x32 fill 0.2811 requests 12 + 1 model tensorrt_llm",
    ),
    (
        "lmdeploy-0.18.0.prom",
        "/metrics",
        "LMDeploy [0.18] ReferencedAndCached fill 0.2710 requests 9 + 0 model internlm/internlm3-8b-instruct served 402 tokens 2246038",
    ),
    (
        "mistralrs-0.9.2.prom",
        "/metrics",
        "mistral.rs [0.9] Unknown block 1312 + - / 9811 x- fill 0.1337 requests 5 + 0 served 402 tokens -",
    ),
    (
        "tabbyapi-v1-model-2026-08.json",
        "/v1/model",
        "TabbyAPI [2026] Unknown token - + - / 65536 x1 requests - + - model Qwen3-8B-exl3-4.0bpw",
    ),
    (
        "dynamo-worker-1.6.1.prom",
        "/metrics",
        "NVIDIA Dynamo [1.6, worker] Unknown block 4139 + - / 98304 x- fill 0.0421 requests - + - model Qwen/Qwen3-0.6B",
    ),
    (
        "dynamo-frontend-1.6.1.prom",
        "/metrics",
        "NVIDIA Dynamo [1.6, frontend] Unknown block - + - / 98304 x16 requests 4 + 0 model Qwen/Qwen3-0.6B",
    ),
    (
        "lmcache-0.5.6.prom",
        "/metrics",
        "LMCache [0.5, within the engine] Unknown requests - + - model meta-llama/Llama-3.1-8B-Instruct offloaded 21474000000",
    ),
    (
        "ebbtide-0.1.prom",
        "/metrics",
        "ebbtide engine [0.1] Referenced block 811 + 320 / 1136 x16 fill 0.7139 requests 7 + 2 model SmolLM2-135M kv int8 bytes 1764736 + 696320 / 2471936 weights 98000000 offloaded 0 served 5310 tokens 0 arena 2461056 of 2471936",
    ),
];

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/engines")
}

fn page(body: &[u8], path: &str, format: Format, tables: &Tables) -> Page {
    let wanted: HashSet<&str> = tables.on(path, None).flat_map(|(_, table)| table.metrics()).collect();
    Page::read(body, format, &wanted).unwrap()
}

fn read(body: &[u8], path: &str, format: Format) -> Option<Quantities> {
    let tables = Tables::embedded();
    Quantities::of(&page(body, path, format, &tables), path, &tables, None)
}

fn fixture(name: &str, path: &str) -> Quantities {
    let body = std::fs::read(fixtures().join(name)).unwrap();
    let is_json = Path::new(name).extension().is_some_and(|extension| extension == "json");
    let format = if is_json { Format::Json } else { Format::Exposition };
    read(&body, path, format).unwrap_or_else(|| panic!("{name} is not recognised"))
}

fn shown<T: std::fmt::Display>(reading: Reading<T>) -> String {
    reading.map_or_else(|_| "-".to_owned(), |value| value.to_string())
}

fn raw(reading: Reading<Bytes>) -> String {
    shown(reading.map(|bytes| bytes.0))
}

fn described(sample: &EngineSample) -> String {
    let report = sample.report.as_ref().unwrap();
    let mut text = format!("{} [{}] {:?}", report.engine, report.versions, sample.semantics);
    if let Some(unit) = report.kv.unit {
        let unit = format!("{unit:?}").to_lowercase();
        let (used, cached, pool) = (report.kv.used, report.kv.cached, report.kv.pool);
        let counts = format!("{} + {} / {}", shown(used), shown(cached), shown(pool));
        write!(text, " {unit} {counts} x{}", shown(report.kv.tokens_per_unit)).unwrap();
    }
    if let Ok(fill) = report.kv.fill {
        write!(text, " fill {fill:.4}").unwrap();
    }
    write!(text, " requests {} + {}", shown(sample.running), shown(sample.waiting)).unwrap();
    if let Ok(model) = &report.model {
        write!(text, " model {model}").unwrap();
    }
    if report.role != EngineRole::Unknown {
        write!(text, " role {:?}", report.role).unwrap();
    }
    if let Ok(asleep) = report.asleep {
        text.push_str(if asleep { " asleep" } else { " awake" });
    }
    if let Ok(share) = report.share {
        write!(text, " share {share}").unwrap();
    }
    if let Ok(kv_type) = &report.kv_type {
        write!(text, " kv {kv_type}").unwrap();
    }
    if report.ranks > 1 {
        write!(text, " ranks {}", report.ranks).unwrap();
    }
    if sample.kv_pool.is_ok() {
        let (used, cached, pool) = (raw(sample.kv_used), raw(sample.kv_cached), raw(sample.kv_pool));
        write!(text, " bytes {used} + {cached} / {pool}").unwrap();
    }
    for (name, bytes) in [
        ("weights", report.weights),
        ("graphs", report.graphs),
        ("device", report.device),
        ("offloaded", report.offloaded),
    ] {
        if bytes.is_ok() {
            write!(text, " {name} {}", raw(bytes)).unwrap();
        }
    }
    if sample.served.is_ok() || sample.tokens.is_ok() {
        write!(text, " served {} tokens {}", shown(sample.served), shown(sample.tokens)).unwrap();
    }
    if sample.arena.is_ok() {
        write!(text, " arena {} of {}", raw(sample.arena_used), raw(sample.arena)).unwrap();
    }
    text
}

#[test]
fn every_page_gives_what_a_person_reads_on_it() {
    for (name, path, wanted) in READ {
        let sample = fixture(name, path).sample("test", None);
        assert_eq!(described(&sample), wanted, "{name}");
    }
}

#[test]
fn every_page_and_every_table_is_under_test() {
    let named: BTreeSet<String> = READ.iter().map(|(name, ..)| (*name).to_owned()).collect();
    let there = std::fs::read_dir(fixtures()).unwrap().map(|entry| entry.unwrap().file_name());
    let there = there.map(|name| name.into_string().unwrap()).filter(|name| name != "README.md").collect();
    assert_eq!(named, there);
    let tables = Tables::embedded();
    let untested =
        tables.files().iter().filter(|file| !READ.iter().any(|(.., read)| read.starts_with(&file.title)));
    assert_eq!(untested.count(), 0);
}

/// 27,740 blocks of 16 tokens at 128 KiB are 54.18 GiB, and the pool of a rank is its share of the blocks.
#[test]
fn bytes_follow_from_the_bytes_of_a_token() {
    let sample = fixture("vllm-0.33.0.prom", "/metrics").sample("test", Some(131_072));
    assert_eq!(sample.kv_pool, Ok(Bytes(27_740 * 16 * 131_072)));
    assert_eq!(sample.kv_used, Ok(Bytes(11_448 * 16 * 131_072)));
    // gpt-oss-20b: a block is 12 layers x 16 tokens x 2,048 bytes = 393,216 bytes, so a token is 24,576.
    let sample = fixture("vllm-0.33.0-dp2-hybrid.prom", "/metrics").sample("test", Some(24_576));
    assert_eq!(sample.kv_pool, Ok(Bytes(68_656 * 393_216)));
}

#[test]
fn pages_of_one_engine_complete_each_other() {
    let mut whole = fixture("llamacpp-2026.prom", "/metrics");
    whole.complete(fixture("llamacpp-slots-2026.json", "/slots"));
    whole.complete(fixture("llamacpp-props-2026.json", "/props"));
    assert_eq!(
        described(&whole.sample("test", None)),
        "llama.cpp [since mid 2025] ReferencedAndCached token 9012 + - / 32768 x1 fill 0.2750 requests 2 + 0 model qwen3-8b awake served - tokens 2246038"
    );
    let mut whole = fixture("sglang-0.5.9.prom", "/metrics");
    whole.complete(fixture("sglang-server_info-0.5.23.json", "/server_info"));
    let sample = whole.sample("test", None);
    assert_eq!(sample.kv_pool, Ok(Bytes(56_993_142_276)), "an engine too old for the gauge tells it there");
    assert!(sample.kv_used.is_ok());
}

#[test]
fn a_companion_on_the_page_completes_the_engine_and_does_not_name_it() {
    let engine = std::fs::read(fixtures().join("vllm-0.14.1.prom")).unwrap();
    for companion in ["lmcache-0.5.6.prom", "dynamo-worker-1.6.1.prom"] {
        let mut both = std::fs::read(fixtures().join(companion)).unwrap();
        both.extend_from_slice(&engine);
        let sample = read(&both, "/metrics", Format::Exposition).unwrap().sample("test", None);
        let report = sample.report.unwrap();
        assert_eq!((report.engine.as_str(), report.kv.pool), ("vLLM", Ok(54_568)));
        assert_eq!(report.offloaded.is_ok(), companion.starts_with("lmcache"));
    }
}

fn vllm(edit: impl Fn(String) -> String) -> EngineSample {
    let text = std::fs::read_to_string(fixtures().join("vllm-0.14.1.prom")).unwrap();
    read(edit(text).as_bytes(), "/metrics", Format::Exposition).unwrap().sample("test", Some(131_072))
}

#[test]
fn a_sleeping_engine_s_old_gauges_are_not_believed() {
    let sample = vllm(|text| {
        text.replace(r#"sleep_state="awake"} 1.0"#, r#"sleep_state="awake"} 0.0"#)
            .replace(r#"sleep_state="discard_all"} 0.0"#, r#"sleep_state="discard_all"} 1.0"#)
    });
    assert!(sample.kv_used.is_err() && sample.kv_pool.is_err());
    assert_eq!((sample.running, sample.report.unwrap().asleep), (Ok(42), Ok(true)));
}

#[test]
fn values_that_mean_not_known_are_absent_and_not_zero() {
    for unknown in ["NaN", "-1", "+Inf", "1.5"] {
        let sample = vllm(|text| text.replace("} 0.3391", &format!("}} {unknown}")));
        let report = sample.report.unwrap();
        assert!(sample.kv_used.is_err() && report.kv.used.is_err() && report.kv.fill.is_err(), "{unknown}");
        assert_eq!((report.kv.pool, sample.running), (Ok(54_568), Ok(42)), "the rest stands");
    }
    let sample = vllm(|text| text.replace(r#"num_gpu_blocks="54568""#, r#"num_gpu_blocks="None""#));
    assert!(sample.kv_pool.is_err() && sample.report.unwrap().kv.fill.is_ok());
}

/// With `--enable-metrics-for-all-schedulers` every tensor-parallel rank exports the same tokens.
#[test]
fn tokens_are_added_up_over_data_parallel_ranks_and_never_over_tensor_parallel_ones() {
    let name = "sglang-0.5.23.prom";
    let text = std::fs::read_to_string(fixtures().join(name)).unwrap();
    let rank = |tp: &str, dp: &str| {
        let to = format!(r#"tp_rank="{tp}",dp_rank="{dp}""#);
        text.lines()
            .filter(|l| l.contains("tp_rank"))
            .map(|l| l.replace(r#"tp_rank="0""#, &to) + "\n")
            .collect::<String>()
    };
    let page = rank("0", "0") + &rank("1", "0") + &rank("0", "1") + &rank("1", "1");
    let sample = read(page.as_bytes(), "/metrics", Format::Exposition).unwrap().sample("test", None);
    let report = sample.report.unwrap();
    assert_eq!((report.ranks, report.kv.used, sample.running), (2, Ok(122_406), Ok(36)));
    assert_eq!(sample.kv_pool, Ok(Bytes(56_993_142_276)), "the pool of one rank");
}

#[test]
fn a_role_is_read_where_it_is_told() {
    let text = std::fs::read_to_string(fixtures().join("sglang-0.5.23.prom")).unwrap();
    for (told, wanted) in
        [("prefill", EngineRole::Prefill), ("decode", EngineRole::Decode), ("x", EngineRole::Unknown)]
    {
        let page = text.replace("engine_type=\"unified\"", &format!("engine_type=\"{told}\""));
        let sample = read(page.as_bytes(), "/metrics", Format::Exposition).unwrap().sample("test", None);
        assert_eq!(sample.report.unwrap().role, wanted);
    }
}

#[test]
fn an_engine_with_no_model_loaded_is_known_and_says_nothing() {
    let sample = read(br#"{"models":[]}"#, "/api/ps", Format::Json).unwrap().sample("test", None);
    assert_eq!(described(&sample), "Ollama [2026] Unknown requests - + -");
}

/// A page with bytes changed, cut out and repeated at random places.
fn spoilt() -> impl Strategy<Value = (usize, Vec<u8>)> {
    let change = (any::<prop::sample::Index>(), any::<u8>(), 0usize..3, 1usize..40);
    (0..READ.len(), prop::collection::vec(change, 1..8)).prop_map(|(which, changes)| {
        let mut page = std::fs::read(fixtures().join(READ[which].0)).unwrap();
        for (place, byte, kind, length) in changes {
            if page.is_empty() {
                break;
            }
            let at = place.index(page.len());
            let end = (at + length).min(page.len());
            match kind {
                0 => page[at] = byte,
                1 => drop(page.drain(at..end)),
                _ => page.splice(at..at, page[at..end].to_vec()).for_each(drop),
            }
        }
        (which, page)
    })
}

proptest! {
    /// `PROPTEST_CASES=200000` makes this a fuzzing of some ten minutes.
    #[test]
    fn a_spoilt_page_is_read_or_refused_and_never_gives_an_impossible_figure((which, page) in spoilt()) {
        let path = READ[which].1;
        let tables = Tables::embedded();
        let wanted: HashSet<&str> = tables.on(path, None).flat_map(|(_, table)| table.metrics()).collect();
        for format in [Format::Exposition, Format::Json] {
            let Ok(page) = Page::read(&page, format, &wanted) else { continue };
            let Some(found) = Quantities::of(&page, path, &tables, None) else { continue };
            let report = found.sample("test", Some(u64::MAX)).report.unwrap();
            prop_assert!(report.kv.fill.is_ok_and(|fill| (0.0..=1.0).contains(&fill)) || report.kv.fill.is_err());
            prop_assert!(report.ranks >= 1);
            if let Ok(model) = &report.model {
                prop_assert!(!model.chars().any(char::is_control));
            }
        }
    }
}

#[test]
fn a_page_that_says_a_thing_twice_is_refused() {
    let tables = Tables::embedded();
    let wanted: HashSet<&str> = tables.on("/metrics", None).flat_map(|(_, table)| table.metrics()).collect();
    let twice =
        "vllm:num_requests_running{a=\"1\",b=\"2\"} 1\nvllm:num_requests_running{b=\"2\",a=\"1\"} 2\n";
    let error = Page::read(twice.as_bytes(), Format::Exposition, &wanted).unwrap_err();
    assert_eq!(error.to_string(), "vllm:num_requests_running stands on the page twice with the same labels");
}

/// Set to write the page instead of comparing it: `cargo xtask engines` does.
const WRITE: &str = "EBBTIDE_WRITE_DOCS";

#[test]
fn the_page_for_people_is_what_the_tables_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/engines.md");
    let page = ebbtide_probe::engine::document::document(&Tables::embedded());
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let there = std::fs::read_to_string(path).unwrap();
    assert!(there == page, "docs/engines.md is not what the tables say; run `cargo xtask engines`");
}
