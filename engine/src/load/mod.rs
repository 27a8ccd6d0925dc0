//! Load: who asks for how much, and when.
//!
//! A load is a schedule of lengths ([`Arrival`]); what is said is drawn by [`Texts`]. Time is what the caller says has
//! passed, so a load can be played faster, slower, or in a test without any time at all.

mod script;
mod text;
mod trace;

use std::time::Duration;

pub use script::ScriptError;
pub use text::Texts;
pub use trace::Trace;

/// Somebody asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// When, since the load began.
    pub at: Duration,
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Tokens of the answer.
    pub answer: usize,
    /// Whose request it is.
    pub client: u64,
}

/// Mean lengths of a load.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Lengths {
    /// Tokens of a prompt.
    pub prompt: f64,
    /// Tokens of an answer.
    pub answer: f64,
}

/// What decides when the next request comes.
#[derive(Debug, Clone)]
enum Pace {
    /// The rows of a schedule at their times, over and over with `period`.
    Scheduled { period: Duration, round: u32 },
    /// At random, `rate` a second on average, whatever came before.
    Poisson { rate: f64, due: Duration, random: fastrand::Rng },
    /// Whenever fewer than this many are on their way.
    Closed(usize),
}

/// Requests as time passes. Lengths are those of a schedule, cut to a model's context.
#[derive(Debug, Clone)]
pub struct Load {
    rows: Vec<Arrival>,
    asked: Lengths,
    next: usize,
    pace: Pace,
}

/// Requests that one call of [`Load::due`] gives at most: after a pause all that came meanwhile are due at once, and a
/// scheduler would only refuse what is beyond its queue.
pub const BURST_MAX: usize = 1024;

impl Load {
    /// `trace` as it was, `scale` times as fast, over and over.
    #[must_use]
    pub fn replay(trace: Trace, scale: f64, context: usize) -> Self {
        Self::scheduled(trace.arrivals(), scale, context)
    }

    /// `rate` requests a second at random (a Poisson process), with the lengths of `trace`.
    #[must_use]
    pub fn poisson(rate: f64, trace: Trace, context: usize, seed: u64) -> Self {
        let (mut random, rate) = (fastrand::Rng::with_seed(seed), rate.max(f64::MIN_POSITIVE));
        let due = gap(rate, &mut random);
        Self::new(trace.arrivals(), context, Pace::Poisson { rate, due, random })
    }

    /// As many requests on their way as `clients`: each asks anew when it has its answer.
    #[must_use]
    pub fn closed(clients: usize, trace: Trace, context: usize) -> Self {
        Self::new(trace.arrivals(), context, Pace::Closed(clients))
    }

    /// What the lines of `text` say: seconds, tokens of the prompt, tokens of the answer, and optionally a client,
    /// apart by blanks or commas; `#` begins a comment. Over and over.
    ///
    /// # Errors
    /// The first line that says something else.
    pub fn script(text: &str, scale: f64, context: usize) -> Result<Self, ScriptError> {
        Ok(Self::scheduled(script::read(text)?, scale, context))
    }

    fn scheduled(mut rows: Vec<Arrival>, scale: f64, context: usize) -> Self {
        let scale = scale.max(f64::MIN_POSITIVE);
        let stretched =
            |at: Duration| Duration::try_from_secs_f64(at.as_secs_f64() / scale).unwrap_or(Duration::MAX);
        rows.iter_mut().for_each(|row| row.at = stretched(row.at));
        // The next round begins a mean gap after the last row.
        let last = rows.last().map_or(Duration::ZERO, |row| row.at);
        let gaps = u32::try_from(rows.len().saturating_sub(1)).unwrap_or(u32::MAX).max(1);
        let period = last.saturating_add(last / gaps).max(MIN_PERIOD);
        Self::new(rows, context, Pace::Scheduled { period, round: 0 })
    }

    fn new(mut rows: Vec<Arrival>, context: usize, pace: Pace) -> Self {
        let asked = mean(&rows);
        rows.iter_mut().for_each(|row| cut(row, context));
        Self { rows, asked, next: 0, pace }
    }

    /// Mean lengths before they were cut to the context, and after.
    #[must_use]
    pub fn lengths(&self) -> (Lengths, Lengths) {
        (self.asked, mean(&self.rows))
    }

