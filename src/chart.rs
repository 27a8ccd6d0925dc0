//! A small chart of a series as text.

/// Eighths of a character cell, from nothing to full.
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Draws `values` (in order of time; `None` is absent and leaves a gap) as filled columns.
///
/// Each column shows the largest value of its share of the series, so that a spike is never lost. The scale runs
/// from a little below the smallest value to the largest, as it stands at the left in MiB.
pub(crate) fn draw(values: &[Option<f64>], width: usize, height: usize) -> Vec<String> {
    let known = || values.iter().flatten().copied();
    let (low, high) = (known().fold(f64::INFINITY, f64::min), known().fold(f64::NEG_INFINITY, f64::max));
    if !low.is_finite() || width == 0 || height == 0 {
        return Vec::new();
    }
    let span = (high - low).max(high.abs() * 0.01).max(1.0);
    let base = (low - span * 0.1).max(0.0);
    let columns: Vec<Option<f64>> = columns(values, width);
    (0..height).rev().map(|row| line(&columns, row, height, base, base.max(high).max(base + span))).collect()
}

fn columns(values: &[Option<f64>], width: usize) -> Vec<Option<f64>> {
    let width = width.min(values.len());
    (0..width)
        .map(|column| {
            let from = column * values.len() / width;
            let to = ((column + 1) * values.len() / width).max(from + 1);
            values[from..to].iter().flatten().copied().reduce(f64::max)
        })
        .collect()
}

fn line(columns: &[Option<f64>], row: usize, height: usize, base: f64, top: f64) -> String {
    let bars: String = columns
        .iter()
        .map(|value| {
            let filled = value.map_or(0.0, |v| (v - base) / (top - base) * height as f64 - row as f64);
            EIGHTHS[(filled.clamp(0.0, 1.0) * 8.0).round() as usize]
        })
        .collect();
    let label = match row {
        0 => format!("{base:.0}"),
        _ if row + 1 == height => format!("{top:.0}"),
        _ => String::new(),
    };
    format!("{label:>9} ┤{}", bars.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ramp_rises_and_a_gap_stays_empty() {
        let mut values: Vec<Option<f64>> = (0..16).map(|v| Some(f64::from(v) * 10.0)).collect();
        values[8] = None;
        let chart = draw(&values, 16, 2);
        assert_eq!(
            chart,
            ["      150 ┤         ▂▃▄▅▆▇█", "        0 ┤ ▁▂▃▄▅▆▇ ███████"],
            "\n{}",
            chart.join("\n")
        );
    }

    #[test]
    fn a_spike_survives_thinning() {
        let mut values = vec![Some(100.0); 1000];
        values[537] = Some(900.0);
        assert!(draw(&values, 20, 4)[0].contains('█'));
    }

    #[test]
    fn nothing_known_draws_nothing() {
        assert!(draw(&[None, None], 10, 4).is_empty());
    }
}
