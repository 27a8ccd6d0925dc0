//! The paged KV cache: where the keys and values of conversations lie, and who holds them.
//!
//! ```text
//! sequence -> Table: [block, block, ...]      16 tokens a block, all layers of a block lie together (Layout)
//!                        |
//!                      Pool: a block is free, used (references > 0) or cached (content kept for a prefix)
//!                        |
//!                     Memory: extents of whole pages, taken from the kernel and given back to it
//! ```
//!
//! What holds after every operation, and [`Pool::audit`] checks: a block is exactly one of free, used and cached; a
//! used block has as many references as tables hold (and injected leaks forgot); a block with more than one
//! reference, or one that others may find by its content, is never written to.
//!
//! Nothing here knows a model: a geometry and tokens' numbers are all that is asked for.

mod allocation;
mod audit;
mod blocks;
mod event;
mod extents;
mod float;
mod format;
mod host_file;
mod layout;
mod lru;
#[allow(unsafe_code, reason = "a mapping cannot be made safely; its invariants are in the module")]
mod mapping;
mod memory;
mod pool;
mod prefix;
mod rows;
mod sequences;
mod swap;
mod table;

pub use audit::{Account, Discrepancy};
pub use event::{Counters, Event, Observer};
pub use float::{e4m3_from_f32, e4m3_to_f32, f16_from_f32, f16_to_f32};
pub(crate) use format::F16_ONE;
pub use format::Format;
pub use host_file::{HostFile, HostFileError, Slot, Traffic};
pub use layout::{BlockId, Geometry, Layout, LayoutError, Row, Side};
pub use memory::{Addressable, Backing, HostMemory, Memory, MemoryPlace};
pub use pool::{Pool, PoolError, PoolOptions, Usage, Window};
pub use prefix::Token;
pub use swap::Swapped;
pub use table::{Entry, SequenceId, Table};

/// Tokens in a block. 16 is what vLLM and mistral.rs use: half a block a sequence is wasted on average, 0.8 % of a
/// thousand tokens, and a table entry is still small beside what it points at.
pub const BLOCK_TOKENS: usize = 16;
