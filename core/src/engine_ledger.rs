//! What the memory of a process with a known engine is for.
//!
//! `vram = weights + pool + remainder`, and inside the pool `pool = used + spare`, `spare = cached + idle`. The engine
//! counts its pool, the planner knows the bytes of a token and of the weights, and what neither explains is the
//! remainder: context, activations, graphs, and whatever leaks. What the allocator inside the process holds in reserve
//! cannot be told from outside, so it is part of the remainder.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::ProcKey;
use crate::reading::{self, Absent, Reading};
use crate::sample::{EngineSample, KvSemantics, ProcSample};
use crate::units::{Bytes, SignedBytes};

/// An amount, and by how much it may be wrong in either direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    /// The amount.
    pub bytes: Bytes,
    /// Half the width of its range; nothing where it is known exactly.
    pub error: Bytes,
}

impl Amount {
    /// An amount that was counted.
    #[must_use]
    pub const fn exactly(bytes: Bytes) -> Self {
        Self { bytes, error: Bytes::ZERO }
    }

    /// An amount that was computed, and may be off by `share` of itself.
    #[must_use]
    pub fn within(bytes: Bytes, share: f64) -> Self {
        Self { bytes, error: Bytes((bytes.0 as f64 * share.max(0.0)).ceil() as u64) }
    }

    /// Whether it is only computed.
    #[must_use]
    pub const fn is_estimate(self) -> bool {
        self.error.0 > 0
    }

    /// What is left of it without `part`; nothing where that is more.
    #[must_use]
    pub const fn without(self, part: Self) -> Self {
        Self { bytes: self.bytes.saturating_sub(part.bytes), error: self.error.saturating_add(part.error) }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}{}", if self.is_estimate() { "~" } else { "" }, self.bytes))
    }
}

/// A difference of amounts, and by how much it may be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// The difference.
    pub bytes: SignedBytes,
    /// Half the width of its range; nothing where it is known exactly.
    pub error: Bytes,
}

impl Difference {
    /// Whether it is below zero whatever the errors: then a term counts what the process does not hold.
    #[must_use]
    pub fn is_surely_negative(self) -> bool {
        i128::from(self.bytes.0) + i128::from(self.error.0) < 0
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}{}", if self.error.0 > 0 { "~" } else { "" }, self.bytes))
    }
}

/// A term of an engine's ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EngineTerm {
    /// What the driver says the process holds.
    Vram,
    /// The weights.
    Weights,
    /// The KV pool.
    Pool,
    /// KV cache in use.
    Used,
    /// KV cache kept for reuse.
    Cached,
}

impl EngineTerm {
    /// The name on screen.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vram => "the memory of the process",
            Self::Weights => "weights",
            Self::Pool => "the KV pool",
            Self::Used => "KV cache in use",
            Self::Cached => "KV cache kept for reuse",
        }
    }
}

/// What the memory of one process on one GPU is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineLedger {
    /// Which process.
    pub key: ProcKey,
    /// What it holds on this GPU.
    #[serde(with = "reading")]
    pub vram: Reading<Bytes>,
    /// Weights.
    #[serde(with = "reading")]
    pub weights: Reading<Amount>,
    /// The KV pool.
    #[serde(with = "reading")]
    pub pool: Reading<Amount>,
    /// KV cache in use, as the engine's semantics count it.
    #[serde(with = "reading")]
    pub used: Reading<Amount>,
    /// The pool that is not in use: cached or idle.
    #[serde(with = "reading")]
    pub spare: Reading<Amount>,
    /// Of that, what is kept for reuse.
    #[serde(with = "reading")]
    pub cached: Reading<Amount>,
    /// Of that, what holds nothing.
    #[serde(with = "reading")]
    pub idle: Reading<Amount>,
    /// What neither weights nor pool explain. Below zero where they are more than the process holds.
    #[serde(with = "reading")]
    pub remainder: Reading<Difference>,
    /// Terms that are absent: the sums that need them are not claimed.
    pub missing: Vec<EngineTerm>,
}

