//! What a model keeps of a conversation: the layers that hold a cache, their shapes, and how far back they look.

use ebbtide_core::Bytes;

use crate::kv_type::KvType;
use crate::parameters::Parameters;

/// A model as the planner sees it: what it stores for a token, for a request, and in its weights.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// The family as the file names it (`model_type`, `general.architecture`), cleaned.
    pub family: String,
    /// Layers in all, with and without a cache.
    pub layers: u64,
    /// Layers that keep keys and values, those of one shape and reach together.
    pub groups: Vec<LayerGroup>,
    /// Layers that keep a state of fixed size instead.
    pub recurrent: Option<Recurrent>,
    /// The cache over an encoder's output, of fixed size for each request.
    pub cross: Option<Cross>,
    /// Layers of a built-in draft (multi-token prediction); each keeps a cache like the last group's when it is on.
    pub draft_layers: u64,
    /// The longest context the model is made for, in tokens.
    pub max_context: Option<u64>,
    /// Tokens of the vocabulary.
    pub vocabulary: Option<u64>,
    /// The type in which keys and values are kept when nobody chooses another.
    pub kv_type: KvType,
    /// Whether its layers choose among experts.
    pub experts: bool,
    /// Numbers of its weights; absent where the family's formula is not known.
    pub parameters: Option<Parameters>,
    /// What was assumed, in sentences.
    pub notes: Vec<String>,
}

/// Layers of one shape and reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerGroup {
    /// How many.
    pub layers: u64,
    /// What each keeps of a token.
    pub shape: Shape,
    /// Of which tokens.
    pub reach: Reach,
}

/// What one layer keeps of one token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Keys and values for each KV head: as many as query heads (MHA), fewer (GQA) or one (MQA).
    Heads {
        /// KV heads.
        heads: u64,
        /// Elements of a key.
        key: u64,
        /// Elements of a value.
        value: u64,
    },
    /// One compressed vector for all heads (MLA), which every tensor-parallel rank keeps whole.
    Latent {
        /// Elements of the compressed part (`kv_lora_rank`).
        rank: u64,
        /// Elements of the rotary part (`qk_rope_head_dim`).
        rope: u64,
        /// Elements of a sparse indexer's key (`index_head_dim`); 0 without one.
        index: u64,
    },
}

/// Of which tokens a layer keeps something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// All of them.
    Full,
    /// The last so many.
    Window(u64),
    /// Those of the current chunk of so many.
    Chunk(u64),
}

impl Reach {
    /// The most tokens that count, apart from those in flight.
    #[must_use]
    pub const fn limit(self) -> Option<u64> {
        match self {
            Self::Full => None,
            Self::Window(tokens) | Self::Chunk(tokens) => Some(tokens),
        }
    }
}

/// Layers with a recurrent state (Mamba, gated delta nets, short convolutions): nothing a token, so much a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recurrent {
    /// How many.
    pub layers: u64,
    /// Elements of one layer's state.
    pub state: u64,
    /// Elements of one layer's convolution window.
    pub convolution: u64,
    /// Bytes of a state element: 4 where the model keeps it in float32, 2 otherwise.
    pub state_bytes: u64,
    /// Bytes of an element of the convolution window: 2, in llama.cpp 4.
    pub convolution_bytes: u64,
}

impl Recurrent {
    /// Elements of all layers for one request.
    #[must_use]
    pub const fn elements(&self) -> u64 {
        self.layers.saturating_mul(self.state.saturating_add(self.convolution))
    }

    /// Bytes of one layer for one request.
    #[must_use]
    pub const fn layer_bytes(&self) -> u64 {
        let window = self.convolution.saturating_mul(self.convolution_bytes);
        self.state.saturating_mul(self.state_bytes).saturating_add(window)
    }
}

/// Keys and values over an encoder's output, computed once a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cross {
    /// Positions of the encoder.
    pub positions: u64,
    /// Layers that attend to them.
    pub layers: u64,
    /// KV heads of each.
    pub heads: u64,
    /// Elements of a key, and of a value.
    pub dim: u64,
}

