//! What was derived from one sample.

use serde::{Deserialize, Serialize};

use crate::ledger::Ledger;
use crate::sample::Sample;

/// A sample and the ledgers drawn from it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Frame {
    /// What was read.
    pub sample: Sample,
    /// One ledger a GPU, in the order of `sample.gpus`.
    pub ledgers: Vec<Ledger>,
}

impl Frame {
    /// Derives all that depends on this sample alone.
    #[must_use]
    pub fn of(sample: Sample) -> Self {
        let ledgers = sample.gpus.iter().map(|gpu| Ledger::of(gpu, sample.tick)).collect();
        Self { sample, ledgers }
    }
}
