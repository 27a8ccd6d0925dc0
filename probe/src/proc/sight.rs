//! What the probe can see of other processes, and which privilege would open the rest.

use std::path::Path;

use super::file::read_text;
use super::stat::value;

/// Inode of the initial PID namespace: `PROC_PID_INIT_INO` in the kernel's include/linux/proc_ns.h.
const INITIAL_PID_NAMESPACE: u64 = 0xEFFF_FFFC;
/// `CAP_DAC_READ_SEARCH` and `CAP_SYS_PTRACE` in the kernel's include/uapi/linux/capability.h.
const CAP_DAC_READ_SEARCH: u32 = 2;
const CAP_SYS_PTRACE: u32 = 19;
/// Mount tables of container hosts run to a few thousand lines; `/proc` is among the first.
const MOUNT_TABLE_CAP: u64 = 1 << 20;
/// `/proc/self/status` is under 2 KiB, more where many CPUs make long masks.
pub(crate) const STATUS_CAP: u64 = 16 << 10;

/// What is hidden from the probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sight {
    /// Whether PIDs of the driver may name other processes here, or none: our PID namespace is not the host's, or
    /// cannot be told.
    pub(crate) foreign: bool,
    /// Whether other users' processes are invisible, so that a missing `/proc/PID` says nothing.
    pub(crate) hidden: bool,
    proc_missing: bool,
    capabilities: u64,
}

impl Sight {
    /// Looks at the probe's own process under the proc file system at `proc`.
    pub(crate) fn of(proc: &Path) -> Self {
        let own = proc.join("self");
        let status = read_text(&own.join("status"), STATUS_CAP);
        let capabilities = status
            .as_ref()
            .ok()
            .and_then(|text| u64::from_str_radix(value(text, "CapEff")?, 16).ok())
            .unwrap_or(0);
        let nested = status.as_ref().is_ok_and(|text| namespace_depth(text) > 1);
        let groups = status.as_ref().map_or_else(|_| Vec::new(), |text| groups(text));
        let mounts = read_text(&own.join("mountinfo"), MOUNT_TABLE_CAP).unwrap_or_default();
        let sight = Self {
            foreign: nested || pid_namespace(&own) != Some(INITIAL_PID_NAMESPACE),
            hidden: false,
            proc_missing: status.is_err(),
            capabilities,
        };
        // ptrace access lifts hidepid (kernel fs/proc/base.c, has_pid_permissions).
        Self { hidden: hides_pids(&mounts, proc, &groups) && !sight.can(CAP_SYS_PTRACE), ..sight }
    }

