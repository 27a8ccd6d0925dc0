//! What can go wrong in a call to the driver, how far it reaches and what a person can do about it.

use ebbtide_core::Absent;
use nvml_wrapper::error::NvmlError;

/// A failed call, named after NVML's return codes (`nvml.h`, `nvmlReturn_enum`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// 1: the library's state is gone, and every handle with it.
    Uninitialized,
    /// 2: for a call that worked before, a handle that died.
    InvalidArgument,
    /// 3.
    NotSupported,
    /// 4: also a device that a device cgroup hides.
    NoPermission,
    /// 6: nothing to report, not a failure.
    NotFound,
    /// 7: a list outgrew its buffer.
    InsufficientSize,
    /// 9.
    DriverNotLoaded,
    /// 10: in an event wait, "nothing happened".
    Timeout,
    /// 12, or the loader did not find the library.
    LibraryMissing,
    /// 13, 25, 26, or an absent symbol: this driver speaks another version of the call.
    WrongVersion,
    /// 15: fallen off the bus.
    GpuLost,
    /// 16.
    ResetRequired,
    /// 17: the operating system took the device away.
    Blocked,
    /// 18: the driver's files were upgraded and its module was not reloaded.
    Mismatch,
    /// 999: in a container mostly a device that a cgroup took away.
    Unknown,
    /// Any other code.
    Other(u32),
}

/// What is lost with a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// The one reading.
    Reading,
    /// The device, until it is found again.
    Device,
    /// Every handle: the driver has to be opened anew.
    Driver,
}

impl Fault {
    /// How far the fault reaches. [`Fault::Unknown`] and [`Fault::Blocked`] reach the device: where they befall
    /// every device at once, the caller opens the driver anew.
    pub(super) const fn reach(self) -> Reach {
        match self {
            Self::Uninitialized | Self::DriverNotLoaded | Self::LibraryMissing | Self::Mismatch => {
                Reach::Driver
            }
            Self::GpuLost | Self::ResetRequired => Reach::Device,
            Self::Unknown | Self::Blocked | Self::InvalidArgument => Reach::Device,
            _ => Reach::Reading,
        }
    }

    /// Whether the device or the driver is gone beyond doubt, whatever was asked. An unknown error of a call that
    /// is not needed to live is no such proof.
    pub(super) const fn is_loss(self) -> bool {
        matches!(self, Self::GpuLost | Self::ResetRequired) || matches!(self.reach(), Reach::Driver)
    }

    /// Whether the fault means that this device or this driver does not offer the call, so that asking again is
    /// useless until the driver is opened anew.
    pub(super) const fn is_unsupported(self) -> bool {
        matches!(self, Self::NotSupported | Self::WrongVersion)
    }

    /// Why there is no reading.
    pub(super) const fn absent(self) -> Absent {
        match self {
            Self::NotSupported | Self::WrongVersion => Absent::NotSupported,
            Self::NoPermission => Absent::NoPermission,
            Self::Timeout => Absent::Timeout,
            Self::NotFound | Self::InsufficientSize | Self::Other(_) => Absent::NotYet,
            _ => Absent::DeviceLost,
        }
    }

    /// What happened and what to do, for the probe's notes.
    pub(super) const fn advice(self) -> &'static str {
        match self {
            Self::LibraryMissing => {
                "libnvidia-ml.so.1 was not found: install the NVIDIA driver, or name the library's path in the \
                 configuration"
            }
            Self::DriverNotLoaded => "the NVIDIA kernel driver is not loaded: load it (modprobe nvidia)",
            Self::Mismatch => {
                "the NVIDIA driver was upgraded under a running kernel module: reload the module or reboot"
            }
            Self::Unknown | Self::Blocked => {
                "the driver answers with an unknown error: in a container, its device cgroup has lost the GPUs, and \
                 restarting the container brings them back"
            }
            Self::NoPermission => "the driver refuses access: run with the rights to open /dev/nvidia*",
            Self::ResetRequired => "it needs a reset: stop its processes and run nvidia-smi --gpu-reset",
            Self::GpuLost => {
                "it has fallen off the bus: look at the kernel log for XID 79, then restart the machine"
            }
            Self::WrongVersion => "the driver is too old: version 510 or newer is needed",
            Self::Uninitialized => "the driver was unloaded or reset",
            _ => "the call to the driver failed",
        }
    }
}

impl From<NvmlError> for Fault {
    fn from(error: NvmlError) -> Self {
        match error {
            NvmlError::LibloadingError(_) => Self::LibraryMissing,
            NvmlError::FailedToLoadSymbol(_) => Self::WrongVersion,
            error => Self::from_code(error.into()),
        }
    }
}

impl Fault {
    /// The fault behind an `nvmlReturn_t` other than success.
    pub(super) const fn from_code(code: u32) -> Self {
        // tidy: table
        match code {
            1 => Self::Uninitialized,
            2 => Self::InvalidArgument,
            3 => Self::NotSupported,
            4 => Self::NoPermission,
            6 => Self::NotFound,
            7 => Self::InsufficientSize,
            9 => Self::DriverNotLoaded,
            10 => Self::Timeout,
            12 => Self::LibraryMissing,
            13 | 25 | 26 => Self::WrongVersion,
            15 => Self::GpuLost,
            16 => Self::ResetRequired,
            17 => Self::Blocked,
            18 => Self::Mismatch,
            999 => Self::Unknown,
            other => Self::Other(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_reaches_as_far_as_the_driver_means_it() {
        let reach = |codes: &[u32]| codes.iter().map(|&c| Fault::from_code(c).reach()).collect::<Vec<_>>();
        assert_eq!(reach(&[1, 9, 12, 18]), [Reach::Driver; 4]);
        assert_eq!(reach(&[2, 15, 16, 17, 999]), [Reach::Device; 5]);
        assert_eq!(reach(&[3, 4, 6, 7, 10, 13, 25, 26, 27, 28]), [Reach::Reading; 10]);
    }

    #[test]
    fn an_absent_symbol_is_an_absent_call_and_not_a_broken_driver() {
        let fault = Fault::from(NvmlError::FailedToLoadSymbol("nvmlDeviceGetMemoryInfo_v2".to_owned()));
        assert!(fault.is_unsupported());
        assert_eq!(Fault::from(NvmlError::UnexpectedVariant(25)), Fault::WrongVersion);
        assert_eq!(Fault::from(NvmlError::UnexpectedVariant(28)), Fault::Other(28));
    }
}
