//! Listening TCP sockets of a network namespace, as `/proc/PID/net` shows them, and where the host reaches them.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use crate::proc::descriptor::open_files;
use crate::proc::file::read_text;

/// The kernel prints listening sockets before all others, 150 bytes each: this is some seven thousand of them.
const TABLE_CAP: u64 = 1 << 20;
/// A node with a thousand routes has some 200 KiB.
const ROUTES_CAP: u64 = 1 << 20;
/// State `TCP_LISTEN` (include/net/tcp_states.h).
const LISTEN: &str = "0A";

/// A listening socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Listener {
    /// What it is bound to.
    pub(crate) address: SocketAddr,
    /// The socket's inode, by which its owner is found.
    pub(crate) inode: u64,
}

/// The listening sockets in the network namespace of the process whose directory is `process`.
pub(crate) fn listeners(process: &Path) -> Vec<Listener> {
    let table = |name| read_text(&process.join("net").join(name), TABLE_CAP).unwrap_or_default();
    let tables = [table("tcp"), table("tcp6")];
    tables.iter().flat_map(|table| table.lines()).filter_map(listener).collect()
}

/// One line: `sl local remote state queues timer retransmits uid timeout inode ...` (proc(5)).
fn listener(line: &str) -> Option<Listener> {
    let mut fields = line.split_ascii_whitespace();
    let local = fields.nth(1)?;
    if fields.nth(1)? != LISTEN {
        return None;
    }
    let inode = fields.nth(5)?.parse().ok()?;
    let (address, port) = local.split_once(':')?;
    let address = SocketAddr::new(ip(address)?, u16::from_str_radix(port, 16).ok()?);
    Some(Listener { address, inode })
}

/// The kernel prints each 32-bit word of an address as a number of the machine's own byte order.
fn ip(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| Some(u32::from_str_radix(hex.get(at * 8..at * 8 + 8)?, 16).ok()?.to_ne_bytes());
    match hex.len() {
        8 => Some(IpAddr::V4(Ipv4Addr::from(word(0)?))),
        32 => {
            let bytes = [word(0)?, word(1)?, word(2)?, word(3)?].concat();
            Some(IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)))
        }
        _ => None,
    }
}

/// The IPv4 addresses that the namespace of `process` itself has, loopback left out: the host routes marked `LOCAL`.
pub(crate) fn own_addresses(process: &Path) -> Vec<Ipv4Addr> {
    addresses(&read_text(&process.join("net/fib_trie"), ROUTES_CAP).unwrap_or_default())
}

fn addresses(fib_trie: &str) -> Vec<Ipv4Addr> {
    let mut found = Vec::new();
    let mut leaf: Option<Ipv4Addr> = None;
    for line in fib_trie.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            leaf = address.parse().ok();
        } else if line == "/32 host LOCAL" {
            found.extend(leaf.filter(|address| !address.is_loopback() && !found.contains(address)));
        }
    }
    found
}

/// Where the host reaches what is bound to `bound`. In the host's own namespace that is loopback or the very address;
/// in another it is an address of that namespace, `own`, and never loopback: there the port would be somebody else's.
pub(crate) fn reachable(bound: SocketAddr, is_ours: bool, own: &[Ipv4Addr]) -> Option<SocketAddr> {
    let at = |ip: IpAddr| SocketAddr::new(ip, bound.port());
    let ip = bound.ip().to_canonical();
    if is_ours {
        return match ip {
            IpAddr::V4(v4) if v4.is_unspecified() => Some(at(Ipv4Addr::LOCALHOST.into())),
            IpAddr::V6(v6) if v6.is_unspecified() => Some(at(Ipv6Addr::LOCALHOST.into())),
            specific => Some(at(specific)),
        };
    }
    match ip {
        _ if ip.is_loopback() => None,
        _ if ip.is_unspecified() => own.first().map(|first| at((*first).into())),
        IpAddr::V4(v4) => own.contains(&v4).then(|| at(ip)),
        IpAddr::V6(_) => None,
    }
}

/// Whether a socket bound to `bound` answers at `asked`.
pub(crate) fn answers(bound: SocketAddr, asked: SocketAddr) -> bool {
    let (ip, wanted) = (bound.ip().to_canonical(), asked.ip().to_canonical());
    bound.port() == asked.port() && (ip == wanted || ip.is_unspecified())
}

/// The inodes of the sockets that the process whose directory is `process` has open; empty where that is hidden.
pub(crate) fn held(process: &Path) -> HashSet<u64> {
    let Ok(files) = open_files(process) else { return HashSet::new() };
    let inode = |target: &str| target.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok();
    files.filter_map(|file| inode(file.target.to_str()?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn our_own_listeners_are_found_with_their_owner() {
        let own = Path::new("/proc/self");
        for bound in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0"] {
            // A machine without IPv6 has nothing to find there.
            let Ok(socket) = TcpListener::bind(bound) else { continue };
            let address = socket.local_addr().unwrap();
            let found = listeners(own).into_iter().find(|listener| listener.address == address).unwrap();
            assert!(held(own).contains(&found.inode));
            drop(socket);
            assert!(!listeners(own).contains(&found));
        }
    }

    #[test]
    fn only_listening_lines_that_are_whole_are_read() {
        let line = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12345 1 0 100";
        let wanted = Listener { address: "127.0.0.1:8080".parse().unwrap(), inode: 12_345 };
        assert_eq!(listener(line), Some(wanted));
        assert_eq!(listener(&line.replace(" 0A ", " 01 ")), None);
        assert_eq!(
            listener("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt"),
            None
        );
        let inode = line.find("12345").unwrap();
        assert!((0..inode).all(|cut| listener(&line[..cut]).is_none()));
        assert_eq!(ip("0000000000000000FFFF00000100007F").unwrap().to_canonical(), Ipv4Addr::LOCALHOST);
    }

    #[test]
    fn a_namespace_s_own_addresses_are_its_host_routes() {
        let text = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 127.0.0.1\n        /32 host LOCAL\n     |-- 10.1.2.0\n        /24 link UNICAST\n     |-- 10.1.2.3\n        /32 host LOCAL\n     |-- 10.1.2.255\n        /32 link BROADCAST\nLocal:\n     |-- 10.1.2.3\n        /32 host LOCAL\n";
        assert_eq!(addresses(text), [Ipv4Addr::new(10, 1, 2, 3)]);
    }

    #[test]
    fn another_namespace_is_never_reached_by_loopback() {
        let own = [Ipv4Addr::new(10, 1, 2, 3)];
        let there = |bound: &str| {
            let at = reachable(bound.parse().unwrap(), false, &own);
            at.map_or_else(|| "-".to_owned(), |at| at.to_string())
        };
        let bound = ["0.0.0.0:80", "[::]:80", "127.0.0.1:80", "10.1.2.3:80", "10.9.9.9:80", "[::1]:80"];
        assert_eq!(bound.map(there), ["10.1.2.3:80", "10.1.2.3:80", "-", "10.1.2.3:80", "-", "-"]);
        let here = |bound: &str| reachable(bound.parse().unwrap(), true, &own).unwrap().to_string();
        assert_eq!(
            ["0.0.0.0:80", "[::]:80", "10.9.9.9:80"].map(here),
            ["127.0.0.1:80", "[::1]:80", "10.9.9.9:80"]
        );
        assert!(answers("0.0.0.0:80".parse().unwrap(), "127.0.0.1:80".parse().unwrap()));
        assert!(!answers("10.0.0.1:80".parse().unwrap(), "127.0.0.1:80".parse().unwrap()));
    }
}
