//! Every set against plain Rust: all formats, odd lengths, groups and sizes of heads.

use super::*;
use crate::kv::{BLOCK_TOKENS, Backing, Format, Geometry, Pool, PoolOptions, Row, SequenceId, Side};
use proptest::prelude::*;

const FORMATS: [Format; 4] = [Format::F32, Format::F16, Format::Int8, Format::Fp8];

/// The sets of vectors that this machine has.
fn vectors() -> Vec<Kernels> {
    [Tier::Avx2, Tier::Avx512].into_iter().filter_map(|tier| Kernels::of(tier).ok()).collect()
}

fn oracle() -> Kernels {
    Kernels::of(Tier::Scalar).unwrap()
}

fn numbers(random: &mut fastrand::Rng, count: usize) -> Vec<f32> {
    // A sum of three evens out to a bell.
    (0..count).map(|_| 2.0 * (random.f32() + random.f32() + random.f32() - 1.5)).collect()
}

/// A sequence of `tokens` whose blocks lie in no order, all rows written.
fn filled(
    geometry: Geometry,
    format: Format,
    tokens: usize,
    random: &mut fastrand::Rng,
) -> (Pool, SequenceId) {
    let blocks = tokens.div_ceil(BLOCK_TOKENS) as u32;
    let options = PoolOptions { high_water: true, ..PoolOptions::with_capacity(3 * blocks + 3) };
    let mut pool = Pool::on_host(geometry, format, Backing::File, options).unwrap();
    let sequence = pool.open();
    // Another one takes turns, so that blocks of ours are not side by side.
    let other = pool.open();
    while pool.table(sequence).unwrap().tokens() < tokens {
        let next = random.usize(1..20).min(tokens - pool.table(sequence).unwrap().tokens());
        pool.append(sequence, next).unwrap();
        if pool.append(other, random.usize(1..20)).is_err() {
            pool.close(other).unwrap();
            return refill(pool, sequence, tokens, random);
        }
    }
    refill(pool, sequence, tokens, random)
}

fn refill(
    mut pool: Pool,
    sequence: SequenceId,
    tokens: usize,
    random: &mut fastrand::Rng,
) -> (Pool, SequenceId) {
    let missing = tokens - pool.table(sequence).unwrap().tokens();
    pool.append(sequence, missing).unwrap();
    let geometry = pool.layout().geometry();
    for position in 0..tokens {
        for layer in 0..geometry.layers {
            for head in 0..geometry.kv_heads {
                for side in [Side::Key, Side::Value] {
                    let row = Row { layer, head, side, token: 0 };
                    pool.write_row(sequence, position, row, &numbers(random, geometry.head_dim)).unwrap();
                }
            }
        }
    }
    (pool, sequence)
}

fn attend(kernels: Kernels, pool: &Pool, chunks: &[Chunk], group: usize, queries: Queries<'_>) -> Vec<f32> {
    let shape = Shape::new(pool.layout(), pool.layout().geometry().kv_heads * group).unwrap();
    let mut out = vec![f32::NAN; queries.tokens * shape.heads() * shape.head_dim];
    let layer = pool.layout().geometry().layers - 1;
    let attention = Attention { shape, memory: pool.bytes(), chunks, layer, queries };
    kernels.attend(&attention, &mut Workspace::default(), &mut out);
    out
}

/// One in which `tokens` of the last positions ask, with every set; the largest difference from the oracle.
fn difference(
    pool: &Pool,
    chunks: &[Chunk],
    group: usize,
    asked: (usize, usize),
    random: &mut fastrand::Rng,
) -> f32 {
    let (start, tokens) = asked;
    let geometry = pool.layout().geometry();
    let width = geometry.kv_heads * group * geometry.head_dim;
    let stride = width + 5;
    let values = numbers(random, tokens * stride);
    let queries = Queries { values: &values, stride, start, tokens };
    let expected = attend(oracle(), pool, chunks, group, queries);
    assert!(expected.iter().all(|value| value.is_finite()));
    let differences = vectors().into_iter().flat_map(|kernels| {
        let found = attend(kernels, pool, chunks, group, queries);
        expected.iter().zip(found).map(|(a, b)| (a - b).abs()).collect::<Vec<_>>()
    });
    // Not `max`, which passes over what is no number.
    differences.fold(0.0, |a, b| if b <= a { a } else { b })
}

