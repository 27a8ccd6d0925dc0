//! The pool against a model of it that is as simple as can be, step by step: what each sequence reads, who holds
//! how many blocks, what can be found by its content, and what the kernel says is held.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod cases;
mod heap;
mod model;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use ebbtide_core::Bytes;
use ebbtide_engine::kv::{
    self, Addressable, BlockId, Entry, Event, Format, Geometry, HostFile, Layout, Observer, Pool, PoolError,
    PoolOptions, Row, SequenceId, Side, Swapped, Token, Window,
};
use heap::Heap;
use model::{Away, Model, Place};
use proptest::prelude::*;
use proptest::sample::Index;

/// One thing that is done to both.
#[derive(Debug, Clone)]
enum Step {
    Open(Vec<(Token, usize)>),
    Append(Index, Token, usize),
    Reserve(Index, usize),
    Publish(Index),
    Fork(Index),
    Slide(Index, usize, usize),
    Close(Index, usize),
    SwapOut(Index),
    SwapIn(Index),
    Offload(Index, usize),
    Restore(Index),
    Trim,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => proptest::collection::vec((0..2u32, 1..40usize), 0..4).prop_map(Step::Open),
        8 => (any::<Index>(), 0..3u32, 0..50usize).prop_map(|(at, token, n)| Step::Append(at, token, n)),
        1 => (any::<Index>(), 0..80usize).prop_map(|(at, n)| Step::Reserve(at, n)),
        5 => any::<Index>().prop_map(Step::Publish),
        2 => any::<Index>().prop_map(Step::Fork),
        1 => (any::<Index>(), 0..64usize, 0..20usize).prop_map(|(at, n, sinks)| Step::Slide(at, n, sinks)),
        4 => (any::<Index>(), prop_oneof![9 => Just(0), 1 => 1..3usize]).prop_map(|(at, n)| Step::Close(at, n)),
        1 => any::<Index>().prop_map(Step::SwapOut),
        1 => any::<Index>().prop_map(Step::SwapIn),
        1 => (any::<Index>(), 0..3usize).prop_map(|(at, keep)| Step::Offload(at, keep)),
        2 => any::<Index>().prop_map(Step::Restore),
        1 => Just(Step::Trim),
    ];
    proptest::collection::vec(step, 1..STEPS)
}

/// A pool of small blocks, several or one to a page, and how it behaves.
fn pools() -> impl Strategy<Value = (Geometry, PoolOptions)> {
    let head_dim = prop::sample::select(vec![4, 12, 32]);
    (head_dim, 6..28u32, proptest::option::of(0..6u32), any::<bool>()).prop_map(
        |(head_dim, capacity, cached_max, high_water)| {
            let options = PoolOptions { capacity, watermark: 0, cached_max, high_water };
            (Geometry { layers: 1, kv_heads: 1, head_dim }, options)
        },
    )
}

const KEY: Row = Row { layer: 0, head: 0, side: Side::Key, token: 0 };
const VALUE: Row = Row { side: Side::Value, ..KEY };

/// What the last of `tokens` leaves in the cache: a number made of all of them, as attention's keys are.
fn content(tokens: &[Token]) -> f32 {
    tokens.iter().fold(1u32, |sum, token| (sum * 31 + token + 1) % 65_521) as f32
}

struct Pair<M> {
    pool: Pool<M>,
    model: Model,
    ids: BTreeMap<usize, SequenceId>,
    swapped: Vec<(Swapped, Away)>,
    opened: usize,
    live: Arc<Mutex<BTreeSet<BlockId>>>,
    head_dim: usize,
}

/// The blocks that events say hold something: none is allocated twice or freed twice.
struct Live(Arc<Mutex<BTreeSet<BlockId>>>);

impl Observer for Live {
    fn observe(&mut self, event: Event) {
        let mut live = self.0.lock().unwrap();
        match event {
            Event::Alloc { block, .. } => assert!(live.insert(block), "{block:?} was allocated twice"),
            Event::Free { block } => assert!(live.remove(&block), "{block:?} was freed twice"),
            Event::Share { block, .. } | Event::Cache { block } => assert!(live.contains(&block)),
            _ => {}
        }
    }
}

impl<M: Addressable> Pair<M> {
    fn new(pool: Pool<M>, options: PoolOptions) -> Self {
        let file = HostFile::create_in(&std::env::temp_dir(), 1000).unwrap();
        let live = Arc::new(Mutex::new(BTreeSet::new()));
        let head_dim = pool.layout().geometry().head_dim;
        Self {
            pool: pool.with_host_file(file).with_observer(Live(Arc::clone(&live))),
            model: Model::new(options.capacity as usize, options.cached_max),
            ids: BTreeMap::new(),
            swapped: Vec::new(),
            opened: 0,
            live,
            head_dim,
        }
    }

    fn pick(&self, at: &Index) -> Option<(usize, SequenceId)> {
        let all: Vec<_> = self.ids.iter().map(|(name, id)| (*name, *id)).collect();
        (!all.is_empty()).then(|| *at.get(&all))
    }

