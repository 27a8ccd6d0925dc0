//! The scheduler over the real pool. Its model says what it read back from the pool, so that a row that was lost,
//! shared wrongly or written to the wrong place shows as a wrong token.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use proptest::prelude::*;

use super::*;
use crate::forward::Rows;
use crate::kv::{BLOCK_TOKENS, Backing, Format, HostFile, PoolOptions, Row, Side};
use crate::model::{Geometry, RopeStyle};

const VOCAB: usize = 97;
const CONTEXT: usize = 160;

const GEOMETRY: Geometry = Geometry {
    hidden: 4,
    layers: 1,
    heads: 1,
    kv_heads: 1,
    head_dim: 4,
    ffn: 4,
    vocab: VOCAB,
    context: CONTEXT,
    rope_base: 10_000.0,
    rope_style: RopeStyle::Interleaved,
    rms_eps: 1e-5,
    tied: true,
};

/// A model whose next token is a hash of what attention can see, read from the pool's rows.
struct Reader {
    window: Option<Window>,
    logits: Vec<f32>,
    steps: Vec<usize>,
}

const ROW: Row = Row { layer: 0, head: 0, side: Side::Key, token: 0 };

impl Reader {
    fn new(window: Option<Window>) -> Self {
        Self { window, logits: Vec::new(), steps: Vec::new() }
    }

    fn one(&mut self, pool: &mut Pool, item: &Item<'_>) -> Result<(), PoolError> {
        for (position, token) in (item.start..).zip(item.tokens) {
            pool.write_row(item.sequence, position, ROW, &[*token as f32, position as f32, 1.0, 0.0])?;
            pool.write_row(item.sequence, position, Row { side: Side::Value, ..ROW }, &[*token as f32; 4])?;
        }
        if item.logits == Logits::Last {
            let end = item.start + item.tokens.len();
            let mut seen = Vec::new();
            for position in (0..end).filter(|position| is_seen(self.window, *position, end)) {
                let (mut key, mut value) = ([0.0; 4], [0.0; 4]);
                pool.read_row(item.sequence, position, ROW, &mut key)?;
                pool.read_row(item.sequence, position, Row { side: Side::Value, ..ROW }, &mut value)?;
                assert_eq!((key[0], key[1] as usize), (value[0], position), "a row that is another's");
                seen.push(key[0] as Token);
            }
            let mut row = vec![0.0; VOCAB];
            row[next(&seen) as usize] = 1.0;
            self.logits.extend(row);
        }
        Ok(())
    }
}

/// Whether attention of the last of `end` tokens sees the one at `position`.
fn is_seen(window: Option<Window>, position: usize, end: usize) -> bool {
    window.is_none_or(|window| position < window.sinks || position + window.tokens > end)
}

fn next(seen: &[Token]) -> Token {
    let hash = seen.iter().fold(17u64, |hash, token| {
        (hash ^ u64::from(*token)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23)
    });
    (hash % VOCAB as u64) as Token
}

/// The answer that the model gives when nobody else is there.
fn alone(request: &Request, window: Option<Window>) -> Vec<Token> {
    let mut tokens = request.prompt.clone();
    let end = (tokens.len() + request.most.max(1)).min(CONTEXT);
    while tokens.len() < end {
        let seen: Vec<Token> =
            (0..tokens.len()).filter(|at| is_seen(window, *at, tokens.len())).map(|at| tokens[at]).collect();
        tokens.push(next(&seen));
        if request.stop == tokens.last().copied() {
            break;
        }
    }
    tokens.split_off(request.prompt.len())
}

impl Forward for Reader {
    fn geometry(&self) -> &Geometry {
        &GEOMETRY
    }

