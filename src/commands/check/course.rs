//! The values of a series for its chart, in bounded memory: a year of seconds takes no more than an hour.

/// The most values that are kept: sixty times the columns of a chart. Beyond them two neighbours become one.
const MOST: usize = 4096;

/// Values in order of time, each the largest of as many as it stands for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Course {
    kept: Vec<Option<f64>>,
    /// Values that the last entry stands for so far.
    filled: usize,
    /// Values that each other entry stands for, as a power of two.
    doublings: u32,
    count: u64,
}

impl Course {
    /// The next value; `None` is absent.
    pub(crate) fn push(&mut self, value: Option<f64>) {
        self.count += 1;
        match self.kept.last_mut().filter(|_| self.filled < 1 << self.doublings) {
            Some(last) => {
                *last = largest(*last, value);
                self.filled += 1;
            }
            None => {
                if self.kept.len() == MOST {
                    self.halve();
                }
                self.kept.push(value);
                self.filled = 1;
            }
        }
    }

    fn halve(&mut self) {
        self.kept = self.kept.chunks(2).map(|pair| pair.iter().copied().reduce(largest).flatten()).collect();
        self.doublings += 1;
    }

    /// What is kept of the values.
    pub(crate) fn values(&self) -> &[Option<f64>] {
        &self.kept
    }

    /// How many values there were.
    pub(crate) const fn count(&self) -> u64 {
        self.count
    }
}

fn largest(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.max(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spike_survives_any_length_and_gaps_stay() {
        for length in [10, MOST, MOST + 1, 50_000] {
            let mut course = Course::default();
            for i in 0..length {
                let is_gap = (length / 2..length).contains(&i);
                course.push((!is_gap).then_some(if i == length / 3 { 9.0 } else { 1.0 }));
            }
            let kept = course.values();
            assert!(
                course.count() == length as u64 && kept.len() <= MOST && kept.len() >= length.min(MOST / 2)
            );
            assert_eq!(kept.iter().filter(|value| **value == Some(9.0)).count(), 1, "{length}");
            let gaps = kept.iter().filter(|value| value.is_none()).count();
            assert!(gaps.abs_diff(kept.len() / 2) <= 1, "{gaps} of {}", kept.len());
            let at = kept.iter().position(|value| *value == Some(9.0)).unwrap();
            assert!(at.abs_diff(kept.len() / 3) <= 1, "{at} of {}", kept.len());
        }
    }
}
