//! What ebbtide said, held against what the engine did.

use std::fmt::Write;

use ebbtide_core::{Finding, FindingKind, Ts};

use super::headless::Seen;
use super::stage::{Aftermath, Truth};

/// How far the named rate may be from the true one, as a share of it.
const RATE_TOLERANCE: f64 = 0.20;

/// Each thing that had to happen.
#[derive(Debug)]
pub(crate) struct Verdict {
    growth_named: bool,
    leak: Option<Finding>,
    false_leaks: usize,
    rate_error: Option<f64>,
    hook_ran: bool,
}

impl Verdict {
    /// Compares.
    pub(crate) fn of(seen: &Seen, Aftermath { truth, hook_log }: &Aftermath) -> Self {
        let leaks = || seen.findings.values().filter(|f| f.key.kind == FindingKind::Leak);
        let after = |at: Ts| at >= truth.onset_at;
        let leak = leaks().find(|f| after(f.opened_at)).cloned();
        let named = leak.as_ref().and_then(|finding| finding.rate);
        let rate_error = named.map(|band| (band.rate.0 / truth.rate.0 - 1.0).abs());
        Self {
            growth_named: seen.growth_at.is_some_and(|at| !after(at)),
            false_leaks: leaks().filter(|f| !after(f.opened_at)).count(),
            leak,
            rate_error,
            hook_ran: hook_log.lines().any(|line| line.starts_with("firing leak ")),
        }
    }

    /// Whether all of it held.
    pub(crate) fn passed(&self) -> bool {
        self.growth_named
            && self.false_leaks == 0
            && self.rate_error.is_some_and(|error| error <= RATE_TOLERANCE)
            && self.hook_ran
    }

    /// The comparison as a table, with the truth that was drawn.
    pub(crate) fn text(&self, truth: &Truth) -> String {
        let yes = |held: bool| if held { "yes" } else { "NO" };
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = self.write(&mut text, truth, yes);
        text
    }

    fn write(&self, text: &mut String, truth: &Truth, yes: fn(bool) -> &'static str) -> std::fmt::Result {
        writeln!(text, "\nThe engine leaked {} and lost {} by it.", truth.rate, truth.leaked)?;
        writeln!(text, "  filling the pool was called growth          {}", yes(self.growth_named))?;
        writeln!(text, "  nothing was called a leak before there was   {}", yes(self.false_leaks == 0))?;
        writeln!(text, "  the leak was found                           {}", yes(self.leak.is_some()))?;
        if let (Some(finding), Some(error)) = (&self.leak, self.rate_error) {
            let named = finding.rate.map(|band| band.rate).unwrap_or_default();
            writeln!(
                text,
                "  its rate was named as                        {named} ({:.1} % off)",
                error * 100.0
            )?;
            if let Some(onset) = finding.onset_at {
                let began = truth.onset_at;
                let (onset, said) = (seconds(onset, began), seconds(finding.opened_at, began));
                writeln!(
                    text,
                    "  its onset was placed                         {onset:+.1} s from the truth"
                )?;
                writeln!(text, "  it was said                                  {said:.0} s after it began")?;
            }
        }
        writeln!(text, "  the hook ran for it                          {}", yes(self.hook_ran))?;
        writeln!(text, "{}", if self.passed() { "Found." } else { "NOT found as it should have been." })
    }
}

fn seconds(at: Ts, from: Ts) -> f64 {
    (at.0 - from.0) as f64 / 1000.0
}
