//! What a pool does where things run short, and how its strategies look.

use ebbtide_core::Bytes;
use ebbtide_engine::kv::{
    BLOCK_TOKENS, Backing, BlockId, Entry, Format, Geometry, Layout, Pool, PoolError, PoolOptions, Row, Side,
    Table, Token, Window,
};

use crate::heap::Heap;

/// A block is one page.
const GEOMETRY: Geometry = Geometry { layers: 1, kv_heads: 1, head_dim: 32 };
const PAGE: usize = 4096;
const ROW: Row = Row { layer: 0, head: 0, side: Side::Key, token: 0 };

fn pool(options: PoolOptions, shape: impl FnOnce(&mut Heap)) -> Pool<Heap> {
    let layout = Layout::new(GEOMETRY, Format::F32, PAGE).unwrap();
    let reserve = |bytes| {
        let mut heap = Heap::of(bytes);
        shape(&mut heap);
        Ok(heap)
    };
    Pool::new(layout, options, reserve).unwrap()
}

fn blocks(table: &Table) -> Vec<BlockId> {
    table.resident().map(|(_, block)| block).collect()
}

#[test]
fn a_host_without_memory_costs_cached_content_first_and_then_an_error_that_changes_nothing() {
    let mut pool = pool(PoolOptions::with_capacity(8), |heap| heap.room = 3 * PAGE);
    let tokens: Vec<Token> = (0..32).collect();
    let first = pool.open();
    pool.append(first, 32).unwrap();
    pool.publish(first, &tokens).unwrap();
    pool.close(first).unwrap();
    assert_eq!((pool.usage().cached, pool.known_prefix(&tokens)), (2, 32));

    let second = pool.open();
    let before = pool.usage();
    let error = pool.append(second, 4 * BLOCK_TOKENS).unwrap_err();
    assert!(matches!(error, PoolError::Memory(_)) && error.to_string().contains("memory limit"), "{error}");
    assert_eq!(
        (pool.usage().used, pool.table(second).unwrap()),
        (before.used, &Table::clone(pool.table(second).unwrap()))
    );
    assert!(pool.table(second).unwrap().entries().is_empty());
    pool.append(second, 3 * BLOCK_TOKENS).unwrap();
    assert_eq!((pool.usage().used, pool.known_prefix(&tokens)), (3, 0));
}

#[test]
fn an_extent_that_the_kernel_does_not_take_back_is_used_again() {
    let mut pool = pool(PoolOptions::with_capacity(4), |heap| heap.is_stubborn = true);
    for _ in 0..3 {
        let sequence = pool.open();
        pool.append(sequence, 2 * BLOCK_TOKENS).unwrap();
        pool.close(sequence).unwrap();
    }
    let (usage, counters) = (pool.usage(), pool.counters());
    assert_eq!((usage.held, usage.idle, usage.used), (Bytes(2 * PAGE as u64), 2, 0));
    assert_eq!((counters.taken, counters.given_back, counters.refused), (2, 0, 6));
}

#[test]
fn what_is_shared_or_can_be_found_is_not_written() {
    let mut pool = pool(PoolOptions::with_capacity(4), |_| ());
    let parent = pool.open();
    pool.append(parent, BLOCK_TOKENS + 1).unwrap();
    let child = pool.fork(parent).unwrap();
    for sequence in [parent, child] {
        let written = pool.write_row(sequence, BLOCK_TOKENS, ROW, &[1.0; 32]);
        assert!(matches!(written, Err(PoolError::Shared { index: 1, .. })), "{written:?}");
    }
    pool.append(child, 1).unwrap();
    pool.write_row(child, BLOCK_TOKENS, ROW, &[1.0; 32]).unwrap();
    pool.write_row(parent, BLOCK_TOKENS, ROW, &[2.0; 32]).unwrap();
    let mut read = [0.0; 32];
    pool.read_row(child, BLOCK_TOKENS, ROW, &mut read).unwrap();
    assert_eq!(read, [1.0; 32]);
    pool.close(child).unwrap();
    pool.publish(parent, &[7; BLOCK_TOKENS]).unwrap();
    assert!(matches!(pool.write_row(parent, 0, ROW, &[1.0; 32]), Err(PoolError::Shared { index: 0, .. })));
}

#[test]
fn a_window_keeps_memory_constant_and_its_sinks() {
    const STEPS: usize = if cfg!(miri) { 150 } else { 2000 };
    let mut pool = pool(PoolOptions::with_capacity(64), |_| ());
    let sequence = pool.open();
    let window = Window { tokens: 64, sinks: 4 };
    let mut most = 0;
    for _ in 0..STEPS {
        pool.append(sequence, 1).unwrap();
        pool.slide(sequence, window).unwrap();
        most = most.max(pool.usage().held.0);
    }
    // One block of sinks, four that the window spans and one that it has not left yet.
    assert_eq!(most, 6 * PAGE as u64);
    let table = pool.table(sequence).unwrap();
    assert!(matches!(table.entries()[..2], [Entry::Resident(_), Entry::Dropped]));
    let first = (STEPS - 64) / BLOCK_TOKENS;
    let held: Vec<usize> = table.resident().map(|(index, _)| index).collect();
    assert_eq!(held, std::iter::once(0).chain(first..STEPS.div_ceil(BLOCK_TOKENS)).collect::<Vec<_>>());
}

