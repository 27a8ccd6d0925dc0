//! Where each area lies. Plain arithmetic, so that the same size always gives the same screen.

use ratatui::layout::Rect;

/// From this width on the findings stand beside the chart.
const WIDE: u16 = 120;

/// What the sizes of areas depend on besides the screen's.
#[derive(Debug, Clone, Copy)]
pub struct Wants {
    /// How many GPUs there are.
    pub gpus: usize,
    /// How many findings are open.
    pub findings: usize,
    /// How many rows the process table has.
    pub rows: usize,
    /// Whether the daemon has something to say of itself.
    pub notes: bool,
}

/// The areas of the screen; those that do not fit are empty.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Areas {
    /// One line, two with notes.
    pub header: Rect,
    /// The list of GPUs.
    pub gpus: Rect,
    /// The chart.
    pub chart: Rect,
    /// The process table.
    pub processes: Rect,
    /// The open findings.
    pub findings: Rect,
    /// The keys.
    pub footer: Rect,
}

impl Areas {
    /// Every area.
    #[must_use]
    pub const fn all(&self) -> [Rect; 6] {
        [self.header, self.gpus, self.chart, self.processes, self.findings, self.footer]
    }
}

/// Cuts bands off the top of a rectangle.
struct Cutter {
    rest: Rect,
}

impl Cutter {
    fn top(&mut self, height: u16) -> Rect {
        let height = height.min(self.rest.height);
        let band = Rect { height, ..self.rest };
        self.rest.y += height;
        self.rest.height -= height;
        band
    }
}

/// Divides `screen`. What matters least goes first when rows are short: keys, chart, findings.
#[must_use]
pub fn areas(screen: Rect, wants: Wants) -> Areas {
    let mut cut = Cutter { rest: screen };
    let header = cut.top(1 + u16::from(wants.notes && screen.height >= 18));
    let footer_height = u16::from(screen.height >= 8);
    cut.rest.height = cut.rest.height.saturating_sub(footer_height);
    let footer = Rect { y: screen.bottom().saturating_sub(footer_height), height: footer_height, ..screen };
    let listed = 1 + rows(wants.gpus).max(1);
    let gpus = cut.top(listed.min((cut.rest.height / 3).max(2)));
    let rest = cut.rest;
    let (chart, findings) = match rest.height {
        0..7 => (Rect::default(), Rect::default()),
        7..12 => (Rect::default(), cut.top(3)),
        _ if screen.width >= WIDE => beside(cut.top(middle(rest.height, wants))),
        _ => {
            let chart = cut.top((rest.height * 2 / 5).clamp(5, 16));
            (chart, cut.top((1 + rows(wants.findings).max(1)).clamp(3, (rest.height / 4).max(3))))
        }
    };
    // The table stands above the findings on a narrow screen: it is read together with the chart.
    let (processes, findings) = if findings.y == chart.y || findings.is_empty() {
        (cut.rest, findings)
    } else {
        let table = Rect { y: findings.y, height: cut.rest.height, ..cut.rest };
        (table, Rect { y: table.bottom(), ..findings })
    };
    Areas { header, gpus, chart, processes, findings, footer }
}

/// The height of chart and findings side by side: what the process table leaves, within reason.
fn middle(rest: u16, wants: Wants) -> u16 {
    let table = 2 + rows(wants.rows);
    rest.saturating_sub(table).clamp((rest * 2 / 5).max(6), (rest * 3 / 4).max(6))
}

fn beside(band: Rect) -> (Rect, Rect) {
    let chart_width = band.width * 3 / 5;
    let findings_x = band.x + chart_width + 1;
    let chart = Rect { width: chart_width, ..band };
    (chart, Rect { x: findings_x, width: band.width - chart_width - 1, ..band })
}

fn rows(count: usize) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX - 8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn areas_never_overlap_stay_inside_and_leave_no_row_unused(
            x in 0_u16..50, y in 0_u16..50, width in 1_u16..300, height in 1_u16..100,
            gpus in 0_usize..100_000, findings in 0_usize..50, rows in 0_usize..1_000, notes in any::<bool>(),
        ) {
            let screen = Rect { x, y, width, height };
            let areas = areas(screen, Wants { gpus, findings, rows, notes }).all();
            for (i, a) in areas.iter().enumerate() {
                prop_assert!(a.is_empty() || screen.intersection(*a) == *a, "{a:?} leaves {screen:?}");
                for b in &areas[i + 1..] {
                    prop_assert!(a.intersection(*b).is_empty(), "{a:?} overlaps {b:?}");
                }
            }
            for row in screen.y..screen.bottom() {
                prop_assert!(areas.iter().any(|a| !a.is_empty() && (a.y..a.bottom()).contains(&row)));
            }
        }
    }
}
