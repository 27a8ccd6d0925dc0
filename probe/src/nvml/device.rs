//! One device: what is read of it when, and what was read last.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ebbtide_core::{
    Absent, Bytes, DeviceMemory, EventKind, GpuKind, GpuState, GpuUuid, Percent, Reading, Tick, WorldEvent,
};

use super::NvmlConfig;
use super::account::{self, Figures};
use super::budget::Budget;
use super::census::Found;
use super::driver::{Driver, Handle, Vitals};
use super::fault::{Fault, Reach};
use super::list::{self, ListKind};
use super::schedule::{Backoff, ListSchedule};
use crate::source::{RawGpu, RawList};

/// One sweep over all devices.
#[derive(Debug, Clone, Copy)]
pub(super) struct Round {
    pub(super) tick: Tick,
    /// From here on nobody waits for the sweep: lists are left for the next one.
    pub(super) deadline: Instant,
}

/// Which account of its memory the device keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Account {
    Untried,
    V2,
    V1,
    /// None: it shares the host's memory.
    ProcessSum,
}

/// A device known so far, whether it answers or not.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) uuid: GpuUuid,
    pub(super) index: u32,
    pub(super) kind: GpuKind,
    name: Arc<str>,
    handle: Option<Handle>,
    /// Why there is no handle.
    lost: Option<Fault>,
    /// People were told that it is lost.
    announced: bool,
    retry: Backoff,
    partitioned: bool,
    account: Account,
    host_total: Reading<Bytes>,
    has_utilization: bool,
    offers: [bool; 3],
    schedule: ListSchedule,
    budget: Budget,
    memory: Reading<DeviceMemory>,
    utilization: Reading<Percent>,
    processes: Reading<RawList>,
    vitals: Vitals,
}

impl Device {
    /// A device that was found just now; its lists come `phase` later than those of the first device.
    pub(super) fn new(found: &Found, config: &NvmlConfig, phase: Duration) -> Self {
        Self {
            uuid: found.uuid.clone(),
            index: found.index,
            kind: found.kind.clone(),
            name: Arc::clone(&found.name),
            handle: Some(found.handle),
            lost: None,
            announced: false,
            retry: Backoff::default(),
            partitioned: found.partitioned,
            account: Account::Untried,
            host_total: config.host_total,
            has_utilization: true,
            offers: [true; 3],
            schedule: ListSchedule::new(config.list_interval, phase),
            budget: Budget::new(config.budget),
            memory: Err(Absent::NotYet),
            utilization: Err(Absent::NotYet),
            processes: Err(Absent::NotYet),
            vitals: Vitals::default(),
        }
    }

    /// Takes the newest handle, number and partitioning. What the driver once did not offer is tried again after it
    /// was opened anew.
    pub(super) fn found_again(&mut self, found: &Found) {
        if self.handle != Some(found.handle) {
            self.forget_refusals();
        }
        self.handle = Some(found.handle);
        self.index = found.index;
        self.partitioned = found.partitioned;
    }

    /// What was not offered is asked for again.
    fn forget_refusals(&mut self) {
        if self.account == Account::ProcessSum || self.handle.is_none() {
            self.account = Account::Untried;
        }
        self.has_utilization = true;
        self.offers = [true; 3];
    }

    /// Why it does not answer; `None` while it does.
    pub(super) fn loss(&self) -> Option<Fault> {
        self.lost.filter(|_| !self.is_present())
    }

    /// Whether it is an instance of the GPU `parent`.
    pub(super) fn is_instance_of(&self, parent: &GpuUuid) -> bool {
        matches!(&self.kind, GpuKind::Mig(id) if id.parent == *parent)
    }

    /// Whether it answers, as far as known.
    pub(super) const fn is_present(&self) -> bool {
        self.handle.is_some()
    }

    /// Whether it is a MIG instance.
    pub(super) const fn is_instance(&self) -> bool {
        matches!(self.kind, GpuKind::Mig(_))
    }

    /// Whether `handle` is this device's.
    pub(super) fn answers_to(&self, handle: Handle) -> bool {
        self.handle == Some(handle)
    }

    /// Marks it lost until it is found again.
    pub(super) fn lose(&mut self, fault: Fault, now_ms: u64) {
        self.handle = None;
        self.lost = Some(fault);
        self.retry.failed(now_ms);
        self.memory = Err(Absent::DeviceLost);
        self.utilization = Err(Absent::DeviceLost);
        self.processes = Err(Absent::DeviceLost);
    }

    /// The event of its loss, once per loss.
    pub(super) fn announce_loss(&mut self) -> Option<WorldEvent> {
        let first = !std::mem::replace(&mut self.announced, true);
        first.then(|| self.event(EventKind::GpuLost))
    }

