//! The ticks of a sealed window: their numbers and times, once for all series.

use ebbtide_core::{Tick, Ts};

use crate::chunk::{WindowId, checked, sealed, take_length};
use crate::column::{push_column, take_column};
use crate::damage::Damage;
use crate::varint::push_varint;

/// Windows that are merged into one chunk a series: those whose numbers begin at a multiple of eight plus one.
pub(crate) const MERGED: WindowId = 8;

/// The first byte.
const TAG: u8 = 0x30;

/// The first window of those that are merged with `window`.
pub(crate) const fn group_of(window: WindowId) -> WindowId {
    window.saturating_sub(1) / MERGED * MERGED + 1
}

/// The times of a window as they are stored with it.
pub(crate) fn encode(window: WindowId, ticks: &[Tick]) -> Vec<u8> {
    let mut bytes = vec![TAG];
    push_varint(&mut bytes, ticks.len() as u64);
    let column = |of: fn(usize, &Tick) -> u64| -> Vec<i64> {
        ticks.iter().enumerate().map(|(at, tick)| of(at, tick).cast_signed()).collect()
    };
    push_column(&mut bytes, &column(|at, tick| tick.seq.wrapping_sub(at as u64)));
    push_column(&mut bytes, &column(|_, tick| tick.at.0.cast_unsigned()));
    push_column(&mut bytes, &column(|_, tick| tick.mono_ms.wrapping_sub(tick.at.0.cast_unsigned())));
    sealed(i64::from(window), bytes)
}

/// Reads them back.
pub(crate) fn decode(window: WindowId, bytes: &[u8]) -> Result<Vec<Tick>, Damage> {
    let content = checked(i64::from(window), bytes)?;
    let Some((&TAG, mut bytes)) = content.split_first() else { return Err(Damage::Tag) };
    let count = take_length(&mut bytes)?;
    let seqs = take_column(&mut bytes, count)?;
    let walls = take_column(&mut bytes, count)?;
    let steadies = take_column(&mut bytes, count)?;
    let ticks = seqs.into_iter().zip(walls).zip(steadies).enumerate();
    Ok(ticks
        .map(|(at, ((seq, wall), steady))| Tick {
            seq: seq.cast_unsigned().wrapping_add(at as u64),
            at: Ts(wall),
            mono_ms: steady.wrapping_add(wall).cast_unsigned(),
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ticks_come_back_as_they_were(ticks in proptest::collection::vec(any::<(u64, i64, u64)>(), 0..300), window in any::<u32>()) {
            let ticks: Vec<Tick> = ticks.into_iter().map(|(seq, at, mono_ms)| Tick { seq, at: Ts(at), mono_ms }).collect();
            prop_assert_eq!(decode(window, &encode(window, &ticks)).unwrap(), ticks);
        }
    }

    #[test]
    fn a_quarter_of_an_hour_on_the_beat_takes_a_hundred_bytes() {
        let tick = |seq: u64| Tick {
            seq,
            at: Ts(1_700_000_000_000 + seq.cast_signed() * 1000),
            mono_ms: seq * 1000,
        };
        let ticks: Vec<Tick> = (1..=900).map(tick).collect();
        assert!(encode(1, &ticks).len() <= 100);
    }

    #[test]
    fn eight_windows_make_a_group() {
        assert_eq!([1, 8, 9, 16, 17].map(group_of), [1, 1, 9, 9, 17]);
    }
}
