//! What this process has used so far, by the kernel's accounts.

use std::path::Path;
use std::time::Duration;

/// CPU time of all threads.
pub(crate) fn cpu_time() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let used = tasks.filter_map(|task| {
        let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(used.sum())
}

/// CPU time of all threads, to be asked often: without looking at each thread.
pub(crate) fn cpu_clock() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

/// Bytes that were sent towards a device; `None` where the kernel does not count.
pub(crate) fn written() -> Option<u64> {
    field("/proc/self/io", "write_bytes:")
}

/// Resident memory.
pub(crate) fn rss_mib() -> f64 {
    field("/proc/self/status", "VmRSS:").unwrap() as f64 / 1024.0
}

/// Waits for what was written, by whomever: reads that are timed would stand in the same queue.
pub(crate) fn settle() {
    rustix::fs::sync();
}

/// Takes a file out of the page cache.
pub(crate) fn forget(path: &Path) {
    let file = std::fs::File::open(path).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

fn field(path: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
