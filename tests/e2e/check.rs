//! `ebbtide check`: the contract, and what people see.

use std::fmt::Write;
use std::path::PathBuf;

use ebbtide_core::{
    Finding, FindingEvent, FindingKey, FindingKind, GpuUuid, SeriesPart, SeriesRef, Severity, Subject, Tier,
    Ts,
};
use ebbtide_store::{Verdicts, Writer};

use crate::runner::{World, stderr, stdout};

/// An hour at 5 s: half of it level, then 40 MiB a minute on a 24 GiB card.
fn leaking_log() -> String {
    let mut csv = "time,used_mib,total_mib,kv_used_mib,running\n".to_owned();
    for step in 0..720 {
        let seconds = step * 5;
        let leaked = (seconds - 1800).max(0) * 40 / 60;
        writeln!(csv, "{},{},24576,1024,8", 1_790_000_000 + seconds, 8192 + leaked).unwrap();
    }
    csv
}

#[test]
fn the_json_contract_holds() {
    let world = World::new();
    let file = world.write("leak.csv", &leaking_log());
    let output = world.ebbtide(&["check", "--json"]).arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    insta::assert_snapshot!("check_json", serde_json::to_string_pretty(&shape(&report)).unwrap());
}

/// The form of a document: names and types, each list by its first entry. What the detector measures may change,
/// what scripts rely on may not.
fn shape(value: &serde_json::Value) -> serde_json::Value {
    use serde_json::Value;
    match value {
        Value::Null => "null".into(),
        Value::Bool(_) => "bool".into(),
        Value::Number(_) => "number".into(),
        Value::String(_) => "string".into(),
        Value::Array(entries) => entries.iter().take(1).map(shape).collect(),
        Value::Object(fields) => fields.iter().map(|(name, field)| (name.clone(), shape(field))).collect(),
    }
}

#[test]
fn people_see_a_chart_the_diagnosis_and_its_evidence() {
    let world = World::new();
    let file = world.write("leak.csv", &leaking_log());
    let output = world.ebbtide(&["check"]).arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    // Digits vary with every refinement of the detector; the words and the layout are what people see.
    let masked: String = stdout(&output).chars().map(|c| if c.is_ascii_digit() { '#' } else { c }).collect();
    insta::assert_snapshot!("check_text", masked);
}

#[test]
fn the_leak_has_its_rate_and_an_exit_code_for_scripts() {
    let world = World::new();
    let file = world.write("leak.csv", &leaking_log());
    let output = world.ebbtide(&["check", "--json", "--exit-code"]).arg(&file).output().unwrap();
    assert!(matches!(output.status.code(), Some(1 | 2)), "{:?}", output.status);
    let report: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let series = &report["series"][0];
    assert_eq!((series["diagnosis"].as_str(), series["alert"].as_bool()), (Some("leak"), Some(true)));
    let leak = series["findings"].as_array().unwrap().iter().find(|f| f["kind"] == "leak").unwrap();
    let rate = leak["rate_bytes_per_s"].as_f64().unwrap() * 60.0 / f64::from(1 << 20);
    assert!((rate / 40.0 - 1.0).abs() < 0.1, "{rate} MiB/min");
    let onset = leak["onset_at_ms"].as_i64().unwrap() / 1000 - 1_790_000_000;
    assert!((onset - 1800).abs() < 300, "the leak began at 1800 s, not at {onset} s");
}

#[test]
fn garbage_is_skipped_and_counted_and_a_file_of_garbage_says_so() {
    let world = World::new();
    let mixed = leaking_log().replace("1790000300,", "\u{1b}[31m???\n1790000300,");
    let file = world.write("mixed.csv", &mixed);
    let output = world.ebbtide(&["check", "--json"]).arg(&file).output().unwrap();
    let report: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(report["file"]["skipped"], 1);
    assert!(!stdout(&output).contains('\u{1b}'), "control characters never leave");

    let file = world.write("garbage.csv", "once upon a time\nthere was no CSV\n");
    let output = world.ebbtide(&["check"]).arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(65));
    assert!(stderr(&output).contains("garbage.csv"), "{}", stderr(&output));
    let missing = world.run(&["check", "/nowhere.csv"]);
    assert_eq!(missing.status.code(), Some(65));
}

