//! What is said in a load whose source tells lengths alone.

use super::Arrival;
use crate::kv::{BLOCK_TOKENS, Token};
use crate::scheduler::{ClientId, Request, Sampling};

/// Prompts drawn at random: each begins with one of a few openings, as conversations begin with an assistant's
/// instructions, and goes on with tokens of its own.
#[derive(Debug, Clone)]
pub struct Texts {
    vocab: u32,
    openings: Vec<Vec<Token>>,
    random: fastrand::Rng,
}

/// Openings there are: assistants behind one engine.
const OPENINGS: usize = 4;

impl Texts {
    /// Texts of a model with `vocab` tokens and a context of `context`, whose openings take an eighth of it, by whole
    /// blocks. All follows from `seed`.
    #[must_use]
    pub fn new(vocab: usize, context: usize, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let vocab = u32::try_from(vocab).unwrap_or(u32::MAX).max(1);
        let len = context / 8 / BLOCK_TOKENS * BLOCK_TOKENS;
        let openings = (0..OPENINGS).map(|_| (0..len).map(|_| random.u32(..vocab)).collect()).collect();
        Self { vocab, openings, random }
    }

    /// A request of the lengths of `arrival`. Its answer has no end but its length, so that it is as long as was asked.
    pub fn request(&mut self, arrival: Arrival) -> Request {
        let opening = &self.openings[self.random.usize(..self.openings.len())];
        let mut prompt: Vec<Token> = opening.iter().copied().take(arrival.prompt).collect();
        while prompt.len() < arrival.prompt {
            prompt.push(self.random.u32(..self.vocab));
        }
        let client = ClientId(arrival.client);
        Request { client, prompt, most: arrival.answer, sampling: Sampling::Greedy, stop: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn prompts_have_their_length_and_share_a_few_openings() {
        let mut texts = Texts::new(256, 512, 1);
        let arrival = Arrival { at: Duration::ZERO, prompt: 100, answer: 3, client: 2 };
        let drawn: Vec<Request> = (0..50).map(|_| texts.request(arrival)).collect();
        assert!(drawn.iter().all(|request| request.prompt.len() == 100 && request.most == 3));
        let openings: std::collections::BTreeSet<_> =
            drawn.iter().map(|request| &request.prompt[..64]).collect();
        assert_eq!(openings.len(), OPENINGS);
        let whole: std::collections::BTreeSet<_> = drawn.iter().map(|request| &request.prompt).collect();
        assert_eq!(whole.len(), 50);
        let again = Texts::new(256, 512, 1).request(Arrival { prompt: 10, ..arrival });
        assert_eq!(again.prompt, drawn[0].prompt[..10]);
    }
}
