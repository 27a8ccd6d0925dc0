//! The choice of the next token.

use crate::kv::Token;

/// How the next token is chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sampling {
    /// The likeliest; the first of equals.
    Greedy,
    /// At random, by the softmax of logits over `temperature`.
    Temperature {
        /// Above zero; 1 is the model's own distribution.
        temperature: f32,
        /// The same seed draws the same tokens from the same logits.
        seed: u64,
    },
}

/// A choice with its state.
#[derive(Debug)]
pub(super) enum Sampler {
    Greedy,
    Temperature { temperature: f32, random: fastrand::Rng },
}

impl Sampler {
    pub(super) fn new(sampling: Sampling) -> Self {
        match sampling {
            Sampling::Temperature { temperature, seed } if temperature > 0.0 => {
                Self::Temperature { temperature, random: fastrand::Rng::with_seed(seed) }
            }
            Sampling::Greedy | Sampling::Temperature { .. } => Self::Greedy,
        }
    }

    pub(super) fn next(&mut self, logits: &[f32]) -> Token {
        match self {
            Self::Greedy => largest(logits.iter().copied()),
            // The largest of logits with Gumbel noise is distributed as their softmax, without a sum over all
            // (Gumbel-max; Maddison et al., A* Sampling, 2014, section 2).
            Self::Temperature { temperature, random } => {
                largest(logits.iter().map(|logit| logit / *temperature - (-(1.0 - random.f32()).ln()).ln()))
            }
        }
    }
}

fn largest(values: impl Iterator<Item = f32>) -> Token {
    let mut best = (0, f32::NEG_INFINITY);
    for (token, value) in (0..).zip(values) {
        if value > best.1 {
            best = (token, value);
        }
    }
    best.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greedy_takes_the_first_of_the_likeliest() {
        assert_eq!(Sampler::new(Sampling::Greedy).next(&[0.5, 2.0, f32::NAN, 2.0]), 1);
    }

    #[test]
    fn temperature_draws_as_softmax_says_and_again_with_the_same_seed() {
        let sampling = Sampling::Temperature { temperature: 0.5, seed: 3 };
        let draw = || {
            let mut sampler = Sampler::new(sampling);
            (0..20_000).map(|_| sampler.next(&[0.0, 0.5, -1.0])).collect::<Vec<_>>()
        };
        let drawn = draw();
        assert_eq!(drawn, draw());
        let weights = [0.0f64, 1.0, -2.0].map(f64::exp);
        for (token, weight) in (0..).zip(weights) {
            let share = drawn.iter().filter(|drawn| **drawn == token).count() as f64 / 20_000.0;
            let expected = weight / weights.iter().sum::<f64>();
            assert!((share - expected).abs() < 0.02, "{token}: {share} instead of {expected}");
        }
    }
}