    /// One line for each blindness, naming what opens it.
    pub(crate) fn notes(&self, pids_are_ours: bool) -> Vec<String> {
        if self.proc_missing {
            return vec![
                "/proc cannot be read: processes have neither names nor owners; mount it".to_owned(),
            ];
        }
        let mut notes = Vec::new();
        if self.foreign && !pids_are_ours {
            notes.push(
                "this PID namespace is not the host's: the driver's PIDs are not matched with processes here; \
                 run with hostPID: true (Kubernetes) or --pid=host (Docker)"
                    .to_owned(),
            );
        }
        if self.hidden {
            notes.push(
                "/proc is mounted with hidepid: other users' processes are invisible; CAP_SYS_PTRACE, the group of \
                 the mount's gid= option, or ProtectProc=default opens it"
                    .to_owned(),
            );
        }
        let missing: Vec<&str> =
            [(CAP_DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH"), (CAP_SYS_PTRACE, "CAP_SYS_PTRACE")]
                .into_iter()
                .filter_map(|(capability, name)| (!self.can(capability)).then_some(name))
                .collect();
        if !missing.is_empty() {
            let blind = if pids_are_ours {
                "memory files of other users' processes are not counted"
            } else {
                "other users' processes that hold /dev/nvidia* unlisted stay unnamed"
            };
            notes.push(format!(
                "open files of others are invisible, so {blind}; {} opens it",
                missing.join(" with ")
            ));
        }
        notes
    }

    const fn can(&self, capability: u32) -> bool {
        self.capabilities >> capability & 1 == 1
    }
}

/// The inode of the PID namespace of the process at `own`, from the link `pid:[4026531836]`.
fn pid_namespace(own: &Path) -> Option<u64> {
    let link = std::fs::read_link(own.join("ns/pid")).ok()?;
    link.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
}

/// How many PID namespaces `NSpid` names: more than one where `/proc` is that of an outer namespace.
fn namespace_depth(status: &str) -> usize {
    value(status, "NSpid").map_or(0, |pids| pids.split_ascii_whitespace().count())
}

/// The groups of the process that `status` describes: effective and supplementary.
fn groups(status: &str) -> Vec<u32> {
    let effective = value(status, "Gid").and_then(|ids| ids.split_ascii_whitespace().nth(1));
    let supplementary = value(status, "Groups").unwrap_or_default().split_ascii_whitespace();
    effective.into_iter().chain(supplementary).filter_map(|id| id.parse().ok()).collect()
}

/// Whether the mount at `proc` hides processes from a member of `groups`. Line format of mountinfo in proc(5):
/// fields, ` - `, file system type, source, super options; kernels before 5.8 write the number, later ones the
/// word. Of several mounts at one place the last is on top.
fn hides_pids(mounts: &str, proc: &Path, groups: &[u32]) -> bool {
    let on_top = mounts.lines().rev().find_map(|line| {
        let (mount, filesystem) = line.split_once(" - ")?;
        let at = mount.split(' ').nth(4)?;
        (Path::new(at) == proc).then_some(filesystem)
    });
    let options = on_top.filter(|fs| fs.starts_with("proc ")).and_then(|fs| fs.rsplit(' ').next());
    let option = |key: &str| options.and_then(|all| all.split(',').find_map(|o| o.strip_prefix(key)));
    let exempt = option("gid=").and_then(|gid| gid.parse().ok()).is_some_and(|gid| groups.contains(&gid));
    match option("hidepid=") {
        None | Some("0" | "off") => false,
        // The group of gid= does not lift this one.
        Some("4" | "ptraceable") => true,
        Some(_) => !exempt,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// A `/proc` with a `self` only.
    fn proc_of(namespace: u64, nspid: &str, capabilities: u64, options: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("self");
        fs::create_dir_all(own.join("ns")).unwrap();
        symlink(format!("pid:[{namespace}]"), own.join("ns/pid")).unwrap();
        fs::write(own.join("status"), format!("Name:\tx\nNSpid:\t{nspid}\nCapEff:\t{capabilities:016x}\n"))
            .unwrap();
        let mount = format!("22 27 0:21 / {} rw,relatime - proc proc rw,{options}\n", dir.path().display());
        fs::write(own.join("mountinfo"), mount).unwrap();
        dir
    }

    #[test]
    fn root_on_the_host_is_blind_to_nothing() {
        let dir = proc_of(INITIAL_PID_NAMESPACE, "7", u64::MAX, "hidepid=invisible");
        let sight = Sight::of(dir.path());
        assert!(!sight.foreign && !sight.hidden);
        assert_eq!(sight.notes(false), Vec::<String>::new());
    }

    #[test]
    fn a_container_is_told_from_the_host_by_its_namespace() {
        let inside = proc_of(4_026_532_512, "7", u64::MAX, "x");
        assert!(Sight::of(inside.path()).foreign);
        assert!(Sight::of(inside.path()).notes(false)[0].contains("hostPID"));
        assert!(Sight::of(inside.path()).notes(true).is_empty());
        let outer_proc = proc_of(INITIAL_PID_NAMESPACE, "4711 7", u64::MAX, "x");
        assert!(Sight::of(outer_proc.path()).foreign);
    }

    #[test]
    fn each_missing_privilege_is_named_once() {
        for mode in ["1", "2", "invisible", "ptraceable"] {
            let dir = proc_of(INITIAL_PID_NAMESPACE, "7", 0, &format!("hidepid={mode},gid=4"));
            let sight = Sight::of(dir.path());
            assert!(sight.hidden, "{mode}");
            let notes = sight.notes(false);
            assert_eq!(notes.len(), 2, "{notes:?}");
            assert!(
                notes[0].contains("hidepid") && notes[1].contains("CAP_DAC_READ_SEARCH with CAP_SYS_PTRACE")
            );
        }
        let open = proc_of(INITIAL_PID_NAMESPACE, "7", 0, "hidepid=off");
        assert!(!Sight::of(open.path()).hidden);
    }

    #[test]
    fn the_mount_on_top_and_its_group_decide() {
        let hiding = "1 2 0:3 / /proc rw - proc proc rw,gid=26,hidepid=invisible\n";
        let open = "1 2 0:3 / /proc rw - proc proc rw\n";
        let proc = Path::new("/proc");
        assert!(hides_pids(hiding, proc, &[1000]));
        assert!(!hides_pids(hiding, proc, &[1000, 26]));
        assert!(hides_pids(&hiding.replace("invisible", "ptraceable"), proc, &[26]));
        assert!(
            !hides_pids(&format!("{hiding}{open}"), proc, &[])
                && hides_pids(&format!("{open}{hiding}"), proc, &[])
        );
        assert!(!hides_pids(hiding, Path::new("/host/proc"), &[]));
        assert_eq!(groups("Gid:\t1\t2\t3\t4\nGroups:\t5 6 \n"), [2, 5, 6]);
    }

    #[test]
    fn without_proc_nothing_is_matched_and_that_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let sight = Sight::of(dir.path());
        assert!(sight.foreign);
        assert!(sight.notes(false)[0].contains("mount it"));
    }
}