#[test]
fn preallocated_slots_lie_side_by_side_and_waste_what_is_not_used() {
    const SLOT: usize = 8 * BLOCK_TOKENS;
    let backing = Backing::File;
    let layout = Layout::new(GEOMETRY, Format::F16, backing.granule()).unwrap();
    let layout = layout.with_extent(SLOT / BLOCK_TOKENS, backing.granule());
    let mut pool = Pool::new(layout, PoolOptions::with_capacity(24), |bytes| Ok(Heap::of(bytes))).unwrap();
    let mut slots: Vec<_> = (0..3).map(|_| pool.open()).collect();
    slots.iter().for_each(|slot| pool.reserve(*slot, SLOT).unwrap());
    // A slot that was used and freed is in order again.
    pool.close(slots.remove(1)).unwrap();
    slots.push(pool.open());
    pool.reserve(slots[2], SLOT).unwrap();
    for slot in &slots {
        pool.append(*slot, 20).unwrap();
        let blocks = blocks(pool.table(*slot).unwrap());
        let first = blocks[0].0;
        assert_eq!(blocks, (first..first + 8).map(BlockId).collect::<Vec<_>>());
    }
    assert_eq!((pool.filled_tokens(), pool.usage().used * BLOCK_TOKENS), (60, 3 * SLOT));
    let another = pool.open();
    let error = pool.reserve(another, SLOT).unwrap_err();
    assert_eq!(
        error.to_string(),
        "8 blocks are needed and 0 are to be had; preempt a sequence, or make the pool larger"
    );
}

#[test]
fn admission_leaves_the_watermark_to_those_that_run() {
    let options = PoolOptions { watermark: 2, ..PoolOptions::with_capacity(10) };
    let mut pool = pool(options, |_| ());
    let running = pool.open();
    pool.append(running, 5 * BLOCK_TOKENS).unwrap();
    assert!(pool.can_admit(3) && !pool.can_admit(4) && !pool.can_admit(usize::MAX));
    pool.append(running, 5 * BLOCK_TOKENS).unwrap();
    assert!(!pool.can_admit(0));
}

#[test]
fn a_forgotten_reference_is_a_block_that_nobody_answers_for() {
    let mut pool = pool(PoolOptions::with_capacity(10), |_| ());
    let leaky = pool.open();
    pool.append(leaky, 3 * BLOCK_TOKENS).unwrap();
    pool.forget(leaky, 2).unwrap();
    let account = pool.audit().unwrap();
    assert_eq!((account.unexplained(), account.tables, account.free), (2, 0, 8));
    assert_eq!((pool.forgotten(), pool.usage().held), (2, Bytes(2 * PAGE as u64)));
    assert!(matches!(pool.close(leaky), Err(PoolError::UnknownSequence(_))), "it is closed all the same");
}

#[test]
fn a_sequence_number_is_never_given_twice() {
    let mut pool = pool(PoolOptions::with_capacity(1), |_| ());
    let first = pool.open();
    pool.close(first).unwrap();
    let second = pool.open();
    assert_ne!(first, second);
    assert!(matches!(pool.append(first, 1), Err(PoolError::UnknownSequence(id)) if id == first));
    pool.append(second, 1).unwrap();
}

#[test]
fn scaled_formats_keep_their_scales_in_the_block() {
    for format in [Format::F16, Format::Int8, Format::Fp8] {
        let layout = Layout::new(Geometry { layers: 2, kv_heads: 2, head_dim: 33 }, format, PAGE).unwrap();
        let mut pool = Pool::new(layout, PoolOptions::with_capacity(2), |bytes| Ok(Heap::of(bytes))).unwrap();
        let sequence = pool.open();
        pool.append(sequence, 20).unwrap();
        let rows = |f: &mut dyn FnMut(usize, Row, f32)| {
            for position in 0..20 {
                for (layer, head) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                    for (sign, side) in [(1.0, Side::Key), (-1.0, Side::Value)] {
                        let row = Row { layer, head, side, token: 0 };
                        f(position, row, sign * (1 + position * 4 + layer * 2 + head) as f32);
                    }
                }
            }
        };
        rows(&mut |position, row, value| pool.write_row(sequence, position, row, &[value; 33]).unwrap());
        rows(&mut |position, row, value| {
            let mut read = [0.0; 33];
            pool.read_row(sequence, position, row, &mut read).unwrap();
            let near = |read: &f32| (read - value).abs() <= value.abs() / 500.0;
            assert!(read.iter().all(near), "{} {position} {row:?}: {value} as {read:?}", format.name());
        });
    }
}
