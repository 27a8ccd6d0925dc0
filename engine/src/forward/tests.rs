//! The forward pass against itself in other portions, and against a plain one in f32.

use super::*;
use crate::kernels::Tier;
use crate::kv::{Backing, Format, PoolOptions};
use crate::model::{RopeStyle, Synthetic, Tensor, Weights, synthetic};

const GEOMETRY: Geometry = Geometry {
    hidden: 96,
    layers: 2,
    heads: 4,
    kv_heads: 2,
    head_dim: 32,
    ffn: 150,
    vocab: 70,
    context: 128,
    rope_base: 10_000.0,
    rope_style: RopeStyle::Interleaved,
    rms_eps: 1e-5,
    tied: true,
};

fn model(geometry: &Geometry) -> Synthetic {
    synthetic(geometry.clone(), 7).unwrap()
}

fn transformer(geometry: &Geometry, tier: Tier) -> Transformer {
    let kernels = Kernels::of(tier).unwrap();
    Transformer::load(&model(geometry), Options { kernels, threads: NonZeroU16::MIN }).unwrap()
}

fn pool(format: Format) -> Pool {
    Pool::on_host(GEOMETRY.kv(), format, Backing::File, PoolOptions::with_capacity(64)).unwrap()
}

fn text(seed: u64, tokens: usize) -> Vec<Token> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..tokens).map(|_| random.u32(..GEOMETRY.vocab as u32)).collect()
}

/// Logits of every token of `tokens`, taken in portions of `portion`.
fn logits(forward: &mut Transformer, pool: &mut Pool, tokens: &[Token], portion: usize) -> Vec<Vec<f32>> {
    let sequence = pool.open();
    let mut all = Vec::new();
    for (index, tokens) in tokens.chunks(portion).enumerate() {
        pool.append(sequence, tokens.len()).unwrap();
        let item = Item { sequence, tokens, start: index * portion, logits: Logits::All };
        all.extend(forward.step(pool, &[item]).unwrap().iter().map(<[f32]>::to_vec));
    }
    pool.close(sequence).unwrap();
    all
}

/// The largest difference, over the largest logit.
fn difference(a: &[Vec<f32>], b: &[Vec<f32>]) -> f32 {
    assert_eq!(a.len(), b.len());
    let (a, b) = (a.concat(), b.concat());
    let largest = a.iter().fold(0f32, |largest, value| largest.max(value.abs()));
    a.iter().zip(&b).fold(0.0, |most, (a, b)| if (a - b).abs() <= most { most } else { (a - b).abs() })
        / largest
}

#[test]
fn portions_and_neighbours_do_not_change_what_is_said() {
    let text = text(1, 45);
    for tier in Tier::ALL.into_iter().filter(|tier| tier.is_available()) {
        let mut forward = transformer(&GEOMETRY, tier);
        let mut pool = pool(Format::F32);
        let whole = logits(&mut forward, &mut pool, &text, 45);
        for portion in [1, 7, 16, 30] {
            // Only the order of additions in attention differs.
            let found = difference(&whole, &logits(&mut forward, &mut pool, &text, portion));
            assert!(found < 3e-2, "{tier}, portions of {portion}: {found}");
        }
    }
}

#[test]
fn sequences_that_step_together_do_not_see_each_other() {
    let (first, second) = (text(1, 30), text(2, 20));
    let mut forward = transformer(&GEOMETRY, Kernels::fastest().tier());
    let mut pool = pool(Format::F16);
    let alone = [logits(&mut forward, &mut pool, &first, 30), logits(&mut forward, &mut pool, &second, 20)];
    let sequences = [pool.open(), pool.open()];
    pool.append(sequences[0], 30).unwrap();
    pool.append(sequences[1], 20).unwrap();
    let item =
        |index: usize, tokens, start, logits| Item { sequence: sequences[index], tokens, start, logits };
    let none = item(0, &first[..29], 0, Logits::None);
    assert!(forward.step(&mut pool, &[none]).unwrap().is_empty());
    // A token of one sequence beside the whole prompt of another.
    let items = [item(1, second.as_slice(), 0, Logits::All), item(0, &first[29..], 29, Logits::Last)];
    let rows = forward.step(&mut pool, &items).unwrap();
    let together: Vec<Vec<f32>> = rows.iter().map(<[f32]>::to_vec).collect();
    assert_eq!(together.len(), 21);
    assert!(difference(&alone[1], &together[..20]) < 1e-6);
    assert!(difference(&alone[0][29..], &together[20..]) < 3e-2);
}

