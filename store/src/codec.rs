//! One tick as a blob. The layout is described at the head of the crate.

use crate::crc::Crc32;
use crate::damage::Damage;
use crate::varint::{push_varint, take_varint, unzigzag, zigzag};

/// The number that stands for a series within one file.
pub(crate) type SeriesId = u32;

/// The values of one tick, by ascending id, each id once. `None` is "asked, and absent".
pub(crate) type Row = Vec<(SeriesId, Option<i64>)>;

/// The blob can be read without another.
const TAG_WHOLE: u8 = 1;
/// The blob says what changed since the blob before it.
const TAG_CHANGES: u8 = 2;

/// The series is no longer asked.
const FORM_GONE: u64 = 0;
/// The series is absent.
const FORM_ABSENT: u64 = 1;
/// The value differs from the last by this much.
const FORM_EXACT: u64 = 2;
/// The value differs from the last by this many pages.
const FORM_PAGES: u64 = 3;

/// Drivers and kernels count memory in pages, so most differences are multiples of 4 KiB; leaving the twelve zero
/// bits out saves two bytes of a varint each time.
const PAGE: i64 = 4096;

/// Bytes of the checksum at the end.
const CRC_BYTES: usize = 4;

/// A blob whose checksum holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Blob<'a> {
    /// The tick that this one builds on; `None` where it stands by itself.
    pub(crate) follows: Option<u64>,
    entries: &'a [u8],
}

/// The blob of tick `seq`: whole where `before` is `None`, else the changes since that earlier tick.
pub(crate) fn encode(seq: u64, before: Option<(u64, &Row)>, now: &Row) -> Vec<u8> {
    let mut blob = Vec::with_capacity(16 + now.len() * if before.is_some() { 2 } else { 5 });
    match before {
        None => {
            blob.push(TAG_WHOLE);
            push_entries(&mut blob, &[], now);
        }
        Some((earlier, row)) => {
            blob.push(TAG_CHANGES);
            push_varint(&mut blob, seq.wrapping_sub(earlier));
            push_entries(&mut blob, row, now);
        }
    }
    let crc = checksum(seq, &blob);
    blob.extend_from_slice(&crc.to_le_bytes());
    blob
}

/// Opens the blob that stands in the row of tick `seq`.
pub(crate) fn open(seq: u64, bytes: &[u8]) -> Result<Blob<'_>, Damage> {
    let split = bytes.len().checked_sub(CRC_BYTES).ok_or(Damage::Checksum)?;
    let (content, crc) = bytes.split_at(split);
    if checksum(seq, content).to_le_bytes() != crc {
        return Err(Damage::Checksum);
    }
    match content.split_first() {
        Some((&TAG_WHOLE, entries)) => Ok(Blob { follows: None, entries }),
        Some((&TAG_CHANGES, mut entries)) => {
            let gap = take_varint(&mut entries)?;
            Ok(Blob { follows: Some(seq.wrapping_sub(gap)), entries })
        }
        _ => Err(Damage::Tag),
    }
}

impl Blob<'_> {
    /// Turns `row`, the values of the tick that this blob follows, into the values of its own tick. After an error
    /// `row` holds neither.
    pub(crate) fn apply(&self, row: &mut Row) -> Result<(), Damage> {
        if self.follows.is_none() {
            row.clear();
        }
        let mut entries = self.entries;
        let mut id: SeriesId = 0;
        // Row and entries both ascend, so one walk through the row finds all places.
        let mut at = 0;
        while !entries.is_empty() {
            let change = take_entry(&mut entries, &mut id)?;
            while row.get(at).is_some_and(|entry| entry.0 < id) {
                at += 1;
            }
            let known = row.get(at).filter(|entry| entry.0 == id);
            match (change.after(known.and_then(|entry| entry.1)), known.is_some()) {
                (Some(value), true) => row[at].1 = value,
                (Some(value), false) => row.insert(at, (id, value)),
                (None, true) => drop(row.remove(at)),
                (None, false) => return Err(Damage::Body),
            }
        }
        Ok(())
    }

    /// The same for some series only, by ascending id: `None` where the tick does not have it.
    pub(crate) fn apply_to_some(&self, some: &mut [(SeriesId, Option<Option<i64>>)]) -> Result<(), Damage> {
        if self.follows.is_none() {
            some.iter_mut().for_each(|entry| entry.1 = None);
        }
        let mut entries = self.entries;
        let mut id: SeriesId = 0;
        let mut at = 0;
        while !entries.is_empty() {
            let change = take_entry(&mut entries, &mut id)?;
            while some.get(at).is_some_and(|entry| entry.0 < id) {
                at += 1;
            }
            // A series may be asked for twice.
            for entry in some[at..].iter_mut().take_while(|entry| entry.0 == id) {
                entry.1 = change.after(entry.1.flatten());
            }
        }
        Ok(())
    }
}

/// What an entry says of its series.
#[derive(Debug, Clone, Copy)]
enum Change {
    Gone,
    Absent,
    By(i64),
}

impl Change {
    /// What the tick says of the series, whose value was `before`.
    fn after(self, before: Option<i64>) -> Option<Option<i64>> {
        match self {
            Self::Gone => None,
            Self::Absent => Some(None),
            Self::By(step) => Some(Some(before.unwrap_or(0).wrapping_add(step))),
        }
    }
}

