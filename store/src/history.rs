//! A series over time, in as many pieces as a chart has columns.

use ebbtide_core::Ts;

/// More spans than any screen has columns; a larger wish is cut down to it.
const MAX_SPANS: usize = 10_000;

/// What a series did in one piece of time, in the unit of its metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Where the piece begins.
    pub from: Ts,
    /// Where it ends; the next one begins there.
    pub to: Ts,
    /// The least value in it.
    pub min: i64,
    /// The greatest.
    pub max: i64,
    /// The newest.
    pub last: i64,
    /// How many values there were.
    pub count: u32,
}

impl Span {
    /// Takes in what came later.
    pub(crate) fn take_in(&mut self, later: &Self) {
        self.min = self.min.min(later.min);
        self.max = self.max.max(later.max);
        self.last = later.last;
        self.count = self.count.saturating_add(later.count);
    }
}

/// Values being sorted into spans.
#[derive(Debug)]
pub(crate) struct Spans {
    from: Ts,
    to: Ts,
    width_ms: u64,
    spans: Vec<Option<Span>>,
    /// Where the newest value went.
    newest: usize,
}

impl Spans {
    /// `points` pieces of equal length that cover `from` to `to`, at least one and each at least a millisecond long.
    pub(crate) fn new(from: Ts, to: Ts, points: usize) -> Self {
        let points = points.clamp(1, MAX_SPANS);
        let length = to.0.saturating_sub(from.0).max(0).unsigned_abs().saturating_add(1);
        let width_ms = length.div_ceil(points as u64);
        let needed = usize::try_from(length.div_ceil(width_ms)).unwrap_or(points).min(points);
        Self { from, to, width_ms, spans: vec![None; needed], newest: 0 }
    }

    /// Where the first piece begins.
    pub(crate) const fn from(&self) -> Ts {
        self.from
    }

    /// The last instant that counts.
    pub(crate) const fn to(&self) -> Ts {
        self.to
    }

    /// The length of a piece.
    pub(crate) fn width_ms(&self) -> i64 {
        self.width_ms.cast_signed()
    }

    /// Counts a value; one outside of all pieces is nobody's.
    pub(crate) fn add(&mut self, at: Ts, value: i64) {
        self.add_part(&Span { from: at, to: at, min: value, max: value, last: value, count: 1 });
    }

    /// Counts what a series did in a time that is not longer than a piece, in the piece in which it begins.
    pub(crate) fn add_part(&mut self, part: &Span) {
        // Mostly it is the piece of the one before, and a comparison is cheaper than a division.
        if let Some(Some(span)) = self.spans.get_mut(self.newest)
            && span.from <= part.from
            && part.from < span.to
        {
            return span.take_in(part);
        }
        let Ok(offset) = u64::try_from(part.from.0.saturating_sub(self.from.0)) else { return };
        let index = offset / self.width_ms;
        let Ok(newest) = usize::try_from(index) else { return };
        let Some(place) = self.spans.get_mut(newest) else { return };
        self.newest = newest;
        match place {
            Some(span) => span.take_in(part),
            None => {
                let from = self.from.plus_ms((index * self.width_ms).cast_signed());
                *place = Some(Span { from, to: from.plus_ms(self.width_ms.cast_signed()), ..*part });
            }
        }
    }

    /// The pieces that have values, in order.
    pub(crate) fn finish(self) -> Vec<Span> {
        self.spans.into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_value_inside_lands_in_one_span_that_holds_it(
            from in -1_000_000..1_000_000_i64,
            length in 0..1_000_000_i64,
            points in 0..500_usize,
            offsets in proptest::collection::vec((0.0..=1.0_f64, any::<i64>()), 1..50),
        ) {
            let (from, to) = (Ts(from), Ts(from + length));
            let mut spans = Spans::new(from, to, points);
            for (share, value) in &offsets {
                spans.add(from.plus_ms((share * length as f64) as i64), *value);
            }
            let spans = spans.finish();
            prop_assert!(spans.len() <= points.max(1));
            prop_assert_eq!(spans.iter().map(|s| s.count as usize).sum::<usize>(), offsets.len());
            prop_assert!(spans.iter().all(|s| s.min <= s.last && s.last <= s.max && s.from >= from));
            prop_assert!(spans.windows(2).all(|pair| pair[0].to <= pair[1].from));
            let (least, most) = (spans.iter().map(|s| s.min).min(), spans.iter().map(|s| s.max).max());
            prop_assert_eq!(least, offsets.iter().map(|o| o.1).min());
            prop_assert_eq!(most, offsets.iter().map(|o| o.1).max());
        }
    }

    #[test]
    fn absurd_spans_neither_panic_nor_take_memory() {
        for (from, to, points) in [(i64::MIN, i64::MAX, usize::MAX), (5, -5, 0), (i64::MAX, i64::MAX, 3)] {
            let mut spans = Spans::new(Ts(from), Ts(to), points);
            spans.add(Ts(from), 1);
            spans.add(Ts(to), 1);
            spans.add(Ts(i64::MIN), 1);
            spans.add(Ts(i64::MAX), 1);
            assert!(spans.finish().len() <= MAX_SPANS);
        }
    }
}
