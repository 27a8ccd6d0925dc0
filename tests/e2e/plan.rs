//! `ebbtide plan`: the contract, what people see, and models from files.

use std::fs;
use std::path::PathBuf;

use crate::runner::{World, stderr, stdout};

const H100: [&str; 8] =
    ["plan", "llama-3.1-8b", "--gpu", "h100-80g", "--context", "8192", "--requests", "32"];

fn json(world: &World, args: &[&str]) -> serde_json::Value {
    let output = world.run(&[args, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    serde_json::from_str(&stdout(&output)).unwrap()
}

#[test]
fn the_json_contract_holds() {
    let world = World::new();
    let output = world.run(&[&H100[..], &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    insta::assert_snapshot!("plan_json", stdout(&output));
}

#[test]
fn people_see_a_table_a_bar_a_verdict_and_levers() {
    let world = World::new();
    let output = world.run(&H100);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    insta::assert_snapshot!("plan_text", stdout(&output));
}

#[test]
fn scripts_can_ask_for_an_exit_code() {
    let world = World::new();
    let code = |args: &[&str]| world.run(&[&["plan", "--exit-code"], args].concat()).status.code();
    assert_eq!(code(&["llama-3.1-8b", "--gpu", "h100"]), Some(0));
    assert_eq!(code(&["llama-2-7b", "--gpu", "h100", "--context", "8k", "--requests", "16"]), Some(1));
    assert_eq!(code(&["gemma-3n-e4b", "--gpu", "h100"]), Some(3));
    assert_eq!(code(&["gemma-3n-e4b", "--gpu", "h100", "--weights-gib", "40", "--kv-type", "fp8"]), Some(0));
    assert_eq!(code(&["llama-2-7b"]), Some(0), "nothing was asked of a card");
}

#[test]
fn what_no_name_matches_is_wrong_usage_and_says_what_is_near() {
    let world = World::new();
    let output = world.run(&["plan", "qwen3-33b"]);
    assert_eq!(output.status.code(), Some(64));
    assert!(stderr(&output).contains("Qwen3-32B"), "{}", stderr(&output));
    for args in [
        &["plan"][..],
        &["plan", "llama-2-7b", "--config", "config.json"],
        &["plan", "llama-2-7b", "--gpu", "voodoo2"],
        &["plan", "llama-2-7b", "--gpu", "h100", "--gpu-mib", "1"],
        &["plan", "llama-2-7b", "--context", "0"],
        &["plan", "llama-2-7b", "--kv-type", "q2"],
        &["plan", "llama-2-7b", "--share", "NaN"],
    ] {
        assert_eq!(world.run(args).status.code(), Some(64), "{args:?}");
    }
}

/// A tensor of so many bytes, alone in its file.
fn safetensors(bytes: u64) -> Vec<u8> {
    let header = format!(r#"{{"w":{{"dtype":"U8","shape":[{bytes}],"data_offsets":[0,{bytes}]}}}}"#);
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat()
}

fn config() -> &'static str {
    r#"{"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 4096, "time_step_limit": [0.0, Infinity]}"#
}

#[test]
fn a_folder_gives_the_cache_and_the_weights() {
    let world = World::new();
    let dir = world.path("model");
    fs::create_dir(&dir).unwrap();
    world.write("model/config.json", config());
    fs::write(dir.join("a.safetensors"), safetensors(1 << 20)).unwrap();
    fs::write(dir.join("b.safetensors"), safetensors(1 << 21)).unwrap();
    let report = json(&world, &["plan", "--dir", "model", "--gpu", "8g"]);
    // 2 layers x 2 KV heads x (16 + 16) elements x 2 bytes.
    assert_eq!(report["kv_bytes_per_token"], 256);
    assert_eq!((&report["weights_bytes"], &report["weights_source"]), (&(3 << 20).into(), &"file".into()));
    assert_eq!(report["context"], 4096, "what the model is made for");
    assert_eq!(report["fits"], true);

    world.write("model/model.safetensors.index.json", r#"{"weight_map":{"w":"b.safetensors"}}"#);
    let report = json(&world, &["plan", "--dir", "model"]);
    assert_eq!(report["weights_bytes"], 1 << 21, "the index says which files are the model's");

    world.write("model/model.safetensors.index.json", r#"{"weight_map":{"w":"../../secret.safetensors"}}"#);
    let output = world.run(&["plan", "--dir", "model"]);
    assert_eq!(output.status.code(), Some(65));
    assert!(stderr(&output).contains("model/secret.safetensors"), "{}", stderr(&output));
}

/// A GGUF header with one part of two, and one tensor of `elements` 32-bit floats.
fn gguf(elements: u64) -> Vec<u8> {
    let text = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let number = |key: &str, n: u32| [&text(key)[..], &4u32.to_le_bytes(), &n.to_le_bytes()].concat();
    let architecture = [text("general.architecture"), 8u32.to_le_bytes().to_vec(), text("llama")].concat();
    let entries = [
        architecture,
        number("split.count", 2),
        number("llama.block_count", 2),
        number("llama.embedding_length", 64),
        number("llama.attention.head_count", 4),
        number("llama.attention.head_count_kv", 2),
    ];
    let tensor = [&text("w")[..], &1u32.to_le_bytes(), &elements.to_le_bytes(), &[0; 12]].concat();
    let counts = [1u64.to_le_bytes(), (entries.len() as u64).to_le_bytes()].concat();
    [&b"GGUF"[..], &3u32.to_le_bytes(), &counts, &entries.concat(), &tensor].concat()
}

#[test]
fn a_split_gguf_file_counts_all_of_its_parts() {
    let world = World::new();
    let first = world.path("m-00001-of-00002.gguf");
    fs::write(&first, gguf(1000)).unwrap();
    let args = ["plan", "--engine", "llama.cpp", "--gguf", "m-00001-of-00002.gguf"];
    let report = json(&world, &args);
    assert_eq!((&report["weights_bytes"], &report["kv_bytes_per_token"]), (&4000.into(), &256.into()));
    assert!(report["notes"][0].as_str().unwrap().contains("m-00002-of-00002.gguf"), "{report:#}");
    fs::write(world.path("m-00002-of-00002.gguf"), gguf(500)).unwrap();
    assert_eq!(json(&world, &args)["weights_bytes"], 6000);
}

#[test]
fn files_that_are_no_model_are_refused_by_name() {
    let world = World::new();
    world.write("empty.json", "{}");
    world.write("words.json", "once upon a time");
    world.write("vast.json", r#"{"num_hidden_layers": 18446744073709551615}"#);
    for (option, file) in [
        ("--config", "empty.json"),
        ("--config", "words.json"),
        ("--config", "vast.json"),
        ("--config", "missing.json"),
        ("--gguf", "words.json"),
        ("--dir", "."),
    ] {
        let output = world.run(&["plan", option, file]);
        assert_eq!(output.status.code(), Some(65), "{option} {file}: {}", stdout(&output));
        assert!(stderr(&output).contains(file), "{}", stderr(&output));
    }
}

#[test]
fn the_documented_fields_are_those_of_the_contract() {
    let world = World::new();
    let page = fs::read_to_string(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/plan.md")).unwrap();
    let report = json(&world, &H100);
    for field in report.as_object().unwrap().keys() {
        assert!(page.contains(&format!("`{field}`")), "docs/plan.md does not have {field}");
    }
}