    fn step(&mut self, pool: &mut Pool, items: &[Item<'_>]) -> Result<Rows<'_>, StepError> {
        self.logits.clear();
        self.steps.push(items.iter().map(|item| item.tokens.len()).sum());
        for item in items {
            self.one(pool, item)?;
        }
        Ok(Rows::new(&self.logits, VOCAB))
    }
}

fn pool(blocks: u32, slots: u32) -> Pool {
    let options = PoolOptions::with_capacity(blocks);
    let pool = Pool::on_host(GEOMETRY.kv(), Format::F32, Backing::File, options).unwrap();
    pool.with_host_file(HostFile::create_in(&std::env::temp_dir(), slots).unwrap())
}

fn request(client: u64, prompt: impl IntoIterator<Item = Token>, most: usize) -> Request {
    let prompt = prompt.into_iter().collect();
    Request { client: ClientId(client), prompt, most, sampling: Sampling::Greedy, stop: None }
}

/// What became of each request.
#[derive(Default)]
struct Outcome {
    answers: BTreeMap<RequestId, Vec<Token>>,
    finished: Vec<(RequestId, Finish)>,
    steps: usize,
}

/// Steps until nothing is left to do.
fn run(scheduler: &mut Scheduler, pool: &mut Pool, model: &mut Reader) -> Outcome {
    let mut outcome = Outcome::default();
    while !scheduler.is_idle() {
        let step = scheduler.step(pool, model).unwrap();
        for (id, token) in step.tokens {
            outcome.answers.entry(id).or_default().push(token);
        }
        outcome.finished.extend(step.finished);
        outcome.steps += 1;
        assert!(outcome.steps < 20_000, "no end is in sight");
    }
    outcome
}

fn any_options() -> impl Strategy<Value = (Options, u32, u32)> {
    let preemption =
        prop_oneof![Just(Preemption::Recompute), Just(Preemption::Swap), Just(Preemption::Offload)];
    let batching = prop_oneof![3 => Just(Batching::Dynamic), 1 => Just(Batching::Static)];
    let placement = prop_oneof![4 => Just(Placement::Paged), 1 => Just(Placement::Contiguous)];
    let window = proptest::option::weighted(0.3, (8usize..60, 0usize..20));
    (preemption, batching, placement, window, any::<bool>(), 1usize..40, 1usize..6, 10u32..40, 0u32..40)
        .prop_map(
            |(
                preemption,
                batching,
                placement,
                window,
                is_sharing,
                step_tokens,
                running_max,
                blocks,
                slots,
            )| {
                let window = window.map(|(tokens, sinks)| Window { tokens, sinks });
                let options = Options {
                    step_tokens,
                    running_max,
                    is_sharing,
                    window,
                    preemption,
                    batching,
                    placement,
                    ..Options::of_context(CONTEXT)
                };
                (options, blocks, slots)
            },
        )
}

fn any_request() -> impl Strategy<Value = Request> {
    // Prompts begin with one of three texts, so that blocks are shared.
    (0u64..4, 0u32..3, 0usize..60, 0usize..60, any::<u32>(), 1usize..70, proptest::option::of(0u32..97))
        .prop_map(|(client, text, shared, own, seed, most, stop)| {
            let shared = (0..shared as u32).map(move |at| (at * 7 + text) % VOCAB as u32);
            let own = (0..=own as u32).map(move |at| at.wrapping_mul(seed | 1) % VOCAB as u32);
            Request { stop, ..request(client, shared.chain(own), most) }
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(160))]

    #[test]
    fn every_request_gets_its_own_answer_whatever_happens_beside_it(
        (options, blocks, slots) in any_options(),
        requests in proptest::collection::vec(any_request(), 1..14),
    ) {
        let mut pool = pool(blocks, slots);
        let mut scheduler = Scheduler::new(options);
        let mut model = Reader::new(options.window);
        let mut expected = BTreeMap::new();
        for request in requests {
            let answer = alone(&request, options.window);
            expected.insert(scheduler.submit(request).unwrap(), answer);
        }
        let outcome = run(&mut scheduler, &mut pool, &mut model);
        // A pool of ten blocks holds any request of 160 tokens, so nobody goes without an answer.
        prop_assert_eq!(&outcome.answers, &expected);
        prop_assert!(outcome.finished.iter().all(|(_, finish)| *finish != Finish::NoRoom));
        prop_assert_eq!(outcome.finished.len(), expected.len());
        let budget = options.step_tokens.max(options.running_max);
        prop_assert!(model.steps.iter().all(|tokens| (1..=budget).contains(tokens)));
        let usage = pool.usage();
        prop_assert_eq!((usage.used, usage.offloaded, usage.sequences), (0, 0, 0));
        pool.audit().unwrap();
        pool.trim();
        prop_assert_eq!(pool.memory_held().unwrap(), ebbtide_core::Bytes::ZERO);
    }

    #[test]
    fn a_request_that_is_given_up_leaves_nothing_behind(
        (options, blocks, slots) in any_options(),
        requests in proptest::collection::vec(any_request(), 2..10),
        given_up in proptest::collection::vec((0usize..10, 0usize..40), 1..5),
    ) {
        let mut pool = pool(blocks, slots);
        let mut scheduler = Scheduler::new(options);
        let mut model = Reader::new(options.window);
        let ids: Vec<_> = requests.into_iter().map(|request| scheduler.submit(request).unwrap()).collect();
        let mut ended = 0;
        for at in 0..40 {
            for (index, _) in given_up.iter().filter(|(_, when)| *when == at) {
                ended += usize::from(scheduler.cancel(&mut pool, ids[index % ids.len()]).unwrap());
            }
            ended += scheduler.step(&mut pool, &mut model).unwrap().finished.len();
        }
        ended += run(&mut scheduler, &mut pool, &mut model).finished.len();
        prop_assert_eq!(ended, ids.len());
        let usage = pool.usage();
        prop_assert_eq!((usage.used, usage.offloaded, usage.sequences), (0, 0, 0));
    }
}

#[test]
fn a_client_with_many_requests_does_not_hold_up_one_with_few() {
    let options = Options { running_max: 1, ..Options::of_context(CONTEXT) };
    let (mut scheduler, mut pool, mut model) = (Scheduler::new(options), pool(40, 0), Reader::new(None));
    let flood: Vec<_> = (0..50).map(|at| scheduler.submit(request(1, [at], 3)).unwrap()).collect();
    let few: Vec<_> = (0..2).map(|at| scheduler.submit(request(2, [at], 3)).unwrap()).collect();
    let order: Vec<_> =
        run(&mut scheduler, &mut pool, &mut model).finished.into_iter().map(|f| f.0).collect();
    assert_eq!(order[..5], [flood[0], few[0], flood[1], few[1], flood[2]]);
}

#[test]
fn nobody_overtakes_a_large_request_however_many_small_ones_come() {
    // Room for one large and nothing beside it, and small ones without an end.
    let options = Options { running_max: 4, is_sharing: false, ..Options::of_context(CONTEXT) };
    let (mut scheduler, mut pool, mut model) = (Scheduler::new(options), pool(10, 0), Reader::new(None));
    for at in 0..4 {
        scheduler.submit(request(at, [1; 20], 20)).unwrap();
    }
    scheduler.step(&mut pool, &mut model).unwrap();
    let large = scheduler.submit(request(9, [2; 140], 10)).unwrap();
    let mut finished = Vec::new();
    for at in 0..200 {
        scheduler.submit(request(at % 4, [3; 20], 5)).unwrap();
        finished.extend(scheduler.step(&mut pool, &mut model).unwrap().finished);
        if finished.iter().any(|(id, _)| *id == large) {
            assert_eq!(finished.len(), 5, "the four that ran already, and then the large one");
            return;
        }
    }
    panic!("the large request was not served");
}

#[test]
fn a_long_prompt_is_taken_in_portions_beside_the_answers_of_others() {
    let options = Options { step_tokens: 20, running_max: 4, ..Options::of_context(CONTEXT) };
    let (mut scheduler, mut pool, mut model) = (Scheduler::new(options), pool(40, 0), Reader::new(None));
    let short = scheduler.submit(request(1, [5], 30)).unwrap();
    scheduler.step(&mut pool, &mut model).unwrap();
    scheduler.submit(request(2, (0..90).map(|at| at % 90), 2)).unwrap();
    for _ in 0..4 {
        let step = scheduler.step(&mut pool, &mut model).unwrap();
        assert_eq!((step.processed, step.tokens.len(), step.tokens[0].0), (20, 1, short));
    }
    // 4 x 19 of 90 are in; the rest fits into the next.
    assert_eq!(scheduler.step(&mut pool, &mut model).unwrap().tokens.len(), 2);
}

#[test]
fn who_gives_way_is_the_youngest_and_goes_on_by_what_was_asked_for() {
    for preemption in [Preemption::Recompute, Preemption::Swap, Preemption::Offload] {
        let options =
            Options { preemption, running_max: 3, is_sharing: false, ..Options::of_context(CONTEXT) };
        let (mut scheduler, mut pool, mut model) = (Scheduler::new(options), pool(12, 40), Reader::new(None));
        let ids: Vec<_> =
            (0..3).map(|at| scheduler.submit(request(at, [at as Token; 40], 60)).unwrap()).collect();
        let outcome = run(&mut scheduler, &mut pool, &mut model);
        assert!(scheduler.counters().preempted > 0, "{preemption:?}");
        assert_eq!(outcome.finished.first().unwrap().0, ids[0], "{preemption:?}: the oldest is first");
        let sent = pool.traffic().written.0 > 0;
        assert_eq!(sent, preemption == Preemption::Offload);
        let prompts = scheduler.counters().prompt_tokens;
        assert_eq!(prompts > 120, preemption == Preemption::Recompute, "{preemption:?}: {prompts} computed");
    }
}

#[test]
fn who_gave_way_in_the_middle_of_a_prompt_comes_back_when_all_of_it_has_room() {
    for preemption in [Preemption::Recompute, Preemption::Swap, Preemption::Offload] {
        let options = Options {
            preemption,
            step_tokens: 20,
            running_max: 2,
            is_sharing: false,
            ..Options::of_context(CONTEXT)
        };
        let (mut scheduler, mut pool, mut model) = (Scheduler::new(options), pool(12, 40), Reader::new(None));
        scheduler.submit(request(1, [1; 100], 40)).unwrap();
        scheduler.submit(request(2, [2; 90], 10)).unwrap();
        run(&mut scheduler, &mut pool, &mut model);
        assert_eq!(scheduler.counters().preempted, 1, "{preemption:?}");
    }
}

#[test]
fn what_even_alone_has_no_room_is_told_so_and_the_next_is_served() {
    let (mut scheduler, mut pool, mut model) =
        (Scheduler::new(Options::of_context(CONTEXT)), pool(4, 0), Reader::new(None));
    let prompt = scheduler.submit(request(1, [1; 100], 5)).unwrap();
    let answer = scheduler.submit(request(1, [1; 60], 90)).unwrap();
    let small = scheduler.submit(request(1, [1; 10], 5)).unwrap();
    let outcome = run(&mut scheduler, &mut pool, &mut model);
    assert_eq!(
        outcome.finished,
        [(prompt, Finish::NoRoom), (answer, Finish::NoRoom), (small, Finish::Length)]
    );
    assert_eq!(scheduler.counters().starved, 2);
}

#[test]
fn what_cannot_be_served_is_refused() {
    let mut scheduler = Scheduler::new(Options::of_context(CONTEXT));
    assert_eq!(scheduler.submit(request(1, [], 5)), Err(Refusal::Empty));
    let refusal = Refusal::TooLong { tokens: CONTEXT, context: CONTEXT };
    assert_eq!(scheduler.submit(request(1, [1; CONTEXT], 5)), Err(refusal));
    for _ in 0..WAITING_MAX {
        scheduler.submit(request(1, [1], 1)).unwrap();
    }
    assert_eq!(scheduler.submit(request(1, [1], 1)), Err(Refusal::Full));
}

#[test]
fn contiguous_slots_hold_the_whole_context_side_by_side_and_static_batches_keep_it_to_their_end() {
    let options = Options {
        placement: Placement::Contiguous,
        batching: Batching::Static,
        running_max: 4,
        ..Options::of_context(CONTEXT)
    };
    let (mut scheduler, mut pool, mut model) = (Scheduler::new(options), pool(30, 0), Reader::new(None));
    for most in [1, 5, 9] {
        scheduler.submit(request(1, [1; 4], most)).unwrap();
    }
    scheduler.step(&mut pool, &mut model).unwrap();
    assert_eq!((scheduler.running(), pool.usage().used), (2, 3 * CONTEXT / BLOCK_TOKENS));
    let mut steps = 1;
    while !scheduler.is_idle() {
        scheduler.step(&mut pool, &mut model).unwrap();
        steps += 1;
    }
    assert_eq!((steps, pool.usage().used), (9, 0));
}

#[test]
fn a_reference_lost_every_third_request_is_a_block_that_never_comes_back() {
    let options = Options { is_sharing: false, ..Options::of_context(CONTEXT) };
    let (mut scheduler, mut pool, mut model) = (Scheduler::new(options), pool(40, 0), Reader::new(None));
    scheduler.forget_every(NonZeroU64::new(3));
    for at in 0..10 {
        scheduler.submit(request(1, [at; 20], 5)).unwrap();
    }
    run(&mut scheduler, &mut pool, &mut model);
    assert_eq!((pool.forgotten(), pool.usage().used), (3, 3));
    assert_eq!(pool.audit().unwrap().unexplained(), 3);
}