/// As wide as work must be to be shared; three heads of keys and values, so that two threads get different shares.
const WIDE: Geometry = Geometry {
    hidden: 192,
    layers: 1,
    heads: 9,
    kv_heads: 3,
    head_dim: 64,
    ffn: 520,
    vocab: 11_000,
    context: 512,
    ..GEOMETRY
};

/// The logits of a prompt in stretches, then of a token alone and of three sequences that decode together.
fn conversation(threads: u16) -> Vec<f32> {
    let options = Options { kernels: Kernels::fastest(), threads: NonZeroU16::new(threads).unwrap() };
    let mut forward = Transformer::load(&model(&WIDE), options).unwrap();
    let capacity = PoolOptions::with_capacity(96);
    let mut pool = Pool::on_host(WIDE.kv(), Format::Int8, Backing::File, capacity).unwrap();
    let mut said = Vec::new();
    let mut step = |pool: &mut Pool, items: &[Item<'_>]| {
        items.iter().for_each(|item| pool.append(item.sequence, item.tokens.len()).unwrap());
        forward.step(pool, items).unwrap().iter().for_each(|row| said.extend_from_slice(row));
    };
    let sequences = [pool.open(), pool.open(), pool.open()];
    let text = text(5, 160);
    let item = |sequence: usize, first: usize, tokens: usize| Item {
        sequence: sequences[sequence],
        tokens: &text[first..first + tokens],
        start: first,
        logits: Logits::Last,
    };
    step(&mut pool, &[item(0, 0, 129), item(1, 0, 65), item(2, 0, 1)]);
    step(&mut pool, &[item(0, 129, 1)]);
    step(&mut pool, &[item(0, 130, 1), item(1, 65, 1), item(2, 1, 2)]);
    said
}

#[test]
fn any_number_of_threads_says_the_same_to_the_bit() {
    let expected = conversation(1);
    assert!(expected.iter().all(|logit| logit.is_finite()) && expected.len() == 7 * WIDE.vocab);
    for threads in [2, 3] {
        assert!(conversation(threads) == expected, "{threads} threads");
    }
}

#[test]
fn every_set_and_format_says_nearly_the_same() {
    let text = text(3, 33);
    let expected = logits(&mut transformer(&GEOMETRY, Tier::Scalar), &mut pool(Format::F32), &text, 33);
    for tier in Tier::ALL.into_iter().filter(|tier| tier.is_available()) {
        let mut forward = transformer(&GEOMETRY, tier);
        // A number that rounds the other way in an activation is off by 1/254 of the largest of its 32.
        for (format, bound) in
            [(Format::F32, 0.03), (Format::F16, 0.03), (Format::Int8, 0.05), (Format::Fp8, 0.2)]
        {
            let found = difference(&expected, &logits(&mut forward, &mut pool(format), &text, 5));
            assert!(found < bound, "{tier}, {}: {found}", format.name());
        }
    }
}

#[test]
fn logits_are_near_those_of_a_plain_pass_in_f32() {
    let text = text(4, 20);
    for rope_style in [RopeStyle::Interleaved, RopeStyle::HalfSplit] {
        for tied in [true, false] {
            let geometry = Geometry { rope_style, tied, ..GEOMETRY };
            let mut forward = transformer(&geometry, Kernels::fastest().tier());
            let found = logits(&mut forward, &mut pool(Format::F32), &text, 20);
            let expected = plain(&model(&geometry), &text);
            // Weights and activations are off by 1/254 of the largest of 32 each.
            let difference = difference(&expected, &found);
            assert!(difference < 0.04, "{rope_style:?}, tied {tied}: {difference}");
        }
    }
}

#[test]
fn nonsense_is_refused_before_anything_is_written() {
    let mut forward = transformer(&GEOMETRY, Tier::Scalar);
    let mut pool = pool(Format::F16);
    let sequence = pool.open();
    pool.append(sequence, 4).unwrap();
    let item = |tokens, start| Item { sequence, tokens, start, logits: Logits::Last };
    let unknown = forward.step(&mut pool, &[item(&[1, 70], 0)]).unwrap_err();
    assert!(matches!(unknown, StepError::Token { token: 70, vocab: 70 }), "{unknown}");
    let beyond = forward.step(&mut pool, &[item(&[1, 2], 3)]).unwrap_err();
    assert!(matches!(beyond, StepError::NoRoom { end: 5, tokens: 4, .. }), "{beyond}");
    let other = crate::kv::Geometry { layers: 3, ..GEOMETRY.kv() };
    let mut other = Pool::on_host(other, Format::F16, Backing::File, PoolOptions::with_capacity(4)).unwrap();
    let refused = forward.step(&mut other, &[]).unwrap_err();
    assert!(matches!(refused, StepError::Geometry { .. }), "{refused}");
    assert!(forward.step(&mut pool, &[]).unwrap().is_empty());
    pool.close(sequence).unwrap();
    let closed = forward.step(&mut pool, &[item(&[1], 0)]).unwrap_err();
    assert!(matches!(closed, StepError::Pool(PoolError::UnknownSequence(_))), "{closed}");
}