#[test]
fn every_format_and_length_agrees_with_the_oracle() {
    let mut random = fastrand::Rng::with_seed(1);
    let geometry = Geometry { layers: 2, kv_heads: 2, head_dim: 64 };
    for format in FORMATS {
        for tokens in [1, 2, 15, 16, 17, 31, 33, 100] {
            let (pool, sequence) = filled(geometry, format, tokens, &mut random);
            let mut chunks = Vec::new();
            Chunk::read(&pool, sequence, &mut chunks).unwrap();
            for asked in [(tokens - 1, 1), (0, tokens), (tokens / 2, tokens - tokens / 2)] {
                let difference = difference(&pool, &chunks, 3, asked, &mut random);
                assert!(difference < 2e-6, "{} {tokens} {asked:?}: {difference}", format.name());
            }
        }
    }
}

#[test]
fn a_window_is_what_the_table_still_has() {
    let mut random = fastrand::Rng::with_seed(2);
    let geometry = Geometry { layers: 1, kv_heads: 1, head_dim: 64 };
    let (mut pool, sequence) = filled(geometry, Format::F16, 150, &mut random);
    pool.slide(sequence, crate::kv::Window { tokens: 40, sinks: 4 }).unwrap();
    let mut chunks = Vec::new();
    Chunk::read(&pool, sequence, &mut chunks).unwrap();
    let positions: Vec<usize> = chunks.iter().map(|chunk| chunk.position).collect();
    assert_eq!(positions, [0, 96, 112, 128, 144]);
    assert!(difference(&pool, &chunks, 4, (149, 1), &mut random) < 2e-6);
    assert!(difference(&pool, &chunks, 4, (140, 10), &mut random) < 2e-6);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn any_shape_agrees_with_the_oracle(
        kv_heads in 1..4usize,
        group in 1..7usize,
        head_dim in prop::sample::select(vec![16usize, 24, 32, 64, 80, 96, 128]),
        tokens in 1..70usize,
        asked in 1..40usize,
        format in prop::sample::select(FORMATS.to_vec()),
        seed: u64,
    ) {
        let mut random = fastrand::Rng::with_seed(seed);
        let geometry = Geometry { layers: 1, kv_heads, head_dim };
        let (pool, sequence) = filled(geometry, format, tokens, &mut random);
        let mut chunks = Vec::new();
        Chunk::read(&pool, sequence, &mut chunks).unwrap();
        let asked = asked.min(tokens);
        let difference = difference(&pool, &chunks, group, (tokens - asked, asked), &mut random);
        prop_assert!(difference < 4e-6, "{}", difference);
    }

    #[test]
    fn products_agree_with_the_oracle(
        rows in 1..70usize, columns in 1..200usize, inputs in 1..20usize, seed: u64,
    ) {
        let mut random = fastrand::Rng::with_seed(seed);
        let weights = Tiles::new(&numbers(&mut random, rows * columns), columns).unwrap();
        let values = numbers(&mut random, inputs * (columns + 3));
        let mut activations = Activations::default();
        oracle().quantise(&values, columns + 3, columns, &mut activations);
        prop_assert_eq!(activations.rows(), inputs);
        let mut expected = vec![f32::NAN; inputs * rows];
        oracle().multiply(&weights, &activations, &mut expected);
        for kernels in vectors() {
            let mut again = Activations::default();
            kernels.quantise(&values, columns + 3, columns, &mut again);
            prop_assert_eq!(&again.values, &activations.values);
            prop_assert_eq!(&again.offsets, &activations.offsets);
            let mut found = vec![f32::NAN; inputs * rows];
            kernels.multiply(&weights, &again, &mut found);
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
        oracle().multiply(&Tiles::new(&weights, columns).unwrap(), &activations, &mut out);
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
        kernels.multiply(&Tiles::new(&[1.0; 40], 40).unwrap(), &activations, &mut out);
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
