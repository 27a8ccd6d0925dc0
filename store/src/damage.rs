//! What can be wrong with stored bytes.

/// Why stored bytes could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Damage {
    /// Shorter than its checksum, or the checksum differs.
    Checksum,
    /// A first byte that this build does not know.
    Tag,
    /// The checksum holds, but what it covers makes no sense.
    Body,
}
