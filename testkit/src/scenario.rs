//! A simulated machine as data: GPUs, processes, and what goes wrong when.
//!
//! All times are milliseconds since [`Scenario::epoch_ms`], which is wall time, so that separate processes that
//! read one scenario see one world. The file is TOML; unknown keys are errors, because a typo in a test's world
//! would otherwise make the test pass for the wrong reason. Amounts are bytes.
//!
//! ```
//! let scenario = ebbtide_testkit::Scenario::from_toml(r#"
//!     epoch_ms = 1767225600000
//!     driver_version = "580.95.05"
//!
//!     [[gpus]]
//!     uuid = "GPU-6f1d2c3b-0000-4000-8000-000000000001"
//!     unattributed = { constant = 7_000_000 }
//!     processes = [
//!         { pid = 4242, memory = { linear = { from = 8_000_000_000, bytes_per_s = 70_000.0 } } },
//!         { pid = 4243, kind = "graphics", start_ms = 5_000, exit_ms = 60_000, memory = { constant = 1_000_000 } },
//!         { pid = 4244, memory = { sawtooth = { low = 0, high = 2_000_000, period_ms = 30_000 } } },
//!         { pid = 4245, memory = { steps = [[0, 1_000], [10_000, 9_000]] } },
//!         { pid = 4246, memory = "not-available" },
//!     ]
//!
//!     [[outages]]     # the driver is reloaded
//!     from_ms = 120_000
//!     until_ms = 130_000
//!
//!     [[faults]]      # a lost GPU; other faults wait (delay_ms) or do not return (hang = true)
//!     call = "*"
//!     gpu = 0
//!     code = 15
//!     from_ms = 300_000
//!
//!     [[events]]      # the XID that goes with it
//!     at_ms = 300_000
//!     gpu = 0
//!     data = 79
//! "#)?;
//! assert_eq!(scenario.gpus[0].used_at(0, None).0, 8_007_001_000);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod curve;
mod driver;
mod gpu;

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use ebbtide_core::Bytes;
use serde::{Deserialize, Serialize};

pub use curve::Curve;
pub use driver::{Event, Fault, Outage};
pub use gpu::{Ecc, Gpu, MigInstance, Process, ProcessKind};

/// Drivers from this version on know `nvmlDeviceGetMemoryInfo_v2` and the `_v3` process lists.
const FIRST_WITH_V3_LISTS: (u32, u32) = (510, 0);

/// A world for the simulated driver.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scenario {
    /// The wall time, in ms since 1970, at which the scenario's time is 0.
    pub epoch_ms: i64,
    /// Driver version as `nvidia-smi` prints it. It decides which symbols exist and how wide their records are.
    pub driver_version: String,
    /// CUDA version times 1000, plus minor times 10, as NVML encodes it.
    pub cuda_version: i32,
    /// Whether `used` of the v2 memory call contains the driver's reserve, as the R525 documents say.
    pub v2_used_includes_reserved: bool,
    /// What calls return whose driver went away under them (1 UNINITIALIZED; 999 UNKNOWN was reported too).
    pub stale_code: u32,
    /// A small file that another process rewrites while the scenario runs; see [`Live`].
    pub live: Option<PathBuf>,
    /// Where calls are counted; see [`crate::calls`].
    pub calls: Option<PathBuf>,
    /// The GPUs, by NVML index.
    pub gpus: Vec<Gpu>,
    /// Spans in which there is no driver; each also makes older handles stale.
    pub outages: Vec<Outage>,
    /// What fails, when.
    pub faults: Vec<Fault>,
    /// What the driver reports through its event sets.
    pub events: Vec<Event>,
}

impl Default for Scenario {
    /// A driver without GPUs whose time is the wall clock.
    fn default() -> Self {
        Self {
            epoch_ms: 0,
            driver_version: "580.95.05".to_owned(),
            cuda_version: 13_000,
            v2_used_includes_reserved: false,
            stale_code: 1,
            live: None,
            calls: None,
            gpus: Vec::new(),
            outages: Vec::new(),
            faults: Vec::new(),
            events: Vec::new(),
        }
    }
}

impl Scenario {
    /// An empty machine whose time starts now.
    #[must_use]
    pub fn new() -> Self {
        Self { epoch_ms: wall_ms(), ..Self::default() }
    }

