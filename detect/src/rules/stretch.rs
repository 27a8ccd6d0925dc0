//! The lowest of each short stretch of time: what stays of memory once spikes of load are over.

use ebbtide_core::Tick;

use super::{Moment, has_lasted};

/// The lowest of a stretch of time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stretch {
    pub(super) since: Tick,
    /// The least memory, in MiB.
    pub(super) lowest: f64,
    /// The least KV cache in use, in MiB; NaN where it is not told.
    pub(super) kv: f32,
}

impl Stretch {
    /// How long each is, in seconds: spikes of load are shorter.
    pub(super) const SECONDS: f64 = 16.0;

    /// Puts a sample into the stretch that is open; gives the one that it has ended.
    pub(super) fn take(open: &mut Option<Self>, moment: &Moment<'_>) -> Option<Self> {
        let kv = moment.kv_mib.map_or(f32::NAN, |kv| kv as f32);
        match open {
            Some(stretch) if !has_lasted(stretch.since, moment.tick, Self::SECONDS) => {
                (stretch.lowest, stretch.kv) = (stretch.lowest.min(moment.mib), stretch.kv.min(kv));
                None
            }
            open => open.replace(Self { since: moment.tick, lowest: moment.mib, kv }),
        }
    }
}
