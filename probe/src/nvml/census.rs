//! Which devices there are: GPUs, and the MIG instances that GPUs are partitioned into.

use std::sync::Arc;

use ebbtide_core::{GpuKind, GpuUuid, MigId, text};

use super::driver::{Driver, Handle};
use super::fault::{Fault, Reach};

/// A device that answered to its name.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) handle: Handle,
    pub(super) uuid: GpuUuid,
    /// The GPU's number; a MIG instance has that of its GPU.
    pub(super) index: u32,
    pub(super) name: Arc<str>,
    pub(super) kind: GpuKind,
    /// Whether it is a GPU that is partitioned into MIG instances.
    pub(super) partitioned: bool,
}

/// What a count of the devices brought.
#[derive(Debug, Default)]
pub(super) struct Census {
    pub(super) found: Vec<Found>,
    /// Numbers that the driver counts and does not let us open, and why.
    pub(super) refused: Vec<(u32, Fault)>,
}

impl Census {
    /// Counts. A device that refuses does not keep the others from being counted.
    ///
    /// # Errors
    /// A fault that reaches the whole driver, or that of the last device where all refuse.
    pub(super) fn take(driver: &mut Driver) -> Result<Self, Fault> {
        let mut census = Self::default();
        for index in 0..driver.count()? {
            match census.add_gpu(driver, index) {
                Ok(()) => {}
                Err(fault) if fault.reach() == Reach::Driver => return Err(fault),
                Err(fault) => census.refused.push((index, fault)),
            }
        }
        match census.refused.last() {
            Some(&(_, fault)) if census.found.is_empty() => Err(fault),
            _ => Ok(census),
        }
    }

    fn add_gpu(&mut self, driver: &mut Driver, index: u32) -> Result<(), Fault> {
        let handle = driver.by_index(index)?;
        let uuid = GpuUuid::new(&text::clean(&driver.uuid(handle)?));
        let partitioned = match driver.is_partitioned(handle) {
            Ok(partitioned) => partitioned,
            Err(fault) if fault.reach() == Reach::Reading => false,
            Err(fault) => return Err(fault),
        };
        let name = name_of(driver, handle);
        self.found.push(Found {
            handle,
            uuid: uuid.clone(),
            index,
            name,
            kind: GpuKind::Discrete,
            partitioned,
        });
        if partitioned { self.add_instances(driver, handle, (index, &uuid)) } else { Ok(()) }
    }

    /// A slot that refuses is passed over like an empty one.
    fn add_instances(
        &mut self,
        driver: &mut Driver,
        parent: Handle,
        (index, parent_uuid): (u32, &GpuUuid),
    ) -> Result<(), Fault> {
        let slots = match driver.mig_slots(parent) {
            Err(fault) if fault.reach() == Reach::Driver => return Err(fault),
            slots => slots.unwrap_or(0),
        };
        for slot in 0..slots {
            match instance(driver, parent, slot) {
                Ok((handle, uuid, (gpu_instance, compute_instance))) => {
                    let id = MigId { parent: parent_uuid.clone(), gpu_instance, compute_instance };
                    let (name, kind) = (name_of(driver, handle), GpuKind::Mig(id));
                    self.found.push(Found { handle, uuid, index, name, kind, partitioned: false });
                }
                Err(fault) if fault.reach() == Reach::Driver => return Err(fault),
                Err(_) => {}
            }
        }
        Ok(())
    }
}

fn instance(driver: &mut Driver, parent: Handle, slot: u32) -> Result<(Handle, GpuUuid, (u32, u32)), Fault> {
    let handle = driver.mig_instance(parent, slot)?;
    let uuid = GpuUuid::new(&text::clean(&driver.uuid(handle)?));
    Ok((handle, uuid, driver.mig_ids(handle)?))
}

/// A device without a readable name is still a device.
fn name_of(driver: &mut Driver, handle: Handle) -> Arc<str> {
    driver.name(handle).map_or_else(|_| "NVIDIA GPU".into(), |name| text::clean(&name).into())
}
