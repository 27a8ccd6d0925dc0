//! Whom a process belongs to and how much host memory it may have: both from its control group.

use std::path::{Component, Path, PathBuf};

use ebbtide_core::text::clean;
use ebbtide_core::{Absent, Bytes, Owner, Pod, Reading};

use super::file::{Missing, read_text};

/// Limits this large are the kernel's way of saying "none": cgroup v1 writes `PAGE_COUNTER_MAX` pages, just under
/// 2^63 bytes (mm/page_counter.c).
const NO_LIMIT: u64 = 1 << 62;
/// A limit file holds one number.
const LIMIT_FILE_CAP: u64 = 64;
/// Groups around a process whose kills are counted; Kubernetes nests five deep.
const MAX_DEPTH: usize = 8;
/// Container ids are SHA-256 digests in hex (OCI runtimes).
const CONTAINER_ID_LEN: usize = 64;

/// One line of `/proc/PID/cgroup`: `hierarchy:controllers:path` (cgroups(7)).
#[derive(Debug, PartialEq, Eq)]
struct Membership<'a> {
    controllers: &'a str,
    path: &'a str,
}

fn memberships(text: &str) -> impl Iterator<Item = Membership<'_>> {
    text.lines().filter_map(|line| {
        let (_hierarchy, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        path.starts_with('/').then_some(Membership { controllers, path })
    })
}

impl Membership<'_> {
    /// Which line is asked first: the unified hierarchy, systemd's own, memory, then any.
    fn rank(&self) -> u8 {
        match self.controllers {
            "" => 0,
            "name=systemd" => 1,
            "memory" => 2,
            _ => 3,
        }
    }
}

/// The owner that `text` (`/proc/PID/cgroup`) tells; names are cleaned. The pod has its uid only.
pub(crate) fn owner(text: &str) -> Owner {
    let mut lines: Vec<Membership<'_>> = memberships(text).collect();
    lines.sort_by_key(Membership::rank);
    Owner {
        unit: lines.iter().find_map(|m| unit(m.path)),
        container: lines.iter().find_map(|m| container(m.path)),
        pod: lines.iter().find_map(|m| pod_uid(m.path)).map(|uid| Pod { uid, namespace: None, name: None }),
    }
}

/// The innermost systemd unit that is no container's scope.
fn unit(path: &str) -> Option<String> {
    path.rsplit('/').find(|part| is_unit(part) && container_id(part).is_none()).map(clean)
}

fn is_unit(part: &str) -> bool {
    [".service", ".scope"].iter().any(|suffix| part.len() > suffix.len() && part.ends_with(suffix))
}

/// The innermost container: a process of Docker in Docker belongs to the inner one.
fn container(path: &str) -> Option<String> {
    path.rsplit('/').find_map(container_id).map(str::to_owned)
}

/// The container id in one path component, in the forms that runtimes write:
/// `docker-ID.scope`, `cri-containerd-ID.scope`, `crio-ID.scope`, `libpod-ID.scope` (systemd driver),
/// `ID` (cgroupfs driver), `SLICE:cri-containerd:ID` (containerd with a mismatched driver).
/// A runtime's monitor (`crio-conmon-ID.scope`) is not in the container.
fn container_id(part: &str) -> Option<&str> {
    let stem = part.strip_suffix(".scope").unwrap_or(part);
    let (runtime, id) = stem.rsplit_once(['-', ':']).unwrap_or(("", stem));
    let is_digest = id.len() == CONTAINER_ID_LEN && id.bytes().all(|b| b.is_ascii_hexdigit());
    (is_digest && !runtime.ends_with("conmon")).then_some(id)
}

/// The uid of a Kubernetes pod: `kubepods-burstable-podUID.slice` with underscores (systemd driver), `podUID`
/// (cgroupfs driver). A static pod's uid is a digest of 32 hex digits.
fn pod_uid(path: &str) -> Option<String> {
    if !path.contains("kubepods") {
        return None;
    }
    path.rsplit(['/', ':']).find_map(|part| {
        let part = part.strip_suffix(".slice").unwrap_or(part);
        let at = part.rfind("pod").filter(|&at| at == 0 || part[..at].ends_with('-'))?;
        let uid = part[at + "pod".len()..].replace('_', "-");
        is_pod_uid(&uid).then_some(uid)
    })
}

fn is_pod_uid(uid: &str) -> bool {
    let digits = uid.bytes().filter(u8::is_ascii_hexdigit).count();
    digits == 32 && uid.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
}

