//! What memory is made of besides requests: noise, steps, curves, restarts, and the scraper's view of a counter.

use ebbtide_core::EventKind;

use super::course::Moment;
use super::dice::Dice;
use super::elementary::exp;

/// Correlated noise, and spikes of 1 to 5 seconds.
#[derive(Debug, Clone)]
pub(super) struct Noise {
    sd: f64,
    spike_chance: f64,
    level: f64,
    spike: (u64, f64),
}

impl Noise {
    pub(super) fn draw(dice: &mut Dice) -> Self {
        let (sd, spike_chance) = (dice.choice([0.0, 1.0, 4.0]), dice.choice([0.0, 0.002, 0.01]));
        Self { sd, spike_chance, level: 0.0, spike: (0, 0.0) }
    }

    /// The next second's, in MiB.
    pub(super) fn next(&mut self, dice: &mut Dice) -> f64 {
        if self.sd > 0.0 {
            // An autoregression with coefficient 0.6 whose spread is the wanted one.
            self.level = 0.6 * self.level + 0.8 * self.sd * dice.normal();
        }
        if self.spike.0 > 0 {
            self.spike.0 -= 1;
        } else if dice.chance(self.spike_chance) {
            self.spike = (dice.whole(1, 6), dice.within(2.0, 64.0));
        }
        self.level + if self.spike.0 > 0 { self.spike.1 } else { 0.0 }
    }
}

/// What a scraper sees of a counter: every so many seconds, a little late, and held in between.
#[derive(Debug, Clone)]
pub(super) struct Scrape {
    interval: u64,
    lag: u64,
    /// The newest values, by second modulo 8: interval and lag together reach back 6 s at most.
    recent: [f64; 8],
}

impl Scrape {
    pub(super) fn draw(dice: &mut Dice) -> Self {
        Self { interval: dice.choice([1, 2, 5]), lag: dice.whole(0, 3), recent: [0.0; 8] }
    }

    pub(super) fn read(&mut self, second: u64, value: f64) -> f64 {
        self.recent[(second % 8) as usize] = value;
        let seen = (second / self.interval * self.interval).saturating_sub(self.lag);
        self.recent[(seen % 8) as usize]
    }
}

/// Steps up and down at given seconds, and what they add up to.
#[derive(Debug, Clone)]
pub(super) struct Steps {
    /// Seconds and MiB, in order of time.
    ahead: std::vec::IntoIter<(u64, f64)>,
    next: Option<(u64, f64)>,
    height: f64,
}

impl Steps {
    pub(super) fn new(mut steps: Vec<(u64, f64)>) -> Self {
        steps.sort_by_key(|(at, _)| *at);
        let mut ahead = steps.into_iter();
        let next = ahead.next();
        Self { ahead, next, height: 0.0 }
    }

    /// The warm-up of a caching allocator: steps of 8 to 200 MiB, `total` together, ever rarer at time constant `tau`.
    pub(super) fn warm_up(dice: &mut Dice, total: f64, tau: f64) -> Self {
        let (mut steps, mut sum) = (Vec::new(), 0.0);
        while sum < total {
            let (at, height) = (dice.exponential(tau), dice.within(8.0, 200.0));
            steps.push((at as u64, 2.0 * (height / 2.0).ceil()));
            sum += height;
        }
        Self::new(steps)
    }

    /// The height at a second, in MiB; seconds must not go back.
    pub(super) fn at(&mut self, second: u64) -> f64 {
        while let Some((_, height)) = self.next.filter(|(at, _)| *at <= second) {
            self.height += height;
            self.next = self.ahead.next();
        }
        self.height
    }
}

/// A rise that ever slows down: `total` MiB at time constant `tau`, in whole granules.
pub(super) fn saturating(since: f64, total: f64, tau: f64, granule: f64) -> f64 {
    (total * (1.0 - exp(-(since / tau).min(600.0))) / granule).floor() * granule
}

/// One restart of a process: down, loading, then a little more than before.
#[derive(Debug, Clone, Copy)]
pub(super) struct Restart {
    pub(super) at: f64,
    pub(super) down: f64,
    pub(super) loading: f64,
    /// What warms up anew, in MiB, at a time constant of 10 min.
    pub(super) more: f64,
}

impl Restart {
    /// What stays while the process is down, as a share.
    const LEFT: f64 = 0.02;

    /// Memory is what it was before, but for this restart.
    pub(super) fn apply(&self, now: &mut Moment) {
        let Some(since) = now.since(self.at) else { return };
        let up = since - self.down;
        if up < 0.0 {
            now.used *= Self::LEFT;
        } else if up < self.loading {
            now.used *= Self::LEFT + (1.0 - Self::LEFT) * up / self.loading;
        } else {
            now.used += saturating(up - self.loading, self.more, 600.0, 1.0);
        }
    }

    /// Says that the process went and came, to those who see events.
    pub(super) fn tell(&self, now: &mut Moment) {
        if now.second == self.at as u64 {
            now.events.push(EventKind::ProcessExit);
        } else if now.second == (self.at + self.down) as u64 {
            now.events.push(EventKind::ProcessStart);
        }
    }
}
