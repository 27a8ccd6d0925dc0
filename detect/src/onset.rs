//! When did the rise begin?

use crate::explain::Explainer;
use crate::ladder::{Ladder, block_s};
use crate::rise::{Clock, Rise};

/// Where a rise began.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Onset {
    /// When, in seconds since the epoch began.
    pub(crate) at: f64,
    /// From which height, in MiB.
    pub(crate) level: f64,
}

/// Follows the line back through older and longer blocks for as long as they lie on it; the onset is where the line
/// leaves the first block that does not.
pub(crate) fn of(ladder: &Ladder, explainer: &Explainer, rise: &Rise) -> Onset {
    if let Clock::Bursts { level } = rise.clock {
        return Onset { at: rise.from, level };
    }
    let line = &rise.line;
    let slack = (3.0 * rise.noise).max(0.1 * line.slope * (rise.until - rise.from));
    let mut earliest = rise.until;
    for rung in rise.rung..crate::ladder::RUNGS {
        let known = earliest - block_s(rung) / 2.0;
        for block in ladder.blocks(rung).rev().filter(|block| block.at < known) {
            let Some(height) = explainer.quantity(rise.basis, &block) else {
                return Onset { at: earliest, level: line.at(earliest) };
            };
            if (height - line.at(block.at)).abs() > slack {
                let crossing = (height - line.intercept) / line.slope;
                let at = crossing.clamp(block.at.min(earliest), earliest);
                return Onset { at, level: line.at(at) };
            }
            earliest = block.at;
        }
    }
    Onset { at: earliest, level: line.at(earliest) }
}
