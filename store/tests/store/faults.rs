//! Disks that fail and processes that are killed.
//!
//! The parent starts this test binary once more as a child that appends ticks as fast as it can and prints each one
//! that was acknowledged. A small C library, preloaded into the child, makes calls fail while a file says so; the
//! parent writes that file. So nothing here depends on time: the parent waits for so many acknowledgements, turns the
//! fault on, waits for so many refusals, turns it off, and in the end counts.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use ebbtide_core::{FindingEvent, TickRecord, Ts};
use ebbtide_store::{Verdicts, Writer};
use sqlx::{Connection, SqliteConnection};

use crate::records::{self, record, sorted, stored};
use crate::verdicts;

/// How long the parent waits for so many lines: far longer than a slow machine takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the child is to do.
const ROLE: &str = "EBBTIDE_STORE_ROLE";
/// Where it is to do it.
const DIR: &str = "EBBTIDE_STORE_DIR";

#[test]
fn no_acknowledged_tick_is_lost_when_writes_fail() {
    survives("eio-write", &["io"]);
}

#[test]
fn no_acknowledged_tick_is_lost_when_flushes_fail() {
    survives("eio-sync", &["io"]);
}

#[test]
fn no_acknowledged_tick_is_lost_when_the_disk_is_full() {
    survives("full", &["full"]);
}

#[test]
fn no_acknowledged_tick_is_lost_when_the_disk_turns_read_only() {
    survives("read-only", &["read-only", "io"]);
}

/// The reason for the writer's one rule. When this fails the driver has been repaired: revise
/// `docs/adr/0001-one-writer-connection.md`.
#[test]
fn a_connection_that_is_kept_after_an_error_acknowledges_what_it_loses() {
    let mut run = Run::start("kept-connection");
    run.wait_for_acknowledged(50);
    run.fault("eio-write", 2);
    run.wait_for_acknowledged(200);
    let acknowledged = run.stop();
    let stored = block_on(async {
        let mut conn = SqliteConnection::connect(run.database().to_str().unwrap()).await.unwrap();
        let seqs: Vec<i64> = sqlx::query_scalar("SELECT seq FROM t").fetch_all(&mut conn).await.unwrap();
        BTreeSet::from_iter(seqs)
    });
    let lost = acknowledged.iter().filter(|seq| !stored.contains(&seq.cast_signed())).count();
    println!("kept connection: {} acknowledged, {lost} lost", acknowledged.len());
    assert!(lost >= 100, "only {lost} of {} acknowledged rows are missing", acknowledged.len());
}

#[test]
fn no_acknowledged_tick_is_lost_when_the_process_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let mut acknowledged = Vec::new();
    for round in 0..10 {
        let mut run = Run::start_in("writer", dir.path());
        // Counts without a common factor with the sixty ticks of a chain and of a checkpoint.
        run.wait_for_acknowledged(17 + round * 37);
        acknowledged.extend(run.kill());
    }
    verify(&dir.path().join("history.db"), &acknowledged);
}

/// What was flushed is all that a power cut leaves at worst: the shim keeps a copy as of the last flush of each file.
#[test]
fn a_power_cut_takes_no_finding_and_no_more_than_a_minute_of_ticks() {
    let mut run = Run::start("verdicts");
    run.wait_for_acknowledged(333);
    let acknowledged = run.kill();
    let newest = acknowledged[acknowledged.len() - 1];
    let left = run.dir.join("shadow/history.db");
    block_on(async {
        assert_eq!(records::complaints(&left).await, [""; 0]);
        let findings = records::reader(&left).findings(Ts(0)).await.unwrap();
        let opened: Vec<i64> = findings.iter().map(|finding| finding.opened_at.0).collect();
        for seq in &run.recorded {
            assert!(opened.contains(&seq.cast_signed()), "the finding of tick {seq} was acknowledged");
        }
        assert!(run.recorded.len() >= 2, "{:?}", run.recorded);
        let (ticks, unreadable) = stored(&left).await;
        let lost = newest.saturating_sub(ticks[ticks.len() - 1].tick.seq);
        println!("power cut: {newest} acknowledged, the last {lost} lost");
        assert!(unreadable == 0 && lost <= 60 && ticks.len() as u64 + lost >= newest);
    });
}

