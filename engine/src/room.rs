//! How much host memory a workload may take without harming the machine it runs on.

use std::path::Path;

use ebbtide_core::Bytes;

/// Host memory that could be had now without swapping or running into the limit of our own cgroup; `None` where
/// nothing tells.
#[must_use]
pub fn available() -> Option<Bytes> {
    of(Path::new("/proc/meminfo"), Path::new("/sys/fs/cgroup"))
}

fn of(meminfo: &Path, cgroup: &Path) -> Option<Bytes> {
    let host = std::fs::read_to_string(meminfo).ok().and_then(|text| mem_available(&text));
    // A container sees its own group at the root of the mount: version 2, then version 1 (cgroups(7)).
    let unified = headroom(&cgroup.join("memory.max"), &cgroup.join("memory.current"));
    let v1 = cgroup.join("memory");
    let limited =
        unified.or_else(|| headroom(&v1.join("memory.limit_in_bytes"), &v1.join("memory.usage_in_bytes")));
    host.into_iter().chain(limited).min()
}

fn headroom(limit: &Path, usage: &Path) -> Option<Bytes> {
    let number = |path: &Path| std::fs::read_to_string(path).ok()?.trim().parse().ok().map(Bytes);
    Some(number(limit)?.saturating_sub(number(usage)?))
}

/// `MemAvailable` of `/proc/meminfo`, which counts in KiB and calls them kB (proc(5)).
fn mem_available(text: &str) -> Option<Bytes> {
    let value = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024).map(Bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_tighter_of_host_and_container_counts() {
        let dir = tempfile::tempdir().unwrap();
        let meminfo = dir.path().join("meminfo");
        assert_eq!(of(&meminfo, dir.path()), None);
        fs::write(&meminfo, "MemTotal: 9 kB\nMemAvailable:   2048 kB\n").unwrap();
        assert_eq!(of(&meminfo, dir.path()), Some(Bytes::from_mib(2)));
        fs::write(dir.path().join("memory.max"), "1048576\n").unwrap();
        fs::write(dir.path().join("memory.current"), "1048000\n").unwrap();
        assert_eq!(of(&meminfo, dir.path()), Some(Bytes(576)));
        fs::write(dir.path().join("memory.max"), "max\n").unwrap();
        assert_eq!(of(&meminfo, dir.path()), Some(Bytes::from_mib(2)));
    }
}
