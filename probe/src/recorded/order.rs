//! Rows in the order of time: what is out of order is sorted, what has no time is given one.

use std::collections::{HashMap, HashSet};

use super::rows::{Row, Rows, Subject};

/// Differences that the interval is estimated from; its median is settled long before.
const MAX_DIFFERENCES: usize = 100_000;

/// What was done to the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Ordering {
    /// Rows that had no time of their own.
    pub(super) untimed: u64,
    /// Rows that stood behind a later one.
    pub(super) out_of_order: u64,
    /// Rows that repeat time and subject of another.
    pub(super) repeated: u64,
    /// The median time between two readings of the same thing; `None` where nothing was read twice.
    pub(super) interval_ms: Option<u64>,
}

/// Gives every row a time and sorts them by it; rows of one time keep their order.
pub(super) fn order(rows: &mut Rows, default_interval_ms: u64) -> Ordering {
    let untimed = fill_times(&mut rows.rows, default_interval_ms);
    let out_of_order = rows.rows.windows(2).filter(|pair| pair[1].at_ms < pair[0].at_ms).count() as u64;
    rows.rows.sort_by_key(|row| row.at_ms);
    let (repeated, interval_ms) = spacing(&rows.rows);
    Ordering { untimed, out_of_order, repeated, interval_ms }
}

/// A row without a time belongs to the instant before it, unless that has one of its kind already: then a new
/// instant begins.
fn fill_times(rows: &mut [Row], interval_ms: u64) -> u64 {
    let mut clock = 0_i64;
    let mut seen = HashSet::new();
    let mut untimed = 0;
    for row in rows {
        if let Some(at_ms) = row.at_ms {
            clock = at_ms;
            seen = HashSet::from([(row.gpu, row.subject)]);
            continue;
        }
        untimed += 1;
        if !matches!(row.subject, Subject::Event(_)) && !seen.insert((row.gpu, row.subject)) {
            clock = clock.saturating_add(i64::try_from(interval_ms).unwrap_or(i64::MAX));
            seen.clear();
            seen.insert((row.gpu, row.subject));
        }
        row.at_ms = Some(clock);
    }
    untimed
}

/// How many rows repeat another, and the median step between readings of the same thing.
fn spacing(rows: &[Row]) -> (u64, Option<u64>) {
    let mut last: HashMap<(u16, Subject), i64> = HashMap::new();
    let mut repeated = 0;
    let mut steps = Vec::new();
    for row in rows {
        let (Some(at_ms), false) = (row.at_ms, matches!(row.subject, Subject::Event(_))) else { continue };
        match last.insert((row.gpu, row.subject), at_ms).map(|before| at_ms.abs_diff(before)) {
            Some(0) => repeated += 1,
            Some(step) if steps.len() < MAX_DIFFERENCES => steps.push(step),
            _ => {}
        }
    }
    let middle = steps.len() / 2;
    let median = (!steps.is_empty()).then(|| *steps.select_nth_unstable(middle).1);
    (repeated, median)
}

#[cfg(test)]
mod tests {
    use super::super::rows::Values;
    use super::*;

    fn row(at_ms: Option<i64>, gpu: u16) -> Row {
        Row { at_ms, gpu, subject: Subject::Device, values: Values::unrecorded() }
    }

    fn times(rows: &Rows) -> Vec<i64> {
        rows.rows.iter().filter_map(|row| row.at_ms).collect()
    }

    #[test]
    fn rows_without_time_step_by_the_interval_when_a_gpu_comes_round_again() {
        let mut rows = Rows::default();
        rows.rows.extend([0, 1, 0, 1].map(|gpu| row(None, gpu)));
        let ordering = order(&mut rows, 500);
        assert_eq!(times(&rows), [0, 0, 500, 500]);
        assert_eq!((ordering.untimed, ordering.interval_ms), (4, Some(500)));
    }

    #[test]
    fn late_rows_are_sorted_and_repeats_counted() {
        let mut rows = Rows::default();
        rows.rows.extend([3000, 1000, 2000, 2000].map(|at| row(Some(at), 0)));
        let ordering = order(&mut rows, 1000);
        assert_eq!(times(&rows), [1000, 2000, 2000, 3000]);
        assert_eq!((ordering.out_of_order, ordering.repeated, ordering.interval_ms), (1, 1, Some(1000)));
    }
}
