//! The past of one series, as far as the chart shows it.

use std::collections::VecDeque;

use ebbtide_api::wire::{History, HistoryQuery, Status};
use ebbtide_core::{Bytes, Metric, Reading, SeriesKey, Ts};

const DAY_MS: i64 = 24 * 3_600_000;

/// The spans that a chart can cover, in milliseconds: 1 min to two years, as long as the history keeps quarters of an hour.
pub const SPANS_MS: [i64; 14] = [
    60_000,
    120_000,
    300_000,
    900_000,
    3_600_000,
    3 * 3_600_000,
    6 * 3_600_000,
    DAY_MS,
    2 * DAY_MS,
    7 * DAY_MS,
    30 * DAY_MS,
    90 * DAY_MS,
    365 * DAY_MS,
    730 * DAY_MS,
];

/// How many points the past is asked for: two a column on the widest terminals, so that thinning never shows.
pub const HISTORY_POINTS: u32 = 512;

/// The most spots kept: the past as asked, and as much again for a daemon that answers with more than it was asked.
pub const MAX_SPOTS: usize = 2 * HISTORY_POINTS as usize;

/// One instant, or several so close that the chart cannot tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spot {
    /// The first of the instants.
    pub at: Ts,
    /// The smallest and the largest value; `None` where nothing could be read.
    pub range: Option<(i64, i64)>,
}

/// Whether the stored past is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Past {
    /// It has been asked for.
    Asked,
    /// It is in.
    Known,
    /// There is none, in words; the trace begins when the dashboard did.
    Unavailable(String),
}

/// The values of one series over the last `span_ms`, oldest first.
#[derive(Debug, Clone)]
pub struct Trace {
    /// Which series.
    pub series: SeriesKey,
    /// How far back it reaches.
    pub span_ms: i64,
    /// Whether the stored past is in.
    pub past: Past,
    spots: VecDeque<Spot>,
}

impl Trace {
    /// An empty trace, whose past has been asked for.
    #[must_use]
    pub fn new(series: SeriesKey, span_ms: i64) -> Self {
        Self { series, span_ms, past: Past::Asked, spots: VecDeque::new() }
    }

    /// What to ask the daemon for, seen from `now`.
    #[must_use]
    pub fn query(&self, now: Ts) -> HistoryQuery {
        HistoryQuery {
            series: self.series.clone(),
            from: now.plus_ms(-self.span_ms),
            to: now.plus_ms(1),
            points: HISTORY_POINTS,
        }
    }

    /// Whether `query` is one of this trace's own.
    #[must_use]
    pub fn asked(&self, query: &HistoryQuery) -> bool {
        query.series == self.series
            && query.to.0.saturating_sub(query.from.0) == self.span_ms.saturating_add(1)
    }

    /// The values, oldest first.
    pub fn spots(&self) -> impl DoubleEndedIterator<Item = Spot> + ExactSizeIterator + '_ {
        self.spots.iter().copied()
    }

    /// Puts the stored past before what has been seen since.
    pub fn absorb(&mut self, history: &History) {
        let newest = history.spans.last().map_or(Ts(i64::MIN), |span| span.at);
        let seen_since: Vec<Spot> = self.spots.iter().copied().filter(|s| s.at > newest).collect();
        self.spots.clear();
        for span in &history.spans {
            self.push(Spot { at: span.at, range: span.min.zip(span.max) });
        }
        for spot in seen_since {
            self.push(spot);
        }
        self.past = Past::Known;
    }

    /// Adds what was read at `at`. An instant that is known already changes nothing: process lists are read less
    /// often than they are published.
    pub fn observe(&mut self, at: Ts, value: Option<i64>) {
        if self.spots.back().is_some_and(|last| last.at == at) {
            return;
        }
        self.push(Spot { at, range: value.map(|v| (v, v)) });
    }

    /// Appends, or merges into the last spot where the chart could not tell them apart.
    ///
    /// Wall time can step back; what then lies in the future goes, so that spots stay in order.
    fn push(&mut self, spot: Spot) {
        while self.spots.back().is_some_and(|last| last.at >= spot.at) {
            self.spots.pop_back();
        }
        let grain = self.span_ms / i64::from(HISTORY_POINTS);
        match self.spots.back_mut() {
            Some(last) if spot.at.0 - last.at.0 < grain && last.range.is_some() == spot.range.is_some() => {
                last.range = last.range.zip(spot.range).map(|(a, b)| (a.0.min(b.0), a.1.max(b.1)));
            }
            _ => self.spots.push_back(spot),
        }
        let oldest = spot.at.plus_ms(-self.span_ms);
        while self.spots.front().is_some_and(|s| s.at < oldest) || self.spots.len() > MAX_SPOTS {
            self.spots.pop_front();
        }
    }
}

