//! `ebbtide lab`: all strategies on the bundled model, as small as they come.

use crate::runner::{World, stderr, stdout};

/// A load and a text that an unoptimised build gets through.
const SMALL: [&str; 11] = [
    "lab",
    "--quick",
    "--requests",
    "2",
    "--context",
    "128",
    "--texts",
    "1",
    "--text-tokens",
    "128",
    "--html=lab.html",
];

#[test]
fn strategies_are_told_as_json_and_as_a_page() {
    let world = World::new();
    let output = world.run(&[&SMALL[..], &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let lab: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let rows = lab["rows"].as_array().unwrap();
    assert_eq!((&lab["model"], rows.len()), (&"tiny".into(), 13));
    assert_eq!(lab["memory_bytes"], 4 * 128 * 1024, "four contexts of a KiB a token");
    for row in rows {
        let (name, service) = (&row["name"], &row["service"]);
        assert_eq!((&service["served"], &service["unequal_steps"]), (&2.into(), &0.into()), "{name}");
        assert!(row["pace"]["decode_tokens_per_s"].as_f64().unwrap() > 0.0, "{name}");
        assert!(row["judgement"]["perplexity"].as_f64().unwrap() > 1.0, "{name}");
    }
    let figures = lab["figures"].as_array().unwrap();
    assert!(figures.iter().any(|figure| figure["wanted"]["at_most"] == 0.52), "{figures:#?}");
    let page = std::fs::read_to_string(world.path("lab.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.matches("<svg").count() == rows.len());
}

#[test]
fn what_cannot_be_tried_is_said() {
    let world = World::new();
    world.write("short.txt", "too short");
    let output = world.run(&["lab", "--quick", "--text", "short.txt"]);
    assert_eq!(output.status.code(), Some(70));
    assert!(stderr(&output).contains("9 tokens and 513"), "{}", stderr(&output));
    let output = world.run(&["lab", "--model", "nowhere.gguf"]);
    assert!(stderr(&output).contains("nowhere.gguf"), "{}", stderr(&output));
    assert_eq!(world.run(&["lab", "--json", "--markdown"]).status.code(), Some(64));
}