    fn enter(&mut self, id: SequenceId) -> usize {
        self.opened += 1;
        self.ids.insert(self.opened, id);
        self.opened
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Open(runs) => self.open(runs),
            Step::SwapIn(at) => self.swap_in(at),
            Step::Trim => {
                self.pool.trim();
                self.model.trim();
            }
            Step::Append(at, ..)
            | Step::Reserve(at, _)
            | Step::Publish(at)
            | Step::Fork(at)
            | Step::Slide(at, ..)
            | Step::Close(at, _)
            | Step::SwapOut(at)
            | Step::Offload(at, _)
            | Step::Restore(at) => {
                if let Some((name, id)) = self.pick(at) {
                    self.step_on(step, name, id);
                }
            }
        }
    }

    // tidy: table
    fn step_on(&mut self, step: &Step, name: usize, id: SequenceId) {
        match *step {
            Step::Append(_, token, n) => self.append(name, id, &vec![token; n]),
            Step::Reserve(_, tokens) => self.reserve(name, id, tokens),
            Step::Publish(_) => {
                self.pool.publish(id, &self.model.sequences[&name].tokens).unwrap();
                self.model.publish(name);
            }
            Step::Fork(_) => self.fork(name, id),
            Step::Slide(_, tokens, sinks) => {
                let window = Window { tokens, sinks };
                self.pool.slide(id, window).unwrap();
                self.model.slide(name, window);
            }
            Step::Close(_, forget) => {
                self.ids.remove(&name);
                self.pool.forget(id, forget).unwrap();
                self.model.close(name, forget);
            }
            Step::SwapOut(_) => self.swap_out(name, id),
            Step::Offload(_, keep) => {
                assert_eq!(self.pool.offload_cold(id, keep).unwrap(), self.model.offload(name, keep));
            }
            Step::Restore(_) => self.restore(name, id),
            Step::Open(_) | Step::SwapIn(_) | Step::Trim => {}
        }
    }

    fn open(&mut self, runs: &[(Token, usize)]) {
        let prompt: Vec<Token> = runs.iter().flat_map(|(token, n)| vec![*token; *n]).collect();
        assert_eq!(self.pool.known_prefix(&prompt), self.model.known(&prompt));
        let id = self.pool.open_with_prefix(&prompt);
        let name = self.enter(id);
        self.model.open(name, &prompt);
        let known = self.pool.table(id).unwrap().tokens();
        self.append(name, id, &prompt[known..]);
    }

    fn append(&mut self, name: usize, id: SequenceId, tokens: &[Token]) {
        let foreseen = self.pool.needed(id, tokens.len()).ok();
        let result = self.pool.append(id, tokens.len());
        let needed = self.model.needed(name, tokens.len());
        assert_eq!(foreseen, needed);
        let Some(needed) = needed else {
            assert!(matches!(result, Err(PoolError::NotResident { .. })), "{result:?}");
            return;
        };
        let available = self.model.available();
        if needed > available {
            assert!(
                matches!(result, Err(PoolError::Exhausted { needed: n, available: a }) if (n, a) == (needed, available)),
                "{result:?}"
            );
            return;
        }
        result.unwrap();
        let before = self.model.sequences[&name].tokens.len();
        self.model.append(name, tokens);
        let all = &self.model.sequences[&name].tokens;
        for position in before..all.len() {
            let value = content(&all[..=position]);
            self.pool.write_row(id, position, KEY, &vec![value; self.head_dim]).unwrap();
            self.pool.write_row(id, position, VALUE, &vec![-value; self.head_dim]).unwrap();
        }
    }

    fn reserve(&mut self, name: usize, id: SequenceId, tokens: usize) {
        let needed = self.model.reservation(name, tokens);
        let result = self.pool.reserve(id, tokens);
        if needed > self.model.available() {
            assert!(matches!(result, Err(PoolError::Exhausted { .. })), "{result:?}");
        } else {
            result.unwrap();
            self.model.reserve(name, tokens);
        }
    }

    fn fork(&mut self, name: usize, id: SequenceId) {
        let result = self.pool.fork(id);
        let sequence = &self.model.sequences[&name];
        if sequence.places[..sequence.tokens.len().div_ceil(16)].contains(&Place::Away) {
            assert!(matches!(result, Err(PoolError::NotResident { .. })));
            return;
        }
        let child = self.enter(result.unwrap());
        self.model.fork(name, child);
    }

    fn swap_out(&mut self, name: usize, id: SequenceId) {
        let result = self.pool.swap_out(id);
        if self.model.sequences[&name].places.contains(&Place::Away) {
            assert!(matches!(result, Err(PoolError::NotResident { .. })));
            return;
        }
        self.ids.remove(&name);
        self.swapped.push((result.unwrap(), self.model.swap_out(name)));
    }

    fn swap_in(&mut self, at: &Index) {
        if self.swapped.is_empty() {
            return;
        }
        let (swapped, away) = self.swapped.remove(at.index(self.swapped.len()));
        let result = self.pool.swap_in(&swapped);
        self.opened += 1;
        if self.model.swap_in(&away, self.opened) {
            self.ids.insert(self.opened, result.unwrap());
        } else {
            assert!(matches!(result, Err(PoolError::Exhausted { .. })), "{result:?}");
            self.swapped.push((swapped, away));
        }
    }

    fn restore(&mut self, name: usize, id: SequenceId) {
        let result = self.pool.restore(id);
        let places = &self.model.sequences[&name].places;
        let away = places.iter().filter(|place| **place == Place::Away).count();
        if away > self.model.available() {
            assert!(matches!(result, Err(PoolError::Exhausted { .. })), "{result:?}");
        } else {
            assert_eq!(result.unwrap(), away);
            self.model.restore(name);
        }
    }

    fn check(&self) {
        let usage = self.pool.usage();
        assert_eq!((usage.used, usage.cached), (self.model.used(), self.model.cached()));
        assert_eq!(usage.used + usage.cached + usage.free, usage.capacity);
        assert_eq!(self.live.lock().unwrap().len(), usage.used + usage.cached, "what events say");
        assert_eq!((usage.offloaded, usage.sequences), (self.model.away(), self.ids.len()));
        assert_eq!(self.pool.filled_tokens(), self.model.filled());
        let account = self.pool.audit().unwrap();
        assert!(account.unexplained() <= self.pool.forgotten());
        assert_eq!(self.pool.memory_held().unwrap(), usage.held, "the kernel's count and our own");
        self.ids.iter().for_each(|(name, id)| self.check_sequence(*name, *id));
    }

    fn check_sequence(&self, name: usize, id: SequenceId) {
        let sequence = &self.model.sequences[&name];
        let table = self.pool.table(id).unwrap();
        assert_eq!((table.tokens(), table.entries().len()), (sequence.tokens.len(), sequence.places.len()));
        for (position, end) in (1..=sequence.tokens.len()).enumerate() {
            let at = position / 16;
            let is_here = matches!(sequence.places[at], Place::Here(_));
            assert_eq!(is_here, matches!(table.entries()[at], Entry::Resident(_)));
            if is_here {
                let mut read = vec![0.0; self.head_dim];
                let value = content(&sequence.tokens[..end]);
                self.pool.read_row(id, position, KEY, &mut read).unwrap();
                assert_eq!(read, vec![value; self.head_dim], "position {position} of {name}");
                self.pool.read_row(id, position, VALUE, &mut read).unwrap();
                assert_eq!(read, vec![-value; self.head_dim]);
            }
        }
    }
}

