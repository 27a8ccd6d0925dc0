//! Bytes of cache on one GPU, as an engine lays them out: blocks, windows with what is in flight, groups of layers.

use ebbtide_core::Bytes;

use crate::deployment::{Deployment, Engine, Load};
use crate::model::{LayerGroup, Model, Reach};

/// The cache of a model under a deployment.
#[derive(Debug, Clone)]
pub struct Cache<'m> {
    model: &'m Model,
    deployment: Deployment,
    groups: Vec<LayerGroup>,
    /// Layers of a group that vLLM allocates together; 0 where layers are not grouped.
    group_size: u64,
    /// Tokens in a block.
    block: u64,
}

impl<'m> Cache<'m> {
    /// Lays out the cache.
    #[must_use]
    pub fn new(model: &'m Model, deployment: Deployment) -> Self {
        let mut groups = model.groups.clone();
        if deployment.draft && model.draft_layers > 0 {
            add_draft(&mut groups, model.draft_layers);
        }
        let mut cache =
            Self { model, deployment, groups, group_size: 0, block: deployment.block_tokens.max(1) };
        if cache.is_vllm() {
            cache.group_size = group_size(&cache.kinds(), deployment.engine);
            cache.block = cache.page_tokens();
        }
        cache
    }

    /// Tokens in a block: vLLM makes it so large that a page of attention holds a recurrent layer's state.
    #[must_use]
    pub const fn block_tokens(&self) -> u64 {
        self.block
    }

    /// Bytes that one token takes in the pool of one GPU, with vLLM's padding of groups; windows are not full yet.
    #[must_use]
    pub fn per_token(&self) -> Bytes {
        self.groups.iter().map(|group| Bytes(self.row(group))).sum()
    }

    /// Bytes on one GPU for one request of `context` tokens.
    #[must_use]
    pub fn request(&self, context: u64) -> Bytes {
        let kept = |group| Bytes(self.row(group).saturating_mul(self.tokens(group.reach, context)));
        let grown: Bytes = self.groups.iter().map(kept).sum();
        grown + self.state() + self.cross()
    }

    /// Bytes on one GPU of the busiest replica for the whole load.
    #[must_use]
    pub fn load(&self, load: Load) -> Bytes {
        let requests = self.deployment.requests_each(load.requests);
        Bytes(self.request(load.context).0.saturating_mul(requests))
    }

    fn is_vllm(&self) -> bool {
        matches!(self.deployment.engine, Engine::Vllm | Engine::Vllm020)
    }

    /// llama.cpp gives whole layers to each GPU; the others share each layer.
    fn shards(&self) -> (u64, u64) {
        let (tp, pp) = (self.deployment.tp.max(1), self.deployment.pp.max(1));
        if self.deployment.engine == Engine::LlamaCpp { (1, tp.saturating_mul(pp)) } else { (tp, pp) }
    }

    /// Bytes of one token in all layers of a group, on the GPU that has most of them.
    fn row(&self, group: &LayerGroup) -> u64 {
        let (tp, pp) = self.shards();
        let layer = group.shape.bytes(self.deployment.kv_type, tp).saturating_add(group.shape.index_bytes());
        self.padded(group.layers).div_ceil(pp).saturating_mul(layer)
    }

    /// Numbers of layers of each kind, recurrent ones included.
    fn kinds(&self) -> Vec<u64> {
        let recurrent = self.model.recurrent.map(|r| r.layers);
        self.groups.iter().map(|group| group.layers).chain(recurrent).collect()
    }

    fn padded(&self, layers: u64) -> u64 {
        if self.group_size == 0 { layers } else { layers.next_multiple_of(self.group_size) }
    }

    /// vLLM: one page size for all groups, in steps of 16 tokens.
    fn page_tokens(&self) -> u64 {
        let (tp, _) = self.shards();
        let block = self.deployment.block_tokens.max(1);
        let layer = self.groups.iter().map(|g| g.shape.bytes(self.deployment.kv_type, tp)).max().unwrap_or(0);
        let Some(recurrent) = self.model.recurrent.filter(|_| layer > 0) else { return block };
        let needed = recurrent.layer_bytes().div_ceil(tp).div_ceil(layer);
        needed.next_multiple_of(16).max(block)
    }

