//! What a series did in each minute and in each quarter of an hour. The layout is described at the head of the crate.

use std::collections::BTreeMap;

use ebbtide_core::Ts;
use sqlx::sqlite::SqliteConnection;

use crate::chunk::{WindowId, checked, chunk_id, sealed, take_length};
use crate::codec::SeriesId;
use crate::column::{push_column, take_column};
use crate::damage::Damage;
use crate::varint::push_varint;

/// The first byte.
const TAG: u8 = 0x20;

/// Number of a day or week since 1970.
pub(crate) type Period = WindowId;

/// One length of bucket, and where they are kept.
#[derive(Debug)]
pub(crate) struct Tier {
    /// Length of a bucket.
    pub(crate) width_ms: i64,
    /// Buckets stored together.
    buckets: i64,
    /// Reads rows: first and last id.
    pub(crate) select: &'static str,
    /// Writes a row: id, data.
    upsert: &'static str,
    /// Deletes periods of some series: first and last period, first and last series.
    pub(crate) delete: &'static str,
    /// The oldest period of all series.
    pub(crate) oldest: &'static str,
}

/// Minutes, a day in a row.
pub(crate) const MINUTE: Tier = Tier {
    width_ms: 60_000,
    buckets: 24 * 60,
    select: "SELECT id, data FROM minute WHERE id BETWEEN ? AND ? ORDER BY id",
    upsert: "INSERT OR REPLACE INTO minute (id, data) VALUES (?, ?)",
    delete: "DELETE FROM minute WHERE id IN (
                 SELECT m.id FROM series s CROSS JOIN minute m ON m.id BETWEEN s.id << 32 | ? AND s.id << 32 | ?
                 WHERE s.id BETWEEN ? AND ?)",
    oldest: "SELECT min((SELECT min(m.id) & 0xFFFFFFFF FROM minute m
                         WHERE m.id BETWEEN s.id << 32 AND s.id << 32 | 0xFFFFFFFF)) FROM series s",
};

/// Quarters of an hour, a week in a row.
pub(crate) const QUARTER: Tier = Tier {
    width_ms: 900_000,
    buckets: 7 * 24 * 4,
    select: "SELECT id, data FROM quarter WHERE id BETWEEN ? AND ? ORDER BY id",
    upsert: "INSERT OR REPLACE INTO quarter (id, data) VALUES (?, ?)",
    delete: "DELETE FROM quarter WHERE id IN (
                 SELECT q.id FROM series s CROSS JOIN quarter q ON q.id BETWEEN s.id << 32 | ? AND s.id << 32 | ?
                 WHERE s.id BETWEEN ? AND ?)",
    oldest: "SELECT min((SELECT min(q.id) & 0xFFFFFFFF FROM quarter q
                         WHERE q.id BETWEEN s.id << 32 AND s.id << 32 | 0xFFFFFFFF)) FROM series s",
};

impl Tier {
    /// The period that holds an instant; times before 1970 and after some million years have none.
    pub(crate) fn period(&self, at: Ts) -> Option<Period> {
        Period::try_from(at.0.div_euclid(self.width_ms * self.buckets)).ok()
    }

    /// The period of a wall time, or the first or last where it has none.
    pub(crate) fn nearest_period(&self, at: Ts) -> Period {
        self.period(at).unwrap_or(if at.0 < 0 { 0 } else { Period::MAX })
    }

    /// Where a period begins.
    pub(crate) fn begin(&self, period: Period) -> Ts {
        Ts(i64::from(period).saturating_mul(self.width_ms * self.buckets))
    }

    /// The number of the bucket that holds an instant.
    pub(crate) fn index(&self, at: Ts) -> i64 {
        at.0.div_euclid(self.width_ms)
    }

    /// Where the bucket of a number begins.
    pub(crate) fn start(&self, index: i64) -> Ts {
        Ts(index.saturating_mul(self.width_ms))
    }
}

/// What a series did in one piece of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bucket {
    /// Its start in widths since 1970.
    pub(crate) index: i64,
    pub(crate) min: i64,
    pub(crate) max: i64,
    /// The sum of all values, modulo 2^64; amounts of memory are far from that.
    pub(crate) sum: i64,
    pub(crate) count: u32,
    /// The newest value.
    pub(crate) last: i64,
}

impl Bucket {
    const fn of(index: i64, value: i64) -> Self {
        Self { index, min: value, max: value, sum: value, count: 1, last: value }
    }

