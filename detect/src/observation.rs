//! What the detector is told in one tick.

use ebbtide_core::{Absent, Bytes, EngineRole, EventKind, KvSemantics, Reading, Tick};

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
    /// What happened to this series since the previous observation.
    pub events: &'a [EventKind],
}

/// An engine's counters, as far as they belong to the memory that is judged.
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
    /// What the engine counts as used.
    pub semantics: KvSemantics,
    /// Its part in serving a request: one that reads prompts for a peer holds blocks without running anything.
    pub role: EngineRole,
}

impl Load {
    /// Nothing is known of the load, for one reason.
    #[must_use]
    pub const fn absent(why: Absent) -> Self {
        let (semantics, role) = (KvSemantics::Unknown, EngineRole::Unknown);
        Self { kv_used: Err(why), kv_pool: Err(why), running: Err(why), waiting: Err(why), semantics, role }
    }
}
