//! `ebbtide engine`: a load served by the real binary, its books, and what is left when it ends.

use crate::runner::{World, stderr, stdout};

#[test]
fn a_load_is_served_with_everything_on_and_nothing_is_left_behind() {
    let world = World::new();
    let output = world.run(&[
        "engine",
        "--geometry=layers=2,heads=2,kv_heads=1,head_dim=32,ffn=64,context=256",
        "--load=closed:12",
        "--kv-format=int8",
        "--window=96",
        "--preempt=offload",
        "--pool-mib=1",
        "--running=12",
        "--verify",
        "--json",
        "--seconds=3",
    ]);
    assert!(output.status.success(), "{}{}", stdout(&output), stderr(&output));
    let report: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert!(report["served"].as_u64().unwrap() > 0, "{report}");
    assert!(report["blocks_dropped_behind_window"].as_u64().unwrap() > 0, "{report}");
    let checks = report["checks"].as_array().unwrap();
    assert_eq!(checks.len(), 7);
    assert!(checks.iter().all(|check| check["expected"] == check["found"]), "{report}");
}

#[test]
fn a_leak_is_told_with_its_true_size() {
    let world = World::new();
    let output = world.run(&["engine", "--inject=scratch:60M", "--seconds=2", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let leaked = report["injected_leak_bytes"].as_u64().unwrap() as f64 / f64::from(1 << 20);
    assert_eq!(report["device_bytes_beside"], report["injected_leak_bytes"], "{report}");
    // A mebibyte a second, up to the last turn.
    let seconds = report["seconds"].as_f64().unwrap();
    assert!(leaked > 0.0 && leaked <= seconds, "{leaked} MiB in {seconds} s");
}

#[test]
fn what_is_no_load_and_no_leak_is_wrong_usage() {
    let world = World::new();
    for wrong in ["--load=everybody", "--inject=scratch", "--geometry=layers=0", "--listen=here"] {
        let output = world.run(&["engine", wrong]);
        assert_eq!(output.status.code(), Some(64), "{wrong}: {}", stderr(&output));
    }
}
