//! What the detector is told in one tick.

use ebbtide_core::{Absent, Bytes, EngineRole, EventKind, KvSemantics, Percent, Reading, Tick};

/// One series in one tick.
#[derive(Debug, Clone, Copy)]
pub struct Observation<'a> {
    /// When; durations come from its monotonic part only.
    pub tick: Tick,
    /// The memory that is judged.
    pub value: Reading<Bytes>,
    /// What it can grow to.
    pub capacity: Reading<Bytes>,
    /// What the engine says of its load.
    pub load: Load,
    /// How many live processes hold the memory: none makes it an orphan's. Absent where owners cannot be seen.
    pub owners: Reading<u32>,
    /// What the other ranks of its tensor-parallel group hold, the median of them. Absent where it has no peers.
    pub peers: Reading<Bytes>,
    /// What happened to this series since the previous observation.
    pub events: &'a [EventKind],
}

/// What is known of the work that the memory is for: an engine's counters, as far as they belong to it, and whether
/// the device computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// KV cache in use.
    pub kv_used: Reading<Bytes>,
    /// What the KV cache may grow to.
    pub kv_pool: Reading<Bytes>,
    /// Requests being served.
    pub running: Reading<u32>,
    /// Requests waiting.
    pub waiting: Reading<u32>,
    /// Requests that were finished since the engine started.
    pub served: Reading<u64>,
    /// Tokens that were read and written since the engine started.
    pub tokens: Reading<u64>,
    /// What the engine's allocator has taken from the driver.
    pub arena: Reading<Bytes>,
    /// What of that is in use.
    pub arena_used: Reading<Bytes>,
    /// Share of time in which those who hold the memory computed.
    pub busy: Reading<Percent>,
    /// What the engine counts as used.
    pub semantics: KvSemantics,
    /// Its part in serving a request: one that reads prompts for a peer holds blocks without running anything.
    pub role: EngineRole,
}

impl Load {
    /// Nothing is known of the load, for one reason.
    #[must_use]
    pub const fn absent(why: Absent) -> Self {
        Self {
            kv_used: Err(why),
            kv_pool: Err(why),
            running: Err(why),
            waiting: Err(why),
            served: Err(why),
            tokens: Err(why),
            arena: Err(why),
            arena_used: Err(why),
            busy: Err(why),
            role: EngineRole::Unknown,
            semantics: KvSemantics::Unknown,
        }
    }
}
