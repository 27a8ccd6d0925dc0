//! Return codes (`nvmlReturn_t`) and what they say.

use std::ffi::CStr;

/// A failure, as NVML numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) u32);

/// What a call comes to.
pub(crate) type Answer = Result<(), Code>;

impl Code {
    pub(crate) const UNINITIALIZED: Self = Self(1);
    pub(crate) const INVALID_ARGUMENT: Self = Self(2);
    pub(crate) const NOT_SUPPORTED: Self = Self(3);
    pub(crate) const NO_PERMISSION: Self = Self(4);
    pub(crate) const NOT_FOUND: Self = Self(6);
    pub(crate) const INSUFFICIENT_SIZE: Self = Self(7);
    pub(crate) const TIMEOUT: Self = Self(10);
    pub(crate) const FUNCTION_NOT_FOUND: Self = Self(13);
    pub(crate) const ARGUMENT_VERSION_MISMATCH: Self = Self(25);
    pub(crate) const UNKNOWN: Self = Self(999);

    /// The text of `nvmlErrorString`, in our words.
    pub(crate) fn text(self) -> &'static CStr {
        TEXTS.iter().find(|(code, _)| *code == self.0).map_or(c"Unknown Error", |(_, text)| text)
    }
}

/// Clients match on a few of these texts (gpustat on "Not Supported"), so the nouns are NVML's.
const TEXTS: [(u32, &CStr); 28] = [
    (0, c"Success"),
    (1, c"Uninitialized"),
    (2, c"Invalid Argument"),
    (3, c"Not Supported"),
    (4, c"Insufficient Permissions"),
    (5, c"Already Initialized"),
    (6, c"Not Found"),
    (7, c"Insufficient Size"),
    (8, c"Insufficient External Power"),
    (9, c"Driver Not Loaded"),
    (10, c"Timeout"),
    (11, c"Interrupt Request Issue"),
    (12, c"NVML Shared Library Not Found"),
    (13, c"Function Not Found"),
    (14, c"Corrupted infoROM"),
    (15, c"GPU is lost"),
    (16, c"GPU requires reset"),
    (17, c"GPU access blocked by the operating system"),
    (18, c"Driver/library version mismatch"),
    (19, c"In use by another client"),
    (20, c"Insufficient Memory"),
    (21, c"No data"),
    (23, c"Insufficient Resources"),
    (25, c"Argument version mismatch"),
    (26, c"Deprecated"),
    (27, c"Not Ready"),
    (28, c"GPU not found"),
    (29, c"Invalid State"),
];
