//! The forward pass: tokens in, logits out, keys and values into the pool.
//!
//! ```text
//! scheduler: Pool::append -> [Item, Item, ...] -> Forward::step -> Rows -> next tokens
//!                                                     |
//!                                    model::Weights, kernels::Kernels, kv::Pool
//! ```
//!
//! One step takes prompts and single tokens of many sequences together, so that weights are read once for all. The
//! trait [`Forward`] and [`kv::Memory`](crate::kv::Memory) are the seam behind which a GPU can stand: nothing above
//! knows where weights lie or what computes.

#[cfg(test)]
mod tests;
mod transformer;
mod weights;

pub use transformer::Transformer;

use std::num::NonZeroU16;

use crate::kernels::{Kernels, TierError};
use crate::kv::{Pool, PoolError, SequenceId, Token};
use crate::model::Geometry;

/// Tokens of one sequence that go through the model together.
#[derive(Debug, Clone, Copy)]
pub struct Item<'a> {
    /// Whose; the pool has room for its tokens already ([`Pool::append`]).
    pub sequence: SequenceId,
    /// The tokens.
    pub tokens: &'a [Token],
    /// The position of the first of them. Keys and values of all before it that the table still has are in the pool.
    pub start: usize,
    /// What is wanted of them.
    pub logits: Logits,
}

/// Of which tokens of an item logits are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Logits {
    /// Of none: a prompt that goes on in the next step.
    None,
    /// Of the last: to go on from there.
    Last,
    /// Of all: to judge a text.
    All,
}

impl Logits {
    /// Rows that an item of `tokens` gets.
    #[must_use]
    pub const fn rows(self, tokens: usize) -> usize {
        match self {
            Self::None => 0,
            Self::Last => 1,
            Self::All => tokens,
        }
    }
}

/// Logits, a row for each token they were wanted of, in the order of the items and of their tokens.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    values: &'a [f32],
    vocab: usize,
}

impl<'a> Rows<'a> {
    /// Rows of `vocab` numbers each, one after the other in `values`.
    #[must_use]
    pub const fn new(values: &'a [f32], vocab: usize) -> Self {
        Self { values, vocab }
    }

    /// How many.
    #[must_use]
    pub const fn len(self) -> usize {
        self.values.len() / self.vocab
    }

    /// Whether none were wanted.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.values.is_empty()
    }

    /// Row by row: a logit for each token of the vocabulary.
    pub fn iter(self) -> impl ExactSizeIterator<Item = &'a [f32]> {
        self.values.chunks_exact(self.vocab)
    }
}

/// A step that could not be made. Keys and values of its items may be written in part; to step again with the same
/// items writes them anew.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The pool does not have what an item refers to.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The pool was made for another model.
    #[error("the pool keeps {pool:?} and the model has {model:?}; make the pool for this model")]
    Geometry {
        /// What the pool keeps.
        pool: crate::kv::Geometry,
        /// What the model has.
        model: crate::kv::Geometry,
    },
    /// A token that the model does not know.
    #[error("token {token} is not among the {vocab} of the model; the tokenizer is another model's")]
    Token {
        /// Which.
        token: Token,
        /// How many there are.
        vocab: usize,
    },
    /// The table has no room for the tokens of an item.
    #[error("sequence {sequence} has {tokens} tokens and an item ends at {end}; append to it first")]
    NoRoom {
        /// Whose.
        sequence: SequenceId,
        /// As the table has it.
        tokens: usize,
        /// Position behind the item's last token.
        end: usize,
    },
}

/// What computes a model.
pub trait Forward {
    /// The model's sizes.
    fn geometry(&self) -> &Geometry;

    /// Takes all `items` through the model: writes their keys and values to `pool`, and returns the logits wanted.
    ///
    /// # Errors
    /// Where an item makes no sense, or the pool does not have its blocks.
    fn step(&mut self, pool: &mut Pool, items: &[Item<'_>]) -> Result<Rows<'_>, StepError>;
}

/// How a model is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// By which kernels.
    pub kernels: Kernels,
    /// On how many threads; what is computed is the same to the bit for any number of them.
    pub threads: NonZeroU16,
}

impl Options {
    /// What the processor does best, unless `EBBTIDE_KERNELS` asks for something else, on one thread.
    ///
    /// # Errors
    /// Where it asks for what is not there.
    pub fn from_environment() -> Result<Self, TierError> {
        Ok(Self { kernels: Kernels::from_environment()?, threads: NonZeroU16::MIN })
    }
}
