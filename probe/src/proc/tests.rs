//! Over fixture trees, and over the test process itself as a real one.

use super::*;
use proptest::prelude::*;
use std::fs;
use std::os::unix::fs::symlink;

const ID: &str = "3f4c2a1be09d8c7f6a5b4c3d2e1f00112233445566778899aabbccddeeff0011";

fn tick(mono_ms: u64) -> Tick {
    Tick { seq: mono_ms, at: Ts(0), mono_ms }
}

/// A host: booted at 1000 s, in the initial PID namespace, with all capabilities.
struct Host {
    dir: tempfile::TempDir,
}

impl Host {
    fn new(namespace: &str) -> Self {
        let host = Self { dir: tempfile::tempdir().unwrap() };
        let roots = host.roots();
        let own = roots.proc.join("self");
        fs::create_dir_all(own.join("ns")).unwrap();
        symlink(namespace, own.join("ns/pid")).unwrap();
        fs::write(own.join("status"), "NSpid:\t1\nCapEff:\tffffffffffffffff\n").unwrap();
        fs::write(roots.proc.join("stat"), "cpu 1 2\nbtime 1000\n").unwrap();
        fs::write(roots.proc.join("meminfo"), "MemTotal: 4096 kB\nMemAvailable: 1024 kB\n").unwrap();
        fs::write(&roots.passwd, "root:x:0:0::/:/bin/sh\nserve:x:1001:1001::/:/bin/sh\n").unwrap();
        host
    }

    fn initial() -> Self {
        Self::new("pid:[4026531836]")
    }

    fn roots(&self) -> ProcRoots {
        let at = |name: &str| self.dir.path().join(name);
        ProcRoots {
            proc: at("proc"),
            cgroup: at("cgroup"),
            pods: at("pods"),
            passwd: at("passwd"),
            dev: "/dev".into(),
            machine_id: at("machine-id"),
        }
    }

    fn reader(&self) -> ProcReader {
        ProcReader::new(self.roots())
    }

    fn process(&self, pid: u32, comm: &str, state: char, start: u64) -> PathBuf {
        let dir = self.roots().proc.join(pid.to_string());
        fs::create_dir_all(dir.join("fd")).unwrap();
        let line = format!("{pid} ({comm}) {state} 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {start} 9 10 11\n");
        fs::write(dir.join("stat"), line).unwrap();
        fs::write(dir.join("status"), "Uid:\t1001\t0\t0\t0\n").unwrap();
        fs::write(dir.join("cmdline"), b"python3\0-m\0vllm\0").unwrap();
        fs::write(dir.join("cgroup"), "0::/system.slice/vllm.service\n").unwrap();
        dir
    }
}

#[test]
fn a_process_is_known_by_all_that_proc_tells() {
    let host = Host::initial();
    host.process(7, "VLLM::EngineCor", 'S', 2500);
    let group = host.roots().cgroup.join("system.slice/vllm.service");
    fs::create_dir_all(&group).unwrap();
    fs::write(group.join("memory.max"), "1048576\n").unwrap();
    let facts = host.reader().facts(7, tick(0));
    assert_eq!(facts.key, ProcKey { pid: 7, start_ticks: Some(2500) });
    assert_eq!(facts.liveness, Liveness::Alive);
    assert_eq!(facts.rss, Ok(Bytes(10 * rustix::param::page_size() as u64)));
    assert_eq!(facts.host_limit, Ok(Bytes(1 << 20)));
    let started_ms = 1_000_000 + 2500 * 1000 / rustix::param::clock_ticks_per_second().cast_signed();
    let expected = ProcInfo {
        name: Ok("VLLM::EngineCor".into()),
        command: Ok("python3 -m vllm".into()),
        uid: Ok(1001),
        user: Ok("serve".into()),
        started_at: Ok(Ts(started_ms)),
        owner: Owner { unit: Some("vllm.service".into()), ..Owner::default() },
    };
    assert_eq!(*facts.info, expected);
}

#[test]
fn static_facts_are_read_once_and_again_for_another_program_or_process() {
    let host = Host::initial();
    let dir = host.process(7, "bash", 'S', 5);
    let mut reader = host.reader();
    let first = reader.facts(7, tick(0));
    fs::write(dir.join("cmdline"), b"changed\0").unwrap();
    assert!(Arc::ptr_eq(&first.info, &reader.facts(7, tick(1000)).info));
    host.process(7, "python3", 'S', 5);
    let execed = reader.facts(7, tick(2000));
    assert_eq!(execed.info.name, Ok("python3".into()));
    host.process(7, "python3", 'S', 6);
    assert!(!Arc::ptr_eq(&execed.info, &reader.facts(7, tick(3000)).info));
    fs::write(dir.join("cgroup"), format!("0::/docker/{ID}\n")).unwrap();
    assert_eq!(reader.facts(7, tick(4000)).info.owner.container, None);
    assert_eq!(reader.facts(7, tick(3000 + OWNER_REFRESH_MS)).info.owner.container.as_deref(), Some(ID));
}

