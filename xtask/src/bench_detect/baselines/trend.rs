//! Trends over a sliding window: Mann-Kendall's test, Sen's slope, and lines by least squares.

/// Mann-Kendall's test with the correction for ties, one-sided, and Sen's slope; both must exceed their least values.
/// A window needs half of its minutes.
pub(super) fn mann_kendall(values: &[f64], window: usize, (least_z, least_slope): (f64, f64)) -> Vec<bool> {
    let mut kendall = Kendall::default();
    (0..values.len())
        .map(|minute| {
            if let Some(gone) = minute.checked_sub(window).map(|gone| values[gone]) {
                kendall.drop_first(gone, &values[minute + 1 - window..minute]);
            }
            kendall.push(values[minute], &values[(minute + 1).saturating_sub(window)..minute]);
            minute + 1 >= window
                && kendall.sorted.len() >= window / 2
                && kendall.z() > least_z
                && sen(&values[minute + 1 - window..=minute]) > least_slope
        })
        .collect()
}

/// Kendall's score of a window, kept up as the window moves.
#[derive(Debug, Default)]
struct Kendall {
    /// Rising pairs less falling ones.
    score: i64,
    sorted: Vec<f64>,
}

impl Kendall {
    fn push(&mut self, value: f64, before: &[f64]) {
        if value.is_nan() {
            return;
        }
        self.score += before.iter().map(|&old| sign(value - old)).sum::<i64>();
        let at = self.sorted.partition_point(|&other| other < value);
        self.sorted.insert(at, value);
    }

    fn drop_first(&mut self, value: f64, after: &[f64]) {
        if value.is_nan() {
            return;
        }
        self.score -= after.iter().map(|&new| sign(new - value)).sum::<i64>();
        let at = self.sorted.partition_point(|&other| other < value);
        self.sorted.remove(at);
    }

    fn z(&self) -> f64 {
        let term = |n: f64| n * (n - 1.0) * (2.0 * n + 5.0);
        let ties: f64 = self.sorted.chunk_by(|a, b| a == b).map(|tie| term(tie.len() as f64)).sum();
        let variance = (term(self.sorted.len() as f64) - ties) / 18.0;
        if variance > 0.0 { (self.score - self.score.signum()) as f64 / variance.sqrt() } else { 0.0 }
    }
}

/// 1, 0 or -1; 0 for what is not a number.
fn sign(difference: f64) -> i64 {
    i64::from(difference > 0.0) - i64::from(difference < 0.0)
}

/// Sen's slope: the median of the slopes of all pairs, where a minute without data takes no time, as the yardstick of
/// the first measurements has it.
fn sen(values: &[f64]) -> f64 {
    let present: Vec<f64> = values.iter().copied().filter(|value| !value.is_nan()).collect();
    let pairs = present.iter().enumerate().flat_map(|(i, &first)| {
        present[i + 1..].iter().enumerate().map(move |(gap, &second)| (second - first) / (gap + 1) as f64)
    });
    super::super::minutes::median(&mut pairs.collect::<Vec<f64>>()).unwrap_or(0.0)
}

/// A line through a window.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Line {
    /// A minute.
    pub(super) slope: f64,
    /// Its value at the end of the window.
    pub(super) last: f64,
}

/// Lines by least squares through each full window; flat and at zero where there is none. A window needs half of its
/// minutes.
pub(super) fn lines(values: &[f64], window: usize) -> impl Iterator<Item = Line> {
    (0..values.len()).map(move |minute| {
        let Some(start) = (minute + 1).checked_sub(window) else { return Line::default() };
        line(&values[start..=minute]).unwrap_or_default()
    })
}

fn line(values: &[f64]) -> Option<Line> {
    let present: Vec<f64> = values.iter().copied().filter(|value| !value.is_nan()).collect();
    if present.len() < values.len() / 2 {
        return None;
    }
    let n = present.len() as f64;
    let (middle, mean) = ((n - 1.0) / 2.0, present.iter().sum::<f64>() / n);
    let (mut product, mut square) = (0.0, 0.0);
    for (i, value) in present.iter().enumerate() {
        product += (i as f64 - middle) * (value - mean);
        square += (i as f64 - middle) * (i as f64 - middle);
    }
    let slope = if square > 0.0 { product / square } else { 0.0 };
    Some(Line { slope, last: mean + slope * middle })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_moving_score_is_that_of_each_window() {
        let values: Vec<f64> =
            (0..60_u32).map(|i| if i % 11 == 3 { f64::NAN } else { f64::from(i * i % 17) }).collect();
        let window = 16;
        let mut kendall = Kendall::default();
        for minute in 0..values.len() {
            if let Some(gone) = minute.checked_sub(window) {
                kendall.drop_first(values[gone], &values[gone + 1..minute]);
            }
            let start = (minute + 1).saturating_sub(window);
            kendall.push(values[minute], &values[start..minute]);
            let held = &values[start..=minute];
            let pairs =
                held.iter().enumerate().flat_map(|(i, a)| held[i + 1..].iter().map(move |b| sign(b - a)));
            assert_eq!(kendall.score, pairs.sum::<i64>(), "{minute}");
        }
    }

    #[test]
    fn lines_and_sens_slope_are_exact_on_a_line() {
        let values: Vec<f64> = (0..30).map(|i| 5.0 + 2.0 * f64::from(i)).collect();
        let last = lines(&values, 20).last().unwrap();
        assert!((last.slope - 2.0).abs() < 1e-9 && (last.last - 63.0).abs() < 1e-9);
        assert!((sen(&values) - 2.0).abs() < 1e-9);
    }

    #[test]
    fn z_is_the_textbooks() {
        // Ten rising values: S = 45, Var = 10 * 9 * 25 / 18 = 125, z = 44 / sqrt(125).
        let values: Vec<f64> = (0..10).map(f64::from).collect();
        let mut kendall = Kendall::default();
        for (i, value) in values.iter().enumerate() {
            kendall.push(*value, &values[..i]);
        }
        assert!((kendall.z() - 44.0 / 125.0_f64.sqrt()).abs() < 1e-12);
    }
}
