use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use ebbtide_core::units::GIB;
use ebbtide_core::{Absent, Bytes, EngineRole, KvCount, KvSemantics, KvUnit};

use super::estimate::complete;
use super::*;
use crate::running::{Parts, in_proc};

fn reports(engine: &str, model: &str, blocks: (u64, u64)) -> EngineSample {
    let kv = KvCount {
        unit: Some(KvUnit::Block),
        used: Ok(blocks.0),
        pool: Ok(blocks.1),
        tokens_per_unit: Ok(16),
        ..KvCount::absent(Absent::NotSupported)
    };
    let report = EngineReport {
        model: Ok(model.to_owned()),
        kv,
        kv_type: Ok("auto".to_owned()),
        ..EngineReport::absent(engine, "127.0.0.1:8000", Absent::NotSupported)
    };
    EngineSample {
        semantics: KvSemantics::Referenced,
        report: Some(Arc::new(report)),
        ..EngineSample::absent(Absent::NotSupported)
    }
}

fn looked_up(model: &str) -> Running {
    let nobody = ProcKey { pid: u32::MAX, start_ticks: Some(1) };
    in_proc(Path::new("/proc"), nobody, Some(model)).unwrap()
}

/// 32 layers x 8 KV heads x 128 x 2 x 2 bytes are 128 KiB a token; 27 740 blocks of 16 are 54.18 GiB.
#[test]
fn blocks_of_a_model_known_by_name_become_bytes() {
    let mut engine = reports("vLLM", "meta-llama/Llama-3.1-8B-Instruct", (11_448, 27_740));
    complete(&mut engine, &looked_up("meta-llama/Llama-3.1-8B-Instruct"), Parts { processes: 1, gpus: 1 });
    assert_eq!(engine.kv_pool, Ok(Bytes(27_740 * 16 * 131_072)));
    assert_eq!(engine.kv_used, Ok(Bytes(11_448 * 16 * 131_072)));
    assert_eq!(engine.kv_cached, Err(Absent::NotSupported));
    let appraisal = engine.report.unwrap().appraisal.clone().unwrap();
    assert!(appraisal.sizes_kv && appraisal.weights.unwrap().is_estimate());
    assert_eq!(appraisal.assumed.len(), 1, "{:?}", appraisal.assumed);
}

#[test]
fn parts_share_what_can_be_shared() {
    let mut engine = reports("vLLM", "meta-llama/Llama-3.1-8B-Instruct", (0, 1000));
    complete(&mut engine, &looked_up("Llama-3.1-8B"), Parts { processes: 4, gpus: 4 });
    assert_eq!(engine.kv_pool, Ok(Bytes(1000 * 16 * 131_072 / 4)));
    assert!(engine.report.unwrap().appraisal.as_ref().unwrap().weights.unwrap().bytes < Bytes(5 * GIB));
    let mut odd = reports("vLLM", "m", (0, 1000));
    let mut two_replicas = (**odd.report.as_ref().unwrap()).clone();
    two_replicas.ranks = 2;
    odd.report = Some(Arc::new(two_replicas));
    complete(&mut odd, &looked_up("Llama-3.1-8B"), Parts { processes: 3, gpus: 3 });
    assert_eq!(odd.kv_pool, Err(Absent::NotSupported), "three processes are no two replicas");
}

#[test]
fn what_the_engine_counts_itself_is_left_as_it_is() {
    let mut engine = EngineSample { kv_pool: Ok(Bytes(7)), ..reports("SGLang", "Llama-3.1-8B", (1, 2)) };
    complete(&mut engine, &looked_up("Llama-3.1-8B"), Parts { processes: 1, gpus: 1 });
    assert_eq!((engine.kv_pool, engine.kv_used), (Ok(Bytes(7)), Err(Absent::NotSupported)));
    assert!(!engine.report.unwrap().appraisal.as_ref().unwrap().sizes_kv);
}

/// A process that was started with a path, seen through its own root: its files go before any name.
#[test]
fn a_model_is_read_from_the_files_that_the_engine_was_started_with() {
    let proc = tempfile::tempdir().unwrap();
    let (dir, key) = (proc.path().join("10"), ProcKey { pid: 10, start_ticks: Some(1) });
    fs::create_dir_all(dir.join("root/models/mine")).unwrap();
    fs::write(
        dir.join("cmdline"),
        "vllm\0serve\0/models/mine\0--kv-transfer-config\0{\"kv_role\":\"kv_producer\"}\0",
    )
    .unwrap();
    let config = r#"{"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
        "num_key_value_heads": 2, "torch_dtype": "float16"}"#;
    fs::write(dir.join("root/models/mine/config.json"), config).unwrap();
    let known = in_proc(proc.path(), key, Some("served-name")).unwrap();
    assert_eq!((known.is_file, known.source.as_str()), (true, "its files (/models/mine)"));
    let mut engine = reports("vLLM", "served-name", (3, 10));
    complete(&mut engine, &known, Parts { processes: 1, gpus: 1 });
    // 2 layers x 2 KV heads x (16 + 16) elements x 2 bytes x 16 tokens.
    assert_eq!((engine.kv_pool, engine.kv_used), (Ok(Bytes(40_960)), Ok(Bytes(12_288))));
    assert_eq!(engine.report.unwrap().role, EngineRole::Prefill);
    assert!(in_proc(proc.path(), ProcKey { pid: 11, ..key }, Some("served-name")).is_none());
}

#[test]
fn a_sample_is_completed_once_the_model_is_found_and_not_waited_for() {
    let mut appraiser = Appraiser::start("/proc".into());
    let nobody = ProcKey { pid: u32::MAX, start_ticks: Some(1) };
    let question = (nobody, Some("Llama-3.1-8B".to_owned()));
    let deadline = Instant::now() + Duration::from_secs(30);
    let known = loop {
        if let Some(known) = appraiser.answer(&question) {
            break known;
        }
        assert!(Instant::now() < deadline, "the model is never found");
        std::thread::park_timeout(Duration::from_millis(5));
    };
    assert_eq!(known.name, "Llama-3-8B / 3.1-8B");
}
