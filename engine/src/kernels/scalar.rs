//! Plain Rust: the oracle. It says what the sums are, and leaves their speed to others.

use super::activations::Activations;
use super::attention::Attention;
use super::products::Products;
use super::tiles::{self, OFFSET, TILE_ROWS, Tiles};
use super::{Chunk, GROUP};
use crate::kv::{BLOCK_TOKENS, Side, f16_to_f32};

/// `input` times the transposed weights, of the tiles of `products`.
pub(super) fn multiply(weights: &Tiles, input: &Activations, products: &mut Products<'_>) {
    for tile in products.tiles() {
        let Some((blocks, scales)) = weights.tile(tile) else { return };
        for row in 0..input.rows() {
            let mut out = [0.0; TILE_ROWS];
            for (group, (block, scales)) in blocks.iter().zip(scales).enumerate() {
                let place = group * input.rows() + row;
                let values = &input.values[place * GROUP..(place + 1) * GROUP];
                for (lane, out) in out.iter_mut().enumerate() {
                    let products = values.iter().enumerate().map(|(column, value)| {
                        (i32::from(block.0[tiles::place(lane, column)]) - OFFSET) * i32::from(*value)
                    });
                    *out += products.sum::<i32>() as f32 * (f16_to_f32(scales[lane]) * input.scales[place]);
                }
            }
            products.put((row, tile), &[out]);
        }
    }
}

/// `softmax(q k / sqrt(head_dim)) v` for every head of every query, `[token][head][head_dim]` into `out`.
pub(super) fn attend(attention: &Attention<'_>, out: &mut [f32]) {
    let shape = attention.shape;
    let mut weights = Vec::new();
    let mut row = vec![0.0; shape.head_dim];
    for (at, out) in out.chunks_exact_mut(shape.head_dim).enumerate() {
        let (token, head) = (at / shape.heads(), at % shape.heads());
        let query = token * attention.queries.stride + head * shape.head_dim;
        let query = &attention.queries.values[query..query + shape.head_dim];
        let end = attention.queries.start + token + 1;
        weights.clear();
        for_each_row(attention, (head / shape.group, Side::Key), end, &mut row, |row| {
            weights.push(dot(query, row) / (shape.head_dim as f32).sqrt());
        });
        let largest = weights.iter().fold(f32::NEG_INFINITY, |a, b| a.max(*b));
        weights.iter_mut().for_each(|weight| *weight = (*weight - largest).exp());
        let sum: f32 = weights.iter().sum();
        out.fill(0.0);
        let mut next = weights.iter();
        for_each_row(attention, (head / shape.group, Side::Value), end, &mut row, |row| {
            let weight = next.next().map_or(0.0, |weight| weight / sum);
            out.iter_mut().zip(row).for_each(|(out, value)| *out += weight * value);
        });
    }
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Decodes the rows of one side of one head before position `end`, one after the other, into `row`.
fn for_each_row(
    attention: &Attention<'_>,
    (head, side): (usize, Side),
    end: usize,
    row: &mut [f32],
    mut each: impl FnMut(&[f32]),
) {
    let shape = attention.shape;
    for chunk in attention.chunks.iter().take_while(|chunk| chunk.position < end) {
        for token in 0..BLOCK_TOKENS.min(end - chunk.position) {
            let (bytes, scale) = stored(attention, *chunk, (head, side), token);
            shape.format.decode(bytes, scale, row);
            each(row);
        }
    }
}

/// The bytes of a row, and its scale, which only some formats look at.
fn stored<'a>(
    attention: &Attention<'a>,
    chunk: Chunk,
    (head, side): (usize, Side),
    token: usize,
) -> (&'a [u8], u16) {
    let shape = attention.shape;
    let layer = &attention.memory[attention.base(chunk)..][..shape.layer_bytes];
    let row = &layer[shape.side(head, side) + token * shape.row_bytes()..][..shape.row_bytes()];
    if !shape.format.is_scaled() {
        return (row, 0);
    }
    let scale = &layer[shape.scales(head, side) + token * size_of::<u16>()..];
    (row, u16::from_le_bytes([scale[0], scale[1]]))
}
