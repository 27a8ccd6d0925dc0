use super::*;
use crate::forward::{Options as Computing, Transformer};
use crate::model::{Geometry, RopeStyle, synthetic};

const GEOMETRY: Geometry = Geometry {
    hidden: 64,
    layers: 1,
    heads: 1,
    kv_heads: 1,
    head_dim: 64,
    ffn: 64,
    vocab: 64,
    context: 256,
    rope_base: 10_000.0,
    rope_style: RopeStyle::Interleaved,
    rms_eps: 1e-5,
    tied: true,
};
const SCOPE: Scope =
    Scope { requests: 5, context: 256, texts: 1, text_tokens: 192, rounds: 1, draws: 3, seed: 1 };

fn model() -> Transformer {
    Transformer::load(&synthetic(GEOMETRY, 1).unwrap(), Computing::from_environment().unwrap()).unwrap()
}

fn tried(scope: Scope) -> Result<Outcome, LabError> {
    let text: Vec<Token> = (0..400u32).map(|at| at * at % 61).collect();
    let mut forward = model();
    run(&mut Subject { name: "random", forward: &mut forward, text: &text }, scope, &mut |_| {})
}

fn row<'a>(outcome: &'a Outcome, name: &str) -> &'a Row {
    outcome.rows.iter().find(|row| row.name == name).unwrap_or_else(|| panic!("{name}"))
}

#[test]
fn every_request_is_served_and_every_byte_is_counted_alike() {
    let outcome = tried(SCOPE).unwrap();
    assert_eq!(outcome.rows.len(), Strategy::all(SCOPE.window()).len());
    for Row { name, service, memory_bytes, .. } in &outcome.rows {
        assert_eq!((service.served, service.unequal_steps), (SCOPE.requests as u64, 0), "{name}");
        assert!(service.peak_bytes <= *memory_bytes && service.mean_bytes <= service.peak_bytes, "{name}");
        assert!(service.course.iter().all(|point| point.filled_bytes <= point.held_bytes), "{name}");
        assert_eq!(
            service.course.iter().map(|point| point.held_bytes).max(),
            Some(service.peak_bytes),
            "{name}: the most that was held is never thinned out"
        );
        let again = service.recomputed_tokens;
        assert!(service.preempted > 0 || again == 0, "{name}: {again} tokens again for nothing");
    }
    let kernel = outcome.figures.last().unwrap();
    assert_eq!((kernel.reached, kernel.is_kept), (0.0, Some(true)), "{}", kernel.what);
}

#[test]
fn strategies_differ_as_they_must() {
    let outcome = tried(SCOPE).unwrap();
    let [slots, paged] = ["contiguous", "paged"].map(|name| row(&outcome, name));
    assert_eq!((slots.capacity.least, slots.capacity.most), (SLOTS, SLOTS));
    assert!(paged.capacity.requests > slots.capacity.requests && paged.service.waste < slots.service.waste);
    assert!(row(&outcome, "paged, int8").capacity.requests > paged.capacity.requests);
    assert!(row(&outcome, "paged, f32").capacity.requests < paged.capacity.requests);
    assert!(row(&outcome, "paged, shared prefixes").capacity.requests >= paged.capacity.requests);
    let fixed = row(&outcome, "paged, static batch");
    assert!(fixed.service.steps >= paged.service.steps, "nobody enters a batch that runs");
    assert!(row(&outcome, "contiguous, static batch").service.steps > slots.service.steps);
    let tight = row(&outcome, "paged, 1/4 memory");
    assert_eq!(tight.memory_bytes.0 * 4, outcome.memory_bytes.0);
}

#[test]
fn what_is_judged_is_held_against_16_bit_floats() {
    let outcome = tried(SCOPE).unwrap();
    let plain = row(&outcome, "paged").judgement;
    assert_eq!((plain.increase, plain.standard_error, plain.agreement), (0.0, 0.0, 1.0));
    assert_eq!(plain.tokens, SCOPE.text_tokens);
    let window = row(&outcome, "paged, window 16+48").judgement;
    assert!(window.held_bytes[1] < plain.held_bytes[1] && window.increase != 0.0);
    assert_eq!(window.held_bytes[0], window.held_bytes[1], "a window holds no more as a text goes on");
    for Row { name, judgement, .. } in &outcome.rows {
        let d = (judgement.perplexity / plain.perplexity).ln();
        assert!(
            (d - judgement.increase.ln_1p()).abs() < 1e-9,
            "{name}: mean of differences, difference of means"
        );
    }
}

#[test]
fn memory_follows_from_the_arguments_alone() {
    let memory = |outcome: &Outcome| {
        let rows = outcome.rows.iter();
        rows.map(|row| (row.capacity, row.service.course.clone(), row.judgement)).collect::<Vec<_>>()
    };
    assert_eq!(memory(&tried(SCOPE).unwrap()), memory(&tried(SCOPE).unwrap()));
}

#[test]
fn too_little_text_is_said_and_too_many_texts_are_cut() {
    assert_eq!(tried(Scope { texts: 9, ..SCOPE }).unwrap().scope.texts, 2);
    let error = tried(Scope { text_tokens: 500, ..SCOPE }).unwrap_err().to_string();
    assert!(error.contains("400 tokens and 501"), "{error}");
}
