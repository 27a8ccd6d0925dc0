//! A history by the minute: what simpler detectors, which know nothing of samples, are given.

use ebbtide_testkit::traces::{KvSight, Label, Point};

/// Medians by the minute, in MiB; a minute with too few samples is not a number.
#[derive(Debug, Clone, Default)]
pub(super) struct Minutes {
    /// Memory as the driver tells it.
    pub(super) raw: Vec<f64>,
    /// The same without the KV cache, where memory follows it.
    pub(super) residual: Vec<f64>,
    /// What has leaked by the end of each minute: the truth.
    pub(super) leaked: Vec<f64>,
    current: Vec<(f64, f64)>,
    least: usize,
    only_truth: bool,
}

impl Minutes {
    /// For samples each so many seconds.
    pub(super) fn new(interval_s: u64) -> Self {
        // A sixth of the samples of a minute is enough for a median.
        Self { least: (10 / interval_s).max(1) as usize, ..Self::default() }
    }

    /// The truth alone, without medians: most histories are played without rivals.
    pub(super) fn of_truth() -> Self {
        Self { only_truth: true, ..Self::default() }
    }

    pub(super) fn take(&mut self, label: &Label, point: &Point) {
        let minute = (point.mono_ms / 60_000) as usize;
        self.leaked.resize(minute + 1, self.leaked.last().copied().unwrap_or(0.0));
        self.leaked[minute] = point.leaked_mib;
        if self.only_truth {
            return;
        }
        while self.raw.len() < minute {
            self.close();
        }
        let used = point.used.mib();
        let kv =
            point.kv_used.filter(|_| label.kv == KvSight::OnDemand).map_or(0.0, ebbtide_core::Bytes::mib);
        self.current.push((used, used - kv));
    }

    /// The last minute ends.
    pub(super) fn close(&mut self) {
        if self.only_truth {
            return;
        }
        let is_enough = self.current.len() >= self.least;
        let of = |part: fn(&(f64, f64)) -> f64| {
            let mut values: Vec<f64> = self.current.iter().map(part).collect();
            if is_enough { median(&mut values).unwrap_or(f64::NAN) } else { f64::NAN }
        };
        let (raw, residual) = (of(|pair| pair.0), of(|pair| pair.1));
        self.raw.push(raw);
        self.residual.push(residual);
        self.current.clear();
    }
}

/// The middle value, or the mean of the two in the middle.
pub(super) fn median(values: &mut [f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// A quantile, interpolated between the two values beside it.
pub(super) fn quantile(values: &mut [f64], share: f64) -> Option<f64> {
    let last = values.len().checked_sub(1)?;
    let at = share * last as f64;
    let (_, low, above) = values.select_nth_unstable_by(at.floor() as usize, f64::total_cmp);
    let low = *low;
    let high = above.iter().copied().reduce(f64::min).unwrap_or(low);
    Some(low + (high - low) * at.fract())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_interpolated() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(quantile(&mut [0.0, 10.0, 20.0], 0.9), Some(18.0));
        assert_eq!(median(&mut []), None);
    }
}