impl Model {
    /// KV bytes of one token in all layers, on one GPU that holds the whole model; windows are not full yet.
    ///
    /// A sparse indexer's keys are apart, in [`Model::index_per_token`].
    #[must_use]
    pub fn kv_per_token(&self, kv: KvType) -> Bytes {
        sum(self.groups.iter().map(|group| group.layers.saturating_mul(group.shape.bytes(kv, 1))))
    }

    /// KV bytes that each further token adds once all windows are full.
    #[must_use]
    pub fn kv_per_token_beyond(&self, kv: KvType) -> Bytes {
        let full = self.groups.iter().filter(|group| group.reach == Reach::Full);
        sum(full.map(|group| group.layers.saturating_mul(group.shape.bytes(kv, 1))))
    }

    /// KV bytes of one request in the layers with a window or chunk, once those are full; tokens in flight are
    /// not counted.
    #[must_use]
    pub fn window_per_request(&self, kv: KvType) -> Bytes {
        sum(self.groups.iter().map(|group| {
            let row = group.layers.saturating_mul(group.shape.bytes(kv, 1));
            group.reach.limit().map_or(0, |tokens| row.saturating_mul(tokens))
        }))
    }

    /// Bytes of one token in the key cache of a sparse indexer (DeepSeek sparse attention): 8 bits an element and
    /// a 4-byte scale in each layer, whatever the type of the cache itself.
    #[must_use]
    pub fn index_per_token(&self) -> Bytes {
        sum(self.groups.iter().map(|group| group.layers.saturating_mul(group.shape.index_bytes())))
    }

    /// Bytes of recurrent state of one request.
    #[must_use]
    pub fn state_per_request(&self) -> Bytes {
        Bytes(self.recurrent.map_or(0, |r| r.layers.saturating_mul(r.layer_bytes())))
    }

    /// KV bytes over the encoder's output of one request.
    #[must_use]
    pub fn cross_per_request(&self, kv: KvType) -> Bytes {
        Bytes(self.cross.map_or(0, |c| {
            let row = kv.row_bytes(c.heads, c.dim).saturating_mul(2);
            c.positions.saturating_mul(c.layers).saturating_mul(row)
        }))
    }

    /// This model with a draft model beside it, whose layers keep a cache of the same tokens in the same pool.
    /// A draft's recurrent state is not counted, since drafts have none.
    #[must_use]
    pub fn with_draft(&self, draft: &Self) -> Self {
        let mut both = self.clone();
        both.layers = self.layers.saturating_add(draft.layers);
        // The formula of two models is not that of one.
        both.parameters = None;
        for added in &draft.groups {
            let same = |group: &&mut LayerGroup| group.shape == added.shape && group.reach == added.reach;
            match both.groups.iter_mut().find(same) {
                Some(group) => group.layers = group.layers.saturating_add(added.layers),
                None => both.groups.push(*added),
            }
        }
        both
    }

    /// KV bytes of one token in the built-in draft's layers, where that is on.
    #[must_use]
    pub fn draft_per_token(&self, kv: KvType) -> Bytes {
        let row = self.groups.last().map_or(0, |group| group.shape.bytes(kv, 1));
        Bytes(self.draft_layers.saturating_mul(row))
    }
}

impl Shape {
    /// Bytes of one token in one layer on one of `tp` ranks. KV heads are divided and, once there are more ranks
    /// than heads, repeated; a latent vector is repeated on every rank.
    #[must_use]
    pub fn bytes(self, kv: KvType, tp: u64) -> u64 {
        match self {
            Self::Heads { heads, key, value } => {
                let own = heads.div_ceil(tp.max(1));
                kv.row_bytes(own, key).saturating_add(kv.row_bytes(own, value))
            }
            Self::Latent { rank, rope, index } => kv.latent_bytes(rank, rope, index > 0),
        }
    }

    /// Bytes of one token in one layer's indexer.
    #[must_use]
    pub const fn index_bytes(self) -> u64 {
        match self {
            Self::Latent { index, .. } if index > 0 => index.saturating_add(4),
            _ => 0,
        }
    }
}

fn sum(amounts: impl Iterator<Item = u64>) -> Bytes {
    amounts.map(Bytes).sum()
}
