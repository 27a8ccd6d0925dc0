//! Whole numbers in as few bytes as they need.

use crate::damage::Damage;

/// Small numbers of either sign become small numbers without one: 0, -1, 1, -2 give 0, 1, 2, 3.
pub(crate) const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

/// The number that [`zigzag`] made the other from.
pub(crate) const fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

/// Seven bits a byte, low bits first, the top bit says that another byte follows.
pub(crate) fn push_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes what [`push_varint`] wrote from the front of `bytes`.
pub(crate) fn take_varint(bytes: &mut &[u8]) -> Result<u64, Damage> {
    let mut value = 0_u64;
    for shift in (0..u64::BITS).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or(Damage::Body)?;
        *bytes = rest;
        value |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(Damage::Body)
}