/// Two times the fault comes and goes, the second time about when the first window is sealed; all that was acknowledged
/// before, between and after is in the file.
fn survives(fault: &str, names: &[&str]) {
    let mut run = Run::start("writer");
    for _ in 0..2 {
        run.wait_for_acknowledged(465);
        run.fault(fault, 20);
    }
    run.wait_for_acknowledged(100);
    let acknowledged = run.stop();
    println!("{fault}: {} acknowledged, refused {:?}", acknowledged.len(), run.refused);
    let (expected, total) = (
        names.iter().filter_map(|name| run.refused.get(*name)).sum::<usize>(),
        run.refused.values().sum::<usize>(),
    );
    // The fault may end in the middle of a call, which then cannot tell what it was: once for each time.
    assert!(expected + 2 >= total, "each refusal says what is wrong: {:?}", run.refused);
    assert!(run.refused.contains_key(names[0]), "{:?}", run.refused);
    verify(&run.database(), &acknowledged);
}

fn verify(path: &Path, acknowledged: &[u64]) {
    block_on(async {
        assert_eq!(records::complaints(path).await, [""; 0]);
        let (ticks, unreadable) = stored(path).await;
        assert_eq!(unreadable, 0);
        let ticks: BTreeMap<u64, TickRecord> = ticks.into_iter().map(|tick| (tick.tick.seq, tick)).collect();
        for seq in acknowledged {
            assert_eq!(ticks.get(seq), Some(&sorted(record(*seq))), "tick {seq} was acknowledged");
        }
    });
}

/// A child under way.
struct Run {
    dir: PathBuf,
    child: Child,
    lines: Receiver<String>,
    acknowledged: Vec<u64>,
    refused: BTreeMap<String, usize>,
    recorded: Vec<u64>,
    _own: Option<tempfile::TempDir>,
}

impl Run {
    fn start(role: &str) -> Self {
        let own = tempfile::tempdir().unwrap();
        let mut run = Self::start_in(role, own.path());
        run._own = Some(own);
        run
    }

