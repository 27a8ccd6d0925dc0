use ebbtide_core::{
    FindingKey, FindingKind, GpuUuid, ProcKey, SeriesPart, SeriesRef, Severity, Subject, Tier,
};
use proptest::prelude::*;

use super::*;
use crate::rules::Rule;

/// A confirmed leak of a process called `python3` on `GPU-a`.
pub(crate) fn leak_of(pid: u32) -> Finding {
    let part = SeriesPart::Process(ProcKey { pid, start_ticks: Some(u64::from(pid)) });
    Finding {
        key: FindingKey { series: SeriesRef { gpu: GpuUuid::new("GPU-a"), part }, kind: FindingKind::Leak },
        subject: Subject { process: "python3".into(), ..Subject::default() },
        tier: Tier::Confirmed,
        severity: Severity::Warning,
        opened_at: Ts(1_000),
        resolved_at: None,
        onset_at: None,
        rate: None,
        grown: None,
        forecast: None,
        evidence: Vec::new(),
        summary: "python3 leaks".into(),
        settle: String::new(),
    }
}

fn resolved(finding: &Finding, at: Ts) -> FindingEvent {
    FindingEvent::Resolved(Finding { resolved_at: Some(at), ..finding.clone() })
}

fn at(ms: u64) -> Tick {
    Tick { seq: ms, at: Ts(ms as i64), mono_ms: ms }
}

fn policy(rule: Rule) -> Policy {
    Policy::new(PolicyConfig { leak: rule, ..PolicyConfig::default() })
}

fn told(events: &[AlertEvent]) -> Vec<AlertTransition> {
    events.iter().map(|event| event.transition).collect()
}

const RULE: Rule = Rule {
    enabled: true,
    min_severity: Severity::Warning,
    for_ms: 100,
    keep_firing_ms: 1_000,
    repeat_ms: 10_000,
};

#[test]
fn an_alert_waits_fires_reminds_and_ends() {
    let mut policy = policy(RULE);
    let leak = leak_of(1);
    assert_eq!(policy.on_finding(&FindingEvent::Opened(leak.clone()), at(0)), []);
    assert_eq!(policy.on_tick(at(99)), []);
    assert_eq!(policy.alerts().next().unwrap().state, AlertState::Pending);
    assert_eq!(told(&policy.on_tick(at(100))), [AlertTransition::Firing]);
    assert_eq!(policy.on_tick(at(10_099)), []);
    assert_eq!(told(&policy.on_tick(at(10_100))), [AlertTransition::Repeat]);
    assert_eq!(policy.on_finding(&resolved(&leak, Ts(10_200)), at(10_200)), []);
    assert_eq!(policy.on_tick(at(11_199)), []);
    let last = policy.on_tick(at(11_200));
    assert_eq!(told(&last), [AlertTransition::Resolved]);
    assert_eq!(last[0].alert.finding.resolved_at, Some(Ts(10_200)));
    assert_eq!(last[0].alert.fired_at, Some(Ts(100)));
    assert_eq!(policy.alerts().count(), 0);
}

#[test]
fn a_restart_does_not_begin_the_wait_anew() {
    let mut policy = policy(RULE);
    let leak = leak_of(1);
    policy.restore(Vec::new());
    let soon = at(u64::try_from(leak.opened_at.0).unwrap() + RULE.for_ms - 1);
    assert_eq!(policy.reconcile(std::slice::from_ref(&leak), soon), []);
    assert_eq!(told(&policy.on_tick(at(soon.mono_ms + 1))), [AlertTransition::Firing]);
}

#[test]
fn what_comes_and_goes_within_the_waits_is_told_once_or_never() {
    let mut policy = policy(RULE);
    let leak = leak_of(1);
    policy.on_finding(&FindingEvent::Opened(leak.clone()), at(0));
    assert_eq!(policy.on_finding(&resolved(&leak, Ts(50)), at(50)), []);
    assert_eq!(policy.on_tick(at(200)), [], "a blip shorter than `for` is never told");
    policy.on_finding(&FindingEvent::Opened(leak.clone()), at(300));
    assert_eq!(told(&policy.on_tick(at(400))), [AlertTransition::Firing]);
    for round in 0..8 {
        let t = 500 + round * 900;
        assert_eq!(policy.on_finding(&resolved(&leak, Ts(t as i64)), at(t)), []);
        assert_eq!(policy.on_finding(&FindingEvent::Opened(leak.clone()), at(t + 800)), []);
    }
}