impl EngineLedger {
    /// The ledger of a process; `None` where no engine is known in it.
    #[must_use]
    pub fn of(process: &ProcSample) -> Option<Self> {
        let engine = process.engine.as_ref()?;
        let vram = process.memory;
        let pool = pool(engine, vram);
        // What is in a pool of another GPU is not on this one.
        let within = |part: Reading<Bytes>| pool.and(part).map(|bytes| computed(engine, bytes));
        let (used, cached) = (within(engine.kv_used), within(engine.kv_cached));
        let spare = pool.and_then(|pool| Ok(pool.without(used?)));
        let idle = match engine.semantics {
            // Cached blocks count as used, so what is spare holds nothing.
            KvSemantics::ReferencedAndCached => spare,
            _ => spare.and_then(|spare| Ok(spare.without(cached?))),
        };
        let weights = weights(engine);
        let mut missing = Vec::new();
        let mut note = |term, is_absent| missing.extend(Some(term).filter(|_| is_absent));
        note(EngineTerm::Vram, vram.is_err());
        note(EngineTerm::Weights, weights.is_err());
        note(EngineTerm::Pool, pool.is_err());
        note(EngineTerm::Used, used.is_err());
        note(EngineTerm::Cached, cached.is_err() && engine.semantics != KvSemantics::ReferencedAndCached);
        let remainder = remainder(vram, weights, pool);
        Some(Self { key: process.key, vram, weights, pool, used, spare, cached, idle, remainder, missing })
    }

    /// Whether `weights + pool + remainder` is what the process holds; `None` while one of them is missing.
    #[must_use]
    pub fn balances(&self) -> Option<bool> {
        let (vram, weights) = (self.vram.ok()?, self.weights.ok()?);
        let (pool, remainder) = (self.pool.ok()?, self.remainder.ok()?);
        let sum = i128::from(weights.bytes.0) + i128::from(pool.bytes.0) + i128::from(remainder.bytes.0);
        Some(sum == i128::from(vram.0))
    }
}

/// The pool, where this process can hold it: one that is larger than the process is another GPU's, or a wrong
/// assumption, and is not claimed.
fn pool(engine: &EngineSample, vram: Reading<Bytes>) -> Reading<Amount> {
    let pool = engine.kv_pool.map(|bytes| computed(engine, bytes))?;
    match vram {
        Ok(vram) if pool.bytes > vram + pool.error => Err(Absent::NotSupported),
        _ => Ok(pool),
    }
}

/// Bytes that an engine counted itself are exact; those that the planner made of its blocks are estimates.
fn computed(engine: &EngineSample, bytes: Bytes) -> Amount {
    let appraisal = engine.report.as_ref().and_then(|report| report.appraisal.as_ref());
    let share = appraisal.filter(|appraisal| appraisal.sizes_kv).map_or(0.0, |appraisal| appraisal.kv_error);
    Amount::within(bytes, share)
}

fn weights(engine: &EngineSample) -> Reading<Amount> {
    let report = engine.report.as_ref().ok_or(Absent::NotSupported)?;
    if report.asleep == Ok(true) {
        // Given back, or moved to host memory; the engine does not say which.
        return Err(Absent::NotSupported);
    }
    let counted = report.weights.map(Amount::exactly);
    match &report.appraisal {
        Some(appraisal) if counted.is_err() => appraisal.weights,
        _ => counted,
    }
}

