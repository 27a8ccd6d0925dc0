//! What the NVML thread knows: the driver of this generation, or why there is none, and every device seen so far.

use std::time::Duration;

use ebbtide_core::{EventKind, ProbeHealth, WorldEvent};

use super::NvmlConfig;
use super::census::{Census, Found};
use super::device::{Device, Round};
use super::driver::{Driver, Meter};
use super::fault::{Fault, Reach};
use super::schedule::{Backoff, Cadence, LIST_FLOOR};
use crate::source::Sweep;

/// The most XIDs taken in one sweep; a GPU that reports more is broken, and the rest waits for the next sweep.
const MAX_XIDS: usize = 64;

/// The state of the NVML thread.
pub(super) struct Session {
    config: NvmlConfig,
    /// Boxed: it is moved each sweep, and the table of the library's functions is large.
    driver: Option<Box<Driver>>,
    generation: u64,
    opening: Backoff,
    why_closed: Option<Fault>,
    /// The driver was opened anew, and no device has answered since.
    reload_untold: bool,
    checkup: Cadence,
    recount: Backoff,
    recount_wanted: bool,
    devices: Vec<Device>,
    refused: Vec<(u32, Fault)>,
    events: Vec<WorldEvent>,
    /// Cost of drivers that were closed.
    past: Meter,
    throttled_ticks: u64,
}

impl Session {
    /// Nothing is opened yet; the first sweep does.
    pub(super) fn new(config: NvmlConfig) -> Self {
        Self {
            driver: None,
            generation: 0,
            opening: Backoff::default(),
            why_closed: None,
            reload_untold: false,
            checkup: Cadence::new(config.health_interval),
            recount: Backoff::default(),
            recount_wanted: false,
            devices: Vec::new(),
            refused: Vec::new(),
            events: Vec::new(),
            past: Meter::default(),
            throttled_ticks: 0,
            config,
        }
    }

    /// Reads what is due, and opens the driver first where that is due.
    pub(super) fn sweep(&mut self, round: Round) -> Sweep {
        let now_ms = round.tick.mono_ms;
        if self.driver.is_none() && self.opening.is_due(now_ms) {
            self.open(now_ms);
        }
        if let Some(mut driver) = self.driver.take() {
            match self.go_round(&mut driver, round) {
                Ok(()) => self.driver = Some(driver),
                Err(fault) => self.close(&driver, fault, now_ms),
            }
        }
        self.report()
    }

    fn open(&mut self, now_ms: u64) {
        match Driver::open(self.config.library.as_deref(), self.generation + 1) {
            Ok(driver) => {
                self.generation += 1;
                self.reload_untold = self.generation > 1;
                self.checkup = Cadence::new(self.config.health_interval);
                self.driver = Some(Box::new(driver));
            }
            Err(fault) => {
                self.why_closed = Some(fault);
                self.opening.failed(now_ms);
            }
        }
    }

    /// Gives up all handles. The driver is opened anew after a while that grows with each failure.
    fn close(&mut self, driver: &Driver, fault: Fault, now_ms: u64) {
        self.past = Meter {
            calls: self.past.calls + driver.meter.calls,
            spent: self.past.spent + driver.meter.spent,
        };
        self.why_closed = Some(fault);
        self.opening.failed(now_ms);
        for device in self.devices.iter_mut().filter(|d| d.is_present()) {
            device.lose(fault, now_ms);
        }
    }

    fn go_round(&mut self, driver: &mut Driver, round: Round) -> Result<(), Fault> {
        let now_ms = round.tick.mono_ms;
        let checkup = self.checkup.take(now_ms);
        if checkup || (self.recount_wanted && self.recount.is_due(now_ms)) {
            self.count_devices(driver, now_ms)?;
        }
        if checkup {
            self.recount.reset();
            self.devices.iter_mut().for_each(|device| device.check(driver));
        }
        self.read_devices(driver, round)?;
        self.collect_xids(driver)
    }

    fn count_devices(&mut self, driver: &mut Driver, now_ms: u64) -> Result<(), Fault> {
        let Census { found, refused } = Census::take(driver)?;
        self.refused = refused;
        self.recount_wanted = false;
        let taken_down = |d: &Device| found.iter().any(|f| d.is_instance_of(&f.uuid));
        self.devices.retain(|d| found.iter().any(|f| f.uuid == d.uuid) || !taken_down(d));
        let (interval, count) = (self.config.list_interval.max(LIST_FLOOR), found.len());
        for (place, found) in found.iter().enumerate() {
            self.adopt(found, interval.mul_f64(place as f64 / count as f64), driver);
        }
        for device in self.devices.iter_mut().filter(|d| d.is_present()) {
            if !found.iter().any(|f| device.answers_to(f.handle)) {
                device.lose(Fault::GpuLost, now_ms);
            }
        }
        self.devices.sort_by_key(|d| (d.index, d.is_instance()));
        Ok(())
    }

