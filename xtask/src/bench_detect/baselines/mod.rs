//! Simpler detectors, as they are found in textbooks and monitoring rules, on a history by the minute.

mod bocpd;
mod charts;
pub(super) mod segments;
mod trend;

/// What a baseline looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Input {
    /// Memory as the driver tells it.
    Raw,
    /// The same without the KV cache, where memory follows it.
    Residual,
}

/// A rule and its parameters. Times are in minutes, rates in MiB a minute.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Rule {
    /// Mann-Kendall's trend test, and Sen's slope above a least one.
    MannKendall { window: usize, z: f64, slope: f64 },
    /// A least-squares slope above a rate, held for some time: `deriv() > x` with `for:`.
    Slope { window: usize, rate: f64, held: usize },
    /// A least-squares line that reaches the capacity within the horizon, held for some time: `predict_linear`.
    Forecast { window: usize, horizon: f64, held: usize },
    /// Page's cumulative sum against the level of the first half hour, in robust standard deviations.
    Cusum { drift: f64, threshold: f64 },
    /// Segments of constant level (the optimum that PELT finds), the last few of which rise.
    Levels { penalty: f64, rising: usize, rise: f64 },
    /// Bayesian online change points (Adams and MacKay, 2007) of the increments: the present run is long and rises.
    Bocpd { hazard: f64, run: usize, t: f64 },
}

impl Rule {
    /// Whether the alarm stands, minute by minute.
    pub(super) fn alarms(&self, values: &[f64], capacity: f64) -> Vec<bool> {
        match *self {
            Self::MannKendall { window, z, slope } => trend::mann_kendall(values, window, (z, slope)),
            Self::Slope { window, rate, held } => {
                hold(trend::lines(values, window).map(|line| line.slope > rate), held)
            }
            Self::Forecast { window, horizon, held } => hold(
                trend::lines(values, window).map(|line| line.last + line.slope * horizon > capacity),
                held,
            ),
            Self::Cusum { drift, threshold } => charts::cusum(values, drift, threshold),
            Self::Levels { penalty, rising, rise } => segments::rising(values, penalty, (rising, rise)),
            Self::Bocpd { hazard, run, t } => bocpd::rising(values, hazard, (run, t)),
        }
    }

    /// What the tables call it.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::MannKendall { .. } => "Mann-Kendall + Sen",
            Self::Slope { .. } => "slope rule",
            Self::Forecast { .. } => "predict_linear",
            Self::Cusum { .. } => "CUSUM",
            Self::Levels { .. } => "PELT mean",
            Self::Bocpd { .. } => "BOCPD",
        }
    }

    /// Its parameters in words.
    pub(super) fn setting(&self) -> String {
        match self {
            Self::MannKendall { window, z, slope } => format!("{window} min, z {z}, slope {slope}"),
            Self::Slope { window, rate, held } => format!("{window} min > {rate} for {held} min"),
            Self::Forecast { window, horizon, held } => {
                format!("{window} min, {:.0} h ahead, for {held} min", horizon / 60.0)
            }
            Self::Cusum { drift, threshold } => format!("k {drift}, h {threshold}"),
            Self::Levels { penalty, rising, rise } => {
                format!("{penalty} log n, {rising} rising by {rise} MiB")
            }
            Self::Bocpd { hazard, run, t } => format!("hazard 1/{:.0}, run {run}, t {t}", 1.0 / hazard),
        }
    }
}

/// The setting of textbooks and documentation of each.
pub(super) const TEXTBOOK: [Rule; 6] = [
    Rule::MannKendall { window: 60, z: 1.645, slope: 0.0 },
    Rule::Slope { window: 30, rate: 1.0, held: 30 },
    Rule::Forecast { window: 60, horizon: 240.0, held: 10 },
    Rule::Cusum { drift: 0.5, threshold: 5.0 },
    Rule::Levels { penalty: 2.0, rising: 3, rise: 32.0 },
    Rule::Bocpd { hazard: 0.01, run: 20, t: 3.0 },
];

