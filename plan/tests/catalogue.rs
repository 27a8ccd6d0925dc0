//! The catalogue and the verbatim configurations against the fixture table, to the byte.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::print_stdout, reason = "the figures are what the tests are for")]

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use ebbtide_plan::cache::vllm_pool;
use ebbtide_plan::{Cache, Deployment, Engine, KvType, Model, Reach, catalogue};

type Row = HashMap<String, String>;

fn fixtures() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn rows() -> Vec<Row> {
    csv::Reader::from_path(fixtures().join("models.csv")).unwrap().deserialize().map(Result::unwrap).collect()
}

fn number(row: &Row, column: &str) -> u64 {
    row[column].parse().unwrap_or(0)
}

/// The total behind the last `=` of a sum, as the table writes states.
fn state_elements(row: &Row) -> u64 {
    row["recurrent_state_elems_per_seq"].rsplit('=').next().unwrap().trim().parse().unwrap_or(0)
}

fn layers(model: &Model, full: bool) -> u64 {
    model.groups.iter().filter(|group| (group.reach == Reach::Full) == full).map(|group| group.layers).sum()
}

fn assert_matches(row: &Row, model: &Model) {
    let name = &row["model"];
    let whole = |column| number(row, column);
    assert_eq!(model.kv_per_token(KvType::F16).0, whole("kv_bytes_per_token_fp16_all_layers"), "{name}");
    assert_eq!(
        model.kv_per_token_beyond(KvType::F16).0,
        whole("kv_bytes_per_token_fp16_beyond_window"),
        "{name} beyond its window"
    );
    assert_eq!(
        model.window_per_request(KvType::F16).0,
        whole("window_cap_bytes_per_seq_fp16"),
        "{name} window"
    );
    assert_eq!(
        (layers(model, true), layers(model, false)),
        (whole("kv_layers_full"), whole("kv_layers_window")),
        "{name}"
    );
    assert_eq!(model.recurrent.map_or(0, |r| r.elements()), state_elements(row), "{name} state");
    assert_eq!(model.layers, whole("num_hidden_layers"), "{name} layers");
}

#[test]
fn all_models_of_the_catalogue_are_exact() {
    let rows = rows();
    assert_eq!(rows.len(), 69);
    for row in &rows {
        let entry = catalogue::entries().into_iter().find(|entry| entry.name == row["model"]).unwrap();
        assert_matches(row, &entry.model().unwrap());
    }
    println!(
        "catalogue: {} of {} models exact in bytes a token, window, state and layers",
        rows.len(),
        rows.len()
    );
}

#[test]
fn verbatim_configurations_are_exact() {
    let rows = rows();
    let mut seen = 0;
    for file in fs::read_dir(fixtures().join("model-configs")).unwrap() {
        let file = file.unwrap().file_name().into_string().unwrap();
        let model =
            Model::from_config(&fs::read(fixtures().join("model-configs").join(&file)).unwrap()).unwrap();
        let row = rows
            .iter()
            .find(|row| row["config_source"].contains(&file))
            .unwrap_or_else(|| panic!("no row names {file}"));
        assert_matches(row, &model);
        seen += 1;
    }
    assert_eq!(seen, 27);
}

#[test]
fn what_goes_beside_keys_and_values_is_counted_apart() {
    let model = |name| catalogue::find(name).unwrap().model().unwrap();
    // 132 bytes in each of 61 layers; 656 bytes a layer in the FP8 layout of sparse attention.
    assert_eq!(model("deepseek-v3.2").index_per_token().0, 8052);
    assert_eq!(model("deepseek-v3.2").kv_per_token(KvType::Fp8).0, 40_016);
    assert_eq!(model("deepseek-v3").draft_per_token(KvType::F16).0, 1152);
    // 1500 positions over 32 layers: 234.4 MiB.
    assert_eq!(model("whisper-large-v3").cross_per_request(KvType::F16).0, 1500 * 163_840);
}

#[test]
fn weights_agree_with_the_published_numbers_of_parameters() {
    // In thousands of millions, as the models' own pages state them.
    for (name, billions) in [
        ("llama-2-7b", 6.74),
        ("llama-3.1-8b", 8.03),
        ("llama-3.1-405b", 405.9),
        ("mixtral-8x7b", 46.7),
        ("gemma-2-27b", 27.2),
        ("phi-4", 14.7),
        ("qwen2.5-7b", 7.62),
        ("qwen3-235b-a22b", 235.1),
        ("qwen3-next-80b", 79.7),
        ("qwen3.5-27b", 26.9),
        ("gpt-oss-120b", 116.8),
        ("deepseek-v3", 671.0),
        ("kimi-k2", 1026.0),
        ("llama-4-maverick", 400.7),
        ("mimo-v2-flash", 309.0),
        ("nemotron-h-56b", 56.0),
        ("jamba", 51.6),
        ("smollm2-135m", 0.1345),
    ] {
        let parameters = catalogue::find(name).unwrap().model().unwrap().parameters.unwrap();
        let error = parameters.count() as f64 / 1e9 / billions - 1.0;
        assert!(
            error.abs() < 0.015,
            "{name}: {:.3} thousand million, {error:+.4}",
            parameters.count() as f64 / 1e9
        );
    }
}

#[test]
fn pools_follow_from_vllms_own_counters() {
    let pool = |name, blocks| {
        let model = catalogue::find(name).unwrap().model().unwrap();
        let bytes = vllm_pool(&model, Deployment::new(Engine::Vllm, KvType::F16), blocks);
        bytes.0 as f64 / (1u64 << 30) as f64
    };
    // 1952 blocks of 16 tokens in a log's 3.81 GiB, 7351 in 57.4; Gemma's 70 layer slots share 15 997 blocks.
    assert_eq!(pool("llama-3.1-8b", 1952), 3.8125);
    assert!((pool("llama-2-7b", 7351) - 57.4).abs() < 0.05);
    assert!((pool("gemma-3-27b", 15_997) - 19.53).abs() < 0.005);
}

#[test]
fn a_page_of_attention_is_as_large_as_a_recurrent_state() {
    let model = catalogue::find("qwen3-next-80b").unwrap().model().unwrap();
    assert_eq!(Cache::new(&model, Deployment::new(Engine::Vllm, KvType::F16)).block_tokens(), 544);
}

#[test]
fn a_draft_layer_pads_its_kind_or_is_padded() {
    // 12 windowed layers and 12 full ones with a draft's: 13 of each, not 12 and 24.
    let mut model = catalogue::find("gpt-oss-20b").unwrap().model().unwrap();
    model.draft_layers = 1;
    let deployment = Deployment { draft: true, ..Deployment::new(Engine::Vllm, KvType::F16) };
    assert_eq!(Cache::new(&model, deployment).per_token().0, 26 * 2048);
    // A draft model of its own shape and reach comes on top, with its own layers.
    let both = catalogue::find("llama-3.1-70b").unwrap().model().unwrap();
    let both = both.with_draft(&catalogue::find("llama-3.2-1b").unwrap().model().unwrap());
    assert_eq!(both.kv_per_token(KvType::F16).0, 327_680 + 32_768);
}
