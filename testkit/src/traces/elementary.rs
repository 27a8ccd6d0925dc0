//! Logarithm, exponential and sine from additions, multiplications and divisions alone, so that a trace has the same
//! bits on every machine: those of the C library differ in the last digit from one system to the next.

/// Natural logarithm of a positive, normal number.
pub(super) fn ln(x: f64) -> f64 {
    const MANTISSA: u64 = (1 << 52) - 1;
    let bits = x.to_bits();
    let mut exponent = (bits >> 52) as i64 - 1023;
    let mut mantissa = f64::from_bits((bits & MANTISSA) | (1023 << 52));
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa /= 2.0;
        exponent += 1;
    }
    // The series of the inverse hyperbolic tangent: |s| is at most 0.1716, so eleven terms reach the last bit.
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let square = s * s;
    let series = (0..11).rev().fold(0.0, |sum, i| sum * square + 1.0 / f64::from(2 * i + 1));
    2.0 * s * series + exponent as f64 * std::f64::consts::LN_2
}

/// The exponential of a number between -700 and 700.
pub(super) fn exp(x: f64) -> f64 {
    let power = (x / std::f64::consts::LN_2).round();
    let rest = x - power * std::f64::consts::LN_2;
    // |rest| is at most 0.3466, so fourteen terms of Taylor's series reach the last bit.
    let series = (1..15).rev().fold(1.0, |sum, i| 1.0 + sum * rest / f64::from(i));
    series * f64::from_bits(((power as i64 + 1023) as u64) << 52)
}

/// The sine of a number of turns: `sin(2 pi turns)`.
pub(super) fn sin_turns(turns: f64) -> f64 {
    let within = turns - turns.round();
    let folded = if within.abs() > 0.25 { 0.5_f64.copysign(within) - within } else { within };
    let angle = std::f64::consts::TAU * folded;
    let square = angle * angle;
    // |angle| is at most a quarter turn, so eleven terms of Taylor's series reach the last bit.
    let term = |sum: f64, i: i32| 1.0 - sum * square / f64::from(2 * i * (2 * i + 1));
    angle * (1..11).rev().fold(1.0, term)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_agree_with_the_library() {
        for i in 1..4000 {
            let x = f64::from(i) * 0.37;
            assert!((ln(x) - x.ln()).abs() <= 1e-14 * x.ln().abs().max(1.0), "ln {x}");
            let y = f64::from(i - 2000) * 0.3;
            assert!((exp(y) / y.exp() - 1.0).abs() < 1e-12, "exp {y}");
            let turns = f64::from(i - 2000) * 0.013;
            assert!((sin_turns(turns) - (std::f64::consts::TAU * turns).sin()).abs() < 1e-12, "sin {turns}");
        }
    }
}