    /// Takes in what came later.
    fn add(&mut self, later: &Self) {
        self.min = self.min.min(later.min);
        self.max = self.max.max(later.max);
        self.sum = self.sum.wrapping_add(later.sum);
        self.count = self.count.saturating_add(later.count);
        self.last = later.last;
    }
}

/// Buckets by their number.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Buckets(BTreeMap<i64, Bucket>);

impl Buckets {
    /// Buckets of values in the order in which they were read.
    pub(crate) fn of(tier: &Tier, values: impl Iterator<Item = (Ts, i64)>) -> Self {
        let mut buckets = Self::default();
        let mut open: Option<Bucket> = None;
        for (at, value) in values {
            let next = Bucket::of(tier.index(at), value);
            match &mut open {
                Some(bucket) if bucket.index == next.index => bucket.add(&next),
                _ => buckets.add(open.replace(next)),
            }
        }
        buckets.add(open);
        buckets
    }

    /// The same in longer buckets.
    pub(crate) fn widen(&self, from: &Tier, to: &Tier) -> Self {
        let mut wide = Self::default();
        for bucket in self.0.values() {
            wide.add(Some(Bucket { index: to.index(from.start(bucket.index)), ..*bucket }));
        }
        wide
    }

    /// The buckets in their order.
    pub(crate) fn into_vec(self) -> Vec<Bucket> {
        self.0.into_values().collect()
    }

    fn add(&mut self, later: Option<Bucket>) {
        let Some(later) = later else { return };
        self.0.entry(later.index).and_modify(|bucket| bucket.add(&later)).or_insert(later);
    }
}

/// Adds buckets to those of a series that are stored. Run once for each value, in one transaction with the mark that
/// says so.
pub(crate) async fn store(
    conn: &mut SqliteConnection,
    tier: &Tier,
    series: SeriesId,
    later: &Buckets,
) -> Result<(), sqlx::Error> {
    let mut periods: BTreeMap<Period, Vec<Bucket>> = BTreeMap::new();
    for bucket in later.0.values() {
        if let Some(period) = tier.period(tier.start(bucket.index)) {
            periods.entry(period).or_default().push(*bucket);
        }
    }
    for (period, buckets) in periods {
        let id = chunk_id(series, period);
        let kept: Option<(i64, Vec<u8>)> =
            sqlx::query_as(tier.select).bind(id).bind(id).fetch_optional(&mut *conn).await?;
        let mut all = Buckets::default();
        for bucket in kept.iter().flat_map(|(id, data)| read(*id, data)).chain(buckets) {
            all.add(Some(bucket));
        }
        sqlx::query(tier.upsert).bind(id).bind(encode(id, &all.into_vec())).execute(&mut *conn).await?;
    }
    Ok(())
}

/// The buckets of a series in the periods from `first` to `last`, in order.
pub(crate) async fn load(
    conn: &mut SqliteConnection,
    tier: &Tier,
    series: SeriesId,
    (first, last): (Period, Period),
) -> Result<Vec<Bucket>, sqlx::Error> {
    let rows: Vec<(i64, Vec<u8>)> = sqlx::query_as(tier.select)
        .bind(chunk_id(series, first))
        .bind(chunk_id(series, last))
        .fetch_all(conn)
        .await?;
    let mut buckets = Vec::new();
    for (id, data) in &rows {
        buckets.append(&mut read(*id, data));
    }
    Ok(buckets)
}

/// Buckets that are damaged are gone; what is around them is not.
fn read(id: i64, data: &[u8]) -> Vec<Bucket> {
    decode(id, data).unwrap_or_else(|damage| {
        tracing::warn!(id, ?damage, "a rollup is damaged and left out");
        Vec::new()
    })
}

/// The row that holds `buckets`. The columns are last, least, greatest and sum as their distance from the last, so that
/// what rests takes nothing.
pub(crate) fn encode(id: i64, buckets: &[Bucket]) -> Vec<u8> {
    let mut bytes = vec![TAG];
    push_varint(&mut bytes, buckets.len() as u64);
    let columns: [fn(usize, &Bucket) -> i64; 6] = [
        |at, bucket| bucket.index.wrapping_sub(at as i64),
        |_, bucket| bucket.last,
        |_, bucket| bucket.last.wrapping_sub(bucket.min),
        |_, bucket| bucket.max.wrapping_sub(bucket.last),
        |_, bucket| bucket.sum.wrapping_sub(bucket.last.wrapping_mul(i64::from(bucket.count))),
        |_, bucket| i64::from(bucket.count),
    ];
    for column in columns {
        let values: Vec<i64> = buckets.iter().enumerate().map(|(at, bucket)| column(at, bucket)).collect();
        push_column(&mut bytes, &values);
    }
    sealed(id, bytes)
}

