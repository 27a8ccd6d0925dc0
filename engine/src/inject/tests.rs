//! Every leak's truth against the kernel's accounts.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::*;
use crate::kv::{Backing, Format, Geometry, PoolOptions};

const SECOND: Duration = Duration::from_secs(1);

fn pool() -> Pool {
    let geometry = Geometry { layers: 1, kv_heads: 1, head_dim: 64 };
    Pool::on_host(geometry, Format::F16, Backing::File, PoolOptions::with_capacity(64)).unwrap()
}

fn injector(leak: &str) -> Injector {
    Injector::new(leak.parse().unwrap(), 10 * SECOND).unwrap()
}

fn at(elapsed: Duration) -> Progress {
    Progress { elapsed, ..Progress::default() }
}

/// Plays `seconds` in steps; the truth of each, which is what the kernel says of the memory file.
fn played(leak: &str, seconds: u32, requests: u64) -> Vec<Bytes> {
    let (mut injector, pool) = (injector(leak), pool());
    let step = |second: u32| {
        let prefixes = Bytes(requests * 10_000);
        injector.follow(Progress { elapsed: second * SECOND, requests, prefixes }).unwrap();
        let leaked = injector.leaked(&pool);
        assert_eq!(injector.vram.allocated().unwrap(), leaked, "{leak} after {second} s");
        leaked
    };
    (0..=seconds).map(step).collect()
}

fn assert_near(found: Bytes, expected: f64, what: &str) {
    assert!((found.0 as f64 - expected).abs() < 4096.0, "{what}: {found} instead of {expected}");
}

#[test]
fn every_leak_of_device_memory_has_the_rate_it_says_by_the_kernels_accounts() {
    const MIB: f64 = 1_048_576.0;
    let scratch = played("scratch:6M", 70, 0);
    assert_eq!(scratch[10], Bytes::ZERO, "not before its time");
    assert_near(scratch[40], 3.0 * MIB, "scratch");
    assert_near(scratch[70], 6.0 * MIB, "scratch");
    let bursts = played("bursts:3M:20", 70, 0);
    assert_eq!([bursts[29], bursts[30], bursts[69]], [0.0, 3.0 * MIB, 6.0 * MIB].map(|b| Bytes(b as u64)));
    let doubling = played("doubling:6M:20", 70, 0);
    // The integral over three periods is (1 + 2 + 4) times that over the first.
    assert_near(doubling[30], 2.0 * MIB / std::f64::consts::LN_2, "doubling");
    assert_near(doubling[70], 7.0 * 2.0 * MIB / std::f64::consts::LN_2, "doubling");
    assert_near(played("per-request:5000", 70, 3)[70], 61.0 * 3.0 * 5000.0, "per-request");
    assert_near(played("prefix-unbounded", 70, 3)[70], 61.0 * 30_000.0, "prefix-unbounded");
}

#[test]
fn a_forgotten_reference_is_a_block_that_the_pool_holds_for_nobody() {
    let (injector, mut pool) = (injector("forgotten-refs:2"), pool());
    assert_eq!(injector.forget_every(9 * SECOND), None);
    assert_eq!(injector.forget_every(10 * SECOND).map(NonZeroU64::get), Some(2));
    for _ in 0..5 {
        let sequence = pool.open();
        pool.append(sequence, 40).unwrap();
        pool.forget(sequence, 1).unwrap();
    }
    let leaked = injector.leaked(&pool);
    assert_eq!(leaked, Bytes(5 * pool.usage().block.0));
    pool.trim();
    // The kernel gives pages; blocks of this geometry are whole ones.
    assert_eq!(pool.memory_held().unwrap(), leaked);
}

#[test]
fn host_memory_is_lost_where_no_device_shows_it() {
    let (mut injector, pool) = (injector("host-ram:120M"), pool());
    let before = resident();
    injector.follow(at(70 * SECOND)).unwrap();
    let leaked = injector.leaked(&pool);
    assert_near(leaked, 120.0 * 1_048_576.0, "host-ram");
    assert_eq!(injector.vram.allocated().unwrap(), Bytes::ZERO);
    let grown = resident().0.saturating_sub(before.0) as f64;
    // Tests beside this one take and free memory too.
    assert!((grown / leaked.0 as f64 - 1.0).abs() < 0.15, "{grown} of {leaked}");
}

/// `RssAnon` of this process, which `/proc/self/status` gives in KiB (proc(5)).
fn resident() -> Bytes {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    Bytes(line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024)
}

#[test]
fn what_is_not_released_at_unloading_is_what_the_pool_still_holds() {
    for (leak, kept) in [("not-released", true), ("scratch:1M", false)] {
        let (mut injector, mut pool) = (injector(leak), pool());
        let sequence = pool.open();
        pool.append(sequence, 160).unwrap();
        pool.publish(sequence, &[7; 160]).unwrap();
        pool.close(sequence).unwrap();
        let held = pool.memory_held().unwrap();
        assert!(held > Bytes::ZERO);
        Injector::unload(Some(&mut injector), &mut pool);
        assert_eq!(pool.memory_held().unwrap(), if kept { held } else { Bytes::ZERO }, "{leak}");
        assert_eq!(injector.leaked(&pool), pool.memory_held().unwrap(), "{leak}");
    }
}

#[test]
fn an_orphan_holds_memory_that_its_parent_does_not() {
    let (mut injector, pool) = (injector("orphan:8M"), pool());
    injector.follow(at(9 * SECOND)).unwrap();
    assert!(injector.orphan.is_none());
    injector.follow(at(10 * SECOND)).unwrap();
    injector.follow(at(11 * SECOND)).unwrap();
    let leaked = injector.leaked(&pool);
    let child = &mut injector.orphan.as_mut().unwrap().child;
    let file = Path::new("/proc").join(child.id().to_string()).join("fd/0");
    // st_blocks counts in units of 512 bytes (stat(2)).
    let held = std::fs::metadata(&file).unwrap().blocks() * 512;
    let name = std::fs::read_link(&file).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!((Bytes(held), leaked), (leaked, Bytes(8 << 20)));
    assert!(name.to_string_lossy().contains("ebbtide-vram"), "{name:?}");
    assert_eq!(injector.vram.allocated().unwrap(), Bytes::ZERO);
}

#[test]
fn a_leak_ends_where_the_machine_would_suffer() {
    let (mut injector, pool) = (injector("doubling:1M:1"), pool());
    injector.ceiling = Bytes(5 << 20);
    injector.follow(at(3600 * SECOND)).unwrap();
    assert_eq!(injector.leaked(&pool), Bytes(5 << 20));
}
