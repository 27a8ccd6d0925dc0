//! One opened driver: every call into the library passes through here, timed, and with its fault named.
//!
//! A [`Handle`] belongs to the generation of the driver that gave it out; a later generation refuses it instead of
//! passing a dangling pointer to the library.
#![allow(unsafe_code)]
#![expect(
    clippy::redundant_closure_for_method_calls,
    reason = "a path to a method of Device<'_> fixes the lifetime that Driver::on leaves open"
)]

use std::mem::ManuallyDrop;
use std::path::Path;
use std::time::{Duration, Instant};

use ebbtide_core::Percent;
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings::{self, field_id, nvmlDevice_t, nvmlEventSet_t, nvmlProcessInfo_t};

use super::account::Figures;
use super::fault::Fault;

mod records;

use self::records::Layout;

/// A device as the driver of one generation knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Handle {
    raw: nvmlDevice_t,
    generation: u64,
}

impl Handle {
    fn of(device: &Device<'_>, generation: u64) -> Self {
        // SAFETY: the pointer is only ever passed back to the library that gave it out, while it is open.
        Self { raw: unsafe { device.handle() }, generation }
    }
}

/// What calls have cost since this driver was opened.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Meter {
    pub(super) calls: u64,
    pub(super) spent: Duration,
}

/// What a device says of its own health.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Vitals {
    /// A row remap waits for a reset.
    pub(super) remap_pending: bool,
    /// A row remap failed.
    pub(super) remap_failed: bool,
    /// What the driver wants done (`nvmlDeviceGpuRecoveryAction_t`); 0 is nothing.
    pub(super) recovery_action: u64,
}

/// The driver that is open now.
pub(super) struct Driver {
    nvml: ManuallyDrop<Nvml>,
    generation: u64,
    layout: Layout,
    events: Option<nvmlEventSet_t>,
    records: Vec<nvmlProcessInfo_t>,
    pub(super) meter: Meter,
}

impl Driver {
    /// Loads the library from `path`, or under its usual name, and initialises it. Handles from before are refused:
    /// `generation` must be new.
    pub(super) fn open(path: Option<&Path>, generation: u64) -> Result<Self, Fault> {
        let started = Instant::now();
        let mut builder = Nvml::builder();
        if let Some(path) = path {
            builder.lib_path(path.as_os_str());
        }
        let nvml = builder.init().map_err(Fault::from)?;
        let layout = nvml.sys_driver_version().map_or(Layout::V3, |version| Layout::of(&version));
        let meter = Meter { calls: 2, spent: started.elapsed() };
        Ok(Self {
            nvml: ManuallyDrop::new(nvml),
            generation,
            layout,
            events: None,
            records: Vec::new(),
            meter,
        })
    }

    fn timed<T>(&mut self, call: impl FnOnce(&Nvml) -> Result<T, NvmlError>) -> Result<T, Fault> {
        let started = Instant::now();
        let answer = call(&self.nvml);
        self.meter.calls += 1;
        self.meter.spent += started.elapsed();
        answer.map_err(Fault::from)
    }

