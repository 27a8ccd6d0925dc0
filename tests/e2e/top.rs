//! `ebbtide top` in a real terminal: what stands on the screen, and how it is left.

use std::io::{Read, Write};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

use crate::runner::{DEADLINE, World};

/// The dashboard in a terminal of its own.
struct Terminal {
    screen: vt100::Parser,
    bytes: Vec<u8>,
    output: Receiver<Vec<u8>>,
    input: Box<dyn Write + Send>,
    child: Box<dyn Child + Send + Sync>,
    _master: Box<dyn MasterPty + Send>,
}

impl Terminal {
    fn running(world: &World, size: (u16, u16), args: &[&str]) -> Self {
        let (rows, cols) = size;
        let cells = |n: u16| n.try_into().unwrap();
        let pty = native_pty_system().openpty(PtySize { rows, cols, ..PtySize::default() }).unwrap();
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_ebbtide"));
        command.arg("top");
        command.args(args);
        command.env_clear();
        command.env("TERM", "xterm-256color");
        command.env("TZ", "UTC");
        command.env("EBBTIDE_SOCKET", world.socket());
        let child = pty.slave.spawn_command(command).unwrap();
        drop(pty.slave);
        let mut reader = pty.master.try_clone_reader().unwrap();
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = reader.read(&mut buffer) {
                if sender.send(buffer[..n].to_vec()).is_err() {
                    break;
                }
            }
        });
        let input = pty.master.take_writer().unwrap();
        Self {
            screen: vt100::Parser::new(cells(rows), cells(cols), 0),
            bytes: Vec::new(),
            output,
            input,
            child,
            _master: pty.master,
        }
    }

    /// Reads until the screen shows `text`.
    fn wait_for(&mut self, text: &str) {
        let deadline = Instant::now() + DEADLINE;
        while !self.screen.screen().contents().contains(text) {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(bytes) = self.output.recv_timeout(left) else {
                panic!("no {text:?} on the screen:\n{}", self.screen.screen().contents());
            };
            self.take(&bytes);
        }
    }

    fn press(&mut self, keys: &str) {
        self.input.write_all(keys.as_bytes()).unwrap();
        self.input.flush().unwrap();
    }

    /// Reads to the end; the exit code.
    fn end(&mut self) -> u32 {
        while let Ok(bytes) = self.output.recv_timeout(DEADLINE) {
            self.take(&bytes);
        }
        self.child.wait().unwrap().exit_code()
    }

    fn take(&mut self, bytes: &[u8]) {
        self.screen.process(bytes);
        self.bytes.extend_from_slice(bytes);
    }

    /// Whether the last word on each mode that was switched gives the shell its terminal back.
    fn is_restored(&self) -> bool {
        let last = |sequence: &[u8]| self.bytes.windows(sequence.len()).rposition(|w| w == sequence);
        let (entered, left) = (last(b"\x1b[?1049h"), last(b"\x1b[?1049l"));
        entered.is_some() && left > entered && last(b"\x1b[?25h") > last(b"\x1b[?25l")
    }
}

#[test]
fn the_dashboard_shows_host_memory_and_leaves_the_terminal_as_it_was() {
    let world = World::new();
    let mut daemon = world.daemon_on_host(&[("probe.host_total_mib", "1024")]);
    daemon.wait("a first sample", |s| !s.gpus.is_empty());
    let mut terminal = Terminal::running(&world, (40, 120), &[]);
    terminal.wait_for("host memory, no GPU");
    terminal.press("?");
    terminal.wait_for("quit");
    terminal.press("qq");
    assert_eq!(terminal.end(), 0);
    assert!(terminal.is_restored());
}

#[test]
fn the_dashboard_outlives_its_daemon_and_ends_on_sigterm() {
    let world = World::new();
    let mut daemon = world.daemon_on_host(&[]);
    daemon.wait("a first sample", |s| !s.gpus.is_empty());
    let mut terminal = Terminal::running(&world, (24, 80), &[]);
    terminal.wait_for("GPU");
    assert!(daemon.stop().success());
    terminal.wait_for("no ebbtide daemon answers");
    let mut daemon = world.daemon_on_host(&[]);
    daemon.wait("a sample again", |s| !s.gpus.is_empty());
    terminal.wait_for("host memory");
    let pid = i32::try_from(terminal.child.process_id().unwrap()).unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    terminal.end();
    assert!(terminal.is_restored());
}

#[test]
fn a_database_is_looked_at_without_a_daemon() {
    let world = World::new();
    let mut daemon = world.daemon_on_host(&[("probe.host_total_mib", "1024")]);
    daemon.wait("stored ticks", |s| s.health.stored_ticks > 2);
    assert!(daemon.stop().success());
    let copy = world.path("copy.db");
    std::fs::copy(world.database(), &copy).unwrap();
    let mut terminal = Terminal::running(&world, (40, 120), &["--db", copy.to_str().unwrap()]);
    terminal.wait_for("the recording has ended");
    terminal.wait_for("1.0 GiB");
    terminal.press("q");
    assert_eq!(terminal.end(), 0);
    assert!(terminal.is_restored());
}
