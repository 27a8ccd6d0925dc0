//! SmolLM2-135M against a pass in f32 over the same weights (`tools/reference/smollm2.py`).
//!
//! The model is too large to come with the program, so that these tests are ignored unless they are asked for:
//!
//! ```sh
//! EBBTIDE_SMOLLM2=$(tools/get-smollm2.sh) cargo test --release -p ebbtide-engine --test model -- --ignored --nocapture
//! ```
//!
//! `tools/get-smollm2.sh` fetches the model and prints its path.

use std::path::Path;

use ebbtide_engine::kv::Token;
use ebbtide_engine::model;
use serde::Deserialize;

use super::{Subject, mean};

/// Two logits that lie as near may change places where weights and activations have eight bits.
const TIE: f32 = 0.05;
/// By how much the perplexity may differ, relative.
const PERPLEXITY: f64 = 0.01;

#[derive(Deserialize)]
struct Reference {
    greedy: Vec<Greedy>,
    judged: Judged,
}

/// The likeliest tokens behind a prompt, and by how much each was the best.
#[derive(Deserialize)]
struct Greedy {
    prompt: String,
    tokens: Vec<Token>,
    next: Vec<Token>,
    margins: Vec<f32>,
}

/// The first tokens of `engine/models/tiny/heldout.txt`.
#[derive(Deserialize)]
struct Judged {
    tokens: Vec<Token>,
    nats: f64,
}

fn subject() -> (Subject, Reference) {
    let path = std::env::var_os("EBBTIDE_SMOLLM2")
        .expect("EBBTIDE_SMOLLM2 names the model; tools/get-smollm2.sh fetches it and prints its path");
    let reference = serde_json::from_str(include_str!("../fixtures/smollm2.json")).unwrap();
    (Subject::new(model::open(Path::new(&path)).unwrap()), reference)
}

#[test]
#[ignore = "needs SmolLM2: EBBTIDE_SMOLLM2=$(tools/get-smollm2.sh), then -- --ignored"]
fn the_likeliest_tokens_are_those_of_the_reference() {
    let (mut subject, reference) = subject();
    for Greedy { prompt, tokens, next, margins } in reference.greedy {
        assert_eq!(subject.model.tokenizer.encode(&prompt), tokens, "{prompt:?}");
        // The reference's own tokens are given, so that a tie does not end the comparison.
        let found = subject.likeliest(&tokens, &next);
        let other: Vec<usize> = (0..next.len()).filter(|step| found[*step] != next[*step]).collect();
        let text = String::from_utf8_lossy(&subject.model.tokenizer.decode(&next)).into_owned();
        println!("{prompt:?} -> {text:?}: another token at steps {other:?} of {}", next.len());
        for step in other {
            assert!(margins[step] <= TIE, "step {step}, which the reference decides by {}", margins[step]);
        }
    }
}

#[test]
#[ignore = "needs SmolLM2: EBBTIDE_SMOLLM2=$(tools/get-smollm2.sh), then -- --ignored"]
fn the_perplexity_is_that_of_the_reference() {
    let (mut subject, Reference { judged, .. }) = subject();
    let text = include_str!("../../models/tiny/heldout.txt");
    assert!(subject.model.tokenizer.encode(text).starts_with(&judged.tokens));
    let found = mean(&subject.nats(&judged.tokens));
    let ratio = (found - judged.nats).exp();
    println!(
        "{} tokens: perplexity {:.3}, the reference has {:.3}, ratio {ratio:.4}",
        judged.tokens.len() - 1,
        found.exp(),
        judged.nats.exp()
    );
    assert!((ratio - 1.0).abs() <= PERPLEXITY, "{ratio}");
}