    /// Requests a second, on average; `None` for a closed loop, which asks as fast as it is answered.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        match &self.pace {
            Pace::Scheduled { period, .. } => Some(self.rows.len() as f64 / period.as_secs_f64()),
            Pace::Poisson { rate, .. } => Some(*rate),
            Pace::Closed(_) => None,
        }
    }

    /// Requests that are due when `elapsed` has passed and `outstanding` are on their way.
    pub fn due(&mut self, elapsed: Duration, outstanding: usize) -> Vec<Arrival> {
        let mut arrivals = Vec::new();
        while arrivals.len() < BURST_MAX
            && let Some(at) = self.next_at(outstanding + arrivals.len())
            && at <= elapsed
        {
            let row = self.rows[self.next];
            arrivals.push(Arrival { at, ..row });
            self.advance();
        }
        arrivals
    }

    /// When the next request comes; `None` where it waits for an answer.
    #[must_use]
    pub fn next_at(&self, outstanding: usize) -> Option<Duration> {
        match &self.pace {
            _ if self.rows.is_empty() => None,
            Pace::Scheduled { period, round } => {
                Some(period.saturating_mul(*round).saturating_add(self.rows[self.next].at))
            }
            Pace::Poisson { due, .. } => Some(*due),
            Pace::Closed(clients) => (outstanding < *clients).then_some(Duration::ZERO),
        }
    }

    fn advance(&mut self) {
        self.next = (self.next + 1) % self.rows.len();
        match &mut self.pace {
            Pace::Scheduled { round, .. } => *round = round.saturating_add(u32::from(self.next == 0)),
            Pace::Poisson { rate, due, random } => *due = due.saturating_add(gap(*rate, random)),
            Pace::Closed(_) => {}
        }
    }
}

/// A round is at least so long, so that a schedule of one moment is no endless burst.
const MIN_PERIOD: Duration = Duration::from_secs(1);

/// The time to the next event of a Poisson process is distributed exponentially.
fn gap(rate: f64, random: &mut fastrand::Rng) -> Duration {
    Duration::try_from_secs_f64(-(1.0 - random.f64()).ln() / rate).unwrap_or(Duration::MAX)
}

/// Leaves the answer half of `context` at most, and the prompt what remains.
fn cut(row: &mut Arrival, context: usize) {
    row.answer = row.answer.clamp(1, (context / 2).max(1));
    row.prompt = row.prompt.clamp(1, context.saturating_sub(row.answer).max(1));
}

fn mean(rows: &[Arrival]) -> Lengths {
    let of = |tokens: fn(&Arrival) -> usize| {
        rows.iter().map(tokens).sum::<usize>() as f64 / rows.len().max(1) as f64
    };
    Lengths { prompt: of(|row| row.prompt), answer: of(|row| row.answer) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_trace_is_replayed_at_its_own_pace_and_goes_on_from_its_beginning() {
        let mut load = Load::replay(Trace::Chat, 10.0, 1 << 20);
        let rate = load.rate().unwrap();
        assert!((rate - 55.3).abs() < 0.1, "{rate} a second, ten times 19,366 in 3,502 s");
        let (asked, cut) = load.lengths();
        assert_eq!(asked, cut);
        assert!((asked.prompt - 1154.7).abs() < 0.1 && (asked.answer - 211.1).abs() < 0.1, "{asked:?}");
        let mut count = 0;
        for second in 0..=400 {
            let due = load.due(second * SECOND, 0);
            assert!(due.iter().all(|arrival| arrival.at <= second * SECOND));
            count += due.len();
        }
        assert!(count > 19_366 && (count as f64 / 400.0 - rate).abs() < 0.1 * rate, "{count}");
    }

    #[test]
    fn lengths_are_cut_to_the_context() {
        let mut load = Load::closed(500, Trace::Chat, 256);
        let (asked, cut) = load.lengths();
        assert!(cut.prompt < asked.prompt && cut.answer < asked.answer);
        let due = load.due(Duration::ZERO, 0);
        assert_eq!(due.len(), 500);
        assert!(due.iter().all(|row| row.prompt >= 1 && row.answer >= 1 && row.prompt + row.answer <= 256));
        assert!(load.due(SECOND, 500).is_empty());
        assert_eq!(load.due(SECOND, 497).len(), 3);
    }

    #[test]
    fn poisson_arrivals_come_at_their_rate_with_gaps_of_their_own_length() {
        let mut load = Load::poisson(20.0, Trace::Code, 4096, 5);
        let mut times = Vec::new();
        for tenth in 0..5_000u32 {
            times.extend(load.due(tenth * SECOND / 10, 0).into_iter().map(|row| row.at.as_secs_f64()));
        }
        assert!((times.len() as f64 / 500.0 - 20.0).abs() < 1.0, "{}", times.len());
        let gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let spread = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        // An exponential distribution is as wide as its mean.
        assert!((spread.sqrt() / mean - 1.0).abs() < 0.05, "{}", spread.sqrt() / mean);
    }

    #[test]
    fn after_a_pause_what_is_due_comes_in_portions() {
        let mut load = Load::poisson(1e6, Trace::Chat, 4096, 1);
        assert_eq!(load.due(SECOND, 0).len(), BURST_MAX);
        assert_eq!(load.due(SECOND, 0).len(), BURST_MAX);
    }

    #[test]
    fn a_script_says_when_and_who() {
        let mut load = Load::script("# t p a who\n0 10 5\n0.5, 20, 6, 3\n", 1.0, 4096).unwrap();
        let rows = load.due(SECOND / 2, 0);
        let expected = Arrival { at: SECOND / 2, prompt: 20, answer: 6, client: 3 };
        assert_eq!((rows.len(), rows[1]), (2, expected));
        assert_eq!(load.due(SECOND, 0).len(), 1, "the next round");
    }
}
