//! Finds out which GPU processes an engine's figures belong to, and which of their sockets an engine answers on.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use ebbtide_core::ProcKey;

use super::kin::Census;
use super::sockets::{Listener, answers, held, listeners, own_addresses, reachable};
use super::target::{EngineTarget, Scraper};
use super::watch::Shared;

/// Between two looks while an engine's process, or a process's engine, is not known: a server listens only minutes
/// after its process has taken GPU memory, when its model is loaded. Doubled with each look that leaves it so, for
/// most processes without an engine never have one, and a look costs 20 ms among a hundred processes.
const LOOK_EVERY: Duration = Duration::from_secs(15);
/// The longest of these: a server is found in at most twice the time it took to listen, or this more.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(300);
/// Between two looks when all are known: each reads two small files of every process there is.
const REST: Duration = Duration::from_secs(60);
/// What answered as no engine is left alone for this long.
const REFUSED_FOR: Duration = Duration::from_secs(600);
/// What did not answer is asked again at the next look: the engine may be loading, or its network just coming up.
const SILENT_FOR: Duration = Duration::from_secs(10);
/// Sockets tried in one look: an engine has a handful, and the rest waits for the next look.
const TRIED_AT_ONCE: usize = 32;
/// Sockets remembered as no engine's.
const MAX_REFUSED: usize = 1024;

/// Looks at processes and sockets, on a thread of its own.
#[derive(Debug)]
pub(crate) struct Scout {
    shared: Arc<Shared>,
    proc: PathBuf,
    discover: bool,
    /// Until when a socket of a process is not tried again.
    refused: HashMap<(SocketAddr, ProcKey), Instant>,
}

/// A network namespace with holders of GPU memory, or our own.
#[derive(Debug)]
struct Network {
    is_ours: bool,
    /// The holders of GPU memory in it: a server and its GPU process share a namespace.
    holders: Vec<ProcKey>,
    addresses: Vec<Ipv4Addr>,
    listeners: Vec<Listener>,
}

impl Scout {
    /// One that has seen nothing yet.
    pub(crate) fn new(shared: Arc<Shared>, proc: PathBuf, discover: bool) -> Self {
        Self { shared, proc, discover, refused: HashMap::new() }
    }

    /// Looks whenever `changes` says so, and now and then anyway, until the watch is closed.
    pub(crate) fn run(mut self, changes: &Receiver<()>) {
        let mut next = LOOK_EVERY;
        while !self.shared.is_closed() {
            let is_settled = self.look();
            let pause = if is_settled { REST } else { next };
            next = match changes.recv_timeout(pause) {
                Err(RecvTimeoutError::Timeout) if !is_settled => (next * 2).min(LOOK_AT_LEAST_EVERY),
                _ => LOOK_EVERY,
            };
        }
    }

    /// Whether every engine has its processes and, where engines are to be found, every process its engine.
    fn look(&mut self) -> bool {
        let mut holders = self.shared.holders();
        if holders.is_empty() {
            // Nothing to give figures to, and no reason to look at every process there is.
            self.shared.review(|_, watched| {
                watched.attached.clear();
                !watched.is_found
            });
            return true;
        }
        let census = Census::of(&self.proc);
        holders.retain(|key| census.has(*key));
        let networks = self.networks(&census, &holders);
        let owners = Owners::of(&census, &networks, &holders);
        let mut read = HashSet::new();
        let (mut is_settled, mut known) = (true, HashSet::new());
        self.shared.review(|_, watched| {
            watched.attached = match (watched.target.pid, watched.address) {
                (Some(pid), _) => census.nearest(&[pid], &holders),
                (None, Some(address)) => owners.answering(&networks, address, &census),
                (None, None) => Vec::new(),
            };
            read.extend(watched.address);
            is_settled &= !watched.attached.is_empty();
            known.extend(watched.attached.iter().copied());
            !watched.is_found || !watched.attached.is_empty()
        });
        if self.discover {
            self.try_sockets(&census, &networks, &owners, &read);
            is_settled &= holders.iter().all(|key| known.contains(key));
        }
        is_settled
    }

    /// Our own namespace and those of `holders`.
    fn networks(&self, census: &Census, holders: &[ProcKey]) -> Vec<Network> {
        let name = |dir: &Path| std::fs::read_link(dir.join("ns/net")).ok();
        let own = self.proc.join("self");
        let mut by_name = HashMap::from([(name(&own), 0)]);
        let mut networks = vec![Network::of(&own, true)];
        for key in holders {
            let dir = census.dir(key.pid);
            let namespace = name(&dir);
            // Whose namespace is hidden from us is looked for in our own only.
            let at = by_name.get(&namespace).copied().unwrap_or(if namespace.is_none() {
                0
            } else {
                networks.len()
            });
            if at == networks.len() {
                by_name.insert(namespace, at);
                networks.push(Network::of(&dir, false));
            }
            networks[at].holders.push(*key);
        }
        networks
    }

