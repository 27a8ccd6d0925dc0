//! What a strategy does to what a model says.

use ebbtide_core::Bytes;
use serde::Serialize;

use super::{LabError, Scope, Strategy, Subject, pool_for};
use crate::forward::{Item, Logits, Rows};
use crate::kv::{BLOCK_TOKENS, Pool, SequenceId, Token};

/// How likely a model finds text, and how far that is from what it finds with all keys and values in 16-bit floats.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Judgement {
    /// Tokens that were foretold.
    pub tokens: usize,
    /// e to the mean negative log likelihood of a token, in nats.
    pub perplexity: f64,
    /// By how much that is more than with 16-bit floats, relative: e^d - 1, d the mean of the differences in nats.
    pub increase: f64,
    /// The standard error of d: the deviation of the differences, token by token, over the root of their number.
    pub standard_error: f64,
    /// Share of the tokens whose likeliest successor is the same.
    pub agreement: f64,
    /// Held in the middle of a text, and at its end; the most of all texts.
    pub held_bytes: [Bytes; 2],
}

/// What was found with 16-bit floats.
pub(super) struct Baseline(Foretelling);

/// All tokens of all texts but the first of each.
struct Foretelling {
    tokens: Vec<Foretold>,
    /// Held in the middle of a text, and at its end; the most of all texts.
    held: [Bytes; 2],
}

/// One token.
#[derive(Clone, Copy)]
struct Foretold {
    nats: f64,
    likeliest: usize,
}

/// Tokens that go through the model together. Each sees all that the pool still has and those before it.
const PORTION: usize = 128;

impl Baseline {
    pub(super) fn of(scope: &Scope, subject: &mut Subject<'_>) -> Result<Self, LabError> {
        Ok(Self(foretell(scope, &Strategy::plain(), subject)?))
    }

    /// The judgement on `strategy`.
    pub(super) fn judge(
        &self,
        scope: &Scope,
        strategy: &Strategy,
        subject: &mut Subject<'_>,
    ) -> Result<Judgement, LabError> {
        let plain = Strategy::plain();
        if (strategy.format, strategy.window) == (plain.format, plain.window) {
            return Ok(self.compare(&self.0));
        }
        Ok(self.compare(&foretell(scope, strategy, subject)?))
    }

    fn compare(&self, Foretelling { tokens, held }: &Foretelling) -> Judgement {
        let pairs = || tokens.iter().zip(&self.0.tokens);
        let differences: Vec<f64> = pairs().map(|(own, other)| own.nats - other.nats).collect();
        let nats: Vec<f64> = tokens.iter().map(|token| token.nats).collect();
        let equal = pairs().filter(|(own, other)| own.likeliest == other.likeliest).count();
        let (difference, standard_error) = mean_and_error(&differences);
        Judgement {
            tokens: tokens.len(),
            perplexity: mean_and_error(&nats).0.exp(),
            increase: difference.exp_m1(),
            standard_error,
            agreement: equal as f64 / tokens.len().max(1) as f64,
            held_bytes: *held,
        }
    }
}

fn foretell(scope: &Scope, strategy: &Strategy, subject: &mut Subject<'_>) -> Result<Foretelling, LabError> {
    let strategy = Strategy { placement: Strategy::plain().placement, ..*strategy };
    let mut pool = pool_for(&strategy, subject, scope.text_tokens + PORTION)?;
    let mut tokens = Vec::with_capacity(scope.texts * scope.text_tokens);
    let mut held = [Bytes::ZERO; 2];
    for text in 0..scope.texts {
        let text = &subject.text[text * scope.text_tokens..][..=scope.text_tokens];
        let sequence = pool.open();
        // A block at a time behind a window, so that it moves on as it does where tokens come one by one.
        let portion = if strategy.window.is_some() { BLOCK_TOKENS } else { PORTION };
        for start in (0..scope.text_tokens).step_by(portion) {
            let end = (start + portion).min(scope.text_tokens);
            let next = &text[start + 1..=end];
            let rows = step(subject, &mut pool, (sequence, start), &text[start..end])?;
            tokens.extend(rows.iter().zip(next).map(|(row, next)| Foretold::of(row, *next)));
            if let Some(window) = strategy.window {
                pool.slide(sequence, window)?;
            }
            if let Some(at) = [scope.text_tokens / 2, scope.text_tokens].iter().position(|at| *at == end) {
                held[at] = held[at].max(pool.memory_held()?);
            }
        }
        pool.close(sequence)?;
    }
    Ok(Foretelling { tokens, held })
}

fn step<'a>(
    subject: &'a mut Subject<'_>,
    pool: &mut Pool,
    (sequence, start): (SequenceId, usize),
    tokens: &[Token],
) -> Result<Rows<'a>, LabError> {
    pool.append(sequence, tokens.len())?;
    let item = Item { sequence, tokens, start, logits: Logits::All };
    Ok(subject.forward.step(pool, &[item])?)
}

impl Foretold {
    /// From the logits `row`, of which `next` is the token that came.
    fn of(row: &[f32], next: Token) -> Self {
        let (mut likeliest, mut most) = (0, f32::NEG_INFINITY);
        for (token, logit) in row.iter().enumerate() {
            if *logit > most {
                (likeliest, most) = (token, *logit);
            }
        }
        // f32 holds each term, and f64 their sum.
        let sum: f64 = row.iter().map(|logit| f64::from((logit - most).exp())).sum();
        let own = row.get(next as usize).copied().unwrap_or(f32::NEG_INFINITY);
        Self { nats: sum.ln() + f64::from(most) - f64::from(own), likeliest }
    }
}

/// The mean of `values` and its standard error, as of independent ones.
fn mean_and_error(values: &[f64]) -> (f64, f64) {
    let count = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    (mean, (squares / (count - 1.0).max(1.0) / count).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_as_unlikely_as_the_softmax_says() {
        let row = [1.0, 3.0, -2.0];
        let sum: f64 = row.iter().map(|logit| f64::from(*logit).exp()).sum();
        for (token, logit) in (0..).zip(row) {
            let foretold = Foretold::of(&row, token);
            assert_eq!(foretold.likeliest, 1);
            assert!((foretold.nats - (sum.ln() - f64::from(logit))).abs() < 1e-6, "{token}");
        }
    }

    #[test]
    fn the_error_of_a_mean_shrinks_with_the_root_of_how_many_there_are() {
        let (mean, error) = mean_and_error(&[1.0, 3.0]);
        assert_eq!((mean, error), (2.0, 1.0), "a deviation of the root of 2, over the root of 2");
        let many: Vec<f64> = (0..200).map(|at| f64::from(at % 2) * 2.0 + 1.0).collect();
        assert!((mean_and_error(&many).1 - 0.0709).abs() < 1e-4);
    }
}
