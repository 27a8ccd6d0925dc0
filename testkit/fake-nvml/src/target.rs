//! What a device handle stands for: a GPU of the world, or a MIG instance of one.

use ebbtide_testkit::{Gpu, MigInstance, Process, ProcessKind, Scenario};

use crate::abi::Handle;
use crate::code::{Answer, Code};
use crate::entry::Call;

/// A handle holds, from the low end: GPU index plus one (16 bits), MIG place plus one (16 bits), generation.
const FIELD: u32 = 16;
const MASK: usize = (1 << FIELD) - 1;

impl Handle {
    /// The handle of a GPU, or of an instance of it, in a generation of the driver.
    pub(crate) fn new(gpu: u32, mig: Option<usize>, generation: u32) -> Self {
        let place = mig.map_or(0, |place| place + 1);
        Self((gpu as usize + 1) & MASK | place << FIELD | (generation as usize) << (2 * FIELD))
    }

    /// The GPU's index; of a handle that is none, an index that no GPU has.
    pub(crate) fn gpu(self) -> u32 {
        ((self.0 & MASK) as u32).wrapping_sub(1)
    }

    /// The place of the MIG instance, if it is one.
    pub(crate) fn mig(self) -> Option<usize> {
        (self.0 >> FIELD & MASK).checked_sub(1)
    }

    fn generation(self) -> u32 {
        (self.0 >> (2 * FIELD)) as u32
    }
}

/// The device that a call is about.
pub(crate) struct Target<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) gpu: &'a Gpu,
    /// NVML index.
    pub(crate) index: u32,
    /// Place of the MIG instance.
    pub(crate) place: Option<usize>,
    pub(crate) mig: Option<&'a MigInstance>,
    pub(crate) at_ms: i64,
    pub(crate) generation: u32,
}

impl<'a> Target<'a> {
    /// What the handle means in the call's world.
    pub(crate) fn of(call: &'a Call, handle: Handle) -> Result<Self, Code> {
        if handle.0 == 0 {
            return Err(Code::INVALID_ARGUMENT);
        }
        if handle.generation() != call.generation {
            return Err(Code(call.scenario.stale_code));
        }
        let scenario = &*call.scenario;
        let index = handle.gpu();
        let gpu = scenario.gpus.get(index as usize).ok_or(Code::INVALID_ARGUMENT)?;
        let place = handle.mig();
        let mig = place.map(|place| gpu.mig.get(place).ok_or(Code::INVALID_ARGUMENT)).transpose()?;
        Ok(Self { scenario, gpu, index, place, mig, at_ms: call.at_ms, generation: call.generation })
    }

    /// Fails on a MIG instance, for what only a whole GPU has.
    pub(crate) fn whole(&self) -> Answer {
        if self.mig.is_some() { Err(Code::NOT_SUPPORTED) } else { Ok(()) }
    }

    /// Fails on a partitioned GPU and on its instances, for what MIG takes away.
    pub(crate) fn unpartitioned(&self) -> Answer {
        if self.gpu.mig.is_empty() { Ok(()) } else { Err(Code::NOT_SUPPORTED) }
    }

    /// The processes that a list of `kind` shows here.
    pub(crate) fn listed(&self, kind: ProcessKind) -> impl Iterator<Item = &'a Process> {
        let both = kind != ProcessKind::Mps;
        self.gpu
            .listed(self.at_ms, self.place)
            .filter(move |p| p.kind == kind || both && p.kind == ProcessKind::ComputeAndGraphics)
    }

    /// Wall time in microseconds, NVML's unit for stamps.
    pub(crate) fn wall_us(&self) -> u64 {
        u64::try_from(self.scenario.epoch_ms.saturating_add(self.at_ms)).unwrap_or(0).saturating_mul(1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_hold_what_they_were_made_of() {
        let handle = Handle::new(7, Some(3), 41);
        assert_eq!((handle.gpu(), handle.mig(), handle.generation()), (7, Some(3), 41));
        let whole = Handle::new(0, None, 0);
        assert_eq!((whole.gpu(), whole.mig()), (0, None));
        assert_ne!(whole.0, 0, "clients take a null handle for none");
    }
}