/// Takes an entry; `id` moves on to its series.
fn take_entry(entries: &mut &[u8], id: &mut SeriesId) -> Result<Change, Damage> {
    let head = take_varint(entries)?;
    let step = SeriesId::try_from(head >> 2).map_err(|_| Damage::Body)?;
    *id = id.checked_add(step).ok_or(Damage::Body)?;
    Ok(match head & 3 {
        FORM_GONE => Change::Gone,
        FORM_ABSENT => Change::Absent,
        FORM_EXACT => Change::By(unzigzag(take_varint(entries)?)),
        _ => Change::By(unzigzag(take_varint(entries)?).wrapping_mul(PAGE)),
    })
}

/// Both rows ascend, so one pass side by side finds what came, went and changed.
fn push_entries(blob: &mut Vec<u8>, before: &[(SeriesId, Option<i64>)], now: &[(SeriesId, Option<i64>)]) {
    let mut last_id = 0;
    let mut old = before.iter().peekable();
    for &(id, value) in now {
        while let Some(gone) = old.next_if(|entry| entry.0 < id) {
            push_head(blob, &mut last_id, gone.0, FORM_GONE);
        }
        let earlier = old.next_if(|entry| entry.0 == id).map(|entry| entry.1);
        if earlier != Some(value) {
            push_value(blob, &mut last_id, id, (earlier.flatten(), value));
        }
    }
    for gone in old {
        push_head(blob, &mut last_id, gone.0, FORM_GONE);
    }
}

fn push_value(
    blob: &mut Vec<u8>,
    last_id: &mut SeriesId,
    id: SeriesId,
    (earlier, value): (Option<i64>, Option<i64>),
) {
    let Some(value) = value else {
        return push_head(blob, last_id, id, FORM_ABSENT);
    };
    let difference = value.wrapping_sub(earlier.unwrap_or(0));
    if difference % PAGE == 0 {
        push_head(blob, last_id, id, FORM_PAGES);
        push_varint(blob, zigzag(difference / PAGE));
    } else {
        push_head(blob, last_id, id, FORM_EXACT);
        push_varint(blob, zigzag(difference));
    }
}

fn push_head(blob: &mut Vec<u8>, last_id: &mut SeriesId, id: SeriesId, form: u64) {
    push_varint(blob, u64::from(id - *last_id) << 2 | form);
    *last_id = id;
}

/// The sequence is part of what is checked, so a blob in the wrong row is seen.
fn checksum(seq: u64, content: &[u8]) -> u32 {
    Crc32::new().with(&seq.to_le_bytes()).with(content).value()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn values() -> impl Strategy<Value = Option<i64>> {
        prop_oneof![
            Just(None),
            any::<i64>().prop_map(Some),
            (0..80_i64 << 18).prop_map(|pages| Some(pages * PAGE)),
            (0..100_i64).prop_map(Some),
        ]
    }

    fn rows() -> impl Strategy<Value = Row> {
        proptest::collection::btree_map(prop_oneof![0..40_u32, any::<u32>()], values(), 0..60)
            .prop_map(|map: BTreeMap<_, _>| map.into_iter().collect())
    }

    proptest! {
        #[test]
        fn a_chain_of_ticks_comes_back_as_it_went_in(
            ticks in proptest::collection::vec((rows(), 1..4_u64), 1..12),
            start in any::<u32>(),
        ) {
            let mut seq = u64::from(start);
            let mut before: Option<(u64, Row)> = None;
            let mut read = Row::new();
            let mut some = [(3, None), (17, None), (17, None), (18, None), (39, None), (u32::MAX, None)];
            for (row, gap) in ticks {
                seq += gap;
                let bytes = encode(seq, before.as_ref().map(|(s, r)| (*s, r)), &row);
                let blob = open(seq, &bytes).unwrap();
                prop_assert_eq!(blob.follows, before.map(|(s, _)| s));
                blob.apply(&mut read).unwrap();
                prop_assert_eq!(&read, &row);
                blob.apply_to_some(&mut some).unwrap();
                for (id, value) in &some {
                    let there = row.binary_search_by_key(id, |entry| entry.0).ok().map(|at| row[at].1);
                    prop_assert_eq!(*value, there);
                }
                before = Some((seq, row));
            }
        }

        #[test]
        fn any_change_of_a_blob_is_seen(row in rows(), seq in any::<u64>(), at in any::<prop::sample::Index>(), bit in 0..8_u8) {
            let mut bytes = encode(seq, None, &row);
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert_eq!(open(seq, &bytes).unwrap_err(), Damage::Checksum);
        }

        #[test]
        fn a_blob_in_the_wrong_row_is_seen(row in rows(), seq in any::<u64>(), other in any::<u64>()) {
            prop_assume!(seq != other);
            prop_assert_eq!(open(other, &encode(seq, None, &row)).unwrap_err(), Damage::Checksum);
        }

        #[test]
        fn no_bytes_make_reading_panic(content in proptest::collection::vec(any::<u8>(), 0..200), mut row in rows(), seq in any::<u64>()) {
            let mut bytes = content;
            let _ = open(seq, &bytes);
            // The same bytes under a checksum that holds: what a bug or a forger could write.
            let crc = checksum(seq, &bytes);
            bytes.extend_from_slice(&crc.to_le_bytes());
            if let Ok(blob) = open(seq, &bytes) {
                let _ = blob.apply_to_some(&mut [(0, None), (7, Some(Some(1)))]);
            }
            if let Ok(blob) = open(seq, &bytes) && blob.apply(&mut row).is_ok() {
                prop_assert!(row.is_sorted_by_key(|entry| entry.0));
            }
        }
    }

    #[test]
    fn an_unchanged_tick_costs_six_bytes() {
        let row: Row = (0..200).map(|id| (id, Some(i64::from(id) << 30))).collect();
        assert_eq!(encode(8, Some((7, &row)), &row).len(), 1 + 1 + CRC_BYTES);
    }
}
