//! How a process ended that is not our child.
//!
//! A descriptor of the process that was opened while it lived tells its wait status after it was reaped, since Linux 6.15
//! (`PIDFD_GET_INFO` with `PIDFD_INFO_EXIT`, include/uapi/linux/pidfd.h); a zombie's `stat` tells it before, to whoever
//! may inspect the process. The out-of-memory killer is counted by control groups, and by all groups around them, so that
//! a group which vanishes with its process still leaves its count behind.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use ebbtide_core::{Absent, Ending, ExitStatus, ProcKey, Reading};
use rustix::ioctl::{Updater, ioctl, opcode};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::file::read_text;

/// `memory.events` is six lines, `memory.oom_control` three.
const COUNTER_CAP: u64 = 1024;

/// `PIDFD_INFO_EXIT`.
const EXIT: u64 = 1 << 3;

/// `struct pidfd_info` in its first size, 64 bytes, of which every later kernel knows the meaning. `exit_code` was
/// spare until 6.15, where `EXIT` in the answer's mask says that it is filled in.
#[repr(C)]
#[derive(Debug, Default)]
struct Info {
    mask: u64,
    cgroup_id: u64,
    ids: [u32; 11],
    exit_code: i32,
}

/// `PIDFD_GET_INFO`: `_IOWR(0xFF, 11, struct pidfd_info)`.
const GET_INFO: u32 = opcode::read_write::<Info>(0xFF, 11);

const _: () = assert!(size_of::<Info>() == 64);

/// What has to be noted of a process while it lives to tell how it ended.
#[derive(Debug, Default)]
pub(super) struct ExitWatch {
    descriptor: Option<OwnedFd>,
    /// Counters of the control groups around it, the innermost first, as they stood when it was last seen alive.
    kills: Vec<(PathBuf, u64)>,
}

impl ExitWatch {
    /// Whether this holds a file descriptor.
    pub(super) const fn has_descriptor(&self) -> bool {
        self.descriptor.is_some()
    }

    /// Opens the process; the caller has to see afterwards that the PID is still whose it was.
    pub(super) fn open(&mut self, pid: u32) {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        self.descriptor = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    }

    /// Takes over the descriptor of an earlier look at the same process.
    pub(super) fn adopt(&mut self, earlier: &mut Self) {
        self.descriptor = earlier.descriptor.take();
    }

    /// Notes how the counters stand.
    pub(super) fn count(&mut self, counters: Vec<PathBuf>) {
        let read = |file: PathBuf| oom_kills(&file).map(|kills| (file, kills));
        self.kills = counters.into_iter().filter_map(read).collect();
    }

    /// What can be told of the process's end, after it.
    pub(super) fn ending(&self, proc: ProcKey) -> Ending {
        Ending { proc, status: self.status(), oom_kills: self.oom_kills() }
    }

    /// How it ended, once it has been reaped; `NotSupported` where the kernel does not tell.
    fn status(&self) -> Reading<ExitStatus> {
        let descriptor = self.descriptor.as_ref().ok_or(Absent::NotSupported)?;
        let raw = wait_status(descriptor).ok_or(Absent::NotSupported)?;
        Ok(ExitStatus::of_wait_status(raw))
    }

    /// Kills in its control group since it was last counted; of a group that is gone, in the nearest one around it.
    /// `NotSupported` where no group counts them.
    fn oom_kills(&self) -> Reading<u64> {
        let since =
            self.kills.iter().find_map(|(file, before)| Some(oom_kills(file)?.saturating_sub(*before)));
        since.ok_or(Absent::NotSupported)
    }
}

/// The process's wait status, once it has been reaped.
fn wait_status(descriptor: &impl AsFd) -> Option<i32> {
    let mut info = Info { mask: EXIT, ..Info::default() };
    // SAFETY: the opcode carries the size of `Info`, which is laid out as the kernel's struct of that size, and any
    // bytes that the kernel writes into it are valid numbers.
    let asked = unsafe { ioctl(descriptor, Updater::<{ GET_INFO }, Info>::new(&mut info)) };
    (asked.is_ok() && info.mask & EXIT != 0).then_some(info.exit_code)
}

/// The count in a `memory.events` or `memory.oom_control` (cgroup v2 and v1, "oom_kill").
fn oom_kills(file: &std::path::Path) -> Option<u64> {
    let text = read_text(file, COUNTER_CAP).ok()?;
    text.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_that_was_reaped_by_its_parent_still_tells_how_it_ended() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut watch = ExitWatch::default();
        watch.open(child.id());
        assert!(watch.has_descriptor());
        assert_eq!(watch.status(), Err(Absent::NotSupported), "it lives");
        child.kill().unwrap();
        child.wait().unwrap();
        let told = watch.status();
        // Older kernels keep it to the parent, and then it is absent, never "in order".
        assert!(matches!(told, Ok(ExitStatus::Signalled(9)) | Err(Absent::NotSupported)), "{told:?}");
    }

    #[test]
    fn kills_are_counted_in_the_nearest_group_that_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let (inner, outer) = (dir.path().join("inner"), dir.path().join("outer"));
        let set = |file: &PathBuf, kills: u64| {
            std::fs::write(
                file,
                format!("low 0\nhigh 0\nmax 7\noom 3\noom_kill {kills}\noom_group_kill 0\n"),
            )
            .unwrap();
        };
        let mut watch = ExitWatch::default();
        assert_eq!(watch.oom_kills(), Err(Absent::NotSupported));
        set(&inner, 2);
        set(&outer, 10);
        watch.count(vec![inner.clone(), dir.path().join("none"), outer.clone()]);
        assert_eq!(watch.oom_kills(), Ok(0));
        set(&inner, 3);
        set(&outer, 12);
        assert_eq!(watch.oom_kills(), Ok(1));
        std::fs::remove_file(&inner).unwrap();
        assert_eq!(watch.oom_kills(), Ok(2));
    }
}
