//! What the driver itself does: it goes away, fails, hangs, reports.

use serde::{Deserialize, Serialize};

/// The event bit of a critical XID (`nvmlEventTypeXidCriticalError`).
const XID_EVENT: u64 = 0x8;
/// DRIVER_NOT_LOADED, what `nvmlInit` answers without a driver.
const DRIVER_NOT_LOADED: u32 = 9;

/// A span in which there is no driver. Handles from before it stay stale after it, as after a module reload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outage {
    /// Its first millisecond.
    #[serde(default)]
    pub from_ms: i64,
    /// Its end, or `None` for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<i64>,
    /// What `nvmlInit` answers meanwhile (9 DRIVER_NOT_LOADED, 18 LIB_RM_VERSION_MISMATCH, 999 UNKNOWN).
    #[serde(default = "driver_not_loaded")]
    pub init_code: u32,
}

impl Outage {
    /// No driver at all, from the first moment.
    #[must_use]
    pub const fn absent() -> Self {
        Self { from_ms: i64::MIN, until_ms: None, init_code: DRIVER_NOT_LOADED }
    }

    /// The driver is reloaded: gone at `from_ms`, back at `until_ms`.
    #[must_use]
    pub const fn between(from_ms: i64, until_ms: i64) -> Self {
        Self { from_ms, until_ms: Some(until_ms), init_code: DRIVER_NOT_LOADED }
    }
}

/// A call that does not answer as it should, for a while.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Fault {
    /// The symbol, a prefix ending in `*`, or `*` for all but the calls that open, close and count.
    pub call: String,
    /// NVML index of the GPU; `None` means every GPU and calls that name none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<u32>,
    /// First millisecond.
    pub from_ms: i64,
    /// End, or `None` for good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<i64>,
    /// The return code; `None` answers rightly, after the delay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<u32>,
    /// How long the caller waits first.
    pub delay_ms: u64,
    /// The caller waits until the fault has ended or is gone from the file. Others go on.
    pub hang: bool,
}

impl Fault {
    /// Calls that match `call` return `code`; 13 FUNCTION_NOT_FOUND stands for a symbol the library lacks.
    #[must_use]
    pub fn code(code: u32, call: &str) -> Self {
        Self { call: call.to_owned(), code: Some(code), ..Self::default() }
    }

    /// Calls that match `call` do not return while the fault lasts.
    #[must_use]
    pub fn hang(call: &str) -> Self {
        Self { call: call.to_owned(), hang: true, ..Self::default() }
    }

    /// Calls that match `call` take `ms` longer.
    #[must_use]
    pub fn delay_ms(ms: u64, call: &str) -> Self {
        Self { call: call.to_owned(), delay_ms: ms, ..Self::default() }
    }

    /// Restricts the fault to the GPU with that NVML index.
    #[must_use]
    pub const fn gpu(mut self, index: u32) -> Self {
        self.gpu = Some(index);
        self
    }

    /// Starts the fault at that time of the scenario.
    #[must_use]
    pub const fn from_ms(mut self, ms: i64) -> Self {
        self.from_ms = ms;
        self
    }

    /// Ends the fault at that time of the scenario.
    #[must_use]
    pub const fn until_ms(mut self, ms: i64) -> Self {
        self.until_ms = Some(ms);
        self
    }

    /// Whether the fault strikes a call of `symbol` on `gpu` at `at_ms`. A bare `*` spares the calls that open,
    /// close and count: a lost GPU, or a driver that fails every query, still lets clients in.
    #[must_use]
    pub fn strikes(&self, symbol: &str, gpu: Option<u32>, at_ms: i64) -> bool {
        let named = match self.call.strip_suffix('*') {
            Some("") => !spared(symbol),
            Some(prefix) => symbol.starts_with(prefix),
            None => symbol == self.call,
        };
        named
            && self.gpu.is_none_or(|wanted| gpu == Some(wanted))
            && self.from_ms <= at_ms
            && self.until_ms.is_none_or(|end| at_ms < end)
    }
}

/// Something the driver reports through event sets at one moment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// When it happens. Two events that are equal in every field are one.
    pub at_ms: i64,
    /// NVML index of its GPU.
    #[serde(default)]
    pub gpu: u32,
    /// The event's bit; 0x8 is an XID, bits beyond 0x8000 no client knows yet.
    #[serde(default = "xid_event")]
    pub kind: u64,
    /// Its data: the XID.
    #[serde(default)]
    pub data: u64,
}

impl Event {
    /// A critical XID.
    #[must_use]
    pub const fn xid(at_ms: i64, gpu: u32, xid: u64) -> Self {
        Self { at_ms, gpu, kind: XID_EVENT, data: xid }
    }
}

fn spared(symbol: &str) -> bool {
    symbol.starts_with("nvmlInit")
        || symbol.starts_with("nvmlEventSet")
        || symbol.starts_with("nvmlDeviceGetCount")
        || symbol == "nvmlShutdown"
}

const fn driver_not_loaded() -> u32 {
    DRIVER_NOT_LOADED
}

const fn xid_event() -> u64 {
    XID_EVENT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_strike_by_name_gpu_and_time() {
        let fault = Fault::code(15, "nvmlDeviceGetMemoryInfo*").gpu(1).from_ms(10).until_ms(20);
        assert!(fault.strikes("nvmlDeviceGetMemoryInfo_v2", Some(1), 10));
        assert!(!fault.strikes("nvmlDeviceGetMemoryInfo_v2", Some(0), 10));
        assert!(!fault.strikes("nvmlDeviceGetMemoryInfo_v2", Some(1), 20));
        assert!(!fault.strikes("nvmlDeviceGetName", Some(1), 10));
    }

    #[test]
    fn a_bare_star_lets_clients_in() {
        let fault = Fault::code(999, "*");
        assert!(fault.strikes("nvmlDeviceGetName", Some(0), 0));
        assert!(!fault.strikes("nvmlInit_v2", None, 0));
        assert!(Fault::code(999, "nvmlInit*").strikes("nvmlInit_v2", None, 0));
    }
}
