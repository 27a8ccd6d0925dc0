//! What the state looks like. Reads the state, changes nothing, and writes into a buffer of any size.

mod chart;
mod detail;
mod findings;
mod footer;
mod gpus;
mod header;
pub mod layout;
mod overlay;
mod palette;
mod pen;
mod processes;
#[cfg(test)]
mod screens;
mod wording;

use jiff::tz::TimeZone;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::model::{Link, Model};
use layout::{Wants, areas};
use palette::{LOUD, QUIET};
use pen::Pen;

/// How the screen looks, apart from what it shows.
#[derive(Debug, Clone)]
pub struct Look {
    /// Only ASCII characters.
    pub ascii: bool,
    /// Colours; what they say is said in words or glyphs as well.
    pub colour: bool,
    /// The zone that times of day are shown in.
    pub zone: TimeZone,
}

/// Draws the whole screen.
pub fn screen(buf: &mut Buffer, area: Rect, model: &Model, look: &Look) {
    let wants = Wants {
        gpus: model.gpus().len(),
        findings: model.findings().len(),
        rows: model.rows().len(),
        notes: model.status.is_some() && !header::notes(model).is_empty(),
    };
    let areas = areas(area, wants);
    header::draw(&mut Pen::new(buf, areas.header), model, look);
    footer::draw(&mut Pen::new(buf, areas.footer));
    if model.selected_gpu().is_some() {
        gpus::draw(&mut Pen::new(buf, areas.gpus), model);
        chart::draw(&mut Pen::new(buf, areas.chart), model);
        processes::draw(&mut Pen::new(buf, areas.processes), model);
        findings::draw(&mut Pen::new(buf, areas.findings), model);
    } else {
        let body = Rect { y: areas.header.bottom(), height: area.height.saturating_sub(2), ..area };
        draw_empty(&mut Pen::new(buf, body), model);
    }
    overlay::draw(buf, area, model, look);
    if look.ascii {
        palette::fold_to_ascii(buf);
    }
    if !look.colour {
        palette::drop_colour(buf);
    }
}

/// What stands on a screen that has no GPU to show: that there is none yet or at all, and why.
fn draw_empty(pen: &mut Pen<'_>, model: &Model) {
    let width = usize::from(pen.width().saturating_sub(4));
    let first = match (&model.link, &model.status) {
        (_, Some(_)) => "No GPU is known.",
        (Link::Broken(_), None) => "Not connected; trying again.",
        _ => "Waiting for the daemon's first status.",
    };
    pen.text((2, 1), first, pen.width(), LOUD);
    let notes = header::notes(model);
    let lines = notes.iter().flat_map(|note| wording::wrap(note, width));
    for (y, line) in (3..).zip(lines) {
        pen.text((2, y), &line, pen.width(), QUIET);
    }
}