fn remainder(vram: Reading<Bytes>, weights: Reading<Amount>, pool: Reading<Amount>) -> Reading<Difference> {
    let (vram, weights, pool) = (vram?, weights?, pool?);
    let rest = i128::from(vram.0) - i128::from(weights.bytes.0) - i128::from(pool.bytes.0);
    let bytes = i64::try_from(rest).map(SignedBytes).map_err(|_| Absent::NotSupported)?;
    Ok(Difference { bytes, error: weights.error + pool.error })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine_report::{Appraisal, EngineReport};
    use crate::sample::{Liveness, ProcInfo, ProcKinds};
    use crate::units::GIB;
    use proptest::prelude::*;
    use std::sync::Arc;

    fn appraisal(weights: Reading<Amount>, sizes_kv: bool) -> Appraisal {
        Appraisal {
            model: "a model".to_owned(),
            source: "the catalogue".to_owned(),
            weights,
            kv_bytes_per_token: Bytes(131_072),
            sizes_kv,
            kv_error: 0.001,
            assumed: Vec::new(),
        }
    }

    fn process(memory: Reading<Bytes>, engine: EngineSample) -> ProcSample {
        ProcSample {
            key: ProcKey { pid: 7, start_ticks: Some(1) },
            memory,
            kinds: ProcKinds::default(),
            liveness: Liveness::Alive,
            info: Arc::new(ProcInfo::absent(Absent::NotYet)),
            rss: Err(Absent::NotYet),
            host_limit: Err(Absent::NotSupported),
            engine: Some(engine),
        }
    }

    fn engine(weights: Reading<Amount>, sizes_kv: bool) -> EngineSample {
        let report = EngineReport {
            appraisal: Some(appraisal(weights, sizes_kv)),
            ..EngineReport::absent("vLLM", "127.0.0.1:8000", Absent::NotSupported)
        };
        EngineSample {
            semantics: KvSemantics::Referenced,
            report: Some(Arc::new(report)),
            ..EngineSample::absent(Absent::NotSupported)
        }
    }

    /// What an engine, the driver and the planner may say, each of it or not.
    fn said() -> impl Strategy<Value = ProcSample> {
        let amount = || prop::option::of(0u64..1 << 46).prop_map(|b| b.map(Bytes).ok_or(Absent::Timeout));
        let parts = (amount(), amount(), amount(), amount(), amount());
        (parts, any::<bool>(), any::<bool>()).prop_map(
            |((memory, weights, pool, used, cached), sizes_kv, counts_cached)| {
                let weights = weights.map(|bytes| Amount::within(bytes, 0.02));
                let semantics =
                    if counts_cached { KvSemantics::ReferencedAndCached } else { KvSemantics::Referenced };
                process(
                    memory,
                    EngineSample {
                        kv_pool: pool,
                        kv_used: used,
                        kv_cached: cached,
                        semantics,
                        ..engine(weights, sizes_kv)
                    },
                )
            },
        )
    }

    proptest! {
        /// Whatever is said, signed remainders included: the terms add up, or the one that is missing is named.
        #[test]
        fn the_terms_add_up_or_the_missing_one_is_named(process in said()) {
            let ledger = EngineLedger::of(&process).unwrap();
            let needed = [EngineTerm::Vram, EngineTerm::Weights, EngineTerm::Pool];
            let is_whole = needed.iter().all(|term| !ledger.missing.contains(term));
            prop_assert_eq!(ledger.balances(), is_whole.then_some(true));
            prop_assert_eq!(ledger.remainder.is_ok(), is_whole);
            if let (Ok(vram), Ok(pool)) = (ledger.vram, ledger.pool) {
                prop_assert!(pool.bytes <= vram + pool.error);
            }
        }

        /// Inside of the pool as well, and nothing is claimed to be in a pool that is not.
        #[test]
        fn a_pool_is_what_is_used_cached_and_idle(process in said()) {
            let ledger = EngineLedger::of(&process).unwrap();
            let EngineLedger { pool, used, spare, cached, idle, .. } = ledger;
            prop_assert!(pool.is_ok() || [used, spare, cached, idle].iter().all(Result::is_err));
            if let (Ok(pool), Ok(used), Ok(spare)) = (pool, used, spare)
                && used.bytes <= pool.bytes
            {
                prop_assert_eq!(used.bytes + spare.bytes, pool.bytes);
                let is_counted = process.engine.unwrap().semantics == KvSemantics::ReferencedAndCached;
                match (cached, idle) {
                    _ if is_counted => prop_assert_eq!(idle, Ok(spare)),
                    (Ok(cached), Ok(idle)) if cached.bytes <= spare.bytes => {
                        prop_assert_eq!(cached.bytes + idle.bytes, spare.bytes);
                    }
                    (Ok(_), Ok(idle)) => prop_assert_eq!(idle.bytes, Bytes::ZERO),
                    (cached, idle) => prop_assert!(cached.is_err() && idle.is_err()),
                }
            }
        }
    }

    #[test]
    fn what_is_computed_is_shown_as_such() {
        let counted = EngineSample {
            kv_pool: Ok(Bytes(40 * GIB)),
            kv_used: Ok(Bytes(10 * GIB)),
            ..engine(Ok(Amount::within(Bytes(15 * GIB), 0.02)), true)
        };
        let ledger = EngineLedger::of(&process(Ok(Bytes(58 * GIB)), counted)).unwrap();
        assert_eq!(ledger.pool.unwrap().to_string(), "~40.0 GiB");
        assert_eq!(ledger.spare.unwrap().to_string(), "~30.0 GiB");
        assert_eq!(ledger.remainder.unwrap().to_string(), "~3.0 GiB");
        assert_eq!(ledger.missing, [EngineTerm::Cached]);
        assert_eq!(Amount::exactly(Bytes(GIB)).to_string(), "1.0 GiB");
    }

    #[test]
    fn weights_beyond_what_is_held_leave_less_than_nothing() {
        let wrong = EngineSample {
            kv_pool: Ok(Bytes(4 * GIB)),
            ..engine(Ok(Amount::within(Bytes(15 * GIB), 0.02)), false)
        };
        let ledger = EngineLedger::of(&process(Ok(Bytes(10 * GIB)), wrong)).unwrap();
        assert_eq!(ledger.balances(), Some(true));
        assert!(ledger.remainder.unwrap().is_surely_negative());
    }

    #[test]
    fn a_process_without_an_engine_has_no_such_ledger() {
        let plain = ProcSample { engine: None, ..process(Ok(Bytes(1)), engine(Err(Absent::NotYet), false)) };
        assert_eq!(EngineLedger::of(&plain), None);
    }
}
