//! Findings become alerts: told once, told again at a distance, and told when it is over.
//!
//! ```text
//!            open for `for_ms`                 resolved for `keep_firing_ms`
//! pending ----------------------> firing ------------------------------------> (told, forgotten)
//!    | resolved                    ^  | every `repeat_ms`
//!    v                             +--+
//! (forgotten)
//! ```
//!
//! No clock and no I/O: time enters as the [`Tick`] of a sample. At a start the owner calls [`Policy::restore`] with
//! what was pending or firing, lets the detector replay its window without asking the policy, and then calls
//! [`Policy::reconcile`] once with what the detector holds open.

use std::collections::BTreeMap;

use ebbtide_core::{Alert, AlertEvent, AlertState, AlertTransition, Finding, FindingEvent, Tick, Ts};

use crate::fingerprint::fingerprint;
use crate::rules::PolicyConfig;

/// The state of every alert, and the rules by which it changes.
#[derive(Debug)]
pub struct Policy {
    config: PolicyConfig,
    clock: Clock,
    entries: BTreeMap<String, Entry>,
    /// Alerts of an earlier run, until the first tick says how long ago that was.
    restored: Vec<Alert>,
}

/// One alert and the findings that keep it up.
#[derive(Debug)]
struct Entry {
    alert: Alert,
    /// The open findings of this fingerprint.
    findings: Vec<Finding>,
    /// When the first of them opened, on the policy's clock.
    open_since: i64,
    /// Since when none is open, on the policy's clock.
    calm_since: Option<i64>,
    /// When people were last told, on the policy's clock.
    notified: i64,
}

/// Milliseconds that only rise: from tick to tick by the monotonic clock, and across a change of its origin (a
/// restart, a reboot) by wall time. Negative values lie before the first tick.
#[derive(Debug, Default)]
struct Clock {
    now: i64,
    last: Option<Tick>,
}

impl Clock {
    fn advance(&mut self, tick: Tick) {
        if let Some(last) = self.last {
            let passed = match tick.mono_ms.checked_sub(last.mono_ms) {
                Some(passed) => i64::try_from(passed).unwrap_or(i64::MAX),
                None => ms_between(last.at, tick.at),
            };
            self.now = self.now.saturating_add(passed);
        }
        self.last = Some(tick);
    }
}

/// From `earlier` to `later`; zero where the wall clock was set back in between.
fn ms_between(earlier: Ts, later: Ts) -> i64 {
    later.0.saturating_sub(earlier.0).max(0)
}

/// `then` on the policy's clock, which stands at `now` when it is `at` by wall time.
fn ago(now: i64, then: Ts, at: Ts) -> i64 {
    now.saturating_sub(ms_between(then, at))
}

impl Policy {
    /// No alerts yet.
    #[must_use]
    pub fn new(config: PolicyConfig) -> Self {
        Self { config, clock: Clock::default(), entries: BTreeMap::new(), restored: Vec::new() }
    }

    /// Takes over what was pending or firing when an earlier run ended, so that this one neither tells people again
    /// what they know nor forgets to tell them that it is over. Call it before the first tick.
    pub fn restore(&mut self, alerts: Vec<Alert>) {
        self.restored.extend(alerts.into_iter().filter(|alert| alert.state != AlertState::Resolved));
    }

    /// Compares restored alerts with what the detector holds open after its replay: an alert whose finding is gone
    /// begins its recovery, and a finding without an alert has been open for as long as it says.
    pub fn reconcile(&mut self, open: &[Finding], tick: Tick) -> Vec<AlertEvent> {
        self.advance(tick);
        for entry in self.entries.values_mut() {
            entry.findings.retain(|held| open.iter().any(|finding| finding.key == held.key));
        }
        for finding in open {
            let Some(print) = self.take(&FindingEvent::Opened(finding.clone())) else { continue };
            let now = self.clock.now;
            if let Some(entry) = self.entries.get_mut(&print).filter(|e| e.alert.state == AlertState::Pending)
            {
                entry.open_since = entry.open_since.min(ago(now, finding.opened_at, tick.at));
            }
        }
        self.judge_all(tick)
    }

    /// What people are to be told because a finding opened, changed or resolved.
    pub fn on_finding(&mut self, event: &FindingEvent, tick: Tick) -> Vec<AlertEvent> {
        self.advance(tick);
        let Some(fingerprint) = self.take(event) else { return Vec::new() };
        self.judge(&fingerprint, tick).into_iter().collect()
    }

    /// What people are to be told because time has passed. Call it every tick, after the tick's findings.
    pub fn on_tick(&mut self, tick: Tick) -> Vec<AlertEvent> {
        self.advance(tick);
        self.judge_all(tick)
    }

    /// What is pending or firing, by fingerprint.
    pub fn alerts(&self) -> impl Iterator<Item = &Alert> {
        self.restored.iter().chain(self.entries.values().map(|entry| &entry.alert))
    }