    /// Asks the sockets that belong to processes on GPUs and that nobody reads yet.
    fn try_sockets(
        &mut self,
        census: &Census,
        networks: &[Network],
        owners: &Owners,
        read: &HashSet<SocketAddr>,
    ) {
        let now = Instant::now();
        self.refused.retain(|_, until| *until > now);
        if self.refused.len() > MAX_REFUSED {
            self.refused.clear();
        }
        let mut tried = 0;
        for (network, listener) in networks.iter().flat_map(|n| n.listeners.iter().map(move |l| (n, l))) {
            let Some(address) = network.reach(listener).filter(|address| !read.contains(address)) else {
                continue;
            };
            let pids = owners.of_socket(listener);
            let attached = census.nearest(pids, &network.holders);
            let Some(owner) = pids.first().and_then(|pid| census.key(*pid)) else { continue };
            if attached.is_empty() || self.refused.contains_key(&(address, owner)) || tried >= TRIED_AT_ONCE {
                continue;
            }
            tried += 1;
            self.ask(address, owner, attached);
        }
    }

    fn ask(&mut self, address: SocketAddr, owner: ProcKey, attached: Vec<ProcKey>) {
        let target = EngineTarget { address: address.to_string(), ..EngineTarget::default() };
        let read = Scraper::new(&target, Arc::clone(self.shared.tables())).and_then(|mut s| s.scrape());
        match read {
            Ok(_) => self.shared.watch(target, true, attached),
            Err(error) => {
                let rest = if error.is_silence() { SILENT_FOR } else { REFUSED_FOR };
                self.refused.insert((address, owner), Instant::now() + rest);
            }
        }
    }
}

impl Network {
    /// That of the process whose directory is `member`.
    fn of(member: &Path, is_ours: bool) -> Self {
        Self { is_ours, holders: Vec::new(), addresses: own_addresses(member), listeners: listeners(member) }
    }

    fn reach(&self, listener: &Listener) -> Option<SocketAddr> {
        reachable(listener.address, self.is_ours, &self.addresses)
    }

    /// Whether `address`, as seen from our own namespace, is one of this one's.
    fn has(&self, address: SocketAddr) -> bool {
        match address.ip().to_canonical() {
            IpAddr::V4(v4) => (self.is_ours && v4.is_loopback()) || self.addresses.contains(&v4),
            IpAddr::V6(v6) => self.is_ours && v6.is_loopback(),
        }
    }
}

/// Which processes hold which listening sockets.
#[derive(Debug)]
struct Owners {
    by_inode: HashMap<u64, Vec<u32>>,
}

impl Owners {
    /// Only processes that belong with a holder are looked at: listing the open files of all would cost more than all
    /// the rest of the probe.
    fn of(census: &Census, networks: &[Network], holders: &[ProcKey]) -> Self {
        let wanted: HashSet<u64> = networks.iter().flat_map(|n| &n.listeners).map(|l| l.inode).collect();
        let mut by_inode: HashMap<u64, Vec<u32>> = HashMap::new();
        let is_near = |pid: &u32| holders.iter().any(|key| census.nearness(*pid, key.pid).is_some());
        for pid in census.pids().filter(is_near) {
            for inode in held(&census.dir(pid)).intersection(&wanted) {
                by_inode.entry(*inode).or_default().push(pid);
            }
        }
        by_inode.values_mut().for_each(|pids| pids.sort_unstable());
        Self { by_inode }
    }

    fn of_socket(&self, listener: &Listener) -> &[u32] {
        self.by_inode.get(&listener.inode).map_or(&[], Vec::as_slice)
    }

    /// The GPU processes of whoever answers at `address`.
    fn answering(&self, networks: &[Network], address: SocketAddr, census: &Census) -> Vec<ProcKey> {
        let there = networks.iter().filter(|network| network.has(address));
        let attached = there.flat_map(|network| {
            let sockets = network.listeners.iter().filter(|listener| answers(listener.address, address));
            let pids: Vec<u32> = sockets.flat_map(|socket| self.of_socket(socket)).copied().collect();
            census.nearest(&pids, &network.holders)
        });
        attached.collect()
    }
}
