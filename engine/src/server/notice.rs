//! The status file in step with memory: whoever reads memory, and then the file, finds the one in the other.

use std::time::{Duration, Instant};

use super::figures::Figures;
use crate::forward::{Forward, Item, Rows, StepError};
use crate::kv::Pool;
use crate::model::Geometry;
use crate::status::{self, Load, StatusError, StatusFile};

/// Without news the file is written this often: finer than anybody samples.
const EVERY: Duration = Duration::from_millis(100);

/// What is told, and when it was told last.
#[derive(Debug)]
pub(super) struct Notice {
    file: StatusFile,
    last: Option<(Load, Instant)>,
}

impl Notice {
    pub(super) const fn new(file: StatusFile) -> Self {
        Self { file, last: None }
    }

    /// Tells `load` where the pool holds something else than was told, or it was told long ago.
    pub(super) fn tell(&mut self, load: Load) -> Result<(), StatusError> {
        let is_known =
            self.last.is_some_and(|(told, at)| told.kv_pool == load.kv_pool && at.elapsed() < EVERY);
        if !is_known {
            self.file.write(load, status::now())?;
            self.last = Some((load, Instant::now()));
        }
        Ok(())
    }
}

/// A model that first tells what its pool holds: memory is taken before a step, and the step may take long.
pub(super) struct Announced<'a> {
    pub(super) forward: &'a mut dyn Forward,
    pub(super) notice: Option<&'a mut Notice>,
    /// As of the step before.
    pub(super) figures: &'a Figures,
}

impl Forward for Announced<'_> {
    fn geometry(&self) -> &Geometry {
        self.forward.geometry()
    }

    fn step(&mut self, pool: &mut Pool, items: &[Item<'_>]) -> Result<Rows<'_>, StepError> {
        if let Some(notice) = &mut self.notice {
            // What fails here fails again after the step, where it is an error.
            let _ = notice.tell(self.figures.load(&pool.usage()));
        }
        self.forward.step(pool, items)
    }
}
