//! Numbers in a row, in the smaller of two forms. The layout is described at the head of the crate.

use pco::ChunkConfig;
use pco::standalone::{simple_compress, simple_decompress_into};

use crate::damage::Damage;
use crate::varint::{push_varint, take_varint, unzigzag, zigzag};

/// The numbers follow as a list of changes.
const FORM_CHANGES: u8 = 0;
/// The numbers follow as pco wrote them, after the number of its bytes.
const FORM_PCO: u8 = 1;

/// No column is longer: eight windows of at most a thousand ticks, and twice as many to spare. It bounds what a
/// forged length can make a reader allocate.
pub(crate) const MAX_LENGTH: usize = 1 << 14;

/// pco's own default; level 4 saves a quarter of the time and costs up to 8 % more bytes.
const PCO_LEVEL: usize = 8;

/// Eight times this many values a byte of change list is what pco reaches on steps at best (0.16 bytes a value), so
/// below it pco need not be asked.
const VALUES_A_BYTE: usize = 8;

/// What pco writes around any column, however regular.
const PCO_LEAST_BYTES: usize = 24;

/// Appends `values`; the reader has to know how many there are.
pub(crate) fn push_column(out: &mut Vec<u8>, values: &[i64]) {
    let start = out.len();
    out.push(FORM_CHANGES);
    push_changes(out, values);
    let taken = out.len() - start;
    if taken <= PCO_LEAST_BYTES || taken * VALUES_A_BYTE <= values.len() {
        return;
    }
    let config = ChunkConfig::default().with_compression_level(PCO_LEVEL);
    // pco refuses only settings that make no sense; the change list then stands.
    let Ok(packed) = simple_compress(values, &config) else { return };
    if packed.len() + 3 < taken {
        out.truncate(start);
        out.push(FORM_PCO);
        push_varint(out, packed.len() as u64);
        out.extend_from_slice(&packed);
    }
}

/// Takes `count` values from the front of `bytes`.
pub(crate) fn take_column(bytes: &mut &[u8], count: usize) -> Result<Vec<i64>, Damage> {
    if count > MAX_LENGTH {
        return Err(Damage::Body);
    }
    let (&form, rest) = bytes.split_first().ok_or(Damage::Body)?;
    *bytes = rest;
    match form {
        FORM_CHANGES => take_changes(bytes, count),
        FORM_PCO => take_pco(bytes, count),
        _ => Err(Damage::Tag),
    }
}

fn take_pco(bytes: &mut &[u8], count: usize) -> Result<Vec<i64>, Damage> {
    let length = usize::try_from(take_varint(bytes)?).map_err(|_| Damage::Body)?;
    let (packed, rest) = bytes.split_at_checked(length).ok_or(Damage::Body)?;
    *bytes = rest;
    let mut values = vec![0; count];
    let progress = simple_decompress_into(packed, &mut values).map_err(|_| Damage::Body)?;
    if progress.n_processed == count && progress.finished { Ok(values) } else { Err(Damage::Body) }
}

/// The first value and then each change with its distance, all of them without the zero bits that they share at the
/// end: memory comes in multiples of 4 KiB to 2 MiB.
pub(crate) fn push_changes(out: &mut Vec<u8>, values: &[i64]) {
    let Some(&first) = values.first() else { return };
    let steps = || {
        let pairs = values.windows(2).enumerate();
        pairs.map(|(at, pair)| (at + 1, pair[1].wrapping_sub(pair[0]))).filter(|(_, step)| *step != 0)
    };
    let bits = steps().fold(first, |bits, (_, step)| bits | step);
    let shift = if bits == 0 { 0 } else { bits.trailing_zeros() };
    out.push(shift as u8);
    push_varint(out, zigzag(first >> shift));
    push_varint(out, steps().count() as u64);
    let mut last = 0;
    for (at, step) in steps() {
        push_varint(out, (at - last) as u64);
        push_varint(out, zigzag(step >> shift));
        last = at;
    }
}

/// Takes what [`push_changes`] wrote of `count` values.
pub(crate) fn take_changes(bytes: &mut &[u8], count: usize) -> Result<Vec<i64>, Damage> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let (&shift, rest) = bytes.split_first().ok_or(Damage::Body)?;
    *bytes = rest;
    let shift = u32::from(shift);
    if shift >= i64::BITS || count > MAX_LENGTH {
        return Err(Damage::Body);
    }
    let mut value = unzigzag(take_varint(bytes)?) << shift;
    let changes = take_varint(bytes)?;
    let mut values = Vec::with_capacity(count);
    for _ in 0..changes {
        let distance = usize::try_from(take_varint(bytes)?).map_err(|_| Damage::Body)?;
        let step = unzigzag(take_varint(bytes)?) << shift;
        // The value before a change stands at least once, and after the last change one value is left.
        if distance == 0 || distance >= count - values.len() {
            return Err(Damage::Body);
        }
        values.resize(values.len() + distance, value);
        value = value.wrapping_add(step);
    }
    values.resize(count, value);
    Ok(values)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Columns as they occur, and columns as nobody expects them.
    pub(crate) fn columns() -> impl Strategy<Value = Vec<i64>> {
        let wild = proptest::collection::vec(any::<i64>(), 0..200);
        let steps = proptest::collection::vec((1..90_usize, -4..5_i64), 0..40).prop_map(|runs| {
            let mut level = 9_000_i64;
            runs.into_iter()
                .flat_map(|(length, step)| {
                    level += step;
                    std::iter::repeat_n(level << 21, length)
                })
                .collect()
        });
        let noise = proptest::collection::vec(0..100_i64, 0..1200);
        prop_oneof![wild, steps, noise]
    }

    proptest! {
        #[test]
        fn a_column_comes_back_as_it_went_in(values in columns(), tail in any::<[u8; 3]>()) {
            let mut bytes = Vec::new();
            push_column(&mut bytes, &values);
            bytes.extend(tail);
            let mut rest = bytes.as_slice();
            prop_assert_eq!(take_column(&mut rest, values.len()).unwrap(), values);
            prop_assert_eq!(rest, &tail);
        }

        #[test]
        fn no_bytes_make_reading_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), count in 0..2000_usize) {
            if let Ok(values) = take_column(&mut bytes.as_slice(), count) {
                prop_assert_eq!(values.len(), count);
            }
        }
    }

    #[test]
    fn regular_columns_take_a_few_bytes() {
        let sizes = [
            vec![80 << 30; 900],
            (0..900).map(|at| (9_000 + at / 120) << 21).collect(),
            (0..900).map(|at| at * 17).collect(),
        ]
        .map(|values: Vec<i64>| {
            let mut bytes = Vec::new();
            push_column(&mut bytes, &values);
            bytes.len()
        });
        assert!(sizes[0] <= 5 && sizes[1] <= 22 && sizes[2] <= 64, "{sizes:?}");
    }
}
