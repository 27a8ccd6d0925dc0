//! A child under way.
//!
//! It appends as fast as it can and says what was acknowledged. A small C library, preloaded into it, makes calls fail while
//! a file says so; the parent writes that file. So nothing here depends on time: the parent waits for so many
//! acknowledgements, turns the fault on, waits for so many refusals, turns it off, and in the end counts.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::child::{DIR, ROLE};

/// How long the parent waits for so many lines: far longer than a slow machine takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A child, and what it said so far.
pub(crate) struct Run {
    pub(crate) dir: PathBuf,
    child: Child,
    lines: Receiver<String>,
    acknowledged: Vec<u64>,
    pub(crate) refused: BTreeMap<String, usize>,
    pub(crate) recorded: Vec<u64>,
    /// How long it took to open the file, with what an earlier child left in the log.
    pub(crate) opened: Option<Duration>,
    _own: Option<tempfile::TempDir>,
}

impl Run {
    pub(crate) fn start(role: &str) -> Self {
        let own = tempfile::tempdir().unwrap();
        let mut run = Self::start_in(role, own.path());
        run._own = Some(own);
        run
    }

    pub(crate) fn start_in(role: &str, dir: &Path) -> Self {
        let shadow = dir.join("shadow");
        std::fs::create_dir_all(&shadow).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
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
        let (dir, opened) = (dir.to_path_buf(), None);
        Self { dir, child, lines, acknowledged, refused, recorded, opened, _own: None }
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.dir.join("history.db")
    }

    pub(crate) fn wait_for_acknowledged(&mut self, more: usize) {
        let wanted = self.acknowledged.len() + more;
        let deadline = Instant::now() + PATIENCE;
        while self.acknowledged.len() < wanted {
            self.read_line(deadline);
        }
    }

    /// The fault is on until so many calls have failed; how long it took afterwards until one was acknowledged.
    pub(crate) fn fault(&mut self, name: &str, refusals: usize) -> Duration {
        self.say("fault", name);
        let wanted = self.refused.values().sum::<usize>() + refusals;
        let deadline = Instant::now() + PATIENCE;
        while self.refused.values().sum::<usize>() < wanted {
            self.read_line(deadline);
        }
        self.say("fault", "none");
        let mended = Instant::now();
        self.wait_for_acknowledged(1);
        mended.elapsed()
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
        } else if let Some(us) = line.strip_prefix("opened ") {
            self.opened = Some(Duration::from_micros(us.parse().unwrap()));
        } else if let Some(name) = line.strip_prefix("refused ") {
            *self.refused.entry(name.to_owned()).or_default() += 1;
        }
    }

    /// Lets the child come to an end in order; all that it acknowledged.
    pub(crate) fn stop(&mut self) -> Vec<u64> {
        self.say("stop", "now");
        self.drain();
        assert!(self.child.wait().unwrap().success());
        self.acknowledged.clone()
    }

    pub(crate) fn kill(&mut self) -> Vec<u64> {
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
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/faults/shim.c");
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