    fn on<T>(
        &mut self,
        handle: Handle,
        call: impl FnOnce(&Device<'_>) -> Result<T, NvmlError>,
    ) -> Result<T, Fault> {
        if handle.generation != self.generation {
            return Err(Fault::Uninitialized);
        }
        // SAFETY: the handle was given out by this very library since its initialisation (same generation).
        self.timed(|nvml| call(&unsafe { Device::new(handle.raw, nvml) }))
    }

    /// Number of devices, those that may not be opened included.
    pub(super) fn count(&mut self) -> Result<u32, Fault> {
        self.timed(Nvml::device_count)
    }

    /// The device with that number.
    pub(super) fn by_index(&mut self, index: u32) -> Result<Handle, Fault> {
        let generation = self.generation;
        self.timed(|nvml| Ok(Handle::of(&nvml.device_by_index(index)?, generation)))
    }

    /// The device with that UUID.
    pub(super) fn by_uuid(&mut self, uuid: &str) -> Result<Handle, Fault> {
        let generation = self.generation;
        self.timed(|nvml| Ok(Handle::of(&nvml.device_by_uuid(uuid)?, generation)))
    }

    /// UUID, which is the device's identity.
    pub(super) fn uuid(&mut self, handle: Handle) -> Result<String, Fault> {
        self.on(handle, |d| d.uuid())
    }

    /// Product name.
    pub(super) fn name(&mut self, handle: Handle) -> Result<String, Fault> {
        self.on(handle, |d| d.name())
    }

    /// Whether the device is partitioned into MIG instances now.
    pub(super) fn is_partitioned(&mut self, handle: Handle) -> Result<bool, Fault> {
        self.on(handle, |d| Ok(d.mig_mode()?.current == 1))
    }

    /// How many MIG instances the device can have at most.
    pub(super) fn mig_slots(&mut self, handle: Handle) -> Result<u32, Fault> {
        self.on(handle, |d| d.mig_device_count())
    }

    /// The MIG instance in that slot; [`Fault::NotFound`] where the slot is empty.
    pub(super) fn mig_instance(&mut self, handle: Handle, slot: u32) -> Result<Handle, Fault> {
        let generation = self.generation;
        self.on(handle, |d| Ok(Handle::of(&d.mig_device_by_index(slot)?, generation)))
    }

    /// GPU instance id and compute instance id of a MIG instance.
    pub(super) fn mig_ids(&mut self, handle: Handle) -> Result<(u32, u32), Fault> {
        let gpu = self.on(handle, |d| {
            let call = nvml_sym(d.nvml().lib().nvmlDeviceGetGpuInstanceId.as_ref())?;
            let mut id = 0;
            // SAFETY: a live handle (checked by `on`) and an out-parameter of the call's type.
            nvml_try(unsafe { call(d.handle(), &raw mut id) })?;
            Ok(id)
        })?;
        let compute = self.on(handle, |d| {
            let call = nvml_sym(d.nvml().lib().nvmlDeviceGetComputeInstanceId.as_ref())?;
            let mut id = 0;
            // SAFETY: as above.
            nvml_try(unsafe { call(d.handle(), &raw mut id) })?;
            Ok(id)
        })?;
        Ok((gpu, compute))
    }

    /// Memory, version 2.
    pub(super) fn memory_v2(&mut self, handle: Handle) -> Result<Figures, Fault> {
        self.on(handle, |d| {
            let m = d.memory_info()?;
            Ok(Figures { total: m.total, used: m.used, free: m.free, reserved: Some(m.reserved) })
        })
    }

    /// Memory, version 1, which the wrapper does not offer.
    pub(super) fn memory_v1(&mut self, handle: Handle) -> Result<Figures, Fault> {
        self.on(handle, |d| {
            let call = nvml_sym(d.nvml().lib().nvmlDeviceGetMemoryInfo.as_ref())?;
            let mut m = bindings::nvmlMemory_t { total: 0, free: 0, used: 0 };
            // SAFETY: a live handle (checked by `on`) and an out-parameter of the call's type.
            nvml_try(unsafe { call(d.handle(), &raw mut m) })?;
            Ok(Figures { total: m.total, used: m.used, free: m.free, reserved: None })
        })
    }

    /// Share of time in which a kernel ran; more than the whole is no reading.
    pub(super) fn utilization(&mut self, handle: Handle) -> Result<Percent, Fault> {
        let percent = self.on(handle, |d| d.utilization_rates())?.gpu;
        u8::try_from(percent).ok().filter(|&p| p <= 100).map(Percent).ok_or(Fault::NotFound)
    }

    /// Remapped rows and the recovery action, in one call.
    pub(super) fn vitals(&mut self, handle: Handle) -> Result<Vitals, Fault> {
        let ids = [
            field_id::NVML_FI_DEV_REMAPPED_PENDING,
            field_id::NVML_FI_DEV_REMAPPED_FAILURE,
            field_id::NVML_FI_DEV_GET_GPU_RECOVERY_ACTION,
        ]
        .map(FieldId);
        let fields = self.on(handle, |d| d.field_values_for(&ids))?;
        let mut values =
            fields.into_iter().map(|field| field.and_then(|f| f.value).map_or(0, |v| unsigned(&v)));
        let mut next = || values.next().unwrap_or(0);
        Ok(Vitals { remap_pending: next() == 1, remap_failed: next() == 1, recovery_action: next() })
    }

    /// Asks to be told of XIDs on `handle`; devices that cannot tell are left out.
    pub(super) fn watch(&mut self, handle: Handle) -> Result<(), Fault> {
        let xid = u64::from(bindings::nvmlEventTypeXidCriticalError);
        let mask = self.on(handle, |d| Ok(d.supported_event_types()?.bits()))? & xid;
        if mask == 0 {
            return Err(Fault::NotSupported);
        }
        let set = match self.events {
            Some(set) => set,
            None => self.create_events()?,
        };
        let outcome = self.on(handle, |d| {
            let call = nvml_sym(d.nvml().lib().nvmlDeviceRegisterEvents.as_ref())?;
            // SAFETY: a live handle (checked by `on`) and a set of the same library, not yet freed.
            nvml_try(unsafe { call(d.handle(), mask, set) })
        });
        if outcome == Err(Fault::Unknown) {
            // nvml.h: the set is undefined after this code. It is left alone, not freed.
            self.events = None;
        }
        outcome
    }

    fn create_events(&mut self) -> Result<nvmlEventSet_t, Fault> {
        let set = self.timed(|nvml| {
            let create = nvml_sym(nvml.lib().nvmlEventSetCreate.as_ref())?;
            let mut set: nvmlEventSet_t = std::ptr::null_mut();
            // SAFETY: an out-parameter of the call's type.
            nvml_try(unsafe { create(&raw mut set) })?;
            Ok(set)
        })?;
        self.events = Some(set);
        Ok(set)
    }

    /// The next XID that was reported since the last call, without waiting: on which device, and which.
    pub(super) fn next_xid(&mut self) -> Result<Option<(Handle, u64)>, Fault> {
        let Some(set) = self.events else { return Ok(None) };
        let generation = self.generation;
        let event = self.timed(|nvml| {
            let wait = nvml_sym(nvml.lib().nvmlEventSetWait_v2.as_ref())?;
            let mut data = bindings::nvmlEventData_t {
                device: std::ptr::null_mut(),
                eventType: 0,
                eventData: 0,
                gpuInstanceId: 0,
                computeInstanceId: 0,
            };
            // SAFETY: the set is alive (dropped only with `self`) and the out-parameter has the call's type.
            nvml_try(unsafe { wait(set, &raw mut data, 0) })?;
            Ok(data)
        });
        match event {
            Ok(data) => Ok(Some((Handle { raw: data.device, generation }, data.eventData))),
            Err(Fault::Timeout) => Ok(None),
            Err(fault) => Err(fault),
        }
    }
}

impl Drop for Driver {
    /// `Nvml` panics when it is dropped over a library without `nvmlShutdown`, so such a library stays loaded.
    fn drop(&mut self) {
        let lib = self.nvml.lib();
        if let (Some(set), Ok(free)) = (self.events, lib.nvmlEventSetFree.as_ref()) {
            // SAFETY: the set was created by this library and is freed once, before shutdown.
            unsafe { free(set) };
        }
        if lib.nvmlShutdown.is_ok() {
            // SAFETY: dropped once, here, and never used again.
            unsafe { ManuallyDrop::drop(&mut self.nvml) };
        }
    }
}

fn unsigned(value: &SampleValue) -> u64 {
    match *value {
        SampleValue::U32(v) => v.into(),
        SampleValue::U64(v) => v,
        SampleValue::I64(v) => u64::try_from(v).unwrap_or(0),
        SampleValue::F64(_) => 0,
    }
}
