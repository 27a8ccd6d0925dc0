//! Ranks of one tensor-parallel group hold equal shards and equal caches: one that holds more has a reason of its own.

use ebbtide_core::{Evidence, FindingKind, Severity, Tick, Tier};

use super::{Claim, Moment, bytes, seconds};
use crate::sentence;

/// A rank may hold so much more than its peers, in MiB: samplers, logits and helpers of rank 0 take some hundreds.
const MIN_EXCESS: f64 = 1024.0;
/// The same as a share of what its peers hold.
const MIN_SHARE: f64 = 0.05;
/// It must have been so for so long, in seconds: ranks load one after the other.
const HELD_S: f64 = 600.0;
/// An excess that grew by so much while it stood is a divergence, in MiB; less is how the ranks were set up.
const DIVERGING: f64 = 256.0;

/// How a rank compares with its peers.
#[derive(Debug, Clone, Default)]
pub(super) struct Peers {
    since: Option<Tick>,
    /// The least excess since it has been too large.
    least: f64,
}

impl Peers {
    /// Takes a sample. A peer that cannot be read ends the comparison.
    pub(super) fn sample(&mut self, moment: &Moment<'_>) {
        let Some((excess, allowed)) = excess(moment) else {
            self.since = None;
            return;
        };
        match self.since {
            _ if excess < allowed => self.since = None,
            Some(_) => self.least = self.least.min(excess),
            None => (self.since, self.least) = (Some(moment.tick), excess),
        }
    }

    /// Whether this rank holds more than its peers do.
    pub(super) fn claim(&self, moment: &Moment<'_>) -> Option<Claim> {
        let since = self.since.filter(|since| seconds(*since, moment.tick) >= HELD_S)?;
        let (excess, allowed) = excess(moment)?;
        let peers = moment.peers.ok()?;
        let is_diverging = excess - self.least >= DIVERGING;
        Some(Claim {
            kind: FindingKind::Imbalance,
            tier: Tier::Confirmed,
            severity: if is_diverging { Severity::Warning } else { Severity::Info },
            since,
            amount: bytes(excess),
            accounts_for_rise: false,
            rate: None,
            evidence: vec![
                Evidence::against("above-peers", excess, "MiB", allowed),
                Evidence::new("peers", peers.mib(), "MiB"),
                Evidence::new("grew-since", excess - self.least, "MiB"),
                Evidence::against("lasted", seconds(since, moment.tick), "s", HELD_S),
            ],
            summary: sentence::imbalance(bytes(excess), peers, seconds(since, moment.tick), is_diverging),
            settle: sentence::SETTLE_IMBALANCE,
        })
    }
}

/// By how much a rank holds more than its peers, and by how much it may, in MiB.
fn excess(moment: &Moment<'_>) -> Option<(f64, f64)> {
    let peers = moment.peers.ok()?.mib();
    Some((moment.value.mib() - peers, (MIN_SHARE * peers).max(MIN_EXCESS)))
}
