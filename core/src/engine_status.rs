//! What an inference engine leaves for a probe to find: its status file, and the name of the memory file that plays
//! VRAM where there is no GPU.
//!
//! An engine keeps `<directory>/<pid>.json` up to date by writing a neighbour and renaming it, so that a reader sees
//! the old content or the new, never half of one.

use serde::{Deserialize, Serialize};

use crate::sample::KvSemantics;
use crate::units::{Bytes, Ts};

/// What a process calls the memory file (`memfd_create`) whose allocated blocks play its VRAM.
pub const VRAM_FILE: &str = "ebbtide-vram";

/// What an engine says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineStatus {
    /// Its process id, in its own PID namespace.
    pub pid: u32,
    /// Its start time in clock ticks since boot, so that the file of a dead engine is never taken for that of a
    /// process which was given its PID again.
    pub start_ticks: u64,
    /// When this was written.
    pub updated_at_ms: Ts,
    /// KV cache in use, in bytes; `None` where the engine cannot say.
    pub kv_used: Option<Bytes>,
    /// KV cache that no request refers to and that is kept for reuse, in bytes, where `kv_used` does not count it.
    #[serde(default)]
    pub kv_cached: Option<Bytes>,
    /// KV pool, in bytes.
    pub kv_pool: Option<Bytes>,
    /// Weights on the device, in bytes.
    #[serde(default)]
    pub weights: Option<Bytes>,
    /// Requests being served.
    pub running: Option<u32>,
    /// Requests waiting.
    pub waiting: Option<u32>,
    /// What "used" means to this engine.
    #[serde(default = "unknown_semantics")]
    pub semantics: KvSemantics,
}

const fn unknown_semantics() -> KvSemantics {
    KvSemantics::Unknown
}

/// The name of the status file of process `pid`, without its directory.
#[must_use]
pub fn file_name(pid: u32) -> String {
    format!("{pid}.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_says_what_it_says_in_plain_numbers() {
        let status = EngineStatus {
            pid: 7,
            start_ticks: 99,
            updated_at_ms: Ts(1_000),
            kv_used: Some(Bytes(5)),
            kv_cached: Some(Bytes(1)),
            kv_pool: None,
            weights: Some(Bytes(8)),
            running: Some(2),
            waiting: None,
            semantics: KvSemantics::Referenced,
        };
        let text = serde_json::to_string(&status).unwrap();
        assert_eq!(
            text,
            r#"{"pid":7,"start_ticks":99,"updated_at_ms":1000,"kv_used":5,"kv_cached":1,"kv_pool":null,"weights":8,"running":2,"waiting":null,"semantics":"referenced"}"#
        );
        assert_eq!(serde_json::from_str::<EngineStatus>(&text).unwrap(), status);
    }

    #[test]
    fn an_engine_that_says_little_is_understood() {
        let status: EngineStatus =
            serde_json::from_str(r#"{"pid":7,"start_ticks":9,"updated_at_ms":1}"#).unwrap();
        assert_eq!((status.kv_used, status.weights, status.semantics), (None, None, KvSemantics::Unknown));
    }
}
