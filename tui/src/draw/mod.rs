//! What the state looks like. Reads the state, changes nothing, and writes into a buffer of any size.

mod chart;
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
    let notes = model.status.as_ref().is_some_and(|s| !header::notes(&s.health).is_empty());
    let wants =
        Wants { gpus: model.gpus().len(), findings: model.findings().len(), rows: model.rows().len(), notes };
    let areas = areas(area, wants);
    header::draw(&mut Pen::new(buf, areas.header), model, look);
    footer::draw(&mut Pen::new(buf, areas.footer));
    if model.status.is_some() {
        gpus::draw(&mut Pen::new(buf, areas.gpus), model);
        chart::draw(&mut Pen::new(buf, areas.chart), model);
        processes::draw(&mut Pen::new(buf, areas.processes), model);
        findings::draw(&mut Pen::new(buf, areas.findings), model);
    } else {
        let body = Rect { y: areas.header.bottom(), height: area.height.saturating_sub(2), ..area };
        draw_waiting(&mut Pen::new(buf, body), &model.link);
    }
    overlay::draw(buf, area, model, look);
    if look.ascii {
        palette::fold_to_ascii(buf);
    }
    if !look.colour {
        palette::drop_colour(buf);
    }
}

/// What stands on an empty screen: that nothing has come yet, and why.
fn draw_waiting(pen: &mut Pen<'_>, link: &Link) {
    let width = usize::from(pen.width().saturating_sub(4));
    let (first, why) = match link {
        Link::Broken(why) => ("Not connected; trying again.", why.as_str()),
        _ => ("Waiting for the daemon's first status.", ""),
    };
    pen.text((2, 1), first, pen.width(), LOUD);
    for (y, line) in (3..).zip(wording::wrap(why, width)) {
        pen.text((2, y), &line, pen.width(), QUIET);
    }
}
