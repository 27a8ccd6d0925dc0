//! `ebbtide db` and `ebbtide import`: what is exported comes back, and what is damaged is said to be.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use ebbtide_core::{
    Absent, GpuCard, GpuKind, GpuUuid, Metric, Point, ProcInfo, ProcKey, ProcessCard, SeriesKey, Tick,
    TickRecord, Ts,
};
use ebbtide_store::Writer;

use crate::runner::{World, stderr, stdout};

/// Ticks of a drawn history: enough for two sealed windows and a tail.
const TICKS: u64 = 2_000;

fn run(world: &World, args: &[&str], file: &Path) -> Output {
    world.ebbtide(args).arg(file).output().unwrap()
}

fn done(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    stdout(output)
}

fn export(world: &World, file: &Path) -> String {
    done(&run(world, &["db", "export"], file))
}

fn import(world: &World, text: &str, name: &str) -> PathBuf {
    let (file, into) = (world.write(&format!("{name}.in"), text), world.path(name));
    done(&world.ebbtide(&["import", "--into"]).arg(&into).arg(&file).output().unwrap());
    into
}

/// A history with absent values, series that come and go, lists that are read now and then, and a clock that is set.
fn history(path: &Path, seed: u64) {
    let mut dice = fastrand::Rng::with_seed(seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut writer = Writer::new(path);
        let mut at = 1_790_000_000_000;
        for seq in 1..=TICKS {
            at += if dice.u32(0..1000) == 0 { dice.i64(-3_600_000..3_600_000) } else { dice.i64(900..1100) };
            let points = points(&mut dice, seq);
            let tick = Tick { seq, at: Ts(at), mono_ms: seq * 1000 };
            let (gpus, processes) = cards(seq, &points);
            writer.append(&TickRecord { tick, points, gpus, processes }).await.unwrap();
        }
        writer.close().await;
    });
}

/// One GPU has a name, the other none, and half of the processes have one.
fn cards(seq: u64, points: &[Point]) -> (Vec<GpuCard>, Vec<ProcessCard>) {
    let uuid = GpuUuid::new("GPU-1");
    let card = GpuCard { uuid, index: 3, name: "odd, \"card\"".into(), kind: GpuKind::Unified };
    let keys = points.iter().filter_map(|point| point.series.proc).filter(|key| key.pid.is_multiple_of(2));
    let processes = keys.map(|key| {
        let name = Ok(format!("worker {}", key.pid));
        let info = ProcInfo { name, ..ProcInfo::absent(Absent::NotYet) };
        ProcessCard { key, info: info.into(), engine: None }
    });
    ((seq == 1).then_some(card).into_iter().collect(), processes.collect())
}

fn points(dice: &mut fastrand::Rng, seq: u64) -> Vec<Point> {
    let mut points = Vec::new();
    let mut push = |gpu: Option<&str>, proc, metric, value| {
        let series = SeriesKey { gpu: gpu.map(GpuUuid::new), proc, metric };
        points.push(Point { series, value });
    };
    push(None, None, Metric::HostAvailableBytes, Some(dice.i64(0..i64::MAX)));
    for gpu in ["GPU-1", "odd, \"name\""] {
        push(Some(gpu), None, Metric::UsedBytes, dice.bool().then(|| dice.i64(0..1 << 36) & !4095));
        push(Some(gpu), None, Metric::UnattributedBytes, Some(dice.i64(-(1 << 30)..1 << 30)));
        if seq.is_multiple_of(5) {
            let pid = u32::try_from(seq / 500).unwrap() + 1;
            let key = ProcKey { pid, start_ticks: pid.is_multiple_of(2).then_some(seq / 500) };
            push(Some(gpu), Some(key), Metric::ProcessBytes, Some(dice.i64(0..1 << 36)));
        }
    }
    points
}

#[test]
fn an_export_that_is_imported_exports_the_same_again() {
    for seed in [1, 2] {
        let world = World::new();
        let first = world.path("first.db");
        history(&first, seed);
        let csv = export(&world, &first);
        assert!(csv.lines().count() as u64 > TICKS * 5, "one line a value");
        let names = ",3,\"odd, \"\"card\"\"\",unified,worker 2\n";
        assert!(csv.contains(names) && !csv.contains("worker 1\n"), "seed {seed}");
        let second = import(&world, &csv, "second.db");
        assert_eq!(export(&world, &second), csv, "seed {seed}");
        let json = done(&run(&world, &["db", "export", "--format", "jsonl"], &first));
        let third = import(&world, &json, "third.db");
        assert_eq!(export(&world, &third), csv, "seed {seed}, as JSON");
        assert_eq!(run(&world, &["db", "verify"], &second).status.code(), Some(0));
    }
}