    /// The event of its return, once it answers again after an announced loss.
    pub(super) fn announce_return(&mut self) -> Option<WorldEvent> {
        if !self.is_present() || self.memory == Err(Absent::DeviceLost) {
            return None;
        }
        self.lost = None;
        self.retry.reset();
        std::mem::take(&mut self.announced).then(|| self.event(EventKind::GpuBack))
    }

    /// An event on this device.
    pub(super) fn event(&self, kind: EventKind) -> WorldEvent {
        WorldEvent { gpu: Some(self.uuid.clone()), proc: None, kind }
    }

    /// Looks a lost device up again when it is time to.
    ///
    /// # Errors
    /// Only faults that reach the whole driver.
    pub(super) fn seek(&mut self, driver: &mut Driver, now_ms: u64) -> Result<(), Fault> {
        if self.is_present() || !self.retry.is_due(now_ms) {
            return Ok(());
        }
        match driver.by_uuid(self.uuid.as_str()) {
            Ok(handle) => {
                self.handle = Some(handle);
                self.watch(driver);
            }
            Err(fault) if fault.reach() == Reach::Driver => return Err(fault),
            Err(_) => self.retry.failed(now_ms),
        }
        Ok(())
    }

    /// Reads what is due and what the budget allows; whether the budget, or the deadline, held anything back.
    ///
    /// # Errors
    /// Faults that reach the device or the driver; others become absent readings.
    pub(super) fn read(&mut self, driver: &mut Driver, round: Round) -> Result<bool, Fault> {
        let Some(handle) = self.handle else { return Ok(false) };
        self.budget.refill(round.tick.mono_ms);
        let before = driver.meter.spent;
        let outcome = self.read_due(driver, handle, round);
        self.budget.charge(driver.meter.spent.saturating_sub(before));
        outcome
    }

    fn read_due(&mut self, driver: &mut Driver, handle: Handle, round: Round) -> Result<bool, Fault> {
        if !self.budget.allows_memory() {
            self.memory = Err(Absent::NotYet);
            self.utilization = Err(Absent::NotYet);
            return Ok(true);
        }
        self.memory = self.read_memory(driver, handle)?;
        self.utilization = self.read_utilization(driver, handle)?;
        let held_back = self.read_processes(driver, handle, round)?;
        if self.account == Account::ProcessSum {
            self.memory = account::unified(self.host_total, self.process_sum());
        }
        Ok(held_back)
    }

    fn read_memory(&mut self, driver: &mut Driver, handle: Handle) -> Result<Reading<DeviceMemory>, Fault> {
        let outcome = match self.account {
            Account::Untried => return self.choose_account(driver, handle),
            Account::V2 => driver.memory_v2(handle),
            Account::V1 => driver.memory_v1(handle),
            Account::ProcessSum => return Ok(self.memory),
        };
        match outcome {
            Ok(figures) => Ok(figures.memory()),
            Err(fault) if fault.reach() == Reach::Reading => Ok(Err(fault.absent())),
            Err(fault) => Err(fault),
        }
    }

    /// Version 2, else version 1, else none. Version 1 is also tried after an unknown error, which version 2 has
    /// been seen to give where version 1 works (github.com/XuehaiPan/nvitop, issue 30).
    fn choose_account(
        &mut self,
        driver: &mut Driver,
        handle: Handle,
    ) -> Result<Reading<DeviceMemory>, Fault> {
        let (figures, account) = match driver.memory_v2(handle) {
            Ok(figures) => (Ok(figures), Account::V2),
            Err(fault) if fault.is_unsupported() || fault == Fault::Unknown => {
                (driver.memory_v1(handle), Account::V1)
            }
            Err(fault) => (Err(fault), Account::Untried),
        };
        let none = figures.is_ok_and(Figures::is_empty) || figures.is_err_and(Fault::is_unsupported);
        if none && !self.is_instance() {
            self.account = Account::ProcessSum;
            self.kind = GpuKind::Unified;
            return Ok(Err(Absent::NotYet));
        }
        match figures {
            Ok(figures) => {
                self.account = account;
                if self.kind == GpuKind::Unified {
                    self.kind = GpuKind::Discrete;
                }
                Ok(figures.memory())
            }
            Err(fault) if fault.reach() == Reach::Reading => Ok(Err(fault.absent())),
            Err(fault) => Err(fault),
        }
    }

