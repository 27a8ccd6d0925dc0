//! A value that was read, or why there is none. Unknown is never zero.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Something read from the world, or the reason it could not be.
pub type Reading<T> = Result<T, Absent>;

/// Why a reading has no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Absent {
    /// The device, driver or engine does not offer it.
    NotSupported,
    /// A privilege is missing; what opens it is said at start.
    NoPermission,
    /// The GPU has fallen off, or its driver is gone.
    DeviceLost,
    /// The call did not come back in time; an older value would be stale.
    Timeout,
    /// It has not been read yet, or arrived as NULL from a wire or a database that keeps no reason.
    NotYet,
}

impl Absent {
    /// The reason in a few words, for a person.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::NotSupported => "not supported here",
            Self::NoPermission => "no permission",
            Self::DeviceLost => "device lost",
            Self::Timeout => "no answer in time",
            Self::NotYet => "not read yet",
        }
    }
}

impl std::fmt::Display for Absent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.reason())
    }
}

/// Writes a reading as its value or NULL.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<T: Serialize, S: Serializer>(
    reading: &Reading<T>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    reading.as_ref().ok().serialize(serializer)
}

/// Reads a value, or NULL as [`Absent::NotYet`].
///
/// # Errors
/// Those of the deserializer.
pub fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Reading<T>, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.ok_or(Absent::NotYet))
}

/// What a reading is where an older writer did not know of it: `#[serde(default = "reading::not_yet")]`.
///
/// # Errors
/// Always [`Absent::NotYet`]: that is the value.
pub const fn not_yet<T>() -> Reading<T> {
    Err(Absent::NotYet)
}
