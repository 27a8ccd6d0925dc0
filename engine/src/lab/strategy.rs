//! What is tried.

use ebbtide_core::Bytes;

use super::{LabError, RUNNING};
use crate::kv::{
    BLOCK_TOKENS, Backing, Format, Geometry, HostFile, HostMemory, Layout, Pool, PoolError, PoolOptions,
    Window,
};
use crate::scheduler::{Batching, Options, Placement, Preemption};

/// A way to keep keys and values, and to admit requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Strategy {
    /// What numbers are kept as.
    pub format: Format,
    /// What is taken at admission.
    pub placement: Placement,
    /// When requests are admitted.
    pub batching: Batching,
    /// What attention still looks at.
    pub window: Option<Window>,
    /// Whether requests that begin alike share blocks.
    pub is_sharing: bool,
    /// What happens to a sequence that gives way.
    pub preemption: Preemption,
    /// Whether it gets a part of the memory only, so that somebody has to give way.
    pub is_tight: bool,
}

/// The part of the memory that tight strategies get: with one slot of the whole context even the longest request has
/// room, and a few of the usual ones run at once.
const TIGHT: u64 = super::SLOTS as u64;

impl Strategy {
    /// What others are compared with: paged, in 16-bit floats, dynamic batches.
    #[must_use]
    pub const fn plain() -> Self {
        Self {
            format: Format::F16,
            placement: Placement::Paged,
            batching: Batching::Dynamic,
            window: None,
            is_sharing: false,
            preemption: Preemption::Recompute,
            is_tight: false,
        }
    }

    /// All that are tried, with `window` where there is one.
    #[must_use]
    pub fn all(window: Window) -> Vec<Self> {
        let plain = Self::plain();
        let contiguous = Self { placement: Placement::Contiguous, ..plain };
        let (fixed, without) = (Some(window), Some(Window { sinks: 0, ..window }));
        vec![
            Self { batching: Batching::Static, ..contiguous },
            contiguous,
            Self { batching: Batching::Static, ..plain },
            plain,
            Self { is_sharing: true, ..plain },
            Self { format: Format::F32, ..plain },
            Self { format: Format::Int8, ..plain },
            Self { format: Format::Fp8, ..plain },
            Self { window: fixed, ..plain },
            Self { window: without, ..plain },
            Self { format: Format::Int8, window: fixed, ..plain },
            Self { is_tight: true, ..plain },
            Self { is_tight: true, preemption: Preemption::Offload, ..plain },
        ]
    }

    /// What it is called: what it differs in.
    #[must_use]
    pub fn name(&self) -> String {
        let mut name = if self.is_contiguous() { "contiguous" } else { "paged" }.to_owned();
        if self.is_static() {
            name.push_str(", static batch");
        }
        if self.is_sharing {
            name.push_str(", shared prefixes");
        }
        if self.format != Format::F16 {
            name.push_str(", ");
            name.push_str(self.format.name());
        }
        if let Some(Window { tokens, sinks }) = self.window {
            name.push_str(&format!(", window {sinks}+{tokens}"));
        }
        if self.is_tight {
            name.push_str(&format!(", 1/{TIGHT} memory"));
        }
        if self.preemption == Preemption::Offload {
            name.push_str(", offload");
        }
        name
    }

    /// Whether a slot of the whole context is taken for each request.
    #[must_use]
    pub fn is_contiguous(&self) -> bool {
        self.placement == Placement::Contiguous
    }

    /// Whether requests are admitted a whole batch at a time.
    #[must_use]
    pub fn is_static(&self) -> bool {
        self.batching == Batching::Static
    }

    /// What it gets of `memory`.
    #[must_use]
    pub const fn memory(&self, memory: Bytes) -> Bytes {
        if self.is_tight { Bytes(memory.0 / TIGHT) } else { memory }
    }

    /// How its pool is laid out for requests of `context` tokens.
    pub(super) fn layout(&self, geometry: Geometry, context: usize) -> Result<Layout, LabError> {
        let granule = Backing::File.granule();
        let layout = Layout::new(geometry, self.format, granule).map_err(PoolError::from)?;
        Ok(if self.is_contiguous() {
            layout.with_extent(context.div_ceil(BLOCK_TOKENS), granule)
        } else {
            layout
        })
    }

    /// Bytes of a block.
    pub(super) fn block_bytes(&self, geometry: Geometry) -> Result<u64, LabError> {
        Ok(self.layout(geometry, BLOCK_TOKENS)?.block_bytes() as u64)
    }

    /// How a pool of `blocks` behaves.
    pub(super) fn pool_options(&self, blocks: usize) -> PoolOptions {
        let options = PoolOptions::with_capacity(u32::try_from(blocks).unwrap_or(u32::MAX).max(1));
        // Who has his slot needs no more.
        if self.is_contiguous() { PoolOptions { watermark: 0, ..options } } else { options }
    }

    /// A pool that behaves so.
    pub(super) fn pool(&self, layout: Layout, options: PoolOptions) -> Result<Pool, LabError> {
        let pool = Pool::new(layout, options, |bytes| HostMemory::reserve(bytes, Backing::File))?;
        if self.preemption != Preemption::Offload {
            return Ok(pool);
        }
        // Room for every sequence that may be running.
        let slots = options.capacity.saturating_mul(RUNNING as u32);
        Ok(pool.with_host_file(HostFile::create_in(&std::env::temp_dir(), slots)?))
    }

    /// How requests of `context` tokens are scheduled.
    pub(super) const fn options(&self, context: usize) -> Options {
        let standard = Options::of_context(context);
        Options {
            running_max: RUNNING,
            is_sharing: self.is_sharing,
            window: self.window,
            preemption: self.preemption,
            batching: self.batching,
            placement: self.placement,
            ..standard
        }
    }
}