    fn advance(&mut self, tick: Tick) {
        self.clock.advance(tick);
        for alert in std::mem::take(&mut self.restored) {
            let entry = Entry::restored(alert, &self.config, self.clock.now, tick.at);
            self.entries.entry(entry.alert.fingerprint.clone()).or_insert(entry);
        }
    }

    /// Takes note of a finding and says which alert it belongs to. A finding once taken stays with its alert even if
    /// its subject is known better (or no longer) by the time it resolves.
    fn take(&mut self, event: &FindingEvent) -> Option<String> {
        let finding = event.finding();
        let known =
            self.entries.iter().find(|(_, entry)| entry.holds(finding)).map(|(print, _)| print.clone());
        let open = !matches!(event, FindingEvent::Resolved(_)) && self.config.counts(finding);
        if !open {
            let print = known?;
            self.entries.get_mut(&print)?.release(finding);
            return Some(print);
        }
        let print = known.unwrap_or_else(|| fingerprint(finding));
        self.entries
            .entry(print.clone())
            .or_insert_with_key(|print| Entry::pending(print, finding, self.clock.now))
            .hold(finding);
        Some(print)
    }

    fn judge_all(&mut self, tick: Tick) -> Vec<AlertEvent> {
        let prints: Vec<String> = self.entries.keys().cloned().collect();
        prints.iter().filter_map(|print| self.judge(print, tick)).collect()
    }

    fn judge(&mut self, fingerprint: &str, tick: Tick) -> Option<AlertEvent> {
        let entry = self.entries.get_mut(fingerprint)?;
        let now = self.clock.now;
        let rule = self.config.rule(entry.alert.finding.key.kind);
        let reached = |since: i64, wait_ms: u64| now.saturating_sub(since) as u64 >= wait_ms;
        if entry.findings.is_empty() {
            let calm_since = *entry.calm_since.get_or_insert(now);
            if entry.alert.state == AlertState::Pending {
                self.entries.remove(fingerprint);
                return None;
            }
            if !reached(calm_since, rule.keep_firing_ms) {
                return None;
            }
            let event = entry.tell(AlertTransition::Resolved, tick.at, now);
            self.entries.remove(fingerprint);
            return Some(event);
        }
        entry.calm_since = None;
        match entry.alert.state {
            AlertState::Pending if reached(entry.open_since, rule.for_ms) => {
                Some(entry.tell(AlertTransition::Firing, tick.at, now))
            }
            AlertState::Firing if rule.repeat_ms > 0 && reached(entry.notified, rule.repeat_ms) => {
                Some(entry.tell(AlertTransition::Repeat, tick.at, now))
            }
            _ => None,
        }
    }
}

impl Entry {
    fn pending(fingerprint: &str, finding: &Finding, now: i64) -> Self {
        let alert = Alert {
            fingerprint: fingerprint.to_owned(),
            state: AlertState::Pending,
            since: finding.opened_at,
            fired_at: None,
            notified_at: None,
            finding: finding.clone(),
        };
        Self { alert, findings: Vec::new(), open_since: now, calm_since: None, notified: now }
    }

    /// The instants of an earlier run are known by wall time only, so durations across a restart are as good as that.
    fn restored(alert: Alert, config: &PolicyConfig, now: i64, at: Ts) -> Self {
        let ago = |then: Ts| ago(now, then, at);
        let open = alert.finding.resolved_at.is_none() && config.counts(&alert.finding);
        Self {
            findings: if open { vec![alert.finding.clone()] } else { Vec::new() },
            open_since: ago(alert.since),
            calm_since: alert.finding.resolved_at.map(ago),
            notified: alert.notified_at.or(alert.fired_at).map_or(now, ago),
            alert,
        }
    }

    fn holds(&self, finding: &Finding) -> bool {
        self.findings.iter().any(|held| held.key == finding.key)
    }

    fn hold(&mut self, finding: &Finding) {
        self.findings.retain(|held| held.key != finding.key);
        self.findings.push(finding.clone());
        self.show_worst();
    }

    fn release(&mut self, finding: &Finding) {
        self.findings.retain(|held| held.key != finding.key);
        self.alert.finding = finding.clone();
        self.show_worst();
    }

    /// The alert speaks of the worst finding that is open, and of the last one when none is.
    fn show_worst(&mut self) {
        if let Some(worst) = self.findings.iter().max_by_key(|finding| finding.severity) {
            self.alert.finding = worst.clone();
        }
    }

    fn tell(&mut self, transition: AlertTransition, at: Ts, now: i64) -> AlertEvent {
        self.alert.state = match transition {
            AlertTransition::Firing | AlertTransition::Repeat => AlertState::Firing,
            AlertTransition::Resolved => AlertState::Resolved,
        };
        self.alert.fired_at.get_or_insert(at);
        self.alert.notified_at = Some(at);
        self.notified = now;
        AlertEvent { transition, at, alert: self.alert.clone() }
    }
}

#[cfg(test)]
pub(crate) mod tests;
