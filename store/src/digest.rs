//! The digest: what each series did in the tail by quarter of an hour, kept beside it by the writer. A long chart then reads
//! a page or two instead of the tail's thousand ticks. The layout is described at the head of the crate.

use std::collections::BTreeMap;

use ebbtide_core::{Tick, Ts};
use sqlx::sqlite::SqliteConnection;

use crate::chunk::{checked, sealed, take_length};
use crate::codec::{Row, SeriesId};
use crate::column::{MAX_LENGTH, push_column, take_column};
use crate::damage::Damage;
use crate::history::Span;
use crate::rollup::QUARTER;
use crate::tail::TailWalk;
use crate::varint::push_varint;

/// The first byte.
const TAG: u8 = 0x40;

/// Quarters of an hour that a digest may have. The tail has at most some 1 900 ticks: at one a second four quarters, and
/// eight at one in four seconds. With slower ticks it would become as large as the tail, and is not kept.
const MOST_QUARTERS: usize = 8;

/// The digest of a tail, as its writer holds it.
#[derive(Debug)]
pub(crate) struct Digest {
    made: Made,
    /// The newest tick of which the file's rows may tell, 0 where there are none.
    stored_to: u64,
}

#[derive(Debug)]
enum Made {
    /// It is to be made from the tail.
    NotYet,
    /// By number of the quarter of an hour since 1970.
    Of(BTreeMap<i64, Quarter>),
    /// It would be too large.
    Never,
}

/// A series, and what it did in a quarter of an hour.
pub(crate) type Entry = (SeriesId, Span);

/// What series did in a quarter of an hour, by ascending id.
#[derive(Debug)]
struct Quarter {
    last_seq: u64,
    from: Ts,
    to: Ts,
    series: Vec<Entry>,
    /// It is not in the file as it is here.
    changed: bool,
}

impl Digest {
    /// That of a file of which nothing is known yet.
    pub(crate) const fn unknown() -> Self {
        Self { made: Made::NotYet, stored_to: u64::MAX }
    }

    /// Ticks have left the tail, and the rows with them.
    pub(crate) fn reset(&mut self) {
        *self = Self { made: Made::NotYet, stored_to: 0 };
    }

    /// Before a tick is written: where the rows may tell of one of its number, they go. Part of the tick's transaction.
    pub(crate) async fn make_way(
        &mut self,
        conn: &mut SqliteConnection,
        seq: u64,
    ) -> Result<(), sqlx::Error> {
        if seq <= self.stored_to {
            self.discard(conn).await?;
            self.made = Made::NotYet;
        }
        Ok(())
    }

    async fn discard(&mut self, conn: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        if self.stored_to > 0 {
            sqlx::query(DELETE).execute(conn).await?;
            self.stored_to = 0;
        }
        Ok(())
    }

    /// A tick was written.
    pub(crate) fn add(&mut self, tick: Tick, row: &Row) {
        let Made::Of(quarters) = &mut self.made else { return };
        let index = QUARTER.index(tick.at);
        let quarter = quarters.entry(index).or_insert_with(|| Quarter::empty(tick));
        quarter.add(index, tick, row);
        if quarter.series.len() > MAX_LENGTH || quarters.len() > MOST_QUARTERS {
            self.made = Made::Never;
        }
    }

    /// Brings the rows up to the newest tick, in one transaction with whatever else is done there.
    pub(crate) async fn store(&mut self, conn: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        if matches!(self.made, Made::NotYet) {
            self.read_tail(conn).await?;
        }
        let Made::Of(quarters) = &mut self.made else {
            return self.discard(conn).await;
        };
        for (index, quarter) in quarters.iter_mut().filter(|(_, quarter)| quarter.changed) {
            sqlx::query(
                "INSERT OR REPLACE INTO tail_quarter (id, last_seq, from_ms, to_ms, data) VALUES (?, ?, ?, ?, ?)",
            )
            .bind(*index)
            .bind(quarter.last_seq.cast_signed())
            .bind(quarter.from.0)
            .bind(quarter.to.0)
            .bind(encode(*index, &quarter.series))
            .execute(&mut *conn)
            .await?;
            quarter.changed = false;
            self.stored_to = self.stored_to.max(quarter.last_seq);
        }
        Ok(())
    }

    /// Makes the digest of what is in the tail.
    async fn read_tail(&mut self, conn: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        self.made = Made::Of(BTreeMap::new());
        let mut tail = TailWalk::begin(conn, Ts(i64::MIN), Ts(i64::MAX)).await?;
        while tail.wants_rows() && !matches!(self.made, Made::Never) {
            tail.fetch(conn).await?;
            while let Some(tick) = tail.next() {
                self.add(tick, tail.row());
            }
        }
        Ok(())
    }
}

/// Takes the rows of a digest that tells of ticks which leave the tail.
pub(crate) const DELETE: &str = "DELETE FROM tail_quarter";

impl Quarter {
    const fn empty(first: Tick) -> Self {
        Self { last_seq: first.seq, from: first.at, to: first.at, series: Vec::new(), changed: true }
    }

    fn add(&mut self, index: i64, tick: Tick, row: &Row) {
        (self.last_seq, self.from, self.to) = (tick.seq, self.from.min(tick.at), self.to.max(tick.at));
        self.changed = true;
        let mut at = 0;
        for (id, value) in row {
            let Some(value) = value else { continue };
            let part = part(index, *value);
            // Both ascend, and mostly have the same series.
            while self.series.get(at).is_some_and(|entry| entry.0 < *id) {
                at += 1;
            }
            match self.series.get_mut(at).filter(|entry| entry.0 == *id) {
                Some(entry) => entry.1.take_in(&part),
                None => self.series.insert(at, (*id, part)),
            }
        }
    }
}