    /// What the library shows when nobody gave it a scenario: two idle cards, one held by PID 1, which every
    /// machine has.
    #[must_use]
    pub fn two_gpus() -> Self {
        Self::default()
            .gpu(Gpu::h100(0).process(Process::compute(1, Curve::Constant(Bytes::from_mib(24_576)))))
            .gpu(Gpu::h100(1))
    }

    /// Adds a GPU; its index is its place.
    #[must_use]
    pub fn gpu(mut self, gpu: Gpu) -> Self {
        self.gpus.push(gpu);
        self
    }

    /// Sets the driver's version.
    #[must_use]
    pub fn driver(mut self, version: &str) -> Self {
        version.clone_into(&mut self.driver_version);
        self
    }

    /// Adds something that fails.
    #[must_use]
    pub fn fault(mut self, fault: Fault) -> Self {
        self.faults.push(fault);
        self
    }

    /// Adds something the driver reports.
    #[must_use]
    pub fn event(mut self, event: Event) -> Self {
        self.events.push(event);
        self
    }

    /// Adds a span without a driver.
    #[must_use]
    pub fn outage(mut self, outage: Outage) -> Self {
        self.outages.push(outage);
        self
    }

    /// Milliseconds of the scenario at this moment of the wall clock.
    #[must_use]
    pub fn now_ms(&self) -> i64 {
        wall_ms().saturating_sub(self.epoch_ms)
    }

    /// How often the driver was lost up to `at_ms`; a handle of another generation is stale.
    #[must_use]
    pub fn generation(&self, at_ms: i64) -> u32 {
        let lost = self.outages.iter().filter(|o| o.from_ms <= at_ms).count();
        u32::try_from(lost).unwrap_or(u32::MAX)
    }

    /// The outage that lasts at `at_ms`.
    #[must_use]
    pub fn outage_at(&self, at_ms: i64) -> Option<&Outage> {
        self.outages.iter().find(|o| o.from_ms <= at_ms && o.until_ms.is_none_or(|end| at_ms < end))
    }

    /// Whether `nvmlDeviceGetMemoryInfo_v2` and the `_v3` process lists exist in this driver. 535.98 took the
    /// lists away again, 535.104 brought them back (nvitop issues 79, 89, 94).
    #[must_use]
    pub fn has_v3_lists(&self) -> bool {
        let version = self.version();
        version >= FIRST_WITH_V3_LISTS && !((535, 98)..(535, 104)).contains(&version)
    }

    /// Whether this driver knows the v2 memory record.
    #[must_use]
    pub fn has_memory_v2(&self) -> bool {
        self.version() >= FIRST_WITH_V3_LISTS
    }

    /// Whether `_v3` lists write records of 32 bytes where callers expect 24 (535.43 up to 535.97).
    #[must_use]
    pub fn wide_records(&self) -> bool {
        ((535, 43)..(535, 98)).contains(&self.version())
    }

    /// The same world with what a live file says laid over it.
    #[must_use]
    pub fn overlaid(mut self, live: &Live) -> Self {
        for entry in &live.processes {
            let Some(gpu) = self.gpus.get_mut(entry.gpu as usize) else { continue };
            let memory = Curve::Constant(entry.bytes);
            match gpu.processes.iter_mut().find(|p| p.pid == entry.pid) {
                Some(process) => process.memory = memory,
                None => {
                    gpu.processes.push(Process { kind: entry.kind, ..Process::compute(entry.pid, memory) });
                }
            }
        }
        self.faults.extend_from_slice(&live.faults);
        self.events.extend_from_slice(&live.events);
        self.outages.extend_from_slice(&live.outages);
        self
    }

    /// The scenario as its file holds it.
    ///
    /// # Errors
    /// When an amount exceeds what TOML's integers hold (2^63 - 1).
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(self)
    }

    /// Reads a scenario file.
    ///
    /// # Errors
    /// Names the line and key that is wrong.
    pub fn from_toml(text: &str) -> Result<Self, toml::de::Error> {
        toml::from_str(text)
    }

    fn version(&self) -> (u32, u32) {
        let mut parts = self.driver_version.split('.').map(|part| part.parse().unwrap_or(0));
        (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
    }
}

/// What a running test adds to the scenario: it rewrites this file, by rename, while others read the driver.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Live {
    /// Memory that processes hold now. An entry replaces the curve of a process of the scenario, or adds one.
    pub processes: Vec<LiveProcess>,
    /// Further faults.
    pub faults: Vec<Fault>,
    /// Further events.
    pub events: Vec<Event>,
    /// Further spans without a driver.
    pub outages: Vec<Outage>,
}

