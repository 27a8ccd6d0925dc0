//! When does memory run out? Apart from why it grows.

use ebbtide_core::{ByteRate, Bytes, Forecast, RateBand, Tick, units::MIB};

use crate::trend::Line;

/// What a forecast starts from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Headroom {
    /// What the series can grow to.
    pub(crate) capacity: Bytes,
    /// The height that load reaches now and again: exhaustion comes at a peak, not at the floor.
    pub(crate) high_water: Bytes,
}

/// A line's slope as a rate with its band.
pub(crate) fn band(line: &Line) -> RateBand {
    let rate = |mib_per_s: f64| ByteRate(mib_per_s * MIB as f64);
    RateBand { rate: rate(line.slope), low: rate(line.low), high: rate(line.high) }
}

/// The range of instants at which the headroom is gone; `None` where the rate is no growth or the end lies beyond
/// what instants can express.
pub(crate) fn exhaustion(now: Tick, room: Headroom, rate: &RateBand) -> Option<Forecast> {
    let left = room.capacity.saturating_sub(room.high_water).0 as f64;
    let at = |rate: ByteRate| {
        let ms = left / rate.0 * 1000.0;
        (rate.0 > 0.0 && ms < FAR_MS).then(|| now.at.plus_ms(ms as i64))
    };
    let expected = at(rate.rate)?;
    Some(Forecast {
        capacity: room.capacity,
        earliest: at(rate.high).unwrap_or(expected),
        expected,
        latest: at(rate.low),
    })
}

/// A hundred years: beyond it a forecast is none.
const FAR_MS: f64 = 100.0 * 365.25 * 86_400_000.0;

#[cfg(test)]
mod tests {
    use super::*;
    use ebbtide_core::Ts;

    const ROOM: Headroom = Headroom { capacity: Bytes::from_mib(1100), high_water: Bytes::from_mib(500) };

    fn seconds(slope: f64, low: f64, high: f64) -> Option<(i64, i64, Option<i64>)> {
        let rate = band(&Line { slope, low, high, intercept: 0.0 });
        let now = Tick { seq: 1, at: Ts(0), mono_ms: 0 };
        exhaustion(now, ROOM, &rate)
            .map(|f| (f.earliest.0 / 1000, f.expected.0 / 1000, f.latest.map(|ts| ts.0 / 1000)))
    }

    #[test]
    fn the_range_follows_the_band() {
        assert_eq!(seconds(10.0, 5.0, 20.0), Some((30, 60, Some(120))));
        assert_eq!(seconds(10.0, -1.0, 20.0), Some((30, 60, None)), "the lower end may be no growth");
        assert_eq!(seconds(0.0, 0.0, 0.0), None);
        assert_eq!(seconds(-3.0, -4.0, -2.0), None);
        assert_eq!(seconds(1e-9, 0.0, 1e-8), None, "beyond any calendar");
    }
}
