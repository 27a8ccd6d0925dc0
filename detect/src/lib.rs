//! What does this memory do? A pure detector: numbers in, judgements and findings out.
//!
//! It has no clock and reads nothing: time enters as the [`ebbtide_core::Tick`] of an [`Observation`], so the same
//! observations always give the same findings. The way of a sample:
//!
//! 1. `explain` learns whether the engine's counters account for the memory, and drops what they account for;
//! 2. `ladder` keeps floors, means and ceilings of blocks of 1 s, 2 s, 4 s … 2.3 h, 32 of each;
//! 3. `rise` asks of each block length whether memory rose steadily over the last 32 blocks, and if not, why not;
//!    `kink` asks whether a steady rise became faster;
//! 4. `budget` says how much evidence that takes in a fleet of this size, and `wager` must agree with it;
//! 5. `verdict` demands repetition, more of it the less is known about the load, and names the cause;
//! 6. `forecast` says apart from the cause when memory runs out; `sentence` puts all of it into words.
//!
//! Because every block length is judged alike, evidence scales with the rate: a fast leak shows in short blocks,
//! a slow one in long blocks, and an interval of samples longer than a block merely leaves the short ones empty.
//!
//! It is not `no_std`: square roots, powers and logarithms of `f64` are the standard library's, and another crate for
//! them would cost a dependency and save nothing that a daemon could use.

mod blocks;
mod budget;
mod bursts;
mod channel;
mod config;
mod detector;
mod explain;
mod findings;
mod forecast;
mod kink;
mod ladder;
mod levelling;
mod observation;
mod onset;
mod report;
mod rise;
mod rules;
mod scene;
mod sentence;
mod trend;
mod verdict;
mod wager;
mod work;

pub use config::DetectConfig;
pub use detector::Detector;
pub use observation::{Load, Observation};