    fn start_in(role: &str, dir: &Path) -> Self {
        let shadow = dir.join("shadow");
        std::fs::create_dir_all(&shadow).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "faults::child", "--ignored", "--nocapture"])
            .env(ROLE, role)
            .env(DIR, dir)
            .env("EBBTIDE_FAULT", dir.join("fault"))
            .env("EBBTIDE_SHADOW", &shadow)
            .env("LD_PRELOAD", shim(dir))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let (acknowledged, refused, recorded) = (Vec::new(), BTreeMap::new(), Vec::new());
        Self { dir: dir.to_path_buf(), child, lines, acknowledged, refused, recorded, _own: None }
    }

    fn database(&self) -> PathBuf {
        self.dir.join("history.db")
    }

    fn wait_for_acknowledged(&mut self, more: usize) {
        let wanted = self.acknowledged.len() + more;
        let deadline = Instant::now() + PATIENCE;
        while self.acknowledged.len() < wanted {
            self.read_line(deadline);
        }
    }

    /// The fault is on until so many calls have failed.
    fn fault(&mut self, name: &str, refusals: usize) {
        self.say("fault", name);
        let wanted = self.refused.values().sum::<usize>() + refusals;
        let deadline = Instant::now() + PATIENCE;
        while self.refused.values().sum::<usize>() < wanted {
            self.read_line(deadline);
        }
        self.say("fault", "none");
    }

    fn read_line(&mut self, deadline: Instant) {
        let left = deadline.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "not in time; refused so far: {:?}", self.refused);
        let line = self.lines.recv_timeout(left).expect("the child goes on writing");
        self.note(&line);
    }

    fn note(&mut self, line: &str) {
        if let Some(seq) = line.strip_prefix("acknowledged ") {
            self.acknowledged.push(seq.parse().unwrap());
        } else if let Some(seq) = line.strip_prefix("recorded ") {
            self.recorded.push(seq.parse().unwrap());
        } else if let Some(name) = line.strip_prefix("refused ") {
            *self.refused.entry(name.to_owned()).or_default() += 1;
        }
    }

    /// Lets the child come to an end in order; all that it acknowledged.
    fn stop(&mut self) -> Vec<u64> {
        self.say("stop", "now");
        self.drain();
        assert!(self.child.wait().unwrap().success());
        self.acknowledged.clone()
    }

    fn kill(&mut self) -> Vec<u64> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.drain();
        self.acknowledged.clone()
    }

    fn drain(&mut self) {
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            self.note(&line);
        }
    }

    /// Writes a file that the child or its shim looks at, in one step.
    fn say(&self, file: &str, word: &str) {
        let draft = self.dir.join("draft");
        std::fs::write(&draft, word).unwrap();
        std::fs::rename(draft, self.dir.join(file)).unwrap();
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn shim(dir: &Path) -> PathBuf {
    let library = dir.join("shim.so");
    if !library.exists() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/store/shim.c");
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"])
            .arg(&library)
            .arg(source)
            .arg("-ldl")
            .status()
            .expect("a C compiler, which building SQLite needs too");
        assert!(built.success());
    }
    library
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

#[test]
#[ignore = "the process that the other tests start and torment"]
fn child() {
    let role = std::env::var(ROLE).expect("started by one of the other tests");
    let dir = PathBuf::from(std::env::var(DIR).unwrap());
    println!();
    match role.as_str() {
        "writer" => block_on(append_ticks(&dir)),
        "verdicts" => block_on(record_findings(&dir)),
        _ => block_on(insert_rows(&dir)),
    }
}

/// Tries each tick until it is acknowledged, as a daemon with a backlog does.
async fn append_ticks(dir: &Path) {
    let mut writer = Writer::new(&dir.join("history.db"));
    let mut seq = writer.next_seq().await.unwrap();
    while !dir.join("stop").exists() {
        match writer.append(&record(seq)).await {
            Ok(()) => {
                tell(&format!("acknowledged {seq}"));
                seq += 1;
            }
            Err(error) => tell(&format!("refused {}", error.name())),
        }
    }
    writer.close().await;
}

/// A finding with each 101st tick.
async fn record_findings(dir: &Path) {
    let mut writer = Writer::new(&dir.join("history.db"));
    for seq in 1.. {
        writer.append(&record(seq)).await.unwrap();
        tell(&format!("acknowledged {seq}"));
        if seq % 101 == 0 {
            let opened = FindingEvent::Opened(verdicts::finding(0, seq.cast_signed()));
            let findings = std::slice::from_ref(&opened);
            writer.record(&Verdicts { findings, ..Verdicts::default() }).await.unwrap();
            tell(&format!("recorded {seq}"));
        }
    }
}

/// What one would write without knowing better: one connection, a transaction each, and on with the next after an
/// error.
async fn insert_rows(dir: &Path) {
    let url = format!("sqlite://{}?mode=rwc", dir.join("history.db").display());
    let mut conn = SqliteConnection::connect(&url).await.unwrap();
    let setup = "PRAGMA journal_mode = WAL; CREATE TABLE t (seq INTEGER PRIMARY KEY)";
    sqlx::raw_sql(setup).execute(&mut conn).await.unwrap();
    let mut seq = 0_i64;
    while !dir.join("stop").exists() {
        seq += 1;
        match insert(&mut conn, seq).await {
            Ok(()) => tell(&format!("acknowledged {seq}")),
            Err(_) => tell("refused plain"),
        }
    }
}

async fn insert(conn: &mut SqliteConnection, seq: i64) -> Result<(), sqlx::Error> {
    let mut tx = conn.begin().await?;
    sqlx::query("INSERT INTO t (seq) VALUES (?)").bind(seq).execute(&mut *tx).await?;
    tx.commit().await
}

fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).unwrap();
}