#[test]
fn what_a_daemon_has_stored_goes_the_same_way_and_is_judged() {
    let world = World::new();
    let mut daemon = world.daemon_on_host(&[]);
    daemon.wait("stored ticks", |status| status.health.stored_ticks >= 20);
    let held = run(&world, &["db", "info", "--json"], &world.database());
    let info: serde_json::Value = serde_json::from_str(&done(&held)).unwrap();
    assert!(info["held_by_pid"].is_number(), "{info}");
    let compacted = run(&world, &["db", "compact"], &world.database());
    assert_eq!(compacted.status.code(), Some(70));
    assert!(stderr(&compacted).contains("another process writes"), "{}", stderr(&compacted));
    assert!(daemon.stop().success());

    let csv = export(&world, &world.database());
    assert!(csv.contains(",used-bytes,") && csv.contains(",host-total-bytes,"), "{csv}");
    let copy = import(&world, &csv, "copy.db");
    assert_eq!(export(&world, &copy), csv);
    assert_eq!(run(&world, &["check", "--json"], &world.path("copy.db.in")).status.code(), Some(0));
}

#[test]
fn a_database_that_a_daemon_holds_takes_no_import() {
    let world = World::new();
    let mut daemon = world.daemon_on_host(&[]);
    daemon.wait("stored ticks", |status| status.health.stored_ticks >= 1);
    let text = "time,gpu,pid,start_ticks,metric,value\n2100-01-01T00:00:00Z,GPU-1,,,used-bytes,5\n";
    let file = world.write("future.csv", text);
    let output = world.ebbtide(&["import", "--into"]).arg(world.database()).arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(70));
    assert!(stderr(&output).contains("another process writes"), "{}", stderr(&output));
    drop(daemon);
}

#[test]
fn an_export_can_be_cut_to_what_is_wanted() {
    let world = World::new();
    let file = world.path("first.db");
    history(&file, 3);
    let all = export(&world, &file);
    let wanted = ["db", "export", "--series", "process-bytes", "--gpu", "GPU-1", "--pid", "2"];
    let cut = done(&run(&world, &wanted, &file));
    let expected: Vec<&str> =
        all.lines().filter(|line| line.contains(",GPU-1,2,") && line.contains(",process-bytes,")).collect();
    assert_eq!(cut.lines().skip(1).collect::<Vec<_>>(), expected);
    let instant = |line: &str| line.split(',').next().unwrap().parse::<jiff::Timestamp>().unwrap();
    let (one, other) = (instant(all.lines().nth(3_000).unwrap()), instant(all.lines().nth(6_000).unwrap()));
    let (from, to) = (one.min(other), one.max(other));
    let bounds = [from.to_string(), to.to_string()];
    let span = done(&run(&world, &["db", "export", "--from", &bounds[0], "--to", &bounds[1]], &file));
    let inside = |line: &&str| (from..=to).contains(&instant(line));
    let expected: Vec<&str> = all.lines().skip(1).filter(inside).collect();
    assert!(!expected.is_empty());
    assert_eq!(span.lines().skip(1).collect::<Vec<_>>(), expected);
    let typo = run(&world, &["db", "export", "--series", "used"], &file);
    assert_eq!(typo.status.code(), Some(64));
}

#[test]
fn nothing_older_than_the_database_is_imported_into_it() {
    let world = World::new();
    let text = "time,gpu,pid,start_ticks,metric,value\n2026-11-30T03:00:00Z,GPU-1,,,used-bytes,5\n";
    let into = import(&world, text, "once.db");
    let again =
        world.ebbtide(&["import", "--into"]).arg(&into).arg(world.path("once.db.in")).output().unwrap();
    assert_eq!(again.status.code(), Some(65));
    assert!(stderr(&again).contains("another database"), "{}", stderr(&again));
    let later = text.replace("03:00", "04:00");
    let file = world.write("later.csv", &later);
    done(&world.ebbtide(&["import", "--into"]).arg(&into).arg(&file).output().unwrap());
    assert_eq!(export(&world, &into).lines().count(), 3);
}

