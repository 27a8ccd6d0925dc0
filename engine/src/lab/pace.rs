//! How fast one request is answered.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::{LabError, Scope, Strategy, Subject, pool_for};
use crate::forward::{Item, Logits};
use crate::kv::{Pool, SequenceId, Token};

/// Tokens a second of one request, alone.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Pace {
    /// Tokens of its prompt, which is as long as a judged text.
    pub prefill_tokens_per_s: f64,
    /// Tokens of the answer behind it.
    pub decode_tokens_per_s: f64,
}

/// Several rounds go on for so long: those of a small model take milliseconds, and what disturbs is often longer.
const LEAST: Duration = Duration::from_millis(400);

/// Tokens of the answer.
const ANSWER: usize = 32;

/// The best of a few rounds: what disturbs only ever slows down.
pub(super) fn measure(
    scope: &Scope,
    strategy: &Strategy,
    subject: &mut Subject<'_>,
) -> Result<Pace, LabError> {
    let mut pool = pool_for(strategy, subject, scope.text_tokens + ANSWER)?;
    let mut best = Pace { prefill_tokens_per_s: 0.0, decode_tokens_per_s: 0.0 };
    let first = Instant::now();
    let mut rounds = 0;
    while rounds < scope.rounds.max(1) || (scope.rounds > 1 && first.elapsed() < LEAST) {
        rounds += 1;
        let mut request = Request { strategy, sequence: pool.open(), done: 0 };
        let prompt = &subject.text[..scope.text_tokens];
        let begun = Instant::now();
        for portion in prompt.chunks(strategy.options(scope.text_tokens).step_tokens) {
            request.step(subject, &mut pool, portion)?;
        }
        let read = Instant::now();
        for token in &prompt[..ANSWER] {
            request.step(subject, &mut pool, &[*token])?;
        }
        let rate = |tokens: usize, time: Duration| tokens as f64 / time.as_secs_f64();
        let prefill_tokens_per_s = best.prefill_tokens_per_s.max(rate(prompt.len(), read - begun));
        let decode_tokens_per_s = best.decode_tokens_per_s.max(rate(ANSWER, read.elapsed()));
        best = Pace { prefill_tokens_per_s, decode_tokens_per_s };
        pool.close(request.sequence)?;
    }
    Ok(best)
}

struct Request<'a> {
    strategy: &'a Strategy,
    sequence: SequenceId,
    done: usize,
}

impl Request<'_> {
    fn step(&mut self, subject: &mut Subject<'_>, pool: &mut Pool, tokens: &[Token]) -> Result<(), LabError> {
        pool.append(self.sequence, tokens.len())?;
        let item = Item { sequence: self.sequence, tokens, start: self.done, logits: Logits::Last };
        subject.forward.step(pool, &[item])?;
        self.done += tokens.len();
        if let Some(window) = self.strategy.window {
            pool.slide(self.sequence, window)?;
        }
        Ok(())
    }
}
