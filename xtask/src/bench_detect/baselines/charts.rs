//! Control charts.

use super::super::minutes::median;

/// Minutes from which level and spread are learnt, at first and after each alarm.
const LEARNT: usize = 30;
/// How long an alarm stands, in minutes; then the chart learns anew.
const HELD: usize = 30;

/// Page's one-sided cumulative sum: drift and threshold in robust standard deviations, of at least 1 MiB.
pub(super) fn cusum(values: &[f64], drift: f64, threshold: f64) -> Vec<bool> {
    let (mut learnt, mut left, mut sum) = (Vec::with_capacity(LEARNT), 0, 0.0);
    let (mut level, mut spread) = (0.0, 1.0);
    let mut step = |value: f64| {
        if left > 0 {
            left -= 1;
            if left == 0 {
                learnt.clear();
            }
            return true;
        }
        if value.is_nan() {
            return false;
        }
        if learnt.len() < LEARNT {
            learnt.push(value);
            if learnt.len() == LEARNT {
                (level, spread) = robust(&learnt);
                sum = 0.0;
            }
            return false;
        }
        sum = f64::max(0.0, sum + (value - level) / spread - drift);
        if sum > threshold {
            left = HELD;
        }
        sum > threshold
    };
    values.iter().map(|&value| step(value)).collect()
}

/// Median, and the standard deviation that the median absolute deviation stands for.
fn robust(values: &[f64]) -> (f64, f64) {
    let level = median(&mut values.to_vec()).unwrap_or(0.0);
    let mut deviations: Vec<f64> = values.iter().map(|value| (value - level).abs()).collect();
    (level, (1.4826 * median(&mut deviations).unwrap_or(0.0)).max(1.0))
}
