//! The figures that the detector is held to: what is wanted, and what was reached.

use std::fmt;

use ebbtide_testkit::traces::Group;

use super::contest::{self, Entry};
use super::counts::poisson;
use super::dial::Setting;
use super::minutes::{median, quantile};
use super::table::{Table, figure};
use crate::interval::Share;

/// One figure.
#[derive(Debug, Clone)]
struct Gate {
    what: &'static str,
    wanted: &'static str,
    reached: String,
    holds: bool,
}

/// All figures of a run.
#[derive(Debug, Clone, Default)]
pub(super) struct Gates {
    gates: Vec<Gate>,
}

impl Gates {
    fn add(&mut self, what: &'static str, wanted: &'static str, (reached, holds): (String, bool)) {
        self.gates.push(Gate { what, wanted, reached, holds });
    }

    /// Figures of the 22 ordinary families.
    pub(super) fn ordinary(&mut self, entries: &[Entry]) {
        if entries.is_empty() {
            return;
        }
        let tally = contest::own(entries);
        self.add("precision, 22 families", ">= 0.99", at_least(tally.precision(), 0.99));
        self.add("recall, 22 families", ">= 0.95", at_least(tally.recall(), 0.95));
        self.add("F1, 22 families", ">= 0.97", (format!("{:.3}", tally.f1()), tally.f1() >= 0.97));
        self.add(
            "false alarms a GPU-day, 22 families",
            "<= 0.005",
            a_day(tally.episodes, tally.clean_days, 0.005),
        );
        let benign = entries.iter().filter(|entry| of(entry, &["N02", "N07", "N08"]));
        let benign = contest::own(benign);
        let in_sixty = benign.fooled as f64 / benign.histories.max(1) as f64 * 60.0;
        let shown = out_of(60.0, Share::of(benign.fooled, benign.histories));
        self.add("starts, drifts, restarts: fooled of 60", "<= 1", (shown, in_sixty <= 1.0));
        for (key, what, wanted, least) in [
            ("P05", "leak per request, found of 30", ">= 28", 28.0 / 30.0),
            ("P06", "leak in bursts, found of 30", ">= 24", 24.0 / 30.0),
        ] {
            let recall = contest::own(entries.iter().filter(|entry| of(entry, &[key]))).recall();
            self.add(what, wanted, (out_of(30.0, recall), share(recall) >= least));
        }
        self.changes(entries);
        self.rates(entries);
        self.forecasts("imminent without a leak a GPU-day, ordinary", entries);
    }

    fn changes(&mut self, entries: &[Entry]) {
        let doubling: Vec<&Entry> = entries.iter().filter(|entry| of(entry, &["P03"])).collect();
        let mut delays: Vec<f64> = doubling.iter().filter_map(|entry| entry.change_delay_min).collect();
        let (found, of_all) = (delays.len(), doubling.len());
        let middle = median(&mut delays);
        let all = Share::of(found, of_all);
        let shown = format!("{found} of {of_all} ({:.3}-{:.3}), {} min", all.low, all.high, figure(middle));
        let holds = found == of_all && middle.is_some_and(|delay| delay <= 20.0);
        self.add("pace doubles: found, median delay", "all, <= 20 min", (shown, holds));
        let even = ["P01", "P02", "P04", "P05", "P07", "P08", "P09"];
        let even: Vec<&Entry> = entries.iter().filter(|entry| of(entry, &even)).collect();
        let wrong = even.iter().filter(|entry| entry.false_change).count();
        let in_140 = wrong as f64 / even.len().max(1) as f64 * 140.0;
        let shown = out_of(140.0, Share::of(wrong, even.len()));
        self.add("pace called faster at an even one, of 140", "<= 1", (shown, in_140 <= 1.0));
    }

    fn rates(&mut self, entries: &[Entry]) {
        let claims: Vec<_> = entries.iter().filter_map(|entry| entry.claim).collect();
        let mut errors: Vec<f64> =
            claims.iter().map(|claim| (claim.rate / claim.truth - 1.0).abs()).collect();
        let middle = median(&mut errors);
        self.add(
            "rate error when found, median",
            "<= 0.05",
            (figure(middle), middle.is_some_and(|e| e <= 0.05)),
        );
        let inside =
            claims.iter().filter(|claim| claim.low <= claim.truth && claim.truth <= claim.high).count();
        self.add("80 % band holds the rate", ">= 0.80", at_least(Share::of(inside, claims.len()), 0.8));
    }

    fn forecasts(&mut self, what: &'static str, entries: &[Entry]) {
        let false_forecasts = entries.iter().map(|entry| entry.false_forecasts).sum();
        let days = entries.iter().map(|entry| entry.own.clean_days).sum();
        self.add(what, "<= 0.005", a_day(false_forecasts, days, 0.005));
    }

    /// Figures of the stress and fast families.
    pub(super) fn stress(&mut self, entries: &[Entry]) {
        if entries.is_empty() {
            return;
        }
        let tally = contest::own(entries);
        self.add("F1, stress and fast", ">= 0.90", (format!("{:.3}", tally.f1()), tally.f1() >= 0.9));
        self.add(
            "false alarms a GPU-day, stress and fast",
            "<= 0.2",
            a_day(tally.episodes, tally.clean_days, 0.2),
        );
        self.forecasts("imminent without a leak a GPU-day, stress and fast", entries);
        let fast: Vec<Entry> =
            entries.iter().filter(|entry| entry.family.group == Group::Fast).cloned().collect();
        let tally = contest::own(&fast);
        self.add("F1, fast alone", "-", (format!("{:.3}", tally.f1()), true));
    }

