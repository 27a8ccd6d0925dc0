//! Engines that are asked over HTTP beside a fake GPU: whose figures they are, and that no answer disturbs a tick.

#![allow(clippy::unwrap_used, reason = "clippy exempts functions marked #[test], not their helpers")]

use std::process::{Command, Stdio};

use ebbtide_core::{Absent, Bytes};
use ebbtide_probe::{EngineTarget, ProbeConfig};

mod serving;

use serving::{Answer, PATIENCE, Server, config, driver, engine, fill, started, until, vllm};

#[test]
fn the_cache_fills_while_the_memory_stays() {
    let driver = driver(std::process::id());
    let server = Server::start(Answer::Page(vllm("0.1")));
    let target = EngineTarget { kv_bytes_per_token: Some(65_536), ..server.target() };
    let (_probe, samples) = started(config(&driver, vec![target]));
    let before = until(&samples, |sample| fill(sample) == Some(0.1));
    server.set(Answer::Page(vllm("0.9")));
    let after = until(&samples, |sample| fill(sample) == Some(0.9));
    let (before, after) = (engine(&before).unwrap(), engine(&after).unwrap());
    assert_eq!(before.kv_pool, Ok(Bytes(54_568 * 16 * 65_536)));
    assert_eq!(before.kv_pool, after.kv_pool);
    assert_eq!(before.kv_used, Ok(Bytes(5_457 * 16 * 65_536)));
    assert_eq!(after.kv_used, Ok(Bytes(49_110 * 16 * 65_536)));
    assert_eq!((after.running, after.waiting), (Ok(42), Ok(1)));
}

#[test]
fn figures_of_an_engine_that_hangs_grow_old_and_the_ticks_go_on() {
    let driver = driver(std::process::id());
    let server = Server::start(Answer::Page(vllm("0.5")));
    let (probe, samples) = started(config(&driver, vec![server.target()]));
    let fresh = until(&samples, |sample| fill(sample).is_some());
    server.set(Answer::Silence);
    let old = until(&samples, |sample| engine(sample).is_some_and(|e| e.running == Err(Absent::Timeout)));
    let report = engine(&old).unwrap().report.as_ref().unwrap();
    assert_eq!((report.engine.as_str(), report.kv.fill), ("vLLM", Err(Absent::Timeout)));
    let said =
        until(&samples, |sample| sample.probe.notes.iter().any(|note| note.contains("no whole answer")));
    // Two seconds pass before a silent engine is given up, and samples are 100 ms apart.
    assert!(said.tick.seq > fresh.tick.seq + 10, "no tick waited for it");
    server.set(Answer::Page(vllm("0.6")));
    until(&samples, |sample| fill(sample) == Some(0.6));
    assert!(probe.stop(PATIENCE));
}

fn whole(body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// Each hostile answer marks its target bad, with a reason, and the good one beside it is read on.
#[test]
fn a_hostile_answer_spoils_its_own_target_only() {
    let page = vllm("0.5");
    let open = format!("HTTP/1.1 200 OK\r\n\r\n{}", page.trim_end());
    let long_label = format!("vllm:kv_cache_usage_perc{{x=\"{}\"}} 1\n", "y".repeat(1 << 20));
    let gauge = "vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 4\n";
    let hostile = [
        (Answer::Raw(whole(page.as_bytes())[..20_000].to_vec()), "breaks off"),
        (Answer::Raw(open.into_bytes()), "breaks off"),
        (Answer::Raw(whole(vllm("1e400").as_bytes())), "out of range"),
        (Answer::Raw(whole(format!("{gauge}{gauge}").as_bytes())), "twice"),
        (Answer::Raw(whole(long_label.as_bytes())), "label value"),
        (Answer::Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 50000000\r\n\r\n".to_vec()), "larger than"),
        (Answer::Raw([b"HTTP/1.1 200 OK\r\n\r\n".as_slice(), &vec![b'#'; 9 << 20]].concat()), "larger than"),
        (Answer::Raw(whole(b"\x1b[31m<html>")), "makes no sense"),
        (Answer::Raw(b"SSH-2.0-OpenSSH_9.6\r\n".to_vec()), "no HTTP"),
        (Answer::Page("up 1\n".to_owned()), "no table describes"),
        (Answer::Drip, "no whole answer in time"),
    ];
    let driver = driver(std::process::id());
    let good = Server::start(Answer::Page(page));
    let servers: Vec<_> = hostile.iter().map(|(answer, _)| Server::start(answer.clone())).collect();
    let mut targets = vec![good.target()];
    targets.extend(servers.iter().map(Server::target));
    let (_probe, samples) = started(config(&driver, targets));
    for (server, (_, reason)) in servers.iter().zip(&hostile) {
        let address = server.address.to_string();
        let is_said = |note: &String| note.contains(&address) && note.contains(reason);
        let sample = until(&samples, |sample| sample.probe.notes.iter().any(is_said));
        assert!(sample.probe.notes.iter().all(|note| !note.contains('\x1b')));
    }
    until(&samples, |sample| fill(sample) == Some(0.5));
}

/// vLLM's server listens in the parent, and the memory is its child's.
#[test]
fn figures_belong_to_the_child_that_holds_the_memory() {
    let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let driver = driver(child.id());
    let server = Server::start(Answer::Page(vllm("0.5")));
    let (_probe, samples) = started(config(&driver, vec![server.target()]));
    let sample = until(&samples, |sample| fill(sample).is_some());
    assert_eq!(sample.gpus[0].processes.as_ref().unwrap().entries[0].key.pid, child.id());
    drop(child.stdin.take());
    child.wait().unwrap();
    until(&samples, |sample| engine(sample).is_none());
}

#[test]
fn a_target_s_pid_says_whose_its_figures_are() {
    let driver = driver(std::process::id());
    let server = Server::start(Answer::Page(vllm("0.5")));
    // Larger than the kernel's largest PID, 4,194,304.
    let stranger = EngineTarget { pid: Some(1 << 30), ..server.target() };
    let (probe, samples) = started(config(&driver, vec![stranger]));
    let nobody = |note: &String| note.contains("no GPU process is known to be its own");
    let sample = until(&samples, |sample| sample.probe.notes.iter().any(nobody));
    assert!(engine(&sample).is_none());
    assert!(probe.stop(PATIENCE));
    let ours = EngineTarget { pid: Some(std::process::id()), ..server.target() };
    let (_probe, samples) = started(config(&driver, vec![ours]));
    until(&samples, |sample| fill(sample) == Some(0.5));
}

#[test]
fn an_engine_is_found_by_the_socket_of_its_process() {
    let driver = driver(std::process::id());
    let server = Server::start(Answer::Page(vllm("0.25")));
    let (_probe, samples) = started(ProbeConfig { discover_engines: true, ..config(&driver, Vec::new()) });
    let sample = until(&samples, |sample| fill(sample).is_some());
    let report = engine(&sample).unwrap().report.clone().unwrap();
    // Tests of this file share a process, and each has an engine.
    assert!(report.address.starts_with("127.0.0.1:") && report.engine == "vLLM");
    drop(server);
}
