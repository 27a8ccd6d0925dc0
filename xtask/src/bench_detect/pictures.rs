//! Pictures of histories with what the detector said of them, for the paper.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result};
use ebbtide_detect::DetectConfig;
use ebbtide_testkit::traces::{Span, family};

use super::play::{Job, Played, play_by_the_minute};
use super::workers;

/// Where they lie.
const FOLDER: &str = "docs/images/detection";
/// Families that are drawn, with the seed: one for tuning each, for a picture is no figure.
const DRAWN: [(&str, u64); 10] = [
    ("N02", 1),
    ("N03", 1),
    ("N07", 1),
    ("N08", 1),
    ("N11", 1),
    ("P02", 2),
    ("P03", 4),
    ("P06", 1),
    ("S06", 1),
    ("F01", 1),
];

/// The plot's edges in pixels: left, right, top, bottom.
const PLOT: (f64, f64, f64, f64) = (64.0, 744.0, 28.0, 196.0);

/// Draws them all anew.
pub(super) fn write(root: &Path) -> Result<()> {
    let folder = root.join(FOLDER);
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let pictures = workers::each(&DRAWN, |&(key, seed)| {
        let family = family(key)?;
        let played =
            play_by_the_minute(&Job { family, seed, span: Span::hours(8) }, &DetectConfig::default());
        Some((key, draw(family.name, &played)))
    });
    for (key, picture) in pictures.into_iter().flatten() {
        let path = folder.join(format!("{key}.svg"));
        std::fs::write(&path, picture).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// One history: memory as the driver tells it, without the KV cache where that differs, the true onset, and each
/// finding where it opened: the first of its kind by name, later ones as ticks.
fn draw(title: &str, played: &Played) -> String {
    let scale = Scale::of(played);
    let (left, right, top, bottom) = PLOT;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 760 224\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"760\" height=\"224\" fill=\"#fff\"/>\n\
         <text x=\"{left}\" y=\"16\" font-size=\"13\" font-weight=\"bold\">{title}</text>\n\
         <text x=\"{right}\" y=\"16\" text-anchor=\"end\">at the end: {}</text>\n\
         <path d=\"M{left} {top}V{bottom}H{right}\" fill=\"none\" stroke=\"#999\"/>\n",
        played.diagnosis
    );
    // Writing to a string cannot fail.
    for gib in [scale.low, scale.high] {
        let y = scale.y(gib * 1024.0) + 4.0;
        let _ =
            writeln!(svg, "<text x=\"{}\" y=\"{y:.0}\" text-anchor=\"end\">{gib:.1} GiB</text>", left - 4.0);
    }
    for hour in 0..=(scale.minutes / 60.0) as u32 {
        let x = scale.x(f64::from(hour) * 60.0);
        let _ = writeln!(svg, "<text x=\"{x:.0}\" y=\"212\" text-anchor=\"middle\">{hour} h</text>");
    }
    svg.push_str(&scale.line(&played.minutes.raw, "#888"));
    if played.minutes.raw != played.minutes.residual {
        svg.push_str(&scale.line(&played.minutes.residual, "#06c"));
    }
    let truths = [(played.label.onset_s, "leak begins"), (played.label.change_s, "pace doubles")];
    for (second, what) in truths.into_iter().filter_map(|(second, what)| Some((second?, what))) {
        svg.push_str(&scale.mark(second, (what, "#080"), bottom - 6.0));
    }
    let mut named: Vec<&str> = Vec::new();
    for &(second, kind) in &played.opened {
        let colour = if kind == "growth" { "#a70" } else { "#c00" };
        if named.contains(&kind) {
            let _ = writeln!(
                svg,
                "<path d=\"M{:.1} {top}v6\" stroke=\"{colour}\"/>",
                scale.x(second as f64 / 60.0)
            );
        } else {
            svg.push_str(&scale.mark(second, (kind, colour), top + 16.0 + 12.0 * named.len() as f64));
            named.push(kind);
        }
    }
    svg.push_str("</svg>\n");
    svg
}

/// From minutes and MiB to pixels.
struct Scale {
    minutes: f64,
    /// GiB at the bottom and the top.
    low: f64,
    high: f64,
}

impl Scale {
    fn of(played: &Played) -> Self {
        let both = played.minutes.raw.iter().chain(&played.minutes.residual);
        let (low, high) = both
            .filter(|value| value.is_finite())
            .fold((f64::INFINITY, 0.0), |(low, high), &value| (f64::min(low, value), f64::max(high, value)));
        // A flat history is drawn in the middle of a quarter of a GiB.
        let (low, high) = (low / 1024.0, high / 1024.0);
        let spare = (0.25 - (high - low)).max(0.0) / 2.0;
        Self { minutes: played.minutes.raw.len().max(1) as f64, low: low - spare, high: high + spare }
    }

    fn x(&self, minute: f64) -> f64 {
        PLOT.0 + (PLOT.1 - PLOT.0) * minute / self.minutes
    }

    fn y(&self, mib: f64) -> f64 {
        PLOT.3 - (PLOT.3 - PLOT.2) * (mib / 1024.0 - self.low) / (self.high - self.low)
    }

    /// A line that is broken where there is no data.
    fn line(&self, values: &[f64], colour: &str) -> String {
        let (mut path, mut is_down) = (String::new(), false);
        for (minute, &value) in values.iter().enumerate() {
            if value.is_finite() {
                let command = if is_down { 'L' } else { 'M' };
                let _ = write!(path, "{command}{:.1} {:.1}", self.x(minute as f64 + 0.5), self.y(value));
            }
            is_down = value.is_finite();
        }
        format!("<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\"/>\n")
    }

    /// A vertical line with a word beside it, to the left of it in the right half.
    fn mark(&self, second: u64, (word, colour): (&str, &str), y: f64) -> String {
        let x = self.x(second as f64 / 60.0);
        let (at, anchor) = if x > 600.0 { (x - 3.0, "end") } else { (x + 3.0, "start") };
        format!(
            "<path d=\"M{x:.1} {}V{}\" stroke=\"{colour}\" stroke-dasharray=\"3 3\"/>\n\
             <text x=\"{at:.1}\" y=\"{y:.0}\" fill=\"{colour}\" text-anchor=\"{anchor}\">{word}</text>\n",
            PLOT.2, PLOT.3
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_shows_the_truth_and_what_was_said() {
        let family = family("P09").unwrap();
        let played = play_by_the_minute(
            &Job { family, seed: 1, span: Span::hours(8).every(10) },
            &DetectConfig::default(),
        );
        let svg = draw(family.name, &played);
        assert!(svg.contains("leak begins") && svg.contains("at the end: "), "{svg}");
        for (_, kind) in &played.opened {
            assert!(svg.contains(&format!(">{kind}</text>")), "{kind}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn every_drawn_family_exists() {
        for (key, _) in DRAWN {
            assert!(family(key).is_some(), "{key}");
        }
    }
}
