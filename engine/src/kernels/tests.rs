//! Every set against plain Rust: all formats, odd lengths, groups and sizes of heads.

use std::num::NonZeroU16;
use std::sync::Mutex;

use super::*;
use crate::kv::{
    BLOCK_TOKENS, Backing, BlockId, Format, Geometry, Layout, Pool, PoolError, PoolOptions, Row, Side, Window,
};
use proptest::prelude::*;

const FORMATS: [Format; 4] = [Format::F32, Format::F16, Format::Int8, Format::Fp8];

/// Miri, four orders of magnitude slower, looks at plain Rust only and at little of it.
const LONG: usize = if cfg!(miri) { 20 } else { 70 };
const HEAD: usize = if cfg!(miri) { 16 } else { 64 };
const HEADS: &[usize] = if cfg!(miri) { &[16, 24] } else { &[16, 24, 32, 64, 80, 96, 128] };

/// The sets of vectors that this machine has.
fn vectors() -> Vec<Kernels> {
    [Tier::Avx2, Tier::Avx512].into_iter().filter_map(|tier| Kernels::of(tier).ok()).collect()
}

fn oracle() -> Kernels {
    Kernels::of(Tier::Scalar).unwrap()
}

fn alone() -> Crew {
    Crew::new(NonZeroU16::MIN).unwrap()
}

fn numbers(random: &mut fastrand::Rng, count: usize) -> Vec<f32> {
    // A sum of three evens out to a bell.
    (0..count).map(|_| 2.0 * (random.f32() + random.f32() + random.f32() - 1.5)).collect()
}

/// Blocks that a table would have after long use: in no order.
struct Blocks {
    layout: Layout,
    memory: Vec<u8>,
    chunks: Vec<Chunk>,
}

impl Blocks {
    /// As many as `tokens` need, every row of a token written.
    fn filled(geometry: Geometry, format: Format, tokens: usize, random: &mut fastrand::Rng) -> Self {
        let layout = Layout::new(geometry, format, 4096).unwrap();
        let count = tokens.div_ceil(BLOCK_TOKENS);
        let mut blocks: Vec<u32> = (0..2 * count as u32).collect();
        random.shuffle(&mut blocks);
        let places = blocks.iter().map(|block| layout.block(BlockId(*block)).start).enumerate();
        let chunks =
            places.take(count).map(|(index, at)| Chunk { at, position: index * BLOCK_TOKENS }).collect();
        let memory = vec![0; layout.block(BlockId(2 * count as u32)).start];
        let mut blocks = Self { layout, memory, chunks };
        (0..tokens).for_each(|position| blocks.write(position, random));
        blocks
    }

    fn write(&mut self, position: usize, random: &mut fastrand::Rng) {
        let Geometry { layers, kv_heads, head_dim } = self.layout.geometry();
        let block = &mut self.memory[self.chunks[position / BLOCK_TOKENS].at..];
        let token = position % BLOCK_TOKENS;
        for (layer, head) in (0..layers).flat_map(|layer| (0..kv_heads).map(move |head| (layer, head))) {
            for side in [Side::Key, Side::Value] {
                let row = Row { layer, head, side, token };
                let values = numbers(random, head_dim);
                let scale = self.layout.format().encode(&values, &mut block[self.layout.row(row)]);
                if let Some(place) = self.layout.scale(row) {
                    block[place].copy_from_slice(&scale.to_le_bytes());
                }
            }
        }
    }
}

fn attend(kernels: Kernels, blocks: &Blocks, group: usize, queries: Queries<'_>) -> Vec<f32> {
    let geometry = blocks.layout.geometry();
    let shape = Shape::new(&blocks.layout, geometry.kv_heads * group).unwrap();
    let mut out = vec![f32::NAN; queries.tokens * shape.heads() * shape.head_dim];
    let Blocks { memory, chunks, .. } = blocks;
    let attention = Attention { shape, memory, chunks, layer: geometry.layers - 1, queries };
    kernels.attend(&attention, &mut Workspace::default(), &mut out);
    out
}

