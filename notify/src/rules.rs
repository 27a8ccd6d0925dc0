//! When a finding is worth telling people: one rule a kind.

use ebbtide_core::{Finding, FindingKind, Severity};
use serde::{Deserialize, Serialize};

/// The rules of the policy, the section `[alerts]` of the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyConfig {
    /// For growth that is explained or not yet judged. As such it is [`Severity::Info`], so it pages nobody.
    pub growth: Rule,
    /// For leaks.
    pub leak: Rule,
    /// For growth that became faster.
    pub slope_change: Rule,
    /// For blocks of a KV pool that are held without a reason.
    pub kv_pool_leak: Rule,
    /// For what was not given back at a release.
    pub not_released: Rule,
    /// For memory without a live owner.
    pub orphan: Rule,
    /// For the host memory of a process that keeps rising.
    pub host_leak: Rule,
    /// For a rank that holds more than its peers.
    pub imbalance: Rule,
    /// For an allocator that holds much more than is in use.
    pub fragmented: Rule,
    /// For memory held by somebody who does no work. It is [`Severity::Info`], so it pages nobody.
    pub idle_holder: Rule,
    /// For memory that runs out soon.
    pub imminent: Rule,
    /// For room that slow growth has nearly used up.
    pub thin_headroom: Rule,
}

/// What a finding of one kind must be, and for how long, before people are told and told again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rule {
    /// Whether people are told at all.
    pub enabled: bool,
    /// Findings below this severity are shown, not told.
    pub min_severity: Severity,
    /// How long it must stay open before people are told. Zero: at once; the detector has waited for evidence
    /// already, for as long as the rate asks.
    pub for_ms: u64,
    /// How long it must stay resolved before people are told that it is over. A finding that comes back within this
    /// time goes on as the same alert without a word, which is what damps flapping.
    pub keep_firing_ms: u64,
    /// How long after the last word people are reminded while it still fires. Zero: never.
    pub repeat_ms: u64,
}

impl Default for Rule {
    fn default() -> Self {
        Self {
            enabled: true,
            min_severity: Severity::Warning,
            for_ms: 0,
            keep_firing_ms: 10 * MINUTE_MS,
            repeat_ms: 4 * 60 * MINUTE_MS,
        }
    }
}

const MINUTE_MS: u64 = 60_000;

impl PolicyConfig {
    /// The rule for one kind of finding.
    #[must_use]
    pub const fn rule(&self, kind: FindingKind) -> &Rule {
        // tidy: table
        match kind {
            FindingKind::Growth => &self.growth,
            FindingKind::Leak => &self.leak,
            FindingKind::SlopeChange => &self.slope_change,
            FindingKind::KvPoolLeak => &self.kv_pool_leak,
            FindingKind::NotReleased => &self.not_released,
            FindingKind::Orphan => &self.orphan,
            FindingKind::HostLeak => &self.host_leak,
            FindingKind::Imbalance => &self.imbalance,
            FindingKind::Fragmented => &self.fragmented,
            FindingKind::IdleHolder => &self.idle_holder,
            FindingKind::Imminent => &self.imminent,
            FindingKind::ThinHeadroom => &self.thin_headroom,
        }
    }

    /// Whether a finding is of a kind and severity that people are told of while it is open.
    #[must_use]
    pub fn counts(&self, finding: &Finding) -> bool {
        let rule = self.rule(finding.key.kind);
        rule.enabled && finding.severity >= rule.min_severity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_key_in_a_file_leaves_the_rest_at_its_default() {
        let config: PolicyConfig = toml::from_str("[leak]\nfor_ms = 5000\n").unwrap();
        assert_eq!(config.leak, Rule { for_ms: 5_000, ..Rule::default() });
        assert_eq!(config.imminent, Rule::default());
    }

    #[test]
    fn a_misspelt_key_is_an_error_that_names_it() {
        let error = toml::from_str::<PolicyConfig>("[leak]\nrepeat = 5\n").unwrap_err();
        assert!(error.to_string().contains("unknown field `repeat`"), "{error}");
    }
}
