//! Requests that come and go: how many run, and how much KV cache they hold.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::dice::Dice;
use super::elementary::{exp, sin_turns};

/// Lengths of prompts and replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Talk {
    /// As in the Azure LLM inference trace of 2023, "conv": short replies.
    Chat,
    /// Long documents and long replies: a few requests that last minutes.
    Long,
}

/// Parameters of a log-normal, and the limits that hold it.
type Lengths = ((f64, f64), (f64, f64));

impl Talk {
    const fn prompt(self) -> Lengths {
        match self {
            Self::Chat => ((6.63, 0.985), (2.0, 14_050.0)),
            Self::Long => ((6.9, 0.9), (50.0, 16_000.0)),
        }
    }

    const fn reply(self) -> Lengths {
        match self {
            Self::Chat => ((5.02, 0.859), (7.0, 1000.0)),
            Self::Long => ((8.3, 0.8), (200.0, 32_000.0)),
        }
    }

    /// Tokens a second.
    const fn pace(self) -> f64 {
        match self {
            Self::Chat => 40.0,
            Self::Long => 35.0,
        }
    }

    /// Arrivals a second that keep so many requests running on average.
    pub(super) fn arrivals(self, running: f64) -> f64 {
        let (mean, sd) = self.reply().0;
        running / (exp(mean + sd * sd / 2.0) / self.pace())
    }
}

/// How the load changes over the day: between a fifth and nine fifths of its mean.
#[derive(Debug, Clone, Copy)]
pub(super) struct Day {
    /// Where in the day the history begins, in turns; `None` for a load that never changes.
    pub(super) phase: Option<f64>,
}

impl Day {
    /// A load that never changes.
    pub(super) const EVEN: Self = Self { phase: None };

    pub(super) fn draw(dice: &mut Dice) -> Self {
        Self { phase: Some(dice.unit()) }
    }

    /// The load at a second as a share of its mean.
    pub(super) fn at(self, second: f64) -> f64 {
        self.phase.map_or(1.0, |phase| 1.0 + 0.8 * sin_turns(second / 86_400.0 + phase))
    }

    /// The mean of the load over the first seconds.
    pub(super) fn mean(self, seconds: f64) -> f64 {
        const PARTS: u32 = 1000;
        (0..PARTS).map(|i| self.at(seconds * f64::from(i) / f64::from(PARTS))).sum::<f64>() / f64::from(PARTS)
    }
}

/// A request that runs, ordered by its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Running {
    end: u64,
    /// Tokens it holds at its end, in thousandths, so that they can be ordered.
    tokens: u64,
    /// Tokens a second, likewise.
    pace: u64,
}

const MILLI: f64 = 1000.0;

/// A server whose requests come as they like and never wait (M/G/infinity).
#[derive(Debug)]
pub(super) struct Requests {
    talk: Talk,
    arrivals: f64,
    day: Day,
    running: BinaryHeap<Reverse<Running>>,
    /// Tokens held now and tokens a second, in thousandths: whole numbers, so that a week adds no rounding.
    tokens: u64,
    pace: u64,
}

/// One second of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Served {
    pub(super) tokens: f64,
    pub(super) running: f64,
    pub(super) arrivals: u32,
}

impl Requests {
    pub(super) fn new(talk: Talk, running: f64, day: Day) -> Self {
        let arrivals = talk.arrivals(running);
        Self { talk, arrivals, day, running: BinaryHeap::new(), tokens: 0, pace: 0 }
    }

    /// The next second; seconds must follow each other.
    pub(super) fn step(&mut self, second: u64, dice: &mut Dice) -> Served {
        self.tokens += self.pace;
        while let Some(Reverse(done)) = self.running.peek().copied().filter(|next| next.0.end <= second) {
            self.running.pop();
            self.tokens -= done.tokens;
            self.pace -= done.pace;
        }
        let arrivals = dice.poisson(self.arrivals * self.day.at(second as f64));
        for _ in 0..arrivals {
            self.admit(second, dice);
        }
        let (tokens, running) = (self.tokens as f64 / MILLI, self.running.len() as f64);
        Served { tokens, running, arrivals }
    }

    fn admit(&mut self, second: u64, dice: &mut Dice) {
        let (prompt, reply) = (self.talk.prompt(), self.talk.reply());
        let prompt = (dice.log_normal(prompt.0, prompt.1) * MILLI) as u64;
        let reply = dice.log_normal(reply.0, reply.1);
        let lasting = (reply / self.talk.pace()).round().max(1.0);
        let pace = (reply / lasting * MILLI) as u64;
        let tokens = prompt + pace * lasting as u64;
        self.running.push(Reverse(Running { end: second + lasting as u64, tokens, pace }));
        self.tokens += prompt;
        self.pace += pace;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_tokens_return_when_the_last_request_ends() {
        let mut dice = Dice::new(1);
        let mut requests = Requests::new(Talk::Chat, 20.0, Day::EVEN);
        let busy: f64 =
            (0..20_000).map(|second| requests.step(second, &mut dice).running).sum::<f64>() / 20_000.0;
        assert!((busy / 20.0 - 1.0).abs() < 0.1, "{busy}");
        requests.arrivals = 0.0;
        let last = (20_000..21_000).map(|second| requests.step(second, &mut dice)).last().unwrap();
        assert_eq!((last.tokens, last.running), (0.0, 0.0));
    }
}