#[test]
fn by_default_growth_pages_nobody_and_causes_and_forecasts_do() {
    let mut policy = Policy::new(PolicyConfig::default());
    let mut finding = leak_of(1);
    finding.key.kind = FindingKind::Growth;
    finding.severity = Severity::Info;
    assert_eq!(policy.on_finding(&FindingEvent::Opened(finding.clone()), at(0)), []);
    assert_eq!(policy.alerts().count(), 0);
    finding.severity = Severity::Warning;
    for kind in [FindingKind::Leak, FindingKind::SlopeChange, FindingKind::Imminent] {
        finding.key.kind = kind;
        let events = policy.on_finding(&FindingEvent::Opened(finding.clone()), at(1));
        assert_eq!(told(&events), [AlertTransition::Firing], "{kind:?}");
    }
}

#[test]
fn a_finding_that_becomes_worse_fires_when_it_is_bad_enough() {
    let mut policy = policy(Rule { for_ms: 0, min_severity: Severity::Critical, ..RULE });
    let mut leak = leak_of(1);
    assert_eq!(policy.on_finding(&FindingEvent::Opened(leak.clone()), at(0)), []);
    leak.severity = Severity::Critical;
    let events = policy.on_finding(&FindingEvent::Updated(leak), at(1));
    assert_eq!(told(&events), [AlertTransition::Firing]);
}

#[test]
fn two_processes_of_one_name_are_one_alert_until_both_are_well() {
    let mut policy = policy(Rule { for_ms: 0, keep_firing_ms: 0, ..RULE });
    let (one, two) = (leak_of(1), leak_of(2));
    assert_eq!(policy.on_finding(&FindingEvent::Opened(one.clone()), at(0)).len(), 1);
    assert_eq!(policy.on_finding(&FindingEvent::Opened(two.clone()), at(1)), []);
    assert_eq!(policy.on_finding(&resolved(&one, Ts(2)), at(2)), []);
    assert_eq!(policy.alerts().next().unwrap().finding.key, two.key);
    assert_eq!(told(&policy.on_finding(&resolved(&two, Ts(3)), at(3))), [AlertTransition::Resolved]);
}

#[test]
fn a_finding_whose_subject_is_lost_still_ends_its_alert() {
    let mut policy = policy(Rule { for_ms: 0, keep_firing_ms: 0, ..RULE });
    let mut leak = leak_of(1);
    policy.on_finding(&FindingEvent::Opened(leak.clone()), at(0));
    leak.subject = Subject::default();
    assert_eq!(told(&policy.on_finding(&resolved(&leak, Ts(9)), at(9))), [AlertTransition::Resolved]);
}

#[test]
fn a_restart_keeps_the_distance_of_reminders_though_the_monotonic_clock_starts_anew() {
    let mut before = policy(RULE);
    let leak = leak_of(1);
    before.on_finding(&FindingEvent::Opened(leak.clone()), at(50_000));
    before.on_tick(at(50_100));
    let mut after = policy(RULE);
    after.restore(before.alerts().cloned().collect());
    assert_eq!(after.alerts().count(), 1, "a restored alert shows before the first tick");
    let rebooted = |ms: i64, mono_ms| Tick { seq: 1, at: Ts(ms), mono_ms };
    assert_eq!(after.reconcile(&[leak], rebooted(55_000, 7)), []);
    assert_eq!(after.on_tick(rebooted(60_099, 5_106)), []);
    assert_eq!(told(&after.on_tick(rebooted(60_100, 5_107))), [AlertTransition::Repeat]);
}

#[test]
fn an_alert_whose_finding_did_not_survive_the_restart_ends() {
    let mut before = policy(Rule { for_ms: 0, ..RULE });
    before.on_finding(&FindingEvent::Opened(leak_of(1)), at(0));
    let mut after = policy(Rule { for_ms: 0, ..RULE });
    after.restore(before.alerts().cloned().collect());
    assert_eq!(after.reconcile(&[], at(500)), []);
    assert_eq!(told(&after.on_tick(at(1_500))), [AlertTransition::Resolved]);
}

