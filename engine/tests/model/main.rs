//! What models say, against references that were computed elsewhere: `cargo test -p ebbtide-engine --test model`.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on fails, and tells what it found"
)]

mod smollm2;
mod tiny;

use ebbtide_engine::forward::{Forward, Item, Logits, Options, Transformer};
use ebbtide_engine::kv::{Backing, Format, Pool, PoolOptions, SequenceId, Token};
use ebbtide_engine::model::Loaded;

/// A model and a pool with room for some thousand tokens.
struct Subject {
    model: Loaded,
    forward: Transformer,
    pool: Pool,
}

impl Subject {
    fn new(model: Loaded) -> Self {
        let forward = Transformer::load(&*model.weights, Options::from_environment().unwrap()).unwrap();
        let options = PoolOptions::with_capacity(128);
        let pool = Pool::on_host(forward.geometry().kv(), Format::F16, Backing::File, options).unwrap();
        Self { model, forward, pool }
    }

    /// Takes `tokens` of a sequence through the model, `each` logits that are `wanted`.
    fn step(
        &mut self,
        sequence: SequenceId,
        (start, tokens): (usize, &[Token]),
        wanted: Logits,
        mut each: impl FnMut(&[f32]),
    ) {
        self.pool.append(sequence, tokens.len()).unwrap();
        let items = [Item { sequence, tokens, start, logits: wanted }];
        self.forward.step(&mut self.pool, &items).unwrap().iter().for_each(&mut each);
    }

    /// The negative log likelihoods, in nats, of all of `tokens` but the first.
    fn nats(&mut self, tokens: &[Token]) -> Vec<f64> {
        let sequence = self.pool.open();
        let mut nats = Vec::with_capacity(tokens.len());
        for start in (0..tokens.len() - 1).step_by(PORTION) {
            let end = (start + PORTION).min(tokens.len() - 1);
            let mut next = tokens[start + 1..].iter();
            self.step(sequence, (start, &tokens[start..end]), Logits::All, |row| {
                nats.push(negative_log_likelihood(row, *next.next().unwrap() as usize));
            });
        }
        self.pool.close(sequence).unwrap();
        nats
    }

    /// The token that is the likeliest before each of `next`, which stand behind `prompt` and are given one by one.
    fn likeliest(&mut self, prompt: &[Token], next: &[Token]) -> Vec<Token> {
        let sequence = self.pool.open();
        let mut found = Vec::with_capacity(next.len());
        self.step(sequence, (0, prompt), Logits::Last, |row| found.push(likeliest(row)));
        for (index, token) in next[..next.len() - 1].iter().enumerate() {
            let start = prompt.len() + index;
            self.step(sequence, (start, &[*token]), Logits::Last, |row| found.push(likeliest(row)));
        }
        self.pool.close(sequence).unwrap();
        found
    }
}

/// Tokens that go through the model together where a text is judged.
const PORTION: usize = 128;

fn negative_log_likelihood(row: &[f32], token: usize) -> f64 {
    let most = f64::from(row.iter().copied().fold(f32::MIN, f32::max));
    let sum: f64 = row.iter().map(|logit| (f64::from(*logit) - most).exp()).sum();
    sum.ln() + most - f64::from(row[token])
}

fn likeliest(row: &[f32]) -> Token {
    let best = row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    best.unwrap().0 as Token
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}
