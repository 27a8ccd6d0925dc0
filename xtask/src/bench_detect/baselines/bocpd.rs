//! Bayesian online change points (Adams and MacKay, arXiv 0710.3742) of increments, with a normal-gamma prior.

/// Runs longer than this are counted as one of this length: 8 h at a value a minute.
const LONGEST: usize = 480;
/// The least mean of a rising run, in MiB a minute.
const LEAST_MEAN: f64 = 0.25;
/// The prior: mean zero, worth a hundredth of a value; shape and rate 1.
const PRIOR: Run = Run { mean: 0.0, weight: 0.01, shape: 1.0, rate: 1.0 };

/// What is known of the increments of a run.
#[derive(Debug, Clone, Copy)]
struct Run {
    mean: f64,
    weight: f64,
    shape: f64,
    rate: f64,
}

impl Run {
    /// The density of the next increment: Student's t. `scale` is the part that depends on the shape alone.
    fn density(&self, value: f64, scale: f64) -> f64 {
        let spread = self.rate * (self.weight + 1.0) / (self.shape * self.weight);
        let freedom = 2.0 * self.shape;
        let distance = (value - self.mean) * (value - self.mean) / (spread * freedom);
        scale / spread.sqrt() * (-(freedom + 1.0) / 2.0 * distance.ln_1p()).exp()
    }

    fn and(&self, value: f64) -> Self {
        let off = value - self.mean;
        Self {
            mean: (self.weight * self.mean + value) / (self.weight + 1.0),
            weight: self.weight + 1.0,
            shape: self.shape + 0.5,
            rate: self.rate + self.weight * off * off / (2.0 * (self.weight + 1.0)),
        }
    }

    fn t(&self) -> f64 {
        self.mean / (self.rate / (self.shape * self.weight)).sqrt().max(1e-6)
    }
}

/// Whether the likeliest run is at least `least_run` increments long and rises, with a mean `least_t` standard errors
/// above zero.
pub(super) fn rising(values: &[f64], hazard: f64, (least_run, least_t): (usize, f64)) -> Vec<bool> {
    let scales = scales();
    let (mut runs, mut odds) = (vec![PRIOR], vec![1.0]);
    let mut last = f64::NAN;
    let mut step = |value: f64| {
        if value.is_nan() {
            return false;
        }
        let increment = value - std::mem::replace(&mut last, value);
        if increment.is_nan() {
            return false;
        }
        let likely: Vec<f64> = runs
            .iter()
            .enumerate()
            .map(|(length, run)| odds[length] * run.density(increment, scales[length]))
            .collect();
        let total: f64 = likely.iter().sum();
        let mut next = vec![hazard];
        // An increment that no run allows leaves nothing but a new one.
        next.extend(likely.iter().map(|odds| if total > 0.0 { odds * (1.0 - hazard) / total } else { 0.0 }));
        let mut grown = vec![PRIOR];
        grown.extend(runs.iter().map(|run| run.and(increment)));
        if grown.len() > LONGEST {
            let (over, rest) = (grown.len() - 1, next[LONGEST]);
            grown.swap(LONGEST - 1, over);
            grown.truncate(LONGEST);
            next.truncate(LONGEST);
            next[LONGEST - 1] += rest;
        }
        (runs, odds) = (grown, next);
        let likeliest = (0..odds.len()).max_by(|&a, &b| odds[a].total_cmp(&odds[b])).unwrap_or(0);
        let run = &runs[likeliest];
        likeliest >= least_run && run.mean > LEAST_MEAN && run.t() > least_t
    };
    values.iter().map(|&value| step(value)).collect()
}

/// `gamma((n + 1) / 2) / (gamma(n / 2) sqrt(n pi))` for the degrees of freedom of each run length: 2, 3, 4 ...; by
/// the recursion of the quotient over two degrees, which needs no gamma function.
fn scales() -> Vec<f64> {
    let mut quotients = vec![std::f64::consts::PI.sqrt() / 2.0, 2.0 / std::f64::consts::PI.sqrt()];
    for n in 2..=LONGEST {
        let freedom = n as f64;
        quotients.push(quotients[n - 2] * (freedom + 1.0) / freedom);
    }
    quotients
        .iter()
        .enumerate()
        .map(|(i, quotient)| quotient / ((i as f64 + 2.0) * std::f64::consts::PI).sqrt())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_density_is_students() {
        // Two degrees of freedom: 1 / (2 sqrt 2) at zero; five: 0.379607.
        let scales = scales();
        assert!((scales[0] - 0.353_553_39).abs() < 1e-7, "{}", scales[0]);
        assert!((scales[3] - 0.379_606_69).abs() < 1e-7, "{}", scales[3]);
    }
}