    /// Figures of the weeks without a leak.
    pub(super) fn week(&mut self, entries: &[Entry]) {
        if entries.is_empty() {
            return;
        }
        let tally = contest::own(entries);
        self.add(
            "false alarms a GPU-day, leak-free weeks",
            "<= 0.0005",
            a_day(tally.episodes, tally.clean_days, 0.0005),
        );
        self.forecasts("imminent a GPU-day, leak-free weeks", entries);
    }

    /// Pages a week at each setting of the dial, which is one page a week.
    pub(super) fn dial(&mut self, settings: &[Setting]) {
        for setting in settings {
            let what = match setting.gpus {
                100 => "dial at 1 page a week, 100 GPUs: pages a week",
                1_000 => "dial at 1 page a week, 1,000 GPUs: pages a week",
                _ => "dial at 1 page a week, 10,000 GPUs: pages a week",
            };
            self.add(what, "<= 1", (setting.shown(), setting.pages().0 <= 1.0));
        }
    }

    /// Figures of the families that ask one question.
    pub(super) fn questions(&mut self, entries: &[Entry]) {
        if entries.is_empty() {
            return;
        }
        let slow = contest::own(entries.iter().filter(|entry| of(entry, &["Q01"])));
        let (delay, leaked) = (slow.delay(0.5), slow.leaked());
        let shown = format!("{} min, {} of {}", figure(delay), slow.found, slow.leaks);
        self.add(
            "1 MiB/min mid-run: median delay",
            "<= 60 min",
            (shown, delay.is_some_and(|delay| delay <= 60.0)),
        );
        let shown = format!("{} MiB", figure(leaked));
        self.add(
            "1 MiB/min mid-run: leaked when found",
            "<= 64 MiB",
            (shown, leaked.is_some_and(|mib| mib <= 64.0)),
        );
        let lasting = |low: f64, high: f64| -> Vec<f64> {
            let of_pace = entries.iter().filter(|entry| of(entry, &["Q02", "Q03"]));
            let lasts = of_pace
                .filter(|entry| entry.lasted_min.is_some_and(|minutes| (low..high).contains(&minutes)));
            lasts.filter_map(|entry| entry.headroom).collect()
        };
        for (what, wanted, low, high, (part, least)) in [
            ("headroom left, leaks of over 10 min, median", ">= 0.75", 10.0, f64::INFINITY, (0.5, 0.75)),
            ("headroom left, leaks of over 10 min, worst decile", ">= 0.4", 10.0, f64::INFINITY, (0.1, 0.4)),
            ("headroom left, leaks of 3 to 10 min, median", ">= 0.4", 3.0, 10.0, (0.5, 0.4)),
        ] {
            let mut left = lasting(low, high);
            let count = left.len();
            let reached = quantile(&mut left, part);
            let shown = format!("{} (of {count})", figure(reached));
            self.add(what, wanted, (shown, reached.is_some_and(|left| left >= least)));
        }
    }

    /// Findings that no slope shows: found where they are right, and opened where they are not.
    pub(super) fn holders(&mut self, found: Share, wrong: Share) {
        self.add("imbalance, idle holder, prefill: found", ">= 0.95", at_least(found, 0.95));
        let shown = format!("{} of {} ({:.3}-{:.3})", wrong.hits, wrong.of, wrong.low, wrong.high);
        self.add("the same, said of innocents", "0", (shown, wrong.hits == 0));
    }

    /// Whether the same is said at all sampling intervals.
    pub(super) fn sampling(&mut self, agree: Share) {
        self.add("same diagnosis at 1, 5, 10 and 30 s", ">= 0.95", at_least(agree, 0.95));
    }

    /// Nanoseconds a sample over all families without a leak and of the dearest of them, and the most bytes that a
    /// series keeps.
    pub(super) fn cost(&mut self, mean: f64, (dearest, name): (f64, &str), bytes: usize) {
        let shown = format!("{mean:.0} ns");
        self.add("cost a sample, families without a leak, mean", "<= 100 ns", (shown, mean <= 100.0));
        self.add("the same of the dearest of them", "-", (format!("{dearest:.0} ns, {name}"), true));
        let shown = format!("{:.1} KiB", bytes as f64 / 1024.0);
        self.add("state of a series, at most", "<= 24 KiB", (shown, bytes <= 24 * 1024));
    }
}

impl fmt::Display for Gates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new(["figure", "wanted", "reached", "holds"]);
        for gate in &self.gates {
            let holds = if gate.holds { "yes" } else { "**no**" };
            table.row([gate.what, gate.wanted, &gate.reached, holds]);
        }
        write!(f, "### Figures\n\n{table}")
    }
}

fn of(entry: &Entry, keys: &[&str]) -> bool {
    keys.contains(&entry.family.key())
}

fn share(share: Share) -> f64 {
    share.hits as f64 / share.of.max(1) as f64
}

/// How many it would be out of so many, with the interval.
fn out_of(total: f64, reached: Share) -> String {
    let (value, low, high) = (total * share(reached), total * reached.low, total * reached.high);
    format!("{value:.1} ({low:.1}-{high:.1}), {} of {}", reached.hits, reached.of)
}

fn at_least(reached: Share, least: f64) -> (String, bool) {
    let value = share(reached);
    (format!("{value:.3} ({:.3}-{:.3})", reached.low, reached.high), reached.of > 0 && value >= least)
}

fn a_day(count: u32, days: f64, most: f64) -> (String, bool) {
    let ((low, high), rate) = (poisson(count), f64::from(count) / days);
    (format!("{rate:.4} ({:.4}-{:.4}), {count} in {days:.0} days", low / days, high / days), rate <= most)
}
