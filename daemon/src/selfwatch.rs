//! What the daemon itself costs.

use std::fs;

/// Clock ticks a second in `/proc/PID/stat`: fixed at 100 in the kernel's interface to user space.
const CLOCK_TICKS_PER_S: u64 = 100;

/// Resident memory in bytes.
pub(crate) fn rss_bytes() -> Option<u64> {
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// CPU time of all threads since start, in milliseconds.
pub(crate) fn cpu_ms() -> Option<u64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The command may hold spaces and parentheses; the numbers start behind the last parenthesis with field 3.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let ticks = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some((ticks(14)? + ticks(15)?) * 1000 / CLOCK_TICKS_PER_S)
}

#[cfg(test)]
mod tests {
    #[test]
    fn this_process_costs_something() {
        assert!(super::rss_bytes().unwrap() > 1 << 20);
        assert!(super::cpu_ms().is_some());
    }
}