/// The setting with the best F1 on residuals of seeds 0 to 11, as `bench-detect --tune` finds it.
pub(super) const TUNED: [Rule; 6] = [
    Rule::MannKendall { window: 240, z: 5.0, slope: 0.5 },
    Rule::Slope { window: 30, rate: 0.5, held: 60 },
    Rule::Forecast { window: 30, horizon: 168.0 * 60.0, held: 10 },
    Rule::Cusum { drift: 3.0, threshold: 200.0 },
    Rule::Levels { penalty: 20.0, rising: 6, rise: 32.0 },
    Rule::Bocpd { hazard: 0.001, run: 120, t: 3.0 },
];

/// All settings that tuning tries.
pub(super) fn grid() -> Vec<Rule> {
    let mut rules = Vec::new();
    for window in [30, 60, 120, 240] {
        for z in [1.645, 2.33, 3.1, 5.0] {
            rules.extend([0.0, 0.25, 0.5].map(|slope| Rule::MannKendall { window, z, slope }));
        }
    }
    for window in [15, 30, 60, 120] {
        for rate in [0.25, 0.5, 1.0, 2.0, 5.0] {
            rules.extend([1, 10, 30, 60].map(|held| Rule::Slope { window, rate, held }));
        }
    }
    for window in [30, 60, 180] {
        for hours in [4.0, 24.0, 72.0, 168.0] {
            rules.extend([1, 10, 30].map(|held| Rule::Forecast { window, horizon: hours * 60.0, held }));
        }
    }
    for drift in [0.5, 1.0, 3.0] {
        rules.extend([5.0, 20.0, 50.0, 200.0].map(|threshold| Rule::Cusum { drift, threshold }));
    }
    for penalty in [2.0, 5.0, 20.0] {
        for rising in [3, 4, 6] {
            rules.extend([32.0, 128.0].map(|rise| Rule::Levels { penalty, rising, rise }));
        }
    }
    for hazard in [0.01, 0.001] {
        for run in [20, 60, 120] {
            rules.extend([3.0, 5.0, 8.0].map(|t| Rule::Bocpd { hazard, run, t }));
        }
    }
    rules
}

/// True once it has been true for so many minutes.
fn hold(states: impl Iterator<Item = bool>, minutes: usize) -> Vec<bool> {
    let mut count = 0;
    states
        .map(|state| {
            count = if state { count + 1 } else { 0 };
            count >= minutes
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(rule: Rule, values: &[f64]) -> Option<usize> {
        rule.alarms(values, 81_559.0).iter().position(|state| *state)
    }

    /// Four quiet hours, then a rise; a little noise that repeats.
    fn rising(rate: f64) -> Vec<f64> {
        let noise = [0.0, 2.0, -1.0, 1.0, -2.0, 0.5, 1.5];
        (0..480_u32)
            .map(|i| 20_000.0 + noise[i as usize % 7] + rate * f64::from(i.saturating_sub(240)))
            .collect()
    }

    #[test]
    fn each_rule_sees_a_rise_after_it_began_and_none_sees_one_where_there_is_none() {
        let flat = rising(0.0);
        for rule in TUNED {
            let rate = if matches!(rule, Rule::Forecast { .. }) { 16.0 } else { 4.0 };
            let found = first(rule, &rising(rate));
            assert!(found.is_some_and(|minute| minute > 240), "{rule:?} {found:?}");
            assert_eq!(first(rule, &flat), None, "{rule:?}");
        }
    }

    #[test]
    fn textbook_settings_are_quicker() {
        for (textbook, tuned) in TEXTBOOK.into_iter().zip(TUNED) {
            if !matches!(textbook, Rule::Forecast { .. }) {
                let values = rising(8.0);
                assert!(first(textbook, &values) <= first(tuned, &values), "{textbook:?}");
            }
        }
    }

    #[test]
    fn minutes_without_data_raise_nothing() {
        let mut values = rising(0.0);
        for value in &mut values[100..200] {
            *value = f64::NAN;
        }
        for rule in TUNED {
            assert_eq!(first(rule, &values), None, "{rule:?}");
        }
    }
}