#[test]
fn flipped_bits_are_found_and_named() {
    let world = World::new();
    let file = world.path("first.db");
    history(&file, 4);
    done(&run(&world, &["db", "compact"], &file));
    assert_eq!(run(&world, &["db", "verify"], &file).status.code(), Some(0));
    let mut bytes = fs::read(&file).unwrap();
    // A compacted file has its tables one after the other, the chunks near the end.
    let from = bytes.len() * 2 / 3;
    bytes[from..].chunks_mut(4096).for_each(|page| page[page.len() / 2] ^= 1);
    fs::write(&file, bytes).unwrap();
    let output = run(&world, &["db", "verify"], &file);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(
        stdout(&output).contains("DAMAGED") && stdout(&output).contains("checksum"),
        "{}",
        stdout(&output)
    );

    fs::write(&file, [b"SQLite format 3\0".as_slice(), &[0xff; 8000]].concat()).unwrap();
    assert_eq!(run(&world, &["db", "verify"], &file).status.code(), Some(1));
    let missing = run(&world, &["db", "verify"], &world.path("none.db"));
    assert_eq!(missing.status.code(), Some(65), "{}", stderr(&missing));
}

#[test]
fn compaction_gives_space_back_and_loses_nothing() {
    let world = World::new();
    let file = world.path("first.db");
    history(&file, 5);
    let before = export(&world, &file);
    let said = done(&run(&world, &["db", "compact"], &file));
    assert!(said.contains("before"), "{said}");
    assert_eq!(export(&world, &file), before);
    let info: serde_json::Value =
        serde_json::from_str(&done(&run(&world, &["db", "info", "--json"], &file))).unwrap();
    assert_eq!((&info["free_bytes"], &info["log_bytes"]), (&0.into(), &0.into()), "{info}");
    assert_eq!(info["ticks"]["count"], TICKS);
    assert_eq!(info["last_tick"]["seq"], TICKS);
    assert!(info["held_by_pid"].is_null(), "{info}");
    let text = done(&run(&world, &["db", "info"], &file));
    assert!(text.contains("nobody now"), "{text}");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let world = World::new();
    let file = world.path("first.db");
    history(&file, 6);
    let mut child = world.ebbtide(&["db", "export"]).arg(&file).stdout(Stdio::piped()).spawn().unwrap();
    let mut pipe = child.stdout.take().unwrap();
    pipe.read_exact(&mut [0; 100]).unwrap();
    drop(pipe);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// Three hours, a minute apart, of a card that leaks 40 MiB a minute, as Prometheus answers.
fn answer() -> String {
    let values = |first: u64, rate: i64| -> String {
        let value = |minute: u64| first.saturating_add_signed(rate * minute.cast_signed());
        let pair = |minute| format!("[{},\"{}\"]", 1_790_000_000 + 60 * minute, value(minute));
        (0..180).map(pair).collect::<Vec<_>>().join(",")
    };
    let series = |metric: &str, values: &str| {
        format!(r#"{{"metric":{{"__name__":"{metric}","UUID":"GPU-1","gpu":"0"}},"values":[{values}]}}"#)
    };
    let (used, free) = (values(20_000, 40), values(60_000, -40));
    let all = [series("DCGM_FI_DEV_FB_USED", &used), series("DCGM_FI_DEV_FB_FREE", &free)].join(",");
    format!(r#"{{"status":"success","data":{{"resultType":"matrix","result":[{all}]}}}}"#)
}

#[test]
fn what_prometheus_has_kept_is_judged_and_imported() {
    let world = World::new();
    let into = import(&world, &answer(), "month.db");
    let report = done(&run(&world, &["check", "--json"], &world.path("month.db.in")));
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["series"][0]["gpu"], "GPU-1");
    assert_ne!(report["series"][0]["diagnosis"], "steady", "{report}");
    let csv = done(&run(&world, &["db", "export", "--series", "used-bytes"], &into));
    assert_eq!(csv.lines().count(), 181);
    let first = format!("2026-09-21T14:13:20Z,GPU-1,,,used-bytes,{},0,,discrete,", 20_000_u64 << 20);
    assert_eq!(csv.lines().nth(1), Some(first.as_str()));
    let again = world.write("month.csv", &export(&world, &into));
    let again: serde_json::Value =
        serde_json::from_str(&done(&run(&world, &["check", "--json"], &again))).unwrap();
    assert_eq!(
        again["series"][0]["diagnosis"], report["series"][0]["diagnosis"],
        "the export is judged alike"
    );
}