#[test]
fn zombies_and_the_dead_keep_the_names_they_had() {
    let host = Host::initial();
    let dir = host.process(7, "python3", 'S', 5);
    let mut reader = host.reader();
    let alive = reader.facts(7, tick(0));
    host.process(7, "python3", 'Z', 5);
    fs::write(dir.join("cmdline"), "").unwrap();
    let zombie = reader.facts(7, tick(OWNER_REFRESH_MS * 2));
    assert_eq!((zombie.liveness, &zombie.info), (Liveness::Zombie, &alive.info));
    fs::remove_dir_all(&dir).unwrap();
    let dead = reader.facts(7, tick(OWNER_REFRESH_MS * 3));
    assert_eq!((dead.liveness, dead.key, &dead.info), (Liveness::Dead, alive.key, &alive.info));
    assert_eq!(dead.rss, Err(Absent::NotSupported));
    let stranger = reader.facts(8, tick(0));
    assert_eq!((stranger.liveness, stranger.key.start_ticks), (Liveness::Dead, None));
}

#[test]
fn the_memory_of_processes_is_bounded() {
    let host = Host::initial();
    let mut reader = host.reader();
    for pid in 1..=3 {
        host.process(pid, "x", 'S', 1);
        reader.facts(pid, tick(u64::from(pid)));
    }
    host.process(4, "x", 'S', 1);
    reader.facts(4, tick(FORGET_AFTER_MS + 2));
    let mut left: Vec<u32> = reader.remembered.keys().copied().collect();
    left.sort_unstable();
    assert_eq!(left, [3, 4]);
}

#[test]
fn in_a_foreign_namespace_no_pid_is_matched_by_number() {
    let host = Host::new("pid:[4026532512]");
    host.process(7, "innocent", 'S', 5);
    let facts = host.reader().facts(7, tick(0));
    assert_eq!((facts.liveness, facts.key.start_ticks), (Liveness::Foreign, None));
    assert_eq!(facts.info.name, Err(Absent::NotSupported));
    assert_eq!(host.reader().for_own_pids().facts(7, tick(0)).liveness, Liveness::Alive);
}

#[test]
fn a_process_behind_hidepid_is_no_dead_one() {
    let host = Host::initial();
    let roots = host.roots();
    let mount = format!("22 27 0:21 / {} rw - proc proc rw,hidepid=invisible\n", roots.proc.display());
    fs::write(roots.proc.join("self/mountinfo"), mount).unwrap();
    fs::write(roots.proc.join("self/status"), "NSpid:\t1\nCapEff:\t0000000000000000\n").unwrap();
    let mut reader = host.reader();
    let ourselves = reader.facts(std::process::id(), tick(0));
    assert_eq!((ourselves.liveness, ourselves.rss), (Liveness::Alive, Err(Absent::NoPermission)));
    assert_eq!(reader.facts(u32::MAX, tick(0)).liveness, Liveness::Dead);
    assert!(reader.notes()[0].contains("hidepid"));
}

#[test]
fn holders_of_device_files_are_named_apart_from_the_listed() {
    let host = Host::initial();
    for (pid, target) in
        [(7, "/dev/nvidia0"), (8, "/dev/nvidiactl"), (9, "/dev/nvidia-modeset"), (10, "/dev/nvidia-uvm")]
    {
        let dir = host.process(pid, &format!("holder-{pid}"), 'S', 5);
        symlink("/dev/null", dir.join("fd/0")).unwrap();
        symlink(target, dir.join("fd/3")).unwrap();
    }
    let holders = host.reader().holders(&BTreeSet::from([8]));
    let names: Vec<&str> = holders.iter().map(|h| h.name.as_str()).collect();
    assert_eq!(names, ["holder-7", "holder-10"]);
    assert_eq!(holders[0].key, ProcKey { pid: 7, start_ticks: Some(5) });
}

#[test]
fn host_memory_is_read_or_absent_with_its_reason() {
    let host = Host::initial();
    assert_eq!(host.reader().host(), HostSample { total: Ok(Bytes(4 << 20)), available: Ok(Bytes(1 << 20)) });
    fs::remove_file(host.roots().proc.join("meminfo")).unwrap();
    assert_eq!(host.reader().host().total, Err(Absent::NotSupported));
}

#[test]
fn the_test_process_itself_is_found_in_the_real_proc() {
    let mut reader = ProcReader::new(ProcRoots::default()).for_own_pids();
    let facts = reader.facts(std::process::id(), tick(0));
    assert_eq!(facts.liveness, Liveness::Alive);
    assert_eq!(facts.info.uid, Ok(rustix::process::getuid().as_raw()));
    assert!(facts.rss.unwrap() > Bytes::from_mib(1));
    assert!(facts.info.command.as_ref().unwrap().contains("ebbtide"));
    let now_ms = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    let age_ms = now_ms as i64 - facts.info.started_at.unwrap().0;
    assert!((-2000..3_600_000).contains(&age_ms), "started {age_ms} ms ago");
    let host = reader.host();
    assert!(host.available.unwrap() < host.total.unwrap());
}

proptest! {
    #[test]
    fn no_bytes_in_any_file_make_the_reader_panic(
        raw in proptest::collection::vec(any::<u8>(), 0..200),
        which in 0..4usize,
    ) {
        let host = Host::initial();
        let dir = host.process(7, "x", 'S', 5);
        fs::write(dir.join(["stat", "status", "cmdline", "cgroup"][which]), &raw).unwrap();
        let facts = host.reader().facts(7, tick(0));
        prop_assert_eq!(facts.key.pid, 7);
        let command = facts.info.command.as_deref().unwrap_or_default();
        prop_assert!(!command.chars().any(char::is_control));
    }
}
