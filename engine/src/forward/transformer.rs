//! The Llama architecture on the CPU.

use super::weights::{Layer, Parameters};
use super::{Forward, Item, Options, Rows, StepError};
use std::sync::Mutex;

use crate::kernels::{Activations, Attention, Chunk, Crew, Kernels, Portions, Queries, Shape, Workspace};
use crate::kv::{Pool, PoolError, Row, Side};
use crate::model::{Geometry, ModelError, Weights};

/// Rows that go through the matrices of a layer together: their numbers stay in the second cache (a MiB on the
/// processors of today), and the layer's weights, a few MiB, are read once for so many.
const BATCH: usize = 128;

/// A model of the Llama architecture, its weights as 8-bit integers, computed by [`Kernels`].
///
/// What it computes with is allocated once for the largest step so far.
#[derive(Debug)]
pub struct Transformer {
    geometry: Geometry,
    kernels: Kernels,
    crew: Crew,
    parameters: Parameters,
    /// For each pair of a head, radians a position.
    frequencies: Vec<f64>,
    scratch: Scratch,
}

#[derive(Debug, Default)]
struct Scratch {
    /// `[token][hidden]`: what goes from layer to layer.
    stream: Vec<f32>,
    /// `[token][hidden]`.
    normal: Vec<f32>,
    /// `[token][heads + 2 * kv_heads][head_dim]`: queries, keys and values.
    heads: Vec<f32>,
    /// `[token][heads][head_dim]`.
    attended: Vec<f32>,
    /// `[token][2 * ffn]`, of one batch.
    ffn: Vec<f32>,
    /// `[token][hidden]`, of one batch.
    delta: Vec<f32>,
    /// `[token][head_dim / 2]`: cosine and sine.
    turns: Vec<[f32; 2]>,
    /// For each item.
    chunks: Vec<Vec<Chunk>>,
    activations: Activations,
    /// For each thread.
    workspaces: Vec<Mutex<Workspace>>,
    logits: Vec<f32>,
}

impl Transformer {
    /// Reads and quantises all of `weights`.
    ///
    /// # Errors
    /// Where the sizes make no sense, a tensor cannot be read or threads do not start.
    pub fn load(weights: &dyn Weights, options: Options) -> Result<Self, ModelError> {
        let parameters = Parameters::read(weights)?;
        let geometry = weights.geometry().clone();
        let pairs = geometry.head_dim / 2;
        // base^(-2 i / head_dim) for pair i (RoPE, arXiv 2104.09864, section 3.4.3).
        let frequency = |pair: usize| f64::from(geometry.rope_base).powf(-(pair as f64) / pairs as f64);
        let frequencies = (0..pairs).map(frequency).collect();
        let threads = options.threads.get();
        let crew = Crew::new(options.threads).map_err(|source| ModelError::Threads { threads, source })?;
        let workspaces = (0..threads).map(|_| Mutex::default()).collect();
        let scratch = Scratch { workspaces, ..Scratch::default() };
        Ok(Self { geometry, kernels: options.kernels, crew, parameters, frequencies, scratch })
    }

    /// Bytes of memory that its weights take.
    #[must_use]
    pub fn weight_bytes(&self) -> usize {
        let matrices = |layer: &Layer| {
            [&layer.attention_in, &layer.attention_out, &layer.ffn_in, &layer.ffn_out]
                .map(crate::kernels::Tiles::bytes)
                .iter()
                .sum::<usize>()
        };
        let layers: usize = self.parameters.layers.iter().map(matrices).sum();
        let output = self.parameters.output.as_ref().map_or(0, crate::kernels::Tiles::bytes);
        let norms = (2 * self.geometry.layers + 1) * self.geometry.hidden * size_of::<f32>();
        layers + self.parameters.embedding.bytes() + output + norms
    }

