//! Answers as a whole: they agree with themselves, and with what is known of public machines.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use ebbtide_core::Bytes;
use ebbtide_core::units::GIB;
use ebbtide_plan::{
    Answer, Deployment, Engine, KvType, Load, Model, Question, Verdict, Weights, card, catalogue,
};
use proptest::prelude::*;
use proptest::sample::select;

fn ask(model: &Model, deployment: Deployment, load: Load, card: &str) -> Answer {
    let card = Some(card::memory(card).unwrap());
    Question { model, weights: Weights::computed(model), deployment, load, card }.answer()
}

fn model(name: &str) -> Model {
    catalogue::find(name).unwrap().model().unwrap()
}

fn gib(bytes: Bytes) -> f64 {
    bytes.0 as f64 / GIB as f64
}

#[test]
fn an_8b_model_fits_an_80_gb_card_with_thirty_two_requests_of_8k() {
    let answer = ask(
        &model("llama-3.1-8b"),
        Deployment::new(Engine::Vllm, KvType::F16),
        Load { context: 8192, requests: 32 },
        "h100",
    );
    assert_eq!((answer.fits, answer.verdict), (Some(true), Verdict::Fits));
    assert_eq!(answer.kv_bytes_per_token, Bytes(131_072));
    assert_eq!(answer.kv_bytes_load, Bytes(32 * GIB));
    assert!((50..60).contains(&answer.max_requests.unwrap()), "{:?}", answer.max_requests);
    assert!((13_000..15_000).contains(&answer.max_context.unwrap()), "{:?}", answer.max_context);
}

#[test]
fn a_7b_model_with_sixteen_requests_of_8k_does_not() {
    let answer = ask(
        &model("llama-2-7b"),
        Deployment::new(Engine::Vllm, KvType::F16),
        Load { context: 8192, requests: 16 },
        "h100",
    );
    assert_eq!((answer.fits, answer.verdict), (Some(false), Verdict::TooBig));
    let fp8 = answer.levers.iter().find(|lever| lever.name == "kv-fp8").unwrap();
    assert_eq!(fp8.kv_bytes, Bytes(32 * GIB));
    assert!(fp8.max_requests >= Some(16));
}

#[test]
fn nothing_is_parked_where_nothing_could_come_back() {
    let asked = |context| {
        let deployment = Deployment::new(Engine::Vllm, KvType::F16);
        ask(&model("llama-3.1-8b"), deployment, Load { context, requests: 64 }, "24g")
    };
    let offload = |answer: &Answer| answer.levers.iter().find(|lever| lever.name == "offload").cloned();
    // A request of 8K takes 1 GiB; what the pool does not hold waits in host memory.
    let some = asked(8192);
    let waiting = 64 - some.max_requests.unwrap();
    assert_eq!(offload(&some).unwrap().host_bytes, Some(Bytes(waiting * GIB)));
    let none = asked(65_536);
    assert_eq!((none.max_requests, offload(&none)), (Some(0), None));
}

#[test]
fn without_a_card_or_weights_nothing_is_claimed() {
    let model = model("jamba");
    let deployment = Deployment::new(Engine::Vllm, KvType::F16);
    let load = Load { context: 8192, requests: 4 };
    let question = Question { model: &model, weights: None, deployment, load, card: Some(Bytes(80 * GIB)) };
    let answer = question.answer();
    assert_eq!(
        (answer.fits, answer.verdict, answer.max_requests, answer.weights_bytes),
        (None, Verdict::Unknown, None, None)
    );
    assert!(answer.kv_bytes_load > Bytes::ZERO);
}

#[test]
fn every_engine_says_how_large_its_pool_is() {
    let model = model("llama-3.1-8b");
    let load = Load { context: 8192, requests: 8 };
    let pool = |engine| {
        gib(ask(&model, Deployment::new(engine, KvType::F16), load, "h100").gpu.unwrap().pool.likely)
    };
    // 0.92 x 79.2 - 15.0 - 1.9 - 0.25 - 0.9; older ones keep their graphs outside of 0.9.
    assert!((pool(Engine::Vllm) - 54.8).abs() < 0.5, "{}", pool(Engine::Vllm));
    assert!((pool(Engine::Vllm020) - 54.1).abs() < 0.5, "{}", pool(Engine::Vllm020));
    // Less 13 GiB that it reserves on a card of 80 GB.
    assert!((pool(Engine::Sglang) - 50.8).abs() < 0.7, "{}", pool(Engine::Sglang));
    // 0.8 of what is free beside the weights.
    assert!((pool(Engine::Lmdeploy) - 51.0).abs() < 0.5, "{}", pool(Engine::Lmdeploy));
    assert!(
        pool(Engine::TensorRtLlm) > pool(Engine::Lmdeploy) && pool(Engine::LlamaCpp) > pool(Engine::Vllm)
    );
}

proptest! {
    #[test]
    fn an_answer_agrees_with_itself(
        entry in select(catalogue::entries()), engine in select(Engine::ALL.to_vec()), tp in 1u64..9, dp in 1u64..3,
        context in 1u64..200_000, requests in 1u64..500, gib in 8u64..300,
    ) {
        let model = entry.model().unwrap();
        let deployment = Deployment { tp, dp, ..Deployment::new(engine, KvType::F16) };
        let load = Load { context, requests };
        let card = Some(Bytes(gib * GIB));
        let question = Question { model: &model, weights: Weights::computed(&model), deployment, load, card };
        let answer = question.answer();
        let Some(gpu) = answer.gpu else { return Ok(()) };
        prop_assert!(gpu.pool.low <= gpu.pool.likely && gpu.pool.likely <= gpu.pool.high);
        prop_assert!(gpu.pool.high < gpu.total_bytes);
        let most = answer.max_requests.unwrap();
        prop_assert_eq!(answer.fits == Some(true), requests <= most || gpu.kv_bytes <= gpu.pool.low);
        let at = |requests| question.cache().load(Load { context, requests });
        prop_assert!(at(most) <= gpu.pool.low && at(most + dp) > gpu.pool.low);
        let longest = answer.max_context.unwrap();
        prop_assert!(longest <= model.max_context.unwrap().max(context));
        let at_longest = question.cache().load(Load { context: longest, requests });
        prop_assert!(at_longest <= gpu.pool.low || longest == 0);
        for lever in &answer.levers {
            prop_assert_eq!(lever.saved_bytes, answer.kv_bytes_load.signed_sub(lever.kv_bytes), "{}", lever.name);
        }
    }
}
