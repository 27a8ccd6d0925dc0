use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use super::*;
use crate::message::tests::firing;
use crate::sinks::halt::HaltSwitch;

/// A script in a directory of its own, run through `/bin/sh`, so that no test trips over a file that another test's
/// fork still holds open for writing.
struct Hook {
    dir: tempfile::TempDir,
    exec: Exec,
    halt: Halt,
    switch: HaltSwitch,
}

impl Hook {
    fn new(script: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hook.sh");
        fs::write(&path, script).unwrap();
        let argv = ["/bin/sh", path.to_str().unwrap(), dir.path().to_str().unwrap()].map(str::to_owned);
        let config = ExecConfig { argv: argv.into(), timeout_ms: 30_000 };
        let (switch, halt) = Halt::new().unwrap();
        Self { dir, exec: Exec { config, term: Duration::from_millis(300) }, halt, switch }
    }

    fn limit_ms(mut self, ms: u64) -> Self {
        self.exec.config.timeout_ms = ms;
        self
    }

    fn run(&self) -> Attempt {
        self.exec.attempt(&Message::new(&firing()).unwrap(), &self.halt)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.file(name)).unwrap()
    }
}

fn reason(attempt: Attempt) -> String {
    match attempt {
        Attempt::Failed { reason } | Attempt::Retry { reason, .. } => reason,
        Attempt::Delivered => panic!("delivered"),
    }
}

/// Whether a process is gone, or dead and only waiting for its parent to take note.
fn gone(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit(')').next().is_none_or(|rest| rest.is_empty() || rest.trim_start().starts_with(['Z', 'X']))
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let (_switch, halt) = Halt::new().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < deadline, "not reached: {what}");
        halt.wait(Duration::from_millis(5));
    }
}

#[test]
fn a_hook_gets_the_event_on_stdin_and_a_small_clean_environment() {
    let hook = Hook::new("cat > $1/stdin; env > $1/env; pwd > $1/pwd");
    assert_eq!(hook.run(), Attempt::Delivered);
    let event = firing();
    assert_eq!(serde_json::from_str::<ebbtide_core::AlertEvent>(&hook.read("stdin")).unwrap(), event);
    assert_eq!(hook.read("pwd"), "/\n");
    let env = hook.read("env");
    for line in ["EBBTIDE_KIND=leak", "EBBTIDE_UNIT=vllm.service", "EBBTIDE_PROCESS=vllm [2J serve"] {
        assert!(env.lines().any(|l| l == line), "{line} is missing in {env}");
    }
    // `_` and the like are the shell's own.
    let foreign: Vec<&str> = env
        .lines()
        .filter_map(|line| line.split('=').next())
        .filter(|name| !name.starts_with("EBBTIDE_") && !INHERITED.contains(name))
        .filter(|name| !["PWD", "OLDPWD", "SHLVL", "_"].contains(name))
        .collect();
    assert_eq!(foreign, [""; 0]);
}

#[test]
fn exit_codes_mean_delivered_later_and_never() {
    assert_eq!(Hook::new("exit 0").run(), Attempt::Delivered);
    assert!(matches!(Hook::new("echo busy; exit 75").run(), Attempt::Retry { .. }));
    let failed = Hook::new("echo no such pager >&2; exit 3").run();
    assert_eq!(reason(failed), "failed with exit code 3; it said: no such pager");
    assert!(reason(Hook::new("kill -9 $$").run()).contains("signal: 9"));
}

#[test]
fn a_hook_that_hangs_is_ended_with_its_whole_group() {
    let hook = Hook::new("sleep 600 & echo $! > $1/child; echo $$ > $1/self; wait").limit_ms(1_000);
    let said = reason(hook.run());
    assert!(said.starts_with("did not end within 1000 ms"), "{said}");
    for file in ["self", "child"] {
        wait_until(file, || gone(&hook.read(file)));
    }
}

#[test]
fn a_hook_that_ignores_sigterm_is_killed() {
    let hook =
        Hook::new("trap '' TERM; echo $$ > $1/self; while :; do read x < /dev/zero; done").limit_ms(500);
    assert!(matches!(hook.run(), Attempt::Failed { .. }));
    wait_until("self", || gone(&hook.read("self")));
}

#[test]
fn a_grandchild_that_holds_the_output_open_delays_nothing() {
    let hook = Hook::new("sleep 600 & echo $! > $1/child; echo paged; exit 0");
    assert_eq!(hook.run(), Attempt::Delivered, "the end of the process counts, not that of its output");
    assert!(!gone(&hook.read("child")), "what a hook leaves running on purpose is left alone");
    let child: i32 = hook.read("child").trim().parse().unwrap();
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(child).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
}

#[test]
fn a_gigabyte_of_output_is_read_and_forgotten() {
    let hook = Hook::new("head -c 1000000000 /dev/zero; echo done > $1/done; exit 4").limit_ms(120_000);
    let limits = Limits { run: Duration::from_secs(120), term: Duration::from_secs(1) };
    let message = Message::new(&firing()).unwrap();
    let ended = supervision::run(hook.exec.command(&message), b"", limits, &hook.halt).unwrap();
    assert_eq!(hook.read("done"), "done\n");
    assert_eq!(ended.status.and_then(|status| status.code()), Some(4));
    assert_eq!(ended.output.len(), supervision::MAX_OUTPUT_BYTES);
}

#[test]
fn a_hook_that_does_not_read_its_input_is_not_a_failure() {
    let hook = Hook::new("exec <&-; exit 0");
    let limits = Limits { run: Duration::from_secs(60), term: Duration::from_secs(1) };
    let message = Message::new(&firing()).unwrap();
    let flood = vec![b'x'; 4 << 20];
    let ended = supervision::run(hook.exec.command(&message), &flood, limits, &hook.halt).unwrap();
    assert!(ended.status.is_some_and(|status| status.success()) && !ended.timed_out);
}

#[test]
fn the_end_of_the_daemon_stops_a_hook_that_runs() {
    let hook = Hook::new("echo $$ > $1/self; sleep 600").limit_ms(600_000);
    let self_file = hook.file("self");
    let Hook { dir, exec, halt, switch } = hook;
    let message = Message::new(&firing()).unwrap();
    let attempt = std::thread::spawn(move || exec.attempt(&message, &halt));
    wait_until("the hook runs", || fs::read_to_string(&self_file).is_ok_and(|pid| pid.ends_with('\n')));
    switch.throw(Instant::now() + Duration::from_millis(200));
    assert_eq!(reason(attempt.join().unwrap()), "was stopped because the daemon is ending");
    let pid = fs::read_to_string(dir.path().join("self")).unwrap();
    wait_until("self", || gone(&pid));
}

#[test]
fn a_hook_that_others_may_write_is_never_started() {
    let hook = Hook::new("touch $1/ran");
    let path = hook.file("hook.sh");
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let argv = vec![path.to_str().unwrap().to_owned(), hook.dir.path().to_str().unwrap().to_owned()];
    let exec = Exec::new(ExecConfig::new(argv));
    let said = reason(exec.attempt(&Message::new(&firing()).unwrap(), &hook.halt));
    assert!(said.contains("chmod go-w"), "{said}");
    assert!(!hook.file("ran").exists());
}
