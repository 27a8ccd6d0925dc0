//! Chance with a seed: the same draws on every machine and for ever.

use super::elementary::{exp, ln};

/// xoshiro256++ of Blackman and Vigna (2018), seeded through their splitmix64; its golden values are a test here.
#[derive(Debug, Clone)]
pub(super) struct Dice {
    state: [u64; 4],
    /// The second of the two normal numbers that one draw yields.
    spare: Option<f64>,
}

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        let mut at = seed;
        let state = std::array::from_fn(|_| {
            at = at.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = at;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        });
        Self { state, spare: None }
    }

    fn bits(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let shifted = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= shifted;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Uniform in [0, 1), with 53 bits.
    pub(super) fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Whether something of this probability happens.
    pub(super) fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Uniform between two numbers.
    pub(super) fn within(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Uniform among the whole numbers from `low` to below `high`.
    pub(super) fn whole(&mut self, low: u64, high: u64) -> u64 {
        low + ((high - low) as f64 * self.unit()) as u64
    }

    /// Between two positive numbers, each octave as likely as the next.
    pub(super) fn any_pace(&mut self, low: f64, high: f64) -> f64 {
        exp(self.within(ln(low), ln(high)))
    }

    /// One of these.
    pub(super) fn choice<T: Copy, const N: usize>(&mut self, of: [T; N]) -> T {
        of[self.whole(0, N as u64) as usize]
    }

    /// Exponential with this mean.
    pub(super) fn exponential(&mut self, mean: f64) -> f64 {
        -mean * ln(1.0 - self.unit())
    }

    /// Standard normal, by the polar method of Marsaglia (1964).
    pub(super) fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        loop {
            let (x, y) = (self.within(-1.0, 1.0), self.within(-1.0, 1.0));
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                let scale = (-2.0 * ln(square) / square).sqrt();
                self.spare = Some(y * scale);
                return x * scale;
            }
        }
    }

    /// Log-normal, held between two limits.
    pub(super) fn log_normal(&mut self, (mean, sd): (f64, f64), (low, high): (f64, f64)) -> f64 {
        exp(mean + sd * self.normal()).clamp(low, high)
    }

    /// Poisson with this mean, by counting products of uniforms (Knuth): for means up to some tens.
    pub(super) fn poisson(&mut self, mean: f64) -> u32 {
        let least = exp(-mean);
        let (mut count, mut product) = (0, self.unit());
        while product > least {
            count += 1;
            product *= self.unit();
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_the_published_one() {
        // The first outputs of xoshiro256++ from the state 1, 2, 3, 4, as its authors' C code gives them.
        let mut dice = Dice { state: [1, 2, 3, 4], spare: None };
        let first: Vec<u64> = (0..4).map(|_| dice.bits()).collect();
        assert_eq!(first, [41_943_041, 58_720_359, 3_588_806_011_781_223, 3_591_011_842_654_386]);
    }

    #[test]
    fn draws_have_their_means_and_spreads() {
        let mut dice = Dice::new(7);
        let moments = |draw: &mut dyn FnMut() -> f64| {
            let values: Vec<f64> = (0..40_000).map(|_| draw()).collect();
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let square = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / values.len() as f64;
            (mean, square.sqrt())
        };
        let close = |(mean, sd): (f64, f64), want: (f64, f64)| {
            assert!((mean - want.0).abs() < 0.03 * want.1 && (sd / want.1 - 1.0).abs() < 0.03, "{mean} {sd}");
        };
        close(moments(&mut || dice.normal()), (0.0, 1.0));
        close(moments(&mut || dice.exponential(5.0)), (5.0, 5.0));
        close(moments(&mut || f64::from(dice.poisson(4.0))), (4.0, 2.0));
        close(moments(&mut || dice.whole(0, 10) as f64), (4.5, 8.25_f64.sqrt()));
    }
}