/// One value in a quarter of an hour.
pub(crate) fn part(index: i64, value: i64) -> Span {
    let from = QUARTER.start(index);
    let to = from.plus_ms(QUARTER.width_ms);
    Span { from, to, min: value, max: value, last: value, count: 1 }
}

/// The parts of a digest that a file holds.
#[derive(Debug)]
pub(crate) struct Parts {
    /// All ticks of the tail up to this one are in them.
    pub(crate) last_seq: u64,
    /// In the order in which they ended.
    pub(crate) series: Vec<Entry>,
}

/// Reads the digest of the tail where all of its ticks lie between `from` and `to`, both included; `None` where there is
/// none, or it is damaged, and the ticks have to be read.
pub(crate) async fn load(
    conn: &mut SqliteConnection,
    (from, to): (Ts, Ts),
) -> Result<Option<Parts>, sqlx::Error> {
    type Stored = (i64, i64, i64, i64, Vec<u8>);
    let rows: Vec<Stored> =
        sqlx::query_as("SELECT id, last_seq, from_ms, to_ms, data FROM tail_quarter ORDER BY last_seq")
            .fetch_all(conn)
            .await?;
    let Some(newest) = rows.last() else { return Ok(None) };
    let mut parts = Parts { last_seq: newest.1.cast_unsigned(), series: Vec::new() };
    for (index, _, first, last, data) in &rows {
        if *first < from.0 || *last > to.0 {
            return Ok(None);
        }
        match decode(*index, data) {
            Ok(series) => parts.series.extend(series),
            Err(damage) => {
                tracing::warn!(
                    index,
                    ?damage,
                    "a quarter of the tail's digest is damaged: its ticks are read"
                );
                return Ok(None);
            }
        }
    }
    Ok(Some(parts))
}

/// The row that holds what `series` did. The columns are last, least and greatest as their distance from the last.
pub(crate) fn encode(index: i64, series: &[Entry]) -> Vec<u8> {
    let mut bytes = vec![TAG];
    push_varint(&mut bytes, series.len() as u64);
    let columns: [fn(usize, &Entry) -> i64; 5] = [
        |at, (id, _)| i64::from(*id) - at as i64,
        |_, (_, span)| i64::from(span.count),
        |_, (_, span)| span.last,
        |_, (_, span)| span.last.wrapping_sub(span.min),
        |_, (_, span)| span.max.wrapping_sub(span.last),
    ];
    for column in columns {
        let values: Vec<i64> = series.iter().enumerate().map(|(at, entry)| column(at, entry)).collect();
        push_column(&mut bytes, &values);
    }
    sealed(index, bytes)
}

/// Reads the row that stands under `index`.
pub(crate) fn decode(index: i64, bytes: &[u8]) -> Result<Vec<Entry>, Damage> {
    let content = checked(index, bytes)?;
    let Some((&TAG, mut bytes)) = content.split_first() else { return Err(Damage::Tag) };
    let count = take_length(&mut bytes)?;
    let mut column = || take_column(&mut bytes, count);
    let (ids, counts, last, min, max) = (column()?, column()?, column()?, column()?, column()?);
    (0..count)
        .map(|at| {
            let id = SeriesId::try_from(ids[at].wrapping_add(at as i64)).map_err(|_| Damage::Body)?;
            let mut span = part(index, last[at]);
            span.min = last[at].wrapping_sub(min[at]);
            span.max = last[at].wrapping_add(max[at]);
            span.count = u32::try_from(counts[at]).map_err(|_| Damage::Body)?;
            Ok((id, span))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn quarters_come_back_as_they_went_in(
            rows in proptest::collection::vec(proptest::collection::btree_map(0..50_u32, any::<Option<i64>>(), 0..20), 1..30),
            index in -1000..3_000_000_i64,
        ) {
            let mut quarter = Quarter::empty(Tick { seq: 1, at: QUARTER.start(index), mono_ms: 0 });
            for (place, row) in rows.iter().enumerate() {
                let tick = Tick { seq: place as u64, at: QUARTER.start(index).plus_ms(place as i64), mono_ms: 0 };
                quarter.add(index, tick, &row.iter().map(|(id, value)| (*id, *value)).collect());
            }
            for (id, span) in &quarter.series {
                let values: Vec<i64> = rows.iter().filter_map(|row| row.get(id).copied().flatten()).collect();
                prop_assert_eq!(Some(&span.min), values.iter().min());
                prop_assert_eq!(Some(&span.max), values.iter().max());
                prop_assert_eq!((Some(&span.last), span.count as usize), (values.last(), values.len()));
            }
            prop_assert!(quarter.series.is_sorted_by(|a, b| a.0 < b.0));
            prop_assert_eq!(decode(index, &encode(index, &quarter.series)).unwrap(), quarter.series);
        }

        #[test]
        fn no_bytes_make_reading_panic(content in proptest::collection::vec(any::<u8>(), 0..300), index in any::<i64>()) {
            let mut bytes = vec![TAG];
            bytes.extend(content);
            let _ = decode(index, &sealed(index, bytes));
        }
    }
}