    fn adopt(&mut self, found: &Found, phase: Duration, driver: &mut Driver) {
        match self.devices.iter_mut().find(|d| d.uuid == found.uuid) {
            Some(known) if known.answers_to(found.handle) => known.found_again(found),
            Some(known) => {
                known.found_again(found);
                known.watch(driver);
            }
            None => {
                let device = Device::new(found, &self.config, phase);
                device.watch(driver);
                self.devices.push(device);
            }
        }
    }

    /// Reads every device. One that fails does not keep the others from being read; where all fail it is the driver
    /// that has to be opened anew.
    fn read_devices(&mut self, driver: &mut Driver, round: Round) -> Result<(), Fault> {
        let now_ms = round.tick.mono_ms;
        let mut throttled = false;
        for device in &mut self.devices {
            device.seek(driver, now_ms)?;
            match device.read(driver, round) {
                Ok(held_back) => throttled |= held_back,
                Err(fault) if fault.reach() == Reach::Driver => return Err(fault),
                Err(fault) => {
                    device.lose(fault, now_ms);
                    if device.is_instance() {
                        self.recount_wanted = true;
                        self.recount.failed(now_ms);
                    }
                }
            }
        }
        self.throttled_ticks += u64::from(throttled);
        self.conclude()
    }

    /// Tells of losses and returns. Where no device answers, the fault may be the driver's: then the GPUs are only
    /// called lost where the driver has said so of them.
    fn conclude(&mut self) -> Result<(), Fault> {
        let answering = self.devices.iter().any(Device::is_present);
        let failed = self.devices.iter().filter_map(Device::loss).next_back();
        let proven = failed.is_some_and(|fault| fault.reach() == Reach::Device && fault.is_loss());
        if answering || proven {
            let gone = self.devices.iter_mut().filter(|d| !d.is_present() && !d.is_instance());
            self.events.extend(gone.filter_map(Device::announce_loss));
        }
        if !answering && !self.devices.is_empty() {
            return Err(failed.unwrap_or(Fault::GpuLost));
        }
        self.opening.reset();
        self.why_closed = None;
        if std::mem::take(&mut self.reload_untold) {
            self.events.push(WorldEvent { gpu: None, proc: None, kind: EventKind::DriverReload });
        }
        self.events.extend(self.devices.iter_mut().filter_map(Device::announce_return));
        Ok(())
    }

    fn collect_xids(&mut self, driver: &mut Driver) -> Result<(), Fault> {
        for _ in 0..MAX_XIDS {
            match driver.next_xid() {
                Ok(Some((handle, xid))) => {
                    let gpu = self.devices.iter().find(|d| d.answers_to(handle)).map(|d| d.uuid.clone());
                    self.events.push(WorldEvent { gpu, proc: None, kind: EventKind::Xid(xid) });
                }
                Ok(None) => break,
                Err(fault) if fault.reach() == Reach::Driver => return Err(fault),
                Err(_) => break,
            }
        }
        Ok(())
    }

    fn report(&mut self) -> Sweep {
        let now = self.driver.as_ref().map_or_else(Meter::default, |driver| driver.meter);
        let spent = self.past.spent + now.spent;
        Sweep {
            gpus: self.devices.iter().map(Device::raw).collect(),
            events: std::mem::take(&mut self.events),
            health: ProbeHealth {
                source: "nvml".to_owned(),
                nvml_calls: self.past.calls + now.calls,
                nvml_us: u64::try_from(spent.as_micros()).unwrap_or(u64::MAX),
                throttled_ticks: self.throttled_ticks,
                reopened: self.generation.saturating_sub(1),
                dropped_samples: 0,
                notes: self.notes(),
            },
        }
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        match (&self.driver, self.why_closed) {
            (None, Some(fault)) => notes.push(format!("no GPU can be read: {}", fault.advice())),
            (Some(_), _) if self.devices.is_empty() && self.refused.is_empty() => {
                notes.push("the NVIDIA driver is loaded and lists no GPU".to_owned());
            }
            _ => {
                let refused = self.refused.iter();
                notes.extend(refused.map(|(i, f)| format!("GPU {i} cannot be opened: {}", f.advice())));
                self.devices.iter().for_each(|device| device.notes(&mut notes));
            }
        }
        notes
    }
}
