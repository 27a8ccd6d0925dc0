//! Segments of constant level by exact optimal partitioning with pruning: PELT (Killick, Fearnhead and Eckley, JASA
//! 107, 2012).

use super::super::minutes::median;

/// What is looked back at, in minutes, and how often.
const WINDOW: usize = 240;
const EVERY: usize = 10;
/// Before this minute nothing is said.
const FIRST: usize = 60;
/// The least length of a segment, in minutes.
const LEAST: usize = 5;

/// Whether the last `rising` segments rise, by `rise` MiB together; looked at each ten minutes.
pub(super) fn rising(values: &[f64], penalty: f64, (rising, rise): (usize, f64)) -> Vec<bool> {
    let mut state = false;
    (0..values.len())
        .map(|minute| {
            if minute >= FIRST && minute.is_multiple_of(EVERY) {
                let window = &values[(minute + 1).saturating_sub(WINDOW)..=minute];
                let present: Vec<f64> = window.iter().copied().filter(|value| !value.is_nan()).collect();
                state = present.len() > 30 && rises(&present, penalty, (rising, rise));
            }
            state
        })
        .collect()
}

fn rises(values: &[f64], penalty: f64, (rising, rise): (usize, f64)) -> bool {
    let penalty = penalty * (values.len() as f64).ln() * noise(values);
    let mut starts = partition(values, penalty, LEAST);
    let Some(first) = starts.len().checked_sub(rising) else { return false };
    starts.push(values.len());
    let means: Vec<f64> = starts[first..]
        .windows(2)
        .map(|ends| values[ends[0]..ends[1]].iter().sum::<f64>() / (ends[1] - ends[0]) as f64)
        .collect();
    means.windows(2).all(|pair| pair[1] > pair[0]) && means[means.len() - 1] - means[0] >= rise
}

/// The variance of the noise from the median absolute difference, 1 MiB squared at least.
fn noise(values: &[f64]) -> f64 {
    let mut steps: Vec<f64> = values.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let middle = median(&mut steps).unwrap_or(0.0);
    let mut deviations: Vec<f64> = steps.iter().map(|step| (step - middle).abs()).collect();
    let sd = 1.4826 * median(&mut deviations).unwrap_or(0.0) / std::f64::consts::SQRT_2;
    (sd * sd).max(1.0)
}

/// First indices of the segments whose squared errors plus the penalty for each are least; the first one is 0. Each
/// segment has at least `least` values.
pub(crate) fn partition(values: &[f64], penalty: f64, least: usize) -> Vec<usize> {
    let sums = Sums::of(values);
    let n = values.len();
    let mut best = vec![f64::INFINITY; n + 1];
    let mut previous = vec![0; n + 1];
    best[0] = -penalty;
    let mut candidates = Vec::new();
    for end in least..=n {
        candidates.push(end - least);
        for &start in &candidates {
            let cost = best[start] + sums.error(start, end) + penalty;
            if cost < best[end] {
                (best[end], previous[end]) = (cost, start);
            }
        }
        // Where one more segment could not help by now, it never will: the cost of the mean splits without loss. A
        // segment's least length delays what a candidate can do, so only costs against `end` itself may prune.
        if least == 1 {
            candidates.retain(|&start| best[start] + sums.error(start, end) <= best[end]);
        }
    }
    let mut starts = Vec::new();
    let mut end = n;
    while end > 0 {
        end = previous[end];
        starts.push(end);
    }
    starts.reverse();
    starts
}

/// Running sums, from which the squared error of any stretch follows at once.
struct Sums {
    first: Vec<f64>,
    second: Vec<f64>,
}

impl Sums {
    fn of(values: &[f64]) -> Self {
        // About the mean, so that squares of large values do not drown their differences.
        let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
        let running = |power: fn(f64) -> f64| {
            let mut sum = 0.0;
            let sums = values.iter().map(move |value| {
                sum += power(value - mean);
                sum
            });
            std::iter::once(0.0).chain(sums).collect()
        };
        Self { first: running(|value| value), second: running(|value| value * value) }
    }

    fn error(&self, start: usize, end: usize) -> f64 {
        let sum = self.first[end] - self.first[start];
        (self.second[end] - self.second[start] - sum * sum / (end - start) as f64).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_begin_where_the_level_steps() {
        let level = |i: usize| {
            if i < 40 {
                0.0
            } else if i < 70 {
                50.0
            } else {
                20.0
            }
        };
        let values: Vec<f64> = (0..100).map(|i| level(i) + (i * 7 % 5) as f64).collect();
        for least in [1, 5] {
            assert_eq!(partition(&values, 3.0 * 100_f64.ln(), least), [0, 40, 70]);
        }
        assert_eq!(partition(&values[..40], 3.0 * 40_f64.ln(), 1), [0]);
    }
}