/// The largest difference of any set from the oracle, where `tokens` from position `start` on ask.
fn difference(
    blocks: &Blocks,
    group: usize,
    (start, tokens): (usize, usize),
    random: &mut fastrand::Rng,
) -> f32 {
    let geometry = blocks.layout.geometry();
    let stride = geometry.kv_heads * group * geometry.head_dim + 5;
    let values = numbers(random, tokens * stride);
    let queries = Queries { values: &values, stride, start, tokens };
    let expected = attend(oracle(), blocks, group, queries);
    assert!(expected.iter().all(|value| value.is_finite()));
    let differences = vectors().into_iter().flat_map(|kernels| {
        let found = attend(kernels, blocks, group, queries);
        expected.iter().zip(found).map(|(a, b)| (a - b).abs()).collect::<Vec<_>>()
    });
    // Not `max`, which passes over what is no number.
    differences.fold(0.0, |a, b| if b <= a { a } else { b })
}

#[test]
fn every_format_and_length_agrees_with_the_oracle() {
    let mut random = fastrand::Rng::with_seed(1);
    let geometry = Geometry { layers: 2, kv_heads: 2, head_dim: HEAD };
    let lengths = if cfg!(miri) { [1, 17].as_slice() } else { &[1, 2, 15, 16, 17, 31, 33, 100] };
    for format in FORMATS {
        for &tokens in lengths {
            let blocks = Blocks::filled(geometry, format, tokens, &mut random);
            for asked in [(tokens - 1, 1), (0, tokens), (tokens / 2, tokens - tokens / 2)] {
                let difference = difference(&blocks, 3, asked, &mut random);
                assert!(difference < 2e-6, "{} {tokens} {asked:?}: {difference}", format.name());
            }
        }
    }
}

#[test]
fn a_window_leaves_out_what_is_dropped() {
    let mut random = fastrand::Rng::with_seed(2);
    let geometry = Geometry { layers: 1, kv_heads: 1, head_dim: HEAD };
    let mut blocks = Blocks::filled(geometry, Format::F16, 150, &mut random);
    blocks.chunks.retain(|chunk| chunk.position == 0 || chunk.position >= 96);
    assert!(difference(&blocks, 4, (149, 1), &mut random) < 2e-6);
    assert!(difference(&blocks, 4, (140, 10), &mut random) < 2e-6);
}

