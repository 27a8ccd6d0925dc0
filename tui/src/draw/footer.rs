//! The last line: the keys that matter most.

use super::palette::{LOUD, QUIET};
use super::pen::Pen;
use crate::keymap::BINDINGS;

pub(super) fn draw(pen: &mut Pen<'_>) {
    let mut x = 0;
    for binding in BINDINGS.iter().filter(|b| !b.hint.is_empty()) {
        let needed = binding.shown.chars().count() + 1 + binding.hint.len();
        if x + u16::try_from(needed).unwrap_or(u16::MAX) > pen.width() {
            break;
        }
        x = pen.text((x, 0), binding.shown, pen.width(), LOUD) + 1;
        x = pen.text((x, 0), binding.hint, pen.width(), QUIET) + 2;
    }
}