impl Live {
    /// Says that `pid` holds `bytes` on GPU number `gpu` now.
    #[must_use]
    pub fn process(mut self, gpu: u32, pid: u32, bytes: Bytes) -> Self {
        self.processes.push(LiveProcess { gpu, pid, kind: ProcessKind::Compute, bytes });
        self
    }

    /// Adds something that fails.
    #[must_use]
    pub fn fault(mut self, fault: Fault) -> Self {
        self.faults.push(fault);
        self
    }

    /// Adds something the driver reports.
    #[must_use]
    pub fn event(mut self, event: Event) -> Self {
        self.events.push(event);
        self
    }

    /// Adds a span without a driver.
    #[must_use]
    pub fn outage(mut self, outage: Outage) -> Self {
        self.outages.push(outage);
        self
    }

    /// The state as its file holds it.
    ///
    /// # Errors
    /// When an amount exceeds what TOML's integers hold (2^63 - 1).
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(self)
    }

    /// Reads a live file.
    ///
    /// # Errors
    /// Names the line and key that is wrong.
    pub fn from_toml(text: &str) -> Result<Self, toml::de::Error> {
        toml::from_str(text)
    }
}

/// A process whose memory another process decides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LiveProcess {
    /// NVML index of its GPU.
    #[serde(default)]
    pub gpu: u32,
    /// Its process id.
    pub pid: u32,
    /// The lists that show it.
    #[serde(default)]
    pub kind: ProcessKind,
    /// What it holds.
    pub bytes: Bytes,
}

/// The wall clock in milliseconds since 1970; 0 on a machine whose clock stands before.
#[must_use]
pub fn wall_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebbtide_core::ByteRate;

    #[test]
    fn a_scenario_survives_its_file() {
        let scenario = Scenario::new()
            .gpu(
                Gpu::h100(0)
                    .process(Process::compute(7, Curve::linear(Bytes(5), ByteRate(2.5))).span(10, Some(20)))
                    .process(Process::graphics(8, Curve::Steps(vec![(0, Bytes(1)), (50, Bytes(3))])))
                    .mig("1g.10gb", Bytes(10)),
            )
            .fault(Fault::hang("nvmlDeviceGetMemoryInfo*").gpu(0).until_ms(9))
            .event(Event::xid(5, 0, 79))
            .outage(Outage::between(100, 200));
        assert_eq!(Scenario::from_toml(&scenario.to_toml().unwrap()).unwrap(), scenario);
    }

    #[test]
    fn a_typo_is_an_error_that_names_the_key() {
        let error = Scenario::from_toml("[[gpus]]\nnmae = 'x'").unwrap_err().to_string();
        assert!(error.contains("nmae"), "{error}");
    }

    #[test]
    fn driver_versions_decide_records() {
        let wide = |version: &str| Scenario::default().driver(version).wide_records();
        assert_eq!(
            ["535.42", "535.43.02", "535.86.10", "535.98", "550.54"].map(wide),
            [false, true, true, false, false]
        );
        let lists = |version: &str| Scenario::default().driver(version).has_v3_lists();
        assert_eq!(
            ["470.82", "510.39", "535.98", "535.104.05", "580.95"].map(lists),
            [false, true, false, true, true]
        );
    }

    #[test]
    fn an_outage_raises_the_generation_for_good() {
        let scenario = Scenario::default().outage(Outage::between(100, 200));
        assert_eq!([50, 100, 250].map(|at| scenario.generation(at)), [0, 1, 1]);
        assert_eq!(
            [50, 100, 199, 200].map(|at| scenario.outage_at(at).is_some()),
            [false, true, true, false]
        );
    }

    #[test]
    fn live_memory_replaces_and_adds() {
        let base =
            Scenario::default().gpu(Gpu::h100(0).process(Process::compute(7, Curve::Constant(Bytes(5)))));
        let world = base.overlaid(&Live::default().process(0, 7, Bytes(9)).process(0, 8, Bytes(1)));
        let held: Vec<_> = world.gpus[0].processes.iter().map(|p| (p.pid, p.memory_at(0))).collect();
        assert_eq!(held, [(7, Some(Bytes(9))), (8, Some(Bytes(1)))]);
    }
}