#[test]
fn standard_input_is_a_file_too() {
    let world = World::new();
    let file = world.write("leak.csv", &leaking_log());
    let output = world.ebbtide(&["check", "-"]).stdin(std::fs::File::open(file).unwrap()).output().unwrap();
    assert!(stdout(&output).contains("LEAK"), "{}", stdout(&output));
}

/// The same log as a history, with a finding that whoever kept it made of it.
fn leaking_history(world: &World) -> PathBuf {
    let (log, db) = (world.write("leak.csv", &leaking_log()), world.path("leak.db"));
    let import = world.ebbtide(&["import", "--into"]).arg(&db).arg(&log).output().unwrap();
    assert_eq!(import.status.code(), Some(0), "{}", stderr(&import));
    let at = Ts(1_790_002_400_000);
    let found = Finding {
        key: FindingKey {
            series: SeriesRef { gpu: GpuUuid::new("0"), part: SeriesPart::Device },
            kind: FindingKind::Growth,
        },
        subject: Subject::default(),
        tier: Tier::Early,
        severity: Severity::Info,
        opened_at: at,
        resolved_at: None,
        onset_at: None,
        rate: None,
        grown: None,
        forecast: None,
        evidence: Vec::new(),
        summary: String::new(),
        settle: String::new(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut writer = Writer::new(&db);
        let findings = &[FindingEvent::Opened(found)];
        writer.record(&Verdicts { findings, ..Verdicts::default() }).await.unwrap();
        writer.close().await;
    });
    db
}

#[test]
fn a_history_is_judged_again_with_other_settings_and_beside_what_was_found_then() {
    let world = World::new();
    let db = leaking_history(&world);
    let judged = |args: &[&str], code: i32| {
        let output = world.ebbtide(&["check", "--json", "--exit-code", "--db"]).arg(&db).args(args).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", stderr(&output));
        serde_json::from_str::<serde_json::Value>(&stdout(&output)).unwrap()
    };
    let told = |report: &serde_json::Value| -> Vec<String> {
        let alerts = report["series"][0]["alerts"].as_array().unwrap();
        alerts.iter().map(|alert| alert["kind"].as_str().unwrap().to_owned()).collect()
    };
    let now = judged(&[], 1);
    assert_eq!((&now["file"]["lines"], &now["series"][0]["diagnosis"]), (&720.into(), &"leak".into()));
    assert_eq!(now["series"][0]["found_then"][0]["kind"], "growth");
    assert_eq!(told(&now), ["leak"]);
    // The card lasts for another six hours: only a daemon that looks so far ahead would have told.
    let far_ahead = judged(&["--set", "detect.imminent_minutes=1000"], 2);
    assert!(told(&far_ahead).contains(&"imminent".to_owned()), "{:?}", told(&far_ahead));
    let fired =
        |report: &serde_json::Value| report["series"][0]["alerts"][0]["fired_at_ms"].as_i64().unwrap();
    let careful = judged(&["--set", "detect.fleet_gpus=1000000"], 1);
    assert!(fired(&careful) >= fired(&now));
    let before = judged(&["--to", "1790001800"], 0);
    assert_eq!((&before["file"]["lines"], &before["series"][0]["alert"]), (&361.into(), &false.into()));
    assert_eq!(before["series"][0]["found_then"], serde_json::json!([]));
    let text = world.ebbtide(&["check", "--db"]).arg(&db).output().unwrap();
    for line in ["found then: growth from ", "told now:   leak at "] {
        assert!(stdout(&text).contains(line), "{}", stdout(&text));
    }
}

#[test]
fn a_history_that_is_none_and_a_wrong_usage_have_their_exit_codes() {
    let world = World::new();
    let db = leaking_history(&world);
    let code = |args: &[&str]| world.ebbtide(&["check"]).args(args).arg("--db").arg(&db).output().unwrap();
    let later = code(&["--from", "2100-01-01"]);
    assert!(later.status.code() == Some(65) && stderr(&later).contains("no tick"), "{}", stderr(&later));
    assert_eq!(code(&["--set", "detect.false_pages_per_week=0"]).status.code(), Some(78));
    assert_eq!(code(&["leak.csv"]).status.code(), Some(64), "a file or a database");
    assert_eq!(world.run(&["check"]).status.code(), Some(64));
    assert_eq!(world.run(&["check", "--db", "/nowhere.db"]).status.code(), Some(65));
}