/// The value of `series` in `status`, in the unit of its metric, and the instant it belongs to; `None` where the
/// status has no such series.
#[must_use]
pub fn value_in(status: &Status, series: &SeriesKey) -> Option<(Ts, Reading<i64>)> {
    let whole = |bytes: Bytes| i64::try_from(bytes.0).unwrap_or(i64::MAX);
    let gpu = status.gpus.iter().find(|g| Some(&g.gpu.uuid) == series.gpu.as_ref())?;
    let ledger = &gpu.ledger;
    match series.metric {
        Metric::UsedBytes => Some((status.tick.at, gpu.gpu.memory.map(|m| whole(m.used)))),
        Metric::UnattributedBytes => Some((ledger.tick.at, ledger.unattributed.map(|b| b.0))),
        Metric::ReservedBytes => Some((ledger.tick.at, ledger.driver_reserved.map(whole))),
        Metric::ProcessBytes => {
            let list = gpu.gpu.processes.as_ref().ok()?;
            let process = list.entries.iter().find(|p| Some(p.key) == series.proc)?;
            Some((list.listed.at, process.memory.map(whole)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebbtide_api::wire::Span;
    use ebbtide_core::Metric;
    use proptest::prelude::*;

    fn trace(span_ms: i64) -> Trace {
        Trace::new(SeriesKey { gpu: None, proc: None, metric: Metric::UsedBytes }, span_ms)
    }

    fn spot(at: i64, value: i64) -> Spot {
        Spot { at: Ts(at), range: Some((value, value)) }
    }

    #[test]
    fn the_past_goes_before_what_was_seen_since() {
        let mut t = trace(60_000);
        t.observe(Ts(9_000), Some(9));
        t.observe(Ts(10_000), Some(10));
        let spans = [(8_000, 8), (9_000, 90)].map(|(at, v)| Span {
            at: Ts(at),
            min: Some(v),
            max: Some(v),
            last: Some(v),
        });
        t.absorb(&History { series: t.series.clone(), spans: spans.to_vec(), gaps: Vec::new() });
        assert_eq!(t.spots().collect::<Vec<_>>(), [spot(8_000, 8), spot(9_000, 90), spot(10_000, 10)]);
        assert_eq!(t.past, Past::Known);
    }

    #[test]
    fn instants_closer_than_the_chart_can_show_are_merged_and_gaps_are_kept() {
        let mut t = trace(512_000);
        t.observe(Ts(0), Some(5));
        t.observe(Ts(500), Some(3));
        t.observe(Ts(900), None);
        t.observe(Ts(1_900), Some(4));
        let ranges: Vec<_> = t.spots().map(|s| s.range).collect();
        assert_eq!(ranges, [Some((3, 5)), None, Some((4, 4))]);
    }

    #[test]
    fn a_clock_that_steps_back_takes_the_future_with_it() {
        let mut t = trace(60_000);
        t.observe(Ts(50_000), Some(1));
        t.observe(Ts(20_000), Some(2));
        assert_eq!(t.spots().collect::<Vec<_>>(), [spot(20_000, 2)]);
    }

    proptest! {
        #[test]
        fn a_trace_is_ordered_bounded_and_within_its_span(
            values in prop::collection::vec((0_i64..10_000_000, prop::option::of(any::<i64>())), 0..3000),
            span in prop::sample::select(SPANS_MS.to_vec()),
        ) {
            let mut t = trace(span);
            for (at, value) in values {
                t.observe(Ts(at), value);
            }
            let spots: Vec<Spot> = t.spots().collect();
            prop_assert!(spots.len() <= MAX_SPOTS);
            prop_assert!(spots.windows(2).all(|w| w[0].at < w[1].at));
            if let (Some(first), Some(last)) = (spots.first(), spots.last()) {
                prop_assert!(last.at.0 - first.at.0 <= span + 1);
            }
        }
    }
}
