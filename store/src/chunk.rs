//! What one series did in one window, or in eight. The layout is described at the head of the crate.

use crate::codec::SeriesId;
use crate::column::{MAX_LENGTH, push_changes, push_column, take_changes, take_column};
use crate::crc::Crc32c;
use crate::damage::Damage;
use crate::varint::{push_varint, take_varint};

/// The number that stands for a window within one file.
pub(crate) type WindowId = u32;

/// The upper bits of the tag say which layout follows.
const TAG: u8 = 0x10;
/// Not every tick asked the series: runs of asked and not asked follow.
const FLAG_ASKED: u8 = 1;
/// Not every answer was a value: runs of known and absent follow.
const FLAG_KNOWN: u8 = 2;

/// Bytes of the checksum at the end.
const CRC_BYTES: usize = 4;

/// What one tick says of a series: nothing where it was not asked, `Some(None)` where it was absent.
pub(crate) type Cell = Option<Option<i64>>;

/// The row id of a series' chunk: all chunks of a series lie together, in the order of their windows.
pub(crate) const fn chunk_id(series: SeriesId, window: WindowId) -> i64 {
    ((series as u64) << 32 | window as u64).cast_signed()
}

/// The series and the window of a row id.
pub(crate) const fn chunk_place(id: i64) -> (SeriesId, WindowId) {
    ((id.cast_unsigned() >> 32) as SeriesId, id as WindowId)
}

/// Cells in a row, in the form in which they are stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Cells {
    /// For each tick: was it asked.
    asked: Runs,
    /// For each tick that asked: was there a value.
    known: Runs,
    values: Vec<i64>,
}

/// Lengths of runs, alternately of yes and of no, beginning with yes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Runs {
    lengths: Vec<u32>,
    total: usize,
}

impl Cells {
    /// The number of ticks.
    pub(crate) const fn len(&self) -> usize {
        self.asked.total
    }

    /// Adds the cell of one more tick.
    pub(crate) fn push(&mut self, cell: Cell) {
        self.asked.push(cell.is_some(), 1);
        if let Some(answer) = cell {
            self.known.push(answer.is_some(), 1);
            self.values.extend(answer);
        }
    }

    /// Adds ticks that did not ask, until there are `len`.
    pub(crate) fn pad_to(&mut self, len: usize) {
        self.asked.push(false, len.saturating_sub(self.len()));
    }

    /// Adds the cells of later ticks.
    pub(crate) fn append(&mut self, later: &Self) {
        for (yes, length) in later.asked.iter() {
            self.asked.push(yes, length);
        }
        for (yes, length) in later.known.iter() {
            self.known.push(yes, length);
        }
        self.values.extend_from_slice(&later.values);
    }

    /// The cells one after the other.
    pub(crate) fn play(self) -> Playback {
        Playback { asked: self.asked.play(), known: self.known.play(), values: self.values.into_iter() }
    }

    /// The same without the first `skipped`.
    pub(crate) fn play_from(self, skipped: usize) -> Playback {
        let mut cells = self.play();
        cells.by_ref().take(skipped).for_each(drop);
        cells
    }

    /// The chunk as it is stored under `id`.
    pub(crate) fn encode(&self, id: i64) -> Vec<u8> {
        let flag = |runs: &Runs, flag: u8| if runs.is_all_yes() { 0 } else { flag };
        let flags = flag(&self.asked, FLAG_ASKED) | flag(&self.known, FLAG_KNOWN);
        let mut bytes = vec![TAG | flags];
        push_varint(&mut bytes, self.len() as u64);
        for (runs, flag) in [(&self.asked, FLAG_ASKED), (&self.known, FLAG_KNOWN)] {
            if flags & flag != 0 {
                runs.push_to(&mut bytes);
            }
        }
        push_column(&mut bytes, &self.values);
        sealed(id, bytes)
    }

    /// Reads the chunk that stands under `id`.
    pub(crate) fn decode(id: i64, bytes: &[u8]) -> Result<Self, Damage> {
        Self::take(checked(id, bytes)?)
    }

