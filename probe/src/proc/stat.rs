//! The kernel's own one-line and key-value formats: `stat`, `status`, `meminfo`. Layouts from proc(5).
//!
//! Parsed here and not by the `procfs` crate because its `Stat` slices by byte positions it has not checked, its
//! command lines must be UTF-8, and a sweep needs four of the 52 fields.

use ebbtide_core::Bytes;

/// What `/proc/PID/stat` says of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stat {
    /// Short name, as the process chose it: may hold any byte but NUL.
    pub(crate) comm: String,
    /// State letter, field 3.
    pub(crate) state: char,
    /// The parent's PID, field 4.
    pub(crate) parent: u32,
    /// The session, field 6: what a terminal or a service manager started together.
    pub(crate) session: u32,
    /// Start time in clock ticks since boot, field 22.
    pub(crate) start_ticks: u64,
    /// Resident pages, field 24.
    pub(crate) rss_pages: u64,
    /// The wait status, field 52: of a zombie, and 0 where we may not inspect the process (proc(5)).
    pub(crate) wait_status: Option<i32>,
}

impl Stat {
    /// Parses the line; `None` where it is not one.
    ///
    /// The name stands in parentheses and may hold parentheses itself, so it ends at the last one.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (head, tail) = line.rsplit_once(')')?;
        let (_pid, comm) = head.split_once('(')?;
        let mut fields = tail.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        let session = fields.nth(1)?.parse().ok()?;
        // Fields 7 to 21 lie between the session and the start time, field 23 (vsize) between it and the RSS.
        let start_ticks = fields.nth(15)?.parse().ok()?;
        let rss_pages = u64::try_from(fields.nth(1)?.parse::<i64>().ok()?).ok()?;
        let wait_status = fields.nth(27).and_then(|status| status.parse().ok());
        Some(Self { comm: comm.to_owned(), state, parent, session, start_ticks, rss_pages, wait_status })
    }

    /// Whether the process has exited and its parent has not yet taken note.
    pub(crate) const fn is_zombie(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }
}

/// The value of `key` in a text of `key: value` lines (`status`, `meminfo`).
pub(crate) fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')).map(str::trim)
}

/// The value of `key` in `meminfo`, which counts in KiB and calls them kB.
pub(crate) fn meminfo_bytes(text: &str, key: &str) -> Option<Bytes> {
    let kib: u64 = value(text, key)?.strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024).map(Bytes)
}

/// The real user id in `status`.
pub(crate) fn real_uid(status: &str) -> Option<u32> {
    value(status, "Uid")?.split_ascii_whitespace().next()?.parse().ok()
}

/// The instant of boot in seconds since the epoch, from `/proc/stat`.
pub(crate) fn boot_time_s(text: &str) -> Option<i64> {
    text.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINE: &str = "4711 (a) b (c)) S 1 4711 4711 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 17 0 987654 52523008 4945 18446744073709551615 1 1";

    #[test]
    fn a_name_with_parentheses_is_read_to_its_last_one() {
        let stat = Stat::parse(LINE).unwrap();
        let wanted = Stat {
            comm: "a) b (c)".into(),
            state: 'S',
            parent: 1,
            session: 4711,
            start_ticks: 987_654,
            rss_pages: 4945,
            wait_status: None,
        };
        assert_eq!(stat, wanted);
        assert!(!stat.is_zombie());
    }

    #[test]
    fn a_zombie_tells_its_wait_status_in_its_last_field() {
        let numbers: Vec<String> = (4..52).map(|field| field.to_string()).collect();
        let stat = Stat::parse(&format!("7 (gone) Z {} 139\n", numbers.join(" "))).unwrap();
        assert!(stat.is_zombie());
        assert_eq!((stat.start_ticks, stat.rss_pages, stat.wait_status), (22, 24, Some(139)));
    }

    #[test]
    fn values_are_found_by_their_whole_key() {
        let text = "MemTotalX: 1 kB\nMemTotal:       24684 kB\nUid:\t1000\t0\t0\t0\n";
        assert_eq!(meminfo_bytes(text, "MemTotal"), Some(Bytes(24_684 * 1024)));
        assert_eq!(meminfo_bytes(text, "MemAvailable"), None);
        assert_eq!(real_uid(text), Some(1000));
        assert_eq!(boot_time_s("cpu 1\nbtime 1692972606\n"), Some(1_692_972_606));
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_parser_panic(raw in proptest::collection::vec(any::<u8>(), 0..400), cut in 0..200usize) {
            let hostile = String::from_utf8_lossy(&raw);
            let torn: String = LINE.chars().take(cut).collect();
            for text in [hostile.as_ref(), torn.as_str(), &format!("1 ({hostile}) S {hostile}")] {
                let _ = (Stat::parse(text), meminfo_bytes(text, "MemTotal"), real_uid(text), boot_time_s(text));
            }
            let named = Stat::parse(&LINE.replace("a) b (c)", &hostile));
            prop_assert_eq!(named.map(|s| s.start_ticks), Some(987_654), "any name leaves the numbers readable");
        }
    }
}
