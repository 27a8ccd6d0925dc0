//! Which findings are open, and what happens to them.

use ebbtide_core::{Evidence, Finding, FindingEvent, FindingKind, Ts};

/// A rate that moved by less than this share is no news.
const NEWS: f64 = 0.1;

/// The open findings of one series: one of a kind at most.
#[derive(Debug, Clone, Default)]
pub(crate) struct Findings {
    open: Vec<Open>,
}

/// An open finding as it is, and the rate that was last told.
#[derive(Debug, Clone)]
struct Open {
    finding: Finding,
    told: Option<f64>,
}

impl Findings {
    /// The open one of that kind, as it was drawn up last.
    pub(crate) fn open(&self, kind: FindingKind) -> Option<&Finding> {
        self.open.iter().map(|open| &open.finding).find(|finding| finding.key.kind == kind)
    }

    /// The bytes that they keep on the heap.
    pub(crate) fn heap(&self) -> usize {
        let words = |finding: &Finding| {
            let evidence = &finding.evidence;
            let names =
                evidence.iter().map(|fact| fact.what.capacity() + fact.unit.capacity()).sum::<usize>();
            let own = evidence.capacity() * size_of::<Evidence>() + names;
            own + finding.summary.capacity() + finding.settle.capacity()
        };
        let own = self.open.capacity() * size_of::<Open>();
        own + self.open.iter().map(|open| words(&open.finding)).sum::<usize>()
    }

    /// Whether a rate is news of the open finding of that kind.
    pub(crate) fn is_news(&self, kind: FindingKind, rate: f64) -> bool {
        let told = self.open.iter().find(|open| open.finding.key.kind == kind).and_then(|open| open.told);
        has_moved(told, Some(rate))
    }

    /// Whether one of that kind is open.
    pub(crate) fn is_open(&self, kind: FindingKind) -> bool {
        self.open(kind).is_some()
    }

    /// Makes exactly the wanted findings open. What closes comes before what opens, so that a growth that turns out
    /// to be a leak reads in order.
    pub(crate) fn sync(&mut self, wanted: Vec<Finding>, now: Ts) -> Vec<FindingEvent> {
        let mut events = Vec::new();
        self.open.retain_mut(|open| {
            let stays = wanted.iter().any(|finding| finding.key == open.finding.key);
            if !stays {
                events.push(open.resolved(now));
            }
            stays
        });
        for finding in wanted {
            match self.open.iter_mut().find(|open| open.finding.key == finding.key) {
                Some(open) => events.extend(open.renew(finding)),
                None => {
                    events.push(FindingEvent::Opened(finding.clone()));
                    self.open.push(Open { told: finding.rate.map(|band| band.rate.0), finding });
                }
            }
        }
        events
    }
}

/// Whether a rate has moved so far from the one that was told last that it is news.
fn has_moved(told: Option<f64>, rate: Option<f64>) -> bool {
    match (told, rate) {
        (Some(told), Some(rate)) => (rate - told).abs() > NEWS * told.abs(),
        (told, rate) => told.is_some() != rate.is_some(),
    }
}

impl Open {
    /// Takes what is known now. Only the time of opening stays: a longer view places the onset better.
    fn renew(&mut self, finding: Finding) -> Option<FindingEvent> {
        let rate = finding.rate.map(|band| band.rate.0);
        let moved = has_moved(self.told, rate);
        let old = std::mem::replace(&mut self.finding, finding);
        self.finding.opened_at = old.opened_at;
        let news = moved || old.severity != self.finding.severity || old.tier != self.finding.tier;
        if !news {
            return None;
        }
        self.told = rate;
        Some(FindingEvent::Updated(self.finding.clone()))
    }

    fn resolved(&mut self, now: Ts) -> FindingEvent {
        self.finding.resolved_at = Some(now);
        FindingEvent::Resolved(self.finding.clone())
    }
}
