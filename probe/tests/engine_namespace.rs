//! An engine in a pod's network namespace. A file of its own, because tests that look for engines try every socket of
//! their process.

#![allow(clippy::unwrap_used, reason = "clippy exempts functions marked #[test], not their helpers")]

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use ebbtide_probe::ProbeConfig;

mod serving;

use serving::{Answer, PATIENCE, Server, config, driver, engine, fill, serve, started, until, vllm};

/// Set for a copy of this test binary that is to serve a page: the address to listen on.
const SERVE_AT: &str = "EBBTIDE_TEST_SERVE_AT";

/// Not a test of its own: what [`Namespace::serve`] runs in another namespace.
#[test]
fn serves_a_page_when_asked_to() {
    let Ok(address) = std::env::var(SERVE_AT) else { return };
    let listener = TcpListener::bind(address).unwrap();
    let page = Mutex::new(Answer::Page(vllm("0.75")));
    std::thread::spawn(move || serve(&listener, &page));
    // Lives until whoever started it closes the pipe.
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
}

/// A network namespace with one end of a pair of interfaces, as a pod has.
#[derive(Debug)]
struct Namespace {
    name: String,
    /// The address inside.
    address: String,
}

impl Namespace {
    /// `None` where this machine or this user cannot make one.
    fn new() -> Option<Self> {
        let id = std::process::id();
        let (name, outside, inside) = (format!("ebbtide-{id}"), format!("eba{id}"), format!("ebb{id}"));
        ip(&["netns", "add", &name])?;
        // A network for benchmarks (RFC 2544), another one for each process that runs this.
        let network = format!("198.18.{}.{}", id % 256, id / 256 % 64 * 4);
        let (prefix, last) = network.rsplit_once('.')?;
        let host = |offset: u32| Some(format!("{prefix}.{}", last.parse::<u32>().ok()? + offset));
        let (outer, address) = (format!("{}/30", host(1)?), host(2)?);
        let namespace = Self { name: name.clone(), address: address.clone() };
        ip(&["link", "add", &outside, "type", "veth", "peer", "name", &inside, "netns", &name])?;
        ip(&["addr", "add", &outer, "dev", &outside])?;
        ip(&["link", "set", &outside, "up"])?;
        ip(&["-n", &name, "addr", "add", &format!("{address}/30"), "dev", &inside])?;
        ip(&["-n", &name, "link", "set", &inside, "up"])?;
        ip(&["-n", &name, "link", "set", "lo", "up"])?;
        Some(namespace)
    }

    fn serve(&self, address: &str) -> Child {
        let me = std::env::current_exe().unwrap();
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(me).args(["--exact", "serves_a_page_when_asked_to"]);
        command.env(SERVE_AT, address).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let server = command.spawn().unwrap();
        // Until it has moved, it is one of our own namespace, and a child of ours.
        let namespace_of = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).unwrap();
        let (_never, pause) = mpsc::channel::<()>();
        let started = Instant::now();
        while namespace_of(&server.id().to_string()) == namespace_of("self") {
            assert!(started.elapsed() < PATIENCE, "it did not move");
            let _ = pause.recv_timeout(Duration::from_millis(5));
        }
        server
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        ip(&["netns", "del", &self.name]);
    }
}

fn ip(arguments: &[&str]) -> Option<()> {
    let output = Command::new("ip").args(arguments).output().ok()?;
    output.status.success().then_some(())
}

/// A pod's engine is read at the pod's own address; what listens on its loopback only is not, and the same port of
/// ours is never taken for it.
#[test]
fn an_engine_in_another_network_namespace_is_reached_at_its_own_address() {
    let Some(namespace) = Namespace::new() else {
        println!("skipped: network namespaces need root and iproute2");
        return;
    };
    // The decoy has the port of the pod's loopback engine, in our own namespace, and would be believed.
    let decoy = Server::start(Answer::Page(vllm("0.1")));
    let port = decoy.address.port();
    for (bound, reached) in [
        (format!("127.0.0.1:{port}"), None),
        ("0.0.0.0:8000".to_owned(), Some(format!("{}:8000", namespace.address))),
    ] {
        let mut server = namespace.serve(&bound);
        let driver = driver(server.id());
        let (_probe, samples) =
            started(ProbeConfig { discover_engines: true, ..config(&driver, Vec::new()) });
        match reached {
            Some(address) => {
                let sample = until(&samples, |sample| fill(sample) == Some(0.75));
                assert_eq!(engine(&sample).unwrap().report.as_ref().unwrap().address, address);
            }
            None => {
                let seen =
                    until(&samples, |sample| sample.gpus.first().is_some_and(|gpu| gpu.processes.is_ok()));
                let later = until(&samples, |sample| sample.tick.seq > seen.tick.seq + 20);
                assert_eq!(engine(&later), None);
            }
        }
        drop(server.stdin.take());
        server.wait().unwrap();
    }
}