    fn read_utilization(&mut self, driver: &mut Driver, handle: Handle) -> Result<Reading<Percent>, Fault> {
        if !self.has_utilization {
            return Ok(Err(Absent::NotSupported));
        }
        match driver.utilization(handle) {
            Ok(percent) => Ok(Ok(percent)),
            Err(fault) if fault.is_loss() => Err(fault),
            Err(fault) => {
                self.has_utilization = !fault.is_unsupported();
                Ok(Err(fault.absent()))
            }
        }
    }

    /// Reads the lists right beside the memory that they are to explain. A partitioned GPU has none of its own: its
    /// processes are listed by its instances.
    fn read_processes(&mut self, driver: &mut Driver, handle: Handle, round: Round) -> Result<bool, Fault> {
        if self.partitioned {
            self.processes = Err(Absent::NotSupported);
            return Ok(false);
        }
        let (now_ms, used) = (round.tick.mono_ms, self.memory.ok().map(|m| m.used));
        if !self.schedule.is_due(now_ms, used) {
            return Ok(false);
        }
        if !self.budget.allows_lists() || Instant::now() >= round.deadline {
            return Ok(true);
        }
        self.processes = self.read_lists(driver, handle, round.tick)?;
        self.schedule.done(now_ms, used);
        Ok(false)
    }

    fn read_lists(
        &mut self,
        driver: &mut Driver,
        handle: Handle,
        tick: Tick,
    ) -> Result<Reading<RawList>, Fault> {
        let total = match self.account {
            Account::ProcessSum => self.host_total.ok(),
            _ => self.memory.ok().map(|m| m.total),
        };
        let mut entries = Vec::with_capacity(self.processes.as_ref().map_or(0, |list| list.entries.len()));
        for (kind, offered) in ListKind::ALL.into_iter().zip(&mut self.offers) {
            if !*offered {
                continue;
            }
            match driver.processes(handle, kind) {
                Ok(records) => list::append(&mut entries, kind, records, total),
                Err(fault) if fault.is_loss() => return Err(fault),
                Err(fault) if fault.is_unsupported() && kind != ListKind::Compute => *offered = false,
                Err(fault) => return Ok(Err(fault.absent())),
            }
        }
        list::merge(&mut entries);
        Ok(Ok(RawList { listed: tick, entries }))
    }

    fn process_sum(&self) -> Reading<Bytes> {
        let list = self.processes.as_ref().map_err(|&why| why)?;
        list.entries.iter().map(|p| p.memory).sum()
    }

    /// Asks after its health, which it need not tell, and from now on again for what it did not offer before.
    pub(super) fn check(&mut self, driver: &mut Driver) {
        self.forget_refusals();
        if let Some(handle) = self.handle.filter(|_| !self.is_instance()) {
            self.vitals = driver.vitals(handle).unwrap_or_default();
        }
    }

    /// Asks the driver to report XIDs of this device; where it cannot, there are none to see.
    pub(super) fn watch(&self, driver: &mut Driver) {
        if let Some(handle) = self.handle.filter(|_| !self.is_instance()) {
            let watched = driver.watch(handle);
            tracing::debug!(gpu = %self.uuid, ?watched, "asked for XID events");
        }
    }

    /// What a person should know of it, one line each.
    pub(super) fn notes(&self, notes: &mut Vec<String>) {
        if let (None, Some(fault)) = (self.handle, self.lost) {
            notes.push(format!("GPU {} ({}) does not answer: {}", self.index, self.uuid, fault.advice()));
        }
        if self.vitals.remap_failed {
            notes.push(format!("GPU {}: remapping a faulty memory row failed: have it replaced", self.index));
        } else if self.vitals.remap_pending {
            notes.push(format!(
                "GPU {}: a faulty memory row waits for a GPU reset to be remapped",
                self.index
            ));
        }
        if let Some(action) = recovery(self.vitals.recovery_action) {
            notes.push(format!("GPU {}: the driver asks for {action}", self.index));
        }
    }

    /// What was read last.
    pub(super) fn raw(&self) -> RawGpu {
        RawGpu {
            uuid: self.uuid.clone(),
            index: self.index,
            name: Arc::clone(&self.name),
            kind: self.kind.clone(),
            state: if self.is_present() { GpuState::Present } else { GpuState::Lost },
            memory: self.memory,
            utilization: self.utilization,
            processes: self.processes.clone(),
        }
    }
}

/// `nvmlDeviceGpuRecoveryAction_t` in words.
const fn recovery(action: u64) -> Option<&'static str> {
    match action {
        0 => None,
        1 => Some("a GPU reset"),
        2 => Some("a reboot of the machine"),
        3 => Some("peer-to-peer traffic to be drained"),
        4 => Some("its work to be drained and a GPU reset"),
        _ => Some("a recovery action that this version does not know"),
    }
}