#[test]
fn a_service_that_was_restarted_with_the_daemon_is_the_same_alert() {
    let mut before = policy(Rule { for_ms: 0, keep_firing_ms: 0, ..RULE });
    before.on_finding(&FindingEvent::Opened(leak_of(1)), at(0));
    let mut after = policy(Rule { for_ms: 0, keep_firing_ms: 0, ..RULE });
    after.restore(before.alerts().cloned().collect());
    assert_eq!(after.reconcile(&[leak_of(2)], at(500)), []);
    assert_eq!(after.alerts().next().unwrap().finding.key, leak_of(2).key);
}

/// Something that happens to the policy.
#[derive(Debug, Clone)]
enum Step {
    Open(u32),
    Resolve(u32),
    Pass(u64),
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..4_u32).prop_map(Step::Open),
        2 => (0..4_u32).prop_map(Step::Resolve),
        4 => (0..3_000_u64).prop_map(Step::Pass),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 0..60)
}

/// Processes 0 and 1 share a name, hence a fingerprint.
fn leak_number(n: u32) -> Finding {
    let mut leak = leak_of(n);
    leak.subject.process = format!("worker{}", n / 2);
    leak
}

/// The detector's side of the story: which findings are open, and the policy that hears of it.
struct World {
    policy: Policy,
    rule: Rule,
    open: Vec<Finding>,
    now: u64,
}

impl World {
    fn take(&mut self, step: &Step) -> Vec<AlertEvent> {
        match *step {
            Step::Open(n) => {
                let leak = leak_number(n);
                self.open.retain(|held| held.key != leak.key);
                self.open.push(leak.clone());
                self.policy.on_finding(&FindingEvent::Opened(leak), at(self.now))
            }
            Step::Resolve(n) => {
                let leak = leak_number(n);
                self.open.retain(|held| held.key != leak.key);
                self.policy.on_finding(&resolved(&leak, Ts(self.now as i64)), at(self.now))
            }
            Step::Pass(ms) => {
                self.now += ms;
                self.policy.on_tick(at(self.now))
            }
            Step::Restart => {
                let alerts = self.policy.alerts().cloned().collect();
                self.policy = policy(self.rule.clone());
                self.policy.restore(alerts);
                self.policy.reconcile(&self.open, at(self.now))
            }
        }
    }
}

proptest! {
    #[test]
    fn firing_and_resolved_alternate_and_repeats_keep_their_distance(
        steps in steps(),
        (for_ms, keep_firing_ms, repeat_ms) in (0..1_000_u64, 0..2_000_u64, 1..5_000_u64),
    ) {
        let rule = Rule { for_ms, keep_firing_ms, repeat_ms, ..RULE };
        let mut world = World { policy: policy(rule.clone()), rule, open: Vec::new(), now: 10_000 };
        let mut last: BTreeMap<String, AlertEvent> = BTreeMap::new();
        for step in &steps {
            for event in world.take(step) {
                let print = event.alert.fingerprint.clone();
                let firing = last.get(&print).is_some_and(|e| e.transition != AlertTransition::Resolved);
                match event.transition {
                    AlertTransition::Firing => prop_assert!(!firing, "fired twice: {print}"),
                    AlertTransition::Resolved => prop_assert!(firing, "ended unfired: {print}"),
                    AlertTransition::Repeat => {
                        prop_assert!(firing, "repeated unfired: {print}");
                        prop_assert!(event.at.0 - last[&print].at.0 >= repeat_ms as i64);
                    }
                }
                last.insert(print, event);
            }
        }
    }

    #[test]
    fn an_unchanged_world_says_nothing(steps in steps()) {
        let rule = Rule { repeat_ms: 0, ..RULE };
        let mut world = World { policy: policy(rule.clone()), rule, open: Vec::new(), now: 10_000 };
        for step in &steps {
            world.take(step);
        }
        world.take(&Step::Pass(RULE.for_ms + RULE.keep_firing_ms));
        for step in [Step::Pass(0), Step::Restart, Step::Pass(100_000), Step::Restart, Step::Pass(1)] {
            prop_assert_eq!(world.take(&step), []);
        }
        for finding in world.open.clone() {
            prop_assert_eq!(world.policy.on_finding(&FindingEvent::Updated(finding), at(world.now)), []);
        }
    }
}