/// Reads the row that stands under `id`.
pub(crate) fn decode(id: i64, bytes: &[u8]) -> Result<Vec<Bucket>, Damage> {
    take(checked(id, bytes)?)
}

/// Reads content whose checksum has been compared.
pub(crate) fn take(content: &[u8]) -> Result<Vec<Bucket>, Damage> {
    let Some((&TAG, mut bytes)) = content.split_first() else { return Err(Damage::Tag) };
    let count = take_length(&mut bytes)?;
    let mut column = || take_column(&mut bytes, count);
    let (index, last, min, max, sum, counts) =
        (column()?, column()?, column()?, column()?, column()?, column()?);
    if counts.iter().any(|count| u32::try_from(*count).is_err()) {
        return Err(Damage::Body);
    }
    // Nothing can fail any more, so that the length is known and nothing is looked at twice: a year is 35 000 of them.
    let bucket = |at: usize| Bucket {
        index: index[at].wrapping_add(at as i64),
        min: last[at].wrapping_sub(min[at]),
        max: last[at].wrapping_add(max[at]),
        sum: sum[at].wrapping_add(last[at].wrapping_mul(counts[at])),
        count: counts[at] as u32,
        last: last[at],
    };
    Ok((0..count).map(bucket).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn values() -> impl Strategy<Value = Vec<(Ts, i64)>> {
        // Steps of the clock both ways among ordinary ticks.
        let step = prop_oneof![20 => 0..3_000_i64, 1 => -4_000_000..4_000_000_i64];
        proptest::collection::vec((step, any::<i64>()), 0..400).prop_map(|steps| {
            let mut at = 1_700_000_000_000;
            steps
                .into_iter()
                .map(|(step, value)| {
                    at += step;
                    (Ts(at), value)
                })
                .collect()
        })
    }

    proptest! {
        #[test]
        fn quarters_of_minutes_are_quarters_of_values(values in values()) {
            let minutes = Buckets::of(&MINUTE, values.iter().copied());
            let wide = minutes.widen(&MINUTE, &QUARTER);
            let quarters = Buckets::of(&QUARTER, values.iter().copied());
            // Where the clock went back, the minutes say which value is newest by their place, not by their making.
            let steady = values.is_sorted_by_key(|(at, _)| *at);
            for (one, other) in wide.0.values().zip(quarters.0.values()) {
                prop_assert_eq!(Bucket { last: if steady { one.last } else { 0 }, ..*one },
                    Bucket { last: if steady { other.last } else { 0 }, ..*other });
            }
            prop_assert_eq!(wide.0.len(), quarters.0.len());
        }

        #[test]
        fn buckets_come_back_as_they_went_in(values in values(), id in any::<i64>()) {
            let buckets: Vec<Bucket> = Buckets::of(&MINUTE, values.into_iter()).into_vec();
            prop_assert_eq!(decode(id, &encode(id, &buckets)).unwrap(), buckets);
        }

        #[test]
        fn parts_rolled_one_after_the_other_are_the_whole(values in values(), cut in any::<prop::sample::Index>()) {
            let (before, after) = values.split_at(cut.index(values.len() + 1));
            let mut parts = Buckets::of(&MINUTE, before.iter().copied());
            for bucket in Buckets::of(&MINUTE, after.iter().copied()).0.into_values() {
                parts.add(Some(bucket));
            }
            prop_assert_eq!(parts, Buckets::of(&MINUTE, values.into_iter()));
        }

        #[test]
        fn no_bytes_make_reading_panic(content in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut bytes = content;
            let _ = take(&bytes);
            bytes.insert(0, TAG);
            let _ = take(&bytes);
        }
    }

    #[test]
    fn absurd_times_have_no_period() {
        assert_eq!([i64::MIN, -1, i64::MAX].map(|at| MINUTE.period(Ts(at))), [None; 3]);
        assert_eq!(MINUTE.nearest_period(Ts(i64::MAX)), Period::MAX);
        assert_eq!(QUARTER.begin(QUARTER.period(Ts(1_700_000_000_000)).unwrap()).0 % QUARTER.width_ms, 0);
    }
}