    /// Tokens that a request of `context` tokens keeps in a layer, in whole blocks.
    fn tokens(&self, reach: Reach, context: u64) -> u64 {
        let whole = blocks(context, self.block);
        let Some(limit) = reach.limit() else { return whole };
        let in_flight = limit.saturating_sub(1).saturating_add(self.deployment.batch_tokens);
        let kept = match self.deployment.engine {
            // One block more, because a window seldom begins where a block does.
            Engine::Vllm | Engine::Vllm020 | Engine::Sglang => {
                blocks(in_flight.min(context), self.block).saturating_add(self.block)
            }
            Engine::LlamaCpp => blocks(limit.saturating_add(self.deployment.batch_tokens), self.block),
            Engine::TensorRtLlm => blocks(limit, self.block).saturating_add(self.block),
            Engine::Lmdeploy => whole,
        };
        kept.min(whole)
    }

    fn state(&self) -> Bytes {
        let (tp, pp) = self.shards();
        Bytes(
            self.model.recurrent.map_or(0, |r| {
                self.padded(r.layers).div_ceil(pp).saturating_mul(r.layer_bytes().div_ceil(tp))
            }),
        )
    }

    fn cross(&self) -> Bytes {
        let (tp, pp) = self.shards();
        Bytes(self.model.cross_per_request(self.deployment.kv_type).0.div_ceil(tp).div_ceil(pp))
    }
}

/// Draft layers keep what the last layers keep, of every token.
fn add_draft(groups: &mut Vec<LayerGroup>, layers: u64) {
    let Some(shape) = groups.last().map(|group| group.shape) else { return };
    match groups.iter_mut().find(|group| group.reach == Reach::Full && group.shape == shape) {
        Some(group) => group.layers = group.layers.saturating_add(layers),
        None => groups.push(LayerGroup { layers, shape, reach: Reach::Full }),
    }
}

fn blocks(tokens: u64, block: u64) -> u64 {
    tokens.div_ceil(block).saturating_mul(block)
}

/// vLLM cuts the layers of each kind into groups of one size, that of the rarest kind, or of the most frequent one
/// where that has hardly more (less than half more; before 0.21 less than a quarter). What is missing in the last
/// group is padded.
fn group_size(kinds: &[u64], engine: Engine) -> u64 {
    let (Some(&least), Some(&most)) = (kinds.iter().min(), kinds.iter().max()) else { return 0 };
    // Quarters of the rarest kind's layers.
    let hardly_more = if engine == Engine::Vllm020 { 5 } else { 6 };
    match kinds.len() {
        0 | 1 => 0,
        _ if most.saturating_mul(4) < least.saturating_mul(hardly_more) => most,
        _ => least,
    }
}

/// Bytes of a vLLM pool on one GPU from its own counters (`num_gpu_blocks`, `block_size` of `cache_config_info`).
/// Where kinds of layers alternate, the blocks of all groups come from one pool.
#[must_use]
pub fn vllm_pool(model: &Model, deployment: Deployment, blocks: u64) -> Bytes {
    let cache = Cache::new(model, Deployment { engine: Engine::Vllm, ..deployment });
    let (tp, pp) = cache.shards();
    let layer = |group: &LayerGroup| {
        group.shape.bytes(cache.deployment.kv_type, tp).saturating_add(group.shape.index_bytes())
    };
    let page_layers = if cache.group_size == 0 {
        cache.groups.iter().map(|group| group.layers).sum()
    } else {
        cache.group_size
    };
    let widest = cache.groups.iter().map(layer).max().unwrap_or(0);
    let page = page_layers.div_ceil(pp).saturating_mul(widest).saturating_mul(cache.block);
    Bytes(page.saturating_mul(blocks))
}