/// Plays `steps` against both and takes everything down again.
fn play<M: Addressable>(pool: Pool<M>, options: PoolOptions, steps: &[Step]) {
    let mut pair = Pair::new(pool, options);
    for step in steps {
        pair.step(step);
        pair.check();
    }
    let open: Vec<_> = pair.ids.values().copied().collect();
    open.into_iter().for_each(|id| pair.pool.close(id).unwrap());
    pair.pool.trim();
    let usage = pair.pool.usage();
    assert_eq!((usage.used, usage.cached, usage.offloaded), (pair.pool.forgotten(), 0, 0));
    if usage.used == 0 {
        assert_eq!((usage.held, usage.idle), (Bytes::ZERO, 0), "all of it went back");
        assert_eq!(pair.pool.memory_held().unwrap(), Bytes::ZERO);
    }
}

/// Miri is four orders of magnitude slower, and looks at each step instead of at many.
const CASES: u32 = if cfg!(miri) { 2 } else { 400 };
const STEPS: usize = if cfg!(miri) { 16 } else { 80 };

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(CASES) })]

    #[test]
    fn the_pool_does_what_its_model_does((geometry, options) in pools(), steps in steps()) {
        let layout = Layout::new(geometry, Format::F32, 4096).unwrap();
        let pool = Pool::new(layout, options, |bytes| Ok(Heap::of(bytes))).unwrap();
        play(pool, options, &steps);
    }

    #[test]
    #[cfg(not(miri))]
    fn and_the_kernel_counts_what_it_counts((geometry, options) in pools(), steps in steps()) {
        let pool = Pool::on_host(geometry, Format::F32, kv::Backing::File, options).unwrap();
        play(pool, options, &steps);
    }
}

proptest! {
    // A huge page holds 4096 of the smallest blocks, so these are large and few.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(20) })]

    #[test]
    #[cfg(not(miri))]
    fn in_huge_pages_too((_, options) in pools(), steps in steps()) {
        let geometry = Geometry { layers: 40, kv_heads: 8, head_dim: 16 };
        let pool = Pool::on_host(geometry, Format::F32, kv::Backing::Anonymous, options).unwrap();
        play(pool, options, &steps);
    }
}