#[test]
#[cfg_attr(miri, ignore = "maps memory")]
fn chunks_are_what_a_table_still_has() {
    let geometry = Geometry { layers: 1, kv_heads: 1, head_dim: 64 };
    let options = PoolOptions::with_capacity(16);
    let mut pool = Pool::on_host(geometry, Format::F16, Backing::File, options).unwrap();
    let sequence = pool.open();
    pool.reserve(sequence, 200).unwrap();
    pool.append(sequence, 150).unwrap();
    pool.slide(sequence, Window { tokens: 40, sinks: 4 }).unwrap();
    let mut chunks = Vec::new();
    Chunk::read(&pool, sequence, &mut chunks).unwrap();
    let positions: Vec<usize> = chunks.iter().map(|chunk| chunk.position).collect();
    assert_eq!(positions, [0, 96, 112, 128, 144]);
    pool.close(sequence).unwrap();
    assert!(matches!(Chunk::read(&pool, sequence, &mut chunks), Err(PoolError::UnknownSequence(_))));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 40 }))]
    #[test]
    fn any_shape_agrees_with_the_oracle(
        kv_heads in 1..4usize,
        group in 1..7usize,
        head_dim in prop::sample::select(HEADS),
        tokens in 1..LONG,
        asked in 1..40usize,
        format in prop::sample::select(FORMATS.to_vec()),
        seed: u64,
    ) {
        let mut random = fastrand::Rng::with_seed(seed);
        let geometry = Geometry { layers: 1, kv_heads, head_dim };
        let blocks = Blocks::filled(geometry, format, tokens, &mut random);
        let asked = asked.min(tokens);
        let difference = difference(&blocks, group, (tokens - asked, asked), &mut random);
        prop_assert!(difference < 4e-6, "{}", difference);
    }

    #[test]
    fn products_agree_with_the_oracle(
        rows in 1..LONG, columns in 1..3 * LONG, inputs in 1..20usize, seed: u64,
    ) {
        let mut random = fastrand::Rng::with_seed(seed);
        let weights = Tiles::new(&numbers(&mut random, rows * columns), columns).unwrap();
        let values = numbers(&mut random, inputs * (columns + 3));
        let mut activations = Activations::default();
        oracle().quantise(&values, columns + 3, columns, &mut activations);
        prop_assert_eq!(activations.rows(), inputs);
        let mut expected = vec![f32::NAN; inputs * rows];
        oracle().multiply(&mut alone(), &weights, &activations, &mut expected);
        for kernels in vectors() {
            let mut again = Activations::default();
            kernels.quantise(&values, columns + 3, columns, &mut again);
            prop_assert_eq!(&again.values, &activations.values);
            prop_assert_eq!(&again.offsets, &activations.offsets);
            let mut found = vec![f32::NAN; inputs * rows];
            kernels.multiply(&mut alone(), &weights, &again, &mut found);
            for (a, b) in expected.iter().zip(&found) {
                prop_assert!((a - b).abs() <= 1e-4, "{} and {}", a, b);
            }
        }
    }

    /// What the integers stand for: within half a step of each side a product.
    #[test]
    fn products_are_near_those_of_the_numbers(columns in 1..200usize, seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed);
        let (weights, values) = (numbers(&mut random, columns), numbers(&mut random, columns));
        let mut activations = Activations::default();
        oracle().quantise(&values, columns, columns, &mut activations);
        let mut out = [0.0];
        oracle().multiply(&mut alone(), &Tiles::new(&weights, columns).unwrap(), &activations, &mut out);
        let exact: f64 = weights.iter().zip(&values).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
        // A number is at most 3, so half a step at most 3/254, and the f16 scale off by 1/2048.
        let bound = columns as f64 * 2.0 * 3.0 * (3.0 / 254.0 + 3.0 / 2048.0);
        prop_assert!((exact - f64::from(out[0])).abs() <= bound);
    }

    #[test]
    fn rows_of_a_cache_are_written_alike(
        values in proptest::collection::vec(-70_000f32..70_000.0, 0..100), spare in 0..3usize,
    ) {
        for format in FORMATS {
            let mut expected = vec![7; (values.len() + spare) * format.element_bytes()];
            let scale = oracle().encode(format, &values, &mut expected);
            for kernels in vectors() {
                let mut found = vec![7; expected.len()];
                prop_assert_eq!(kernels.encode(format, &values, &mut found), scale);
                prop_assert_eq!(&found, &expected);
            }
        }
    }

    #[test]
    fn rows_of_numbers_agree_to_the_bit(width in 1..100usize, rows in 1..5usize, seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed);
        let values = numbers(&mut random, 2 * width * rows);
        let weight = numbers(&mut random, 2 * width);
        let turns: Vec<[f32; 2]> = (0..width).map(|at| [(at as f32).cos(), (at as f32).sin()]).collect();
        let work = |kernels: Kernels| {
            let mut normal = vec![0.0; values.len()];
            kernels.normalise(&values, &weight, 1e-5, &mut normal);
            let mut gate = normal.clone();
            kernels.gate(&mut gate, &values);
            kernels.rotate(&mut normal, &turns);
            kernels.add(&mut normal, &gate);
            normal
        };
        let expected = work(oracle());
        for kernels in vectors() {
            prop_assert_eq!(&work(kernels), &expected);
        }
    }

    #[test]
    fn the_exponential_is_near_the_true_one(x in -87f32..88.0) {
        let (found, exact) = (f64::from(lanes::exp(x)), f64::from(x).exp());
        prop_assert!(((found - exact) / exact).abs() < 3e-7, "{} instead of {}", found, exact);
    }
}