/// The tightest memory limit on the way from the group in `text` to the root of the hierarchy mounted under
/// `mount` (`/sys/fs/cgroup`).
///
/// # Errors
/// `NotSupported` where nothing limits it, `NoPermission` where the group lies outside of what is mounted here (a
/// cgroup namespace of our own) or may not be read.
pub(crate) fn memory_limit(text: &str, mount: &Path) -> Reading<Bytes> {
    let (root, file, path) = memory_group(text, mount).ok_or(Absent::NotSupported)?;
    let inner = Path::new(path.trim_start_matches('/'));
    if inner.components().any(|c| !matches!(c, Component::Normal(_) | Component::CurDir)) {
        return Err(Absent::NoPermission);
    }
    let leaf = root.join(inner);
    if !leaf.is_dir() {
        return Err(Absent::NoPermission);
    }
    let groups = leaf.ancestors().take_while(|group| group.starts_with(&root));
    let limits = groups.map(|group| limit_of(&group.join(file))).collect::<Reading<Vec<_>>>()?;
    limits.into_iter().flatten().min().ok_or(Absent::NotSupported)
}

/// The files that count the kills of the out-of-memory killer in the group in `text` and in those around it, the
/// innermost first; the root has none.
pub(crate) fn kill_counters(text: &str, mount: &Path) -> Vec<PathBuf> {
    let Some((root, limit, path)) = memory_group(text, mount) else { return Vec::new() };
    let inner = Path::new(path.trim_start_matches('/'));
    if inner.components().any(|c| !matches!(c, Component::Normal(_))) {
        return Vec::new();
    }
    let file = if limit == "memory.max" { "memory.events" } else { "memory.oom_control" };
    let leaf = root.join(inner);
    let groups = leaf.ancestors().take_while(|group| group.starts_with(&root) && *group != root);
    groups.take(MAX_DEPTH).map(|group| group.join(file)).collect()
}

/// `text` with every path replaced by the root: in a container without a cgroup namespace the paths are the host's,
/// while the root of the mount is the container's own group.
pub(crate) fn at_mount_root(text: &str) -> String {
    memberships(text).map(|m| format!("0:{}:/\n", m.controllers)).collect()
}

/// Hierarchy root, name of the limit's file, and path of the group that accounts the process's memory: version 1
/// where a line names the controller (also on hybrid systems), else the unified one.
fn memory_group<'a>(text: &'a str, mount: &Path) -> Option<(PathBuf, &'static str, &'a str)> {
    let v1 = memberships(text).find(|m| m.controllers.split(',').any(|c| c == "memory"));
    if let Some(group) = v1 {
        return Some((mount.join("memory"), "memory.limit_in_bytes", group.path));
    }
    let unified = memberships(text).find(|m| m.controllers.is_empty())?;
    let hybrid = mount.join("unified");
    let root = if hybrid.is_dir() { hybrid } else { mount.to_owned() };
    Some((root, "memory.max", unified.path))
}