/// The architecture by its formulas, nothing quantised and nothing kept.
fn plain(model: &Synthetic, tokens: &[Token]) -> Vec<Vec<f32>> {
    let g = model.geometry();
    let read = |tensor| {
        let mut numbers = Vec::new();
        model.read(tensor, &mut numbers).unwrap();
        numbers
    };
    let product = |tensor, row: &[f32]| -> Vec<f32> {
        read(tensor)
            .chunks(row.len())
            .map(|weights| weights.iter().zip(row).map(|(a, b)| a * b).sum())
            .collect()
    };
    let normal = |tensor, row: &[f32]| -> Vec<f32> {
        let mean = row.iter().map(|x| x * x).sum::<f32>() / row.len() as f32 + g.rms_eps;
        row.iter().zip(read(tensor)).map(|(x, weight)| x / mean.sqrt() * weight).collect()
    };
    let embedding = read(Tensor::Embedding);
    let mut stream: Vec<Vec<f32>> =
        tokens.iter().map(|token| embedding[*token as usize * g.hidden..][..g.hidden].to_vec()).collect();
    for layer in 0..g.layers {
        let normals: Vec<_> = stream.iter().map(|row| normal(Tensor::AttentionNorm(layer), row)).collect();
        let turned = |tensor| -> Vec<Vec<f32>> {
            normals.iter().enumerate().map(|(at, row)| turn(g, product(tensor, row), at)).collect()
        };
        let (queries, keys) = (turned(Tensor::Query(layer)), turned(Tensor::Key(layer)));
        let values: Vec<_> = normals.iter().map(|row| product(Tensor::Value(layer), row)).collect();
        for (at, row) in stream.iter_mut().enumerate() {
            let attended = attend(g, &queries[at], &keys[..=at], &values[..=at]);
            add(row, &product(Tensor::AttentionOut(layer), &attended));
            let inner = normal(Tensor::FfnNorm(layer), row);
            let gate = product(Tensor::Gate(layer), &inner).into_iter().map(|x| x / (1.0 + (-x).exp()));
            let inner: Vec<f32> = gate.zip(product(Tensor::Up(layer), &inner)).map(|(a, b)| a * b).collect();
            add(row, &product(Tensor::Down(layer), &inner));
        }
    }
    let output = if g.tied { Tensor::Embedding } else { Tensor::Output };
    stream.iter().map(|row| product(output, &normal(Tensor::FinalNorm, row))).collect()
}

fn add(row: &mut [f32], delta: &[f32]) {
    row.iter_mut().zip(delta).for_each(|(a, b)| *a += b);
}

fn turn(g: &Geometry, mut heads: Vec<f32>, position: usize) -> Vec<f32> {
    for head in heads.chunks_mut(g.head_dim) {
        for pair in 0..g.head_dim / 2 {
            let angle = position as f32 * g.rope_base.powf(-2.0 * pair as f32 / g.head_dim as f32);
            let (x, y) = match g.rope_style {
                RopeStyle::Interleaved => (2 * pair, 2 * pair + 1),
                RopeStyle::HalfSplit => (pair, pair + g.head_dim / 2),
            };
            (head[x], head[y]) = (
                head[x] * angle.cos() - head[y] * angle.sin(),
                head[x] * angle.sin() + head[y] * angle.cos(),
            );
        }
    }
    heads
}

fn attend(g: &Geometry, queries: &[f32], keys: &[Vec<f32>], values: &[Vec<f32>]) -> Vec<f32> {
    let mut out = Vec::new();
    for (head, query) in queries.chunks(g.head_dim).enumerate() {
        let range = head / (g.heads / g.kv_heads) * g.head_dim..;
        let scores = keys.iter().map(|key| {
            let key = &key[range.clone()];
            query.iter().zip(key).map(|(a, b)| a * b).sum::<f32>() / (g.head_dim as f32).sqrt()
        });
        let weights: Vec<f32> = scores.map(f32::exp).collect();
        let sum: f32 = weights.iter().sum();
        out.extend((0..g.head_dim).map(|at| {
            weights.iter().zip(values).map(|(w, value)| w / sum * value[range.start + at]).sum::<f32>()
        }));
    }
    out
}
