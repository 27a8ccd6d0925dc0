//! Writing into a part of the screen, never beyond it.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use unicode_width::UnicodeWidthStr;

use super::wording::fit;

/// Writes into one area, in coordinates of that area; whatever lies outside is not written.
pub(super) struct Pen<'a> {
    buf: &'a mut Buffer,
    area: Rect,
}

impl<'a> Pen<'a> {
    /// A pen for the part of `area` that lies on the screen.
    pub(super) fn new(buf: &'a mut Buffer, area: Rect) -> Self {
        let area = area.intersection(buf.area);
        Self { buf, area }
    }

    pub(super) const fn width(&self) -> u16 {
        self.area.width
    }

    pub(super) const fn height(&self) -> u16 {
        self.area.height
    }

    /// A pen for the same area without its first `rows` rows.
    pub(super) fn below(&mut self, rows: u16) -> Pen<'_> {
        let rows = rows.min(self.area.height);
        let area = Rect { y: self.area.y + rows, height: self.area.height - rows, ..self.area };
        Pen { buf: self.buf, area }
    }

    /// Writes `text` from column `x` on, cut to `width` columns. Returns the column after it.
    pub(super) fn text(&mut self, at: (u16, u16), text: &str, width: u16, style: Style) -> u16 {
        let (x, y) = at;
        if x >= self.area.width || y >= self.area.height {
            return x;
        }
        let shown = fit(text, usize::from(width.min(self.area.width - x)));
        self.fitted(at, &shown, style)
    }

    /// Writes text that is known to be clean and to fit, spaces at its ends included.
    fn fitted(&mut self, (x, y): (u16, u16), text: &str, style: Style) -> u16 {
        let room = usize::from(self.area.width.saturating_sub(x));
        self.buf.set_stringn(self.area.x + x, self.area.y + y, text, room, style).0 - self.area.x
    }

    /// Writes `text` so that it ends before column `end`, cut to `width` columns.
    pub(super) fn right(&mut self, end: (u16, u16), text: &str, width: u16, style: Style) {
        let shown = fit(text, usize::from(width.min(end.0)));
        let used = u16::try_from(shown.width()).unwrap_or(u16::MAX);
        self.text((end.0.saturating_sub(used), end.1), &shown, used, style);
    }

    /// Puts one glyph of one column.
    pub(super) fn glyph(&mut self, at: (u16, u16), glyph: &str, style: Style) {
        if at.0 < self.area.width
            && at.1 < self.area.height
            && let Some(cell) = self.buf.cell_mut((self.area.x + at.0, self.area.y + at.1))
        {
            cell.set_symbol(glyph).set_style(style);
        }
    }

    /// Draws the title line of a pane: a rule with `title` at its left and `note` at its right. The pane that has
    /// the keys carries brackets, for terminals and eyes without colour.
    pub(super) fn rule(&mut self, title: &str, note: &str, focused: bool) {
        for x in 0..self.area.width {
            self.glyph((x, 0), "─", Style::new().add_modifier(Modifier::DIM));
        }
        if self.area.is_empty() {
            return;
        }
        let title = fit(title, usize::from(self.area.width.saturating_sub(4)));
        let (shown, style) = if focused {
            (format!("[{title}]"), Style::new().add_modifier(Modifier::BOLD))
        } else {
            (format!(" {title} "), Style::new())
        };
        let end = self.fitted((1.min(self.area.width - 1), 0), &shown, style);
        let room = usize::from(self.area.width.saturating_sub(end + 4));
        // A note of a few letters says nothing.
        if !note.is_empty() && room > 8 {
            let note = format!(" {} ", fit(note, room));
            let width = u16::try_from(note.width()).unwrap_or(0);
            self.fitted((self.area.width - width - 1, 0), &note, Style::new());
        }
    }

    /// Marks row `y` as the selected one.
    pub(super) fn mark(&mut self, y: u16, focused: bool) {
        if y >= self.area.height || self.area.is_empty() {
            return;
        }
        self.glyph((0, y), if focused { "▶" } else { "▷" }, Style::new().add_modifier(Modifier::BOLD));
        if focused {
            let row = Rect { y: self.area.y + y, height: 1, ..self.area };
            self.buf.set_style(row, Style::new().add_modifier(Modifier::BOLD));
        }
    }
}

/// The first of `count` items to show in `height` rows so that `selected` is among them.
pub(super) const fn window(count: usize, selected: usize, height: usize) -> usize {
    if count <= height || selected < height / 2 {
        return 0;
    }
    let centred = selected - height / 2;
    if centred + height > count { count - height } else { centred }
}