/// What attention finds for `asked`, in the portions of as many threads.
fn attend_in_portions(blocks: &Blocks, asked: &[Queries<'_>], threads: u16) -> Vec<f32> {
    let shape = Shape::new(&blocks.layout, 9).unwrap();
    let width = shape.heads() * shape.head_dim;
    let mut out = vec![f32::NAN; asked.iter().map(|queries| queries.tokens * width).sum()];
    let mut portions = Portions::new(asked.len(), usize::from(threads));
    let mut rest = out.as_mut_slice();
    for queries in asked {
        let (part, behind) = rest.split_at_mut(queries.tokens * width);
        let Blocks { memory, chunks, .. } = blocks;
        portions.add(Attention { shape, memory, chunks, layer: 0, queries: *queries }, part);
        rest = behind;
    }
    let workspaces: Vec<_> = (0..threads).map(|_| Mutex::default()).collect();
    let mut crew = Crew::new(NonZeroU16::new(threads).unwrap()).unwrap();
    Kernels::fastest().attend_all(&mut crew, portions, &workspaces);
    out
}

#[test]
#[cfg_attr(miri, ignore = "too much for it, and of code without pointers")]
fn attention_in_portions_is_the_same_to_the_bit() {
    let mut random = fastrand::Rng::with_seed(6);
    let geometry = Geometry { layers: 1, kv_heads: 3, head_dim: 64 };
    // Enough to be worth sharing, one token or many.
    let tokens = 3700;
    let blocks = Blocks::filled(geometry, Format::Int8, tokens, &mut random);
    let values = numbers(&mut random, 300 * 9 * 64);
    let queries = |tokens: usize, start| Queries { values: &values, stride: 9 * 64, start, tokens };
    let (one, many) = (queries(1, tokens - 1), queries(130, tokens / 2));
    for asked in [[one].as_slice(), &[many], &[one, many, queries(1, 7)]] {
        let expected = attend_in_portions(&blocks, asked, 1);
        assert!(expected.iter().all(|value| value.is_finite()));
        for threads in 2..5 {
            assert!(attend_in_portions(&blocks, asked, threads) == expected, "{threads} threads");
        }
    }
}

#[test]
fn rows_follow_their_formulas() {
    let mut out = [0.0; 2];
    oracle().normalise(&[3.0, 4.0], &[1.0, 2.0], 0.5, &mut out);
    let root = 13f32.sqrt();
    assert!((out[0] - 3.0 / root).abs() < 1e-6 && (out[1] - 8.0 / root).abs() < 1e-6);
    let mut gate = [0.0, 1.0, -100.0];
    oracle().gate(&mut gate, &[5.0, 2.0, 1.0]);
    assert!((gate[1] - 2.0 / (1.0 + (-1f32).exp())).abs() < 1e-6 && gate[0] == 0.0 && gate[2].abs() < 1e-30);
    let mut head = [1.0, 0.0, 0.0, 1.0];
    oracle().rotate(&mut head, &[[0.0, 1.0], [0.6, 0.8]]);
    assert_eq!(head, [0.0, 1.0, -0.8, 0.6]);
}

#[test]
fn a_number_that_is_none_spoils_only_its_own_row() {
    for kernels in vectors().into_iter().chain([oracle()]) {
        let mut activations = Activations::default();
        let values = [[f32::NAN; 40], [f32::INFINITY; 40], [1.0; 40]].concat();
        kernels.quantise(&values, 40, 40, &mut activations);
        let mut out = [0.0; 3];
        kernels.multiply(&mut alone(), &Tiles::new(&[1.0; 40], 40).unwrap(), &activations, &mut out);
        assert!((out[2] - 40.0).abs() < 0.1, "{out:?}");
    }
}

#[test]
fn a_set_is_had_by_name_or_refused() {
    assert_eq!(Kernels::of(Tier::Scalar).unwrap().tier(), Tier::Scalar);
    assert!(Tier::ALL.iter().all(|tier| tier.is_available() == Kernels::of(*tier).is_ok()));
    let refusal = TierError::Unavailable(Tier::Avx512).to_string();
    assert!(refusal.contains("avx512") && refusal.contains(Kernels::VARIABLE), "{refusal}");
}
