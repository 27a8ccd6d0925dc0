//! The model that comes with the program, against the program that trained it (`tools/train-tiny/train.py`).

use std::path::Path;
use std::process::Command;

use ebbtide_engine::forward::Logits;
use ebbtide_engine::kv::Token;
use ebbtide_engine::model::bundled;
use serde::Deserialize;

use super::{Subject, likeliest, mean};

/// Most nats a byte that the model may need for text it was not trained on.
const LIMIT: f64 = 1.15;
/// By how much eight bits a weight and an activation may change them.
const ROUNDING: f64 = 0.01;

/// What the training program computed with the weights that it wrote.
#[derive(Deserialize)]
struct Reference {
    prompt: String,
    /// Positions in the prompt, and the logits at each.
    positions: Vec<usize>,
    logits: Vec<Vec<f32>>,
    /// Of each window of held-out text.
    heldout_nats_per_byte: Vec<f64>,
    sha256: String,
}

fn reference() -> Reference {
    serde_json::from_str(include_str!("../fixtures/tiny.json")).unwrap()
}

/// Of so many windows one is judged: all where the kernels are optimised, else what takes seconds.
const STRIDE: usize = if cfg!(debug_assertions) { 8 } else { 1 };

#[test]
fn held_out_text_is_as_likely_as_the_training_program_found() {
    let mut subject = Subject::new(bundled().unwrap());
    let text: Vec<Token> = include_bytes!("../../models/tiny/heldout.txt").map(Token::from).to_vec();
    let context = subject.model.weights.geometry().context;
    // Windows share one byte, which is the last asked for in one and the first given in the next.
    let windows = (0..text.len() - context).step_by(context);
    let reference = reference().heldout_nats_per_byte;
    assert_eq!(windows.len(), reference.len());
    let expected: Vec<f64> = reference.iter().step_by(STRIDE).copied().collect();
    let found = windows.step_by(STRIDE).map(|at| mean(&subject.nats(&text[at..=at + context])));
    let off = mean(&found.collect::<Vec<_>>()) - mean(&expected);
    let whole = mean(&reference) + off;
    println!(
        "{whole:.4} nats a byte by {} of {} windows, {off:+.4} to the training program",
        expected.len(),
        reference.len()
    );
    assert!(off.abs() < ROUNDING, "{off}");
    assert!(whole <= LIMIT, "{whole}");
}

#[test]
fn logits_are_near_those_of_the_training_program() {
    let mut subject = Subject::new(bundled().unwrap());
    let Reference { prompt, positions, logits, .. } = reference();
    let tokens = subject.model.tokenizer.encode(&prompt);
    let mut found: Vec<Vec<f32>> = Vec::new();
    let sequence = subject.pool.open();
    subject.step(sequence, (0, &tokens), Logits::All, |row| found.push(row.to_vec()));
    for (position, expected) in positions.into_iter().zip(&logits) {
        let found = &found[position];
        assert_eq!(likeliest(found), likeliest(expected), "position {position}");
        let largest = expected.iter().fold(0f32, |most, logit| most.max(logit.abs()));
        let off = found.iter().zip(expected).fold(0f32, |most, (a, b)| most.max((a - b).abs()));
        println!("position {position}: {off:.3} off of {largest:.1}");
        assert!(off < 0.04 * largest, "position {position}: {off} of {largest}");
    }
}

#[test]
fn the_file_is_the_one_that_is_written_about() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/tiny");
    let output = Command::new("sha256sum").arg(folder.join("model.safetensors")).output().unwrap();
    let sum = String::from_utf8(output.stdout).unwrap();
    let sum = sum.split_whitespace().next().unwrap().trim_start_matches('\\');
    assert_eq!(sum, reference().sha256);
    assert!(include_str!("../../models/tiny/README.md").contains(sum));
}