    /// Checks `items` before anything is written.
    fn check(&self, pool: &Pool, items: &[Item<'_>]) -> Result<Shape, StepError> {
        let (kept, model) = (pool.layout().geometry(), self.geometry.kv());
        let shape = Shape::new(pool.layout(), self.geometry.heads).filter(|_| kept == model);
        let shape = shape.ok_or(StepError::Geometry { pool: kept, model })?;
        for item in items {
            let vocab = self.geometry.vocab;
            if let Some(token) = item.tokens.iter().find(|token| **token as usize >= vocab) {
                return Err(StepError::Token { token: *token, vocab });
            }
            let (tokens, end) = (pool.table(item.sequence)?.tokens(), item.start + item.tokens.len());
            if end > tokens {
                return Err(StepError::NoRoom { sequence: item.sequence, tokens, end });
            }
        }
        Ok(shape)
    }

    /// Looks up tokens, their turns, and their sequences' blocks.
    fn begin(&mut self, pool: &Pool, items: &[Item<'_>]) -> Result<(), PoolError> {
        let (geometry, scratch) = (&self.geometry, &mut self.scratch);
        let count: usize = items.iter().map(|item| item.tokens.len()).sum();
        let queries = geometry.heads * geometry.head_dim;
        scratch.stream.resize(count * geometry.hidden, 0.0);
        scratch.normal.resize(count.min(BATCH) * geometry.hidden, 0.0);
        scratch.heads.resize(count * (queries + 2 * geometry.kv_heads * geometry.head_dim), 0.0);
        scratch.attended.resize(count * queries, 0.0);
        scratch.ffn.resize(count.min(BATCH) * 2 * geometry.ffn, 0.0);
        scratch.delta.resize(count.min(BATCH) * geometry.hidden, 0.0);
        scratch.turns.clear();
        let tokens = items.iter().flat_map(|item| item.tokens);
        for (token, row) in tokens.zip(scratch.stream.chunks_exact_mut(geometry.hidden)) {
            self.parameters.embedding.read_row(*token as usize, row);
        }
        for position in items.iter().flat_map(|item| item.start..item.start + item.tokens.len()) {
            let turn = |frequency: &f64| {
                let (sine, cosine) = (position as f64 * frequency).sin_cos();
                [cosine as f32, sine as f32]
            };
            scratch.turns.extend(self.frequencies.iter().map(turn));
        }
        scratch.chunks.resize_with(items.len().max(scratch.chunks.len()), Vec::new);
        for (item, chunks) in items.iter().zip(&mut scratch.chunks) {
            Chunk::read(pool, item.sequence, chunks)?;
        }
        Ok(())
    }

    /// Norm, then queries, keys and values, the first two turned.
    fn project(&mut self, layer: usize) {
        let (layer, geometry, scratch) = (&self.parameters.layers[layer], &self.geometry, &mut self.scratch);
        let width = layer.attention_in.rows();
        let turned = (geometry.heads + geometry.kv_heads) * geometry.head_dim;
        let batches = scratch.stream.chunks(BATCH * geometry.hidden);
        for (rows, heads) in batches.zip(scratch.heads.chunks_mut(BATCH * width)) {
            let normal = &mut scratch.normal[..rows.len()];
            self.kernels.normalise(rows, &layer.attention_norm, geometry.rms_eps, normal);
            self.kernels.quantise(normal, geometry.hidden, geometry.hidden, &mut scratch.activations);
            self.kernels.multiply(&mut self.crew, &layer.attention_in, &scratch.activations, heads);
        }
        let turns = scratch.turns.chunks_exact(geometry.head_dim / 2);
        for (heads, turns) in scratch.heads.chunks_exact_mut(width).zip(turns) {
            self.kernels.rotate(&mut heads[..turned], turns);
        }
    }

    /// Writes keys and values of all items to the pool.
    fn keep(&self, pool: &mut Pool, items: &[Item<'_>], layer: usize) -> Result<(), PoolError> {
        let Geometry { heads, kv_heads, head_dim, .. } = self.geometry;
        let layout = *pool.layout();
        let mut rows = self.scratch.heads.chunks_exact((heads + 2 * kv_heads) * head_dim);
        for item in items {
            for (position, row) in (item.start..item.start + item.tokens.len()).zip(&mut rows) {
                let block = pool.block_mut(item.sequence, position)?;
                let sides = row[heads * head_dim..].chunks_exact(kv_heads * head_dim);
                for (values, side) in sides.zip([Side::Key, Side::Value]) {
                    for (head, values) in values.chunks_exact(head_dim).enumerate() {
                        let row = Row { layer, head, side, token: position % crate::kv::BLOCK_TOKENS };
                        let scale = self.kernels.encode(layout.format(), values, &mut block[layout.row(row)]);
                        if let Some(place) = layout.scale(row) {
                            block[place].copy_from_slice(&scale.to_le_bytes());
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Attention of all items in `layer`, portion by portion, so that threads share it.
    fn attend(&mut self, pool: &Pool, items: &[Item<'_>], (layer, shape): (usize, Shape)) {
        let width = shape.heads() * shape.head_dim;
        let stride = width + 2 * shape.kv_heads * shape.head_dim;
        let Scratch { heads, attended, chunks, workspaces, .. } = &mut self.scratch;
        let (mut heads, mut attended) = (heads.as_slice(), attended.as_mut_slice());
        let mut portions = Portions::new(items.len(), self.crew.threads());
        for (item, chunks) in items.iter().zip(chunks).filter(|(item, _)| !item.tokens.is_empty()) {
            let tokens = item.tokens.len();
            let queries = Queries { values: heads, stride, start: item.start, tokens };
            let (out, rest) = attended.split_at_mut(tokens * width);
            portions.add(Attention { shape, memory: pool.bytes(), chunks, layer, queries }, out);
            (heads, attended) = (&heads[tokens * stride..], rest);
        }
        self.kernels.attend_all(&mut self.crew, portions, workspaces);
    }

    /// What attention found, and the feed-forward network, added to the stream.
    fn transform(&mut self, layer: usize) {
        let (layer, geometry, scratch) = (&self.parameters.layers[layer], &self.geometry, &mut self.scratch);
        let (kernels, activations) = (self.kernels, &mut scratch.activations);
        let (width, hidden, ffn) = (layer.attention_out.columns(), geometry.hidden, geometry.ffn);
        let batches = scratch.stream.chunks_mut(BATCH * hidden);
        for (rows, attended) in batches.zip(scratch.attended.chunks(BATCH * width)) {
            let (delta, normal) = (&mut scratch.delta[..rows.len()], &mut scratch.normal[..rows.len()]);
            kernels.quantise(attended, width, width, activations);
            kernels.multiply(&mut self.crew, &layer.attention_out, activations, delta);
            kernels.add(rows, delta);
            kernels.normalise(rows, &layer.ffn_norm, geometry.rms_eps, normal);
            kernels.quantise(normal, hidden, hidden, activations);
            let inner = &mut scratch.ffn[..rows.len() / hidden * 2 * ffn];
            kernels.multiply(&mut self.crew, &layer.ffn_in, activations, inner);
            for inner in inner.chunks_exact_mut(2 * ffn) {
                let (gate, up) = inner.split_at_mut(ffn);
                kernels.gate(gate, up);
            }
            kernels.quantise(inner, 2 * ffn, ffn, activations);
            kernels.multiply(&mut self.crew, &layer.ffn_out, activations, delta);
            kernels.add(rows, delta);
        }
    }

    /// Logits of the tokens they are wanted of.
    fn read_out(&mut self, items: &[Item<'_>]) {
        let (geometry, scratch, output) = (&self.geometry, &mut self.scratch, self.parameters.output());
        let hidden = geometry.hidden;
        let mut first = 0;
        let mut count = 0;
        for item in items {
            let end = first + item.tokens.len();
            let wanted = item.logits.rows(item.tokens.len()).min(item.tokens.len());
            // Rows only ever move forwards, over those that are not wanted.
            scratch.stream.copy_within((end - wanted) * hidden..end * hidden, count * hidden);
            count += wanted;
            first = end;
        }
        scratch.logits.resize(count * geometry.vocab, 0.0);
        let batches = scratch.stream[..count * hidden].chunks(BATCH * hidden);
        for (rows, logits) in batches.zip(scratch.logits.chunks_mut(BATCH * geometry.vocab)) {
            let normal = &mut scratch.normal[..rows.len()];
            self.kernels.normalise(rows, &self.parameters.final_norm, geometry.rms_eps, normal);
            self.kernels.quantise(normal, hidden, hidden, &mut scratch.activations);
            self.kernels.multiply(&mut self.crew, output, &scratch.activations, logits);
        }
    }
}

impl Forward for Transformer {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn step(&mut self, pool: &mut Pool, items: &[Item<'_>]) -> Result<Rows<'_>, StepError> {
        let shape = self.check(pool, items)?;
        self.begin(pool, items)?;
        for layer in 0..self.geometry.layers {
            self.project(layer);
            self.keep(pool, items, layer)?;
            self.attend(pool, items, (layer, shape));
            self.transform(layer);
        }
        self.read_out(items);
        Ok(Rows::new(&self.scratch.logits, self.geometry.vocab))
    }
}