    /// Reads the content of a chunk whose checksum has been compared.
    pub(crate) fn take(content: &[u8]) -> Result<Self, Damage> {
        let (&tag, mut bytes) = content.split_first().ok_or(Damage::Body)?;
        if tag & !(FLAG_ASKED | FLAG_KNOWN) != TAG {
            return Err(Damage::Tag);
        }
        let ticks = take_length(&mut bytes)?;
        let mut runs = |flag, total| {
            if tag & flag == 0 { Ok(Runs::all_yes(total)) } else { Runs::take(&mut bytes, total) }
        };
        let asked = runs(FLAG_ASKED, ticks)?;
        let known = runs(FLAG_KNOWN, asked.count_yes())?;
        let values = take_column(&mut bytes, known.count_yes())?;
        if bytes.is_empty() { Ok(Self { asked, known, values }) } else { Err(Damage::Body) }
    }
}

/// `bytes` with their checksum, as stored under `id`.
pub(crate) fn sealed(id: i64, mut bytes: Vec<u8>) -> Vec<u8> {
    let crc = checksum(id, &bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

/// The content of bytes that are stored under `id` with their checksum.
pub(crate) fn checked(id: i64, bytes: &[u8]) -> Result<&[u8], Damage> {
    let split = bytes.len().checked_sub(CRC_BYTES).ok_or(Damage::Checksum)?;
    let (content, crc) = bytes.split_at(split);
    if checksum(id, content).to_le_bytes() == crc { Ok(content) } else { Err(Damage::Checksum) }
}

/// Takes the number of ticks or points that follow.
pub(crate) fn take_length(bytes: &mut &[u8]) -> Result<usize, Damage> {
    let length = usize::try_from(take_varint(bytes)?).map_err(|_| Damage::Body)?;
    if length <= MAX_LENGTH { Ok(length) } else { Err(Damage::Body) }
}

/// The id is part of what is checked, so bytes in the wrong row are seen.
fn checksum(id: i64, content: &[u8]) -> u32 {
    Crc32c::new().with(&id.to_le_bytes()).with(content).value()
}

impl Runs {
    fn all_yes(total: usize) -> Self {
        let mut runs = Self::default();
        runs.push(true, total);
        runs
    }

    fn is_all_yes(&self) -> bool {
        self.lengths.len() <= 1
    }

    fn push(&mut self, yes: bool, length: usize) {
        if length == 0 {
            return;
        }
        if self.lengths.is_empty() && !yes {
            self.lengths.push(0);
        }
        self.total += length;
        let length = length as u32;
        let last_is_yes = self.lengths.len() % 2 == 1;
        match self.lengths.last_mut() {
            Some(last) if last_is_yes == yes => *last += length,
            _ => self.lengths.push(length),
        }
    }

    fn iter(&self) -> impl Iterator<Item = (bool, usize)> {
        self.lengths.iter().enumerate().map(|(at, length)| (at % 2 == 0, *length as usize))
    }

    fn count_yes(&self) -> usize {
        self.iter().filter(|run| run.0).map(|run| run.1).sum()
    }

    fn play(self) -> RunsPlayback {
        RunsPlayback { lengths: self.lengths.into_iter(), yes: false, left: 0 }
    }

    /// The lengths of yes and those of no, each as a list of changes: what is asked every fifth tick takes ten bytes.
    fn push_to(&self, out: &mut Vec<u8>) {
        push_varint(out, self.lengths.len() as u64);
        for start in [0, 1] {
            let lengths: Vec<i64> =
                self.lengths.iter().skip(start).step_by(2).map(|l| i64::from(*l)).collect();
            push_changes(out, &lengths);
        }
    }

    fn take(bytes: &mut &[u8], total: usize) -> Result<Self, Damage> {
        let count = take_length(bytes)?;
        let yes = take_changes(bytes, count.div_ceil(2))?;
        let no = take_changes(bytes, count / 2)?;
        let mut runs = Self::default();
        for at in 0..count {
            let length = if at % 2 == 0 { yes[at / 2] } else { no[at / 2] };
            let length = usize::try_from(length).ok().filter(|l| *l <= total - runs.total);
            let length = length.filter(|l| *l > 0 || at == 0).ok_or(Damage::Body)?;
            runs.push(at % 2 == 0, length);
        }
        if runs.total == total { Ok(runs) } else { Err(Damage::Body) }
    }
}

/// The cells of a chunk, one after the other.
#[derive(Debug)]
pub(crate) struct Playback {
    asked: RunsPlayback,
    known: RunsPlayback,
    values: std::vec::IntoIter<i64>,
}

#[derive(Debug)]
struct RunsPlayback {
    lengths: std::vec::IntoIter<u32>,
    yes: bool,
    left: u32,
}

impl Iterator for RunsPlayback {
    type Item = bool;

    fn next(&mut self) -> Option<bool> {
        while self.left == 0 {
            self.left = self.lengths.next()?;
            self.yes = !self.yes;
        }
        self.left -= 1;
        Some(self.yes)
    }
}

impl Iterator for Playback {
    type Item = Cell;

    fn next(&mut self) -> Option<Cell> {
        if !self.asked.next()? {
            return Some(None);
        }
        let known = self.known.next().unwrap_or(false);
        Some(Some(if known { self.values.next() } else { None }))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::column::tests::columns;
    use proptest::prelude::*;

    /// Values with gaps: runs, single ones and in a beat.
    fn cells() -> impl Strategy<Value = Vec<Cell>> {
        let gap = prop_oneof![6 => Just(0_u8), 1 => Just(1), 1 => Just(2)];
        let gaps = prop_oneof![
            Just(vec![0]),
            Just(vec![0, 1, 1, 1, 1]),
            proptest::collection::vec(gap, 1..60),
            proptest::collection::vec(1..3_u8, 1..3),
        ];
        (columns(), gaps).prop_map(|(values, gaps)| {
            let marked = values.into_iter().zip(gaps.into_iter().cycle());
            marked.map(|(value, gap)| [Some(Some(value)), None, Some(None)][usize::from(gap)]).collect()
        })
    }

    fn gather(cells: &[Cell]) -> Cells {
        let mut gathered = Cells::default();
        cells.iter().for_each(|cell| gathered.push(*cell));
        gathered
    }

    proptest! {
        #[test]
        fn a_chunk_comes_back_as_it_went_in(cells in cells(), id in any::<i64>()) {
            let bytes = gather(&cells).encode(id);
            let read = Cells::decode(id, &bytes).unwrap();
            prop_assert_eq!(read.len(), cells.len());
            prop_assert_eq!(read.play().collect::<Vec<_>>(), cells);
        }

        #[test]
        fn chunks_in_a_row_are_one_chunk(parts in proptest::collection::vec(cells(), 0..5), id in any::<i64>()) {
            let mut merged = Cells::default();
            for part in &parts {
                merged.append(&Cells::decode(id, &gather(part).encode(id)).unwrap());
            }
            prop_assert_eq!(&merged, &gather(&parts.concat()));
            prop_assert_eq!(merged.encode(id), gather(&parts.concat()).encode(id));
        }

        #[test]
        fn ticks_before_a_series_began_did_not_ask(cells in cells(), before in 0..1000_usize, after in 0..1000_usize) {
            let mut gathered = Cells::default();
            gathered.pad_to(before);
            cells.iter().for_each(|cell| gathered.push(*cell));
            gathered.pad_to(before + cells.len() + after);
            let expected = [vec![None; before], cells, vec![None; after]].concat();
            prop_assert_eq!(gathered.play().collect::<Vec<_>>(), expected);
        }

        #[test]
        fn any_change_of_a_chunk_is_seen(cells in cells(), id in any::<i64>(), at in any::<prop::sample::Index>(), bit in 0..8_u8) {
            let mut bytes = gather(&cells).encode(id);
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert_eq!(Cells::decode(id, &bytes).unwrap_err(), Damage::Checksum);
        }

        #[test]
        fn a_chunk_in_the_wrong_row_is_seen(cells in cells(), id in any::<i64>(), other in any::<i64>()) {
            prop_assume!(id != other);
            prop_assert_eq!(Cells::decode(other, &gather(&cells).encode(id)).unwrap_err(), Damage::Checksum);
        }

        #[test]
        fn no_bytes_make_reading_panic(content in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(cells) = Cells::take(&content) {
                prop_assert!(cells.play().count() <= MAX_LENGTH);
            }
        }

        #[test]
        fn ids_keep_series_together_and_windows_in_order(a in any::<(u32, u32)>(), b in any::<(u32, u32)>()) {
            let id = |place: (u32, u32)| chunk_id(place.0, place.1);
            prop_assert_eq!(chunk_place(id(a)), a);
            if a.0 == b.0 {
                prop_assert_eq!(id(a).cmp(&id(b)), a.1.cmp(&b.1));
            }
        }
    }

    #[test]
    fn what_is_asked_in_a_beat_costs_hardly_more_than_its_values() {
        let cells: Vec<Cell> = (0..900).map(|at| (at % 5 == 0).then_some(Some(20 << 30))).collect();
        assert!(gather(&cells).encode(1).len() <= 32);
    }
}