/// The limit in one file; `None` for "max", for version 1's nameless maximum, and where the group has no such file
/// (the real root, or a group without the controller).
fn limit_of(file: &Path) -> Reading<Option<Bytes>> {
    match read_text(file, LIMIT_FILE_CAP) {
        Ok(text) => Ok(text.trim().parse().ok().filter(|&limit| limit < NO_LIMIT).map(Bytes)),
        Err(Missing::Gone) => Ok(None),
        Err(other) => Err(other.absent()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebbtide_core::units::MIB;
    use proptest::prelude::*;
    use std::fs;

    const ID: &str = "3f4c2a1be09d8c7f6a5b4c3d2e1f00112233445566778899aabbccddeeff0011";
    const UID: &str = "0b6e1f3a-8f1d-4a52-9c37-2f7d1e7a4c55";

    fn of(path: &str) -> (Option<String>, Option<String>, Option<String>) {
        let owner = owner(&format!("0::{path}\n"));
        (owner.unit, owner.container, owner.pod.map(|p| p.uid))
    }

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn units_are_the_innermost_that_are_no_container() {
        assert_eq!(of("/system.slice/vllm.service"), (some("vllm.service"), None, None));
        let user = "/user.slice/user-1000.slice/user@1000.service/app.slice/app-jupyter.service";
        assert_eq!(of(user), (some("app-jupyter.service"), None, None));
        assert_eq!(of("/user.slice/user-0.slice/session-3.scope"), (some("session-3.scope"), None, None));
        assert_eq!(of("/"), (None, None, None));
        assert_eq!(of("/system.slice/.service"), (None, None, None));
    }

    #[test]
    fn kills_are_counted_from_the_process_outwards() {
        let files = |text: &str| -> Vec<String> {
            let found = kill_counters(text, Path::new("/cg"));
            found.iter().map(|file| file.display().to_string()).collect()
        };
        assert_eq!(
            files("0::/system.slice/vllm.service\n"),
            ["/cg/system.slice/vllm.service/memory.events", "/cg/system.slice/memory.events"]
        );
        assert_eq!(files("7:memory:/docker/x\n0::/\n")[0], "/cg/memory/docker/x/memory.oom_control");
        assert_eq!(files("0::/\n"), [""; 0]);
        assert_eq!(files("0::/../../etc\n"), [""; 0]);
    }

    #[test]
    fn containers_of_every_runtime_are_known_by_their_id() {
        for path in [
            format!("/system.slice/docker-{ID}.scope"),
            format!("/docker/{ID}"),
            format!("/machine.slice/libpod-{ID}.scope/container"),
            format!("/system.slice/crio-{ID}.scope"),
            format!("/default/{ID}"),
        ] {
            assert_eq!(of(&path), (None, some(ID), None), "{path}");
        }
        let monitor = format!("crio-conmon-{ID}.scope");
        assert_eq!(of(&format!("/system.slice/{monitor}")), (some(&monitor), None, None));
    }

    #[test]
    fn pods_are_known_under_every_driver() {
        let flat = UID.replace('-', "_");
        for path in [
            format!(
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{flat}.slice/cri-containerd-{ID}.scope"
            ),
            format!("/kubepods.slice/kubepods-pod{flat}.slice/crio-{ID}.scope"),
            format!("/kubepods/besteffort/pod{UID}/{ID}"),
            format!(
                "/system.slice/containerd.service/kubepods-burstable-pod{flat}.slice:cri-containerd:{ID}"
            ),
        ] {
            let (_, container, pod) = of(&path);
            assert_eq!((container, pod), (some(ID), some(UID)), "{path}");
        }
        let podman = format!("/machine.slice/machine-libpod_pod_{ID}.slice/libpod-{ID}.scope");
        assert_eq!(of(&podman), (None, some(ID), None));
    }

    #[test]
    fn version_one_lines_tell_the_same() {
        let text =
            format!("12:cpu,cpuacct:/x\n4:memory:/docker/{ID}\n1:name=systemd:/system.slice/a.service\n");
        let owner = owner(&text);
        assert_eq!((owner.unit, owner.container), (some("a.service"), some(ID)));
    }

    #[test]
    fn the_tightest_limit_on_the_way_up_counts() {
        let dir = tempfile::tempdir().unwrap();
        let leaf = dir.path().join("system.slice/vllm.service");
        fs::create_dir_all(&leaf).unwrap();
        let text = "0::/system.slice/vllm.service\n";
        assert_eq!(memory_limit(text, dir.path()), Err(Absent::NotSupported));
        fs::write(leaf.join("memory.max"), "max\n").unwrap();
        assert_eq!(memory_limit(text, dir.path()), Err(Absent::NotSupported));
        fs::write(leaf.join("memory.max"), format!("{}\n", 900 * MIB)).unwrap();
        fs::write(dir.path().join("system.slice/memory.max"), format!("{}\n", 500 * MIB)).unwrap();
        assert_eq!(memory_limit(text, dir.path()), Ok(Bytes::from_mib(500)));
    }

    #[test]
    fn version_one_and_foreign_groups_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let leaf = dir.path().join("memory/job");
        fs::create_dir_all(&leaf).unwrap();
        fs::write(leaf.join("memory.limit_in_bytes"), "9223372036854771712\n").unwrap();
        assert_eq!(memory_limit("4:memory:/job\n0::/\n", dir.path()), Err(Absent::NotSupported));
        fs::write(leaf.join("memory.limit_in_bytes"), "1048576\n").unwrap();
        assert_eq!(memory_limit("4:memory:/job\n0::/\n", dir.path()), Ok(Bytes(1 << 20)));
        assert_eq!(memory_limit("4:memory:/../other\n", dir.path()), Err(Absent::NoPermission));
        assert_eq!(memory_limit("4:memory:/not-here\n", dir.path()), Err(Absent::NoPermission));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(raw in proptest::collection::vec(any::<u8>(), 0..300), path in "(/(kube|pods|pod|[a-f0-9]{64}|[-:_.é]|\\.scope|\\.slice)*){0,5}") {
            let dir = std::env::temp_dir();
            for text in [String::from_utf8_lossy(&raw).into_owned(), format!("0::{path}"), format!("4:memory:/{path}\n")] {
                let owner = owner(&text);
                prop_assert!(owner.container.is_none_or(|id| id.len() == CONTAINER_ID_LEN));
                prop_assert!(owner.pod.is_none_or(|pod| is_pod_uid(&pod.uid)));
                let _ = memory_limit(&text, &dir);
            }
        }
    }
}
