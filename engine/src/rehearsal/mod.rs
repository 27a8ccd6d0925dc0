//! The workload of a demonstration: an engine that loads, fills its KV cache, serves, and leaks at a rate that
//! only its own file of truth tells.

mod plan;

pub use plan::{Leak, Phase, Plan, Scene};

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use ebbtide_core::{ByteRate, Bytes, Ts};
use serde::{Deserialize, Serialize};

use crate::room;
use crate::status::{self, Load, StatusError, StatusFile};
use crate::vram::{EXTENT, Extent, Vram, VramError};

/// The file of truth in the rehearsal's directory.
pub const TRUTH_FILE: &str = "rehearsal-truth.json";
/// Memory follows the plan this often, and the status follows memory: finer than anybody samples, so that a reader
/// of both finds them in step.
const STEP: Duration = Duration::from_millis(100);
/// The truth is written this often.
const RECORD_EVERY: Duration = Duration::from_millis(500);

/// A rehearsal could not be played.
#[derive(Debug, thiserror::Error)]
pub enum RehearsalError {
    /// The machine is too small.
    #[error(
        "a rehearsal needs about {needed} of host memory and would take half of {room} at most; free some memory, or raise the memory limit of this cgroup"
    )]
    NoRoom {
        /// What can be had.
        room: Bytes,
        /// What the plan takes at its peak.
        needed: Bytes,
    },
    /// Its memory failed.
    #[error(transparent)]
    Vram(#[from] VramError),
    /// Its files failed.
    #[error(transparent)]
    Status(#[from] StatusError),
}

/// What really happened: for whoever wants to mark a detector's answer, after it was given.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Truth {
    /// What everything random was drawn from.
    pub seed: u64,
    /// When the rehearsal began.
    pub started_at: Ts,
    /// When this was written.
    pub updated_at: Ts,
    /// The injected rate in bytes a second; `None` for a healthy engine.
    pub leak_rate: Option<ByteRate>,
    /// When the leak began; `None` until it has.
    pub onset_at: Option<Ts>,
    /// Leaked so far, in bytes.
    pub leaked: Bytes,
    /// Held in all, by the kernel's count.
    pub allocated: Bytes,
}

/// Plays `plan`, scaled down where the machine is small, and keeps the status file of this process and the truth
/// ([`TRUTH_FILE`]) in `dir` up to date.
///
/// Ends when `stop` receives anything or its sender is dropped, and at the plan's deadline at the latest. A
/// process that is killed instead leaves the truth as it was half a second before.
///
/// # Errors
/// Where the machine has no room, memory cannot be had, or `dir` cannot be written.
pub fn run(plan: &Plan, dir: &Path, stop: &Receiver<()>) -> Result<Truth, RehearsalError> {
    let mut workload = Workload::start(fitted(plan)?, dir)?;
    let begun = Instant::now();
    let mut recorded: Option<Duration> = None;
    loop {
        let elapsed = begun.elapsed();
        workload.follow(elapsed)?;
        if recorded.is_none_or(|last| elapsed - last >= RECORD_EVERY) {
            workload.record(elapsed, dir)?;
            recorded = Some(elapsed);
        }
        if is_stopped(stop) || elapsed >= workload.plan.deadline {
            return workload.record(elapsed, dir);
        }
    }
}

/// Waits one step; whether the end was asked for meanwhile.
fn is_stopped(stop: &Receiver<()>) -> bool {
    !matches!(stop.recv_timeout(STEP), Err(RecvTimeoutError::Timeout))
}

fn fitted(plan: &Plan) -> Result<Plan, RehearsalError> {
    let Some(room) = room::available() else { return Ok(plan.clone()) };
    plan.clone().fitting(room).ok_or(RehearsalError::NoRoom { room, needed: plan.peak() })
}

/// A process that holds what its plan says.
#[derive(Debug)]
struct Workload {
    plan: Plan,
    vram: Vram,
    /// Held to the end; never read again, as weights are not.
    _weights: Extent,
    kv: Vec<Extent>,
    forgotten: u64,
    status: StatusFile,
    started_at: Ts,
}

impl Workload {
    fn start(plan: Plan, dir: &Path) -> Result<Self, RehearsalError> {
        let status = StatusFile::in_dir(dir)?;
        // Said before any memory is taken: whoever sees the memory finds an engine that explains it.
        let idle = Load { kv_used: Bytes::ZERO, kv_pool: Bytes::ZERO, running: 0, waiting: 0 };
        status.write(idle, status::now())?;
        let mut vram = Vram::create()?;
        let weights = vram.allocate(plan.weights)?;
        let started_at = status::now();
        Ok(Self { plan, vram, _weights: weights, kv: Vec::new(), forgotten: 0, status, started_at })
    }

    /// Takes and frees memory until what is held is what the plan says of `elapsed`, and says so.
    fn follow(&mut self, elapsed: Duration) -> Result<Scene, RehearsalError> {
        let scene = self.plan.scene(elapsed);
        let wanted = scene.kv_pool.0 / EXTENT.0;
        while (self.kv.len() as u64) < wanted {
            self.kv.push(self.vram.allocate(EXTENT)?);
        }
        while self.kv.len() as u64 > wanted
            && let Some(extent) = self.kv.pop()
        {
            self.vram.free(extent)?;
        }
        while self.forgotten < scene.forgotten {
            // Dropping the extent is the leak.
            self.vram.allocate(self.plan.leak_extent())?;
            self.forgotten += 1;
        }
        let load = Load {
            kv_used: scene.kv_used,
            kv_pool: scene.kv_pool,
            running: scene.running,
            waiting: scene.waiting,
        };
        self.status.write(load, status::now())?;
        Ok(scene)
    }

    /// Writes the truth as of `elapsed`.
    fn record(&self, elapsed: Duration, dir: &Path) -> Result<Truth, RehearsalError> {
        let begun = self.plan.leak.filter(|leak| elapsed >= leak.after);
        let truth = Truth {
            seed: self.plan.seed,
            started_at: self.started_at,
            updated_at: status::now(),
            leak_rate: self.plan.leak.map(|leak| leak.rate),
            onset_at: begun.map(|leak| self.started_at.plus_ms(leak.after.as_millis() as i64)),
            leaked: Bytes(self.plan.leak_extent().0 * self.forgotten),
            allocated: self.vram.allocated()?,
        };
        status::replace(&dir.join(TRUTH_FILE), &truth)?;
        Ok(truth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn small() -> Plan {
        let plan = Plan::drawn(3, Duration::from_secs(60));
        Plan { weights: Bytes::from_mib(8), kv_pool: Bytes::from_mib(16), ..plan }
    }

    #[test]
    fn a_workload_holds_to_the_page_what_its_plan_says() {
        let dir = tempfile::tempdir().unwrap();
        let mut workload = Workload::start(small(), dir.path()).unwrap();
        for tenths in (0..650).step_by(7) {
            let elapsed = Duration::from_millis(tenths * 100);
            let scene = workload.follow(elapsed).unwrap();
            let leaked = workload.plan.leak_extent().0 * scene.forgotten;
            let held = Bytes(workload.plan.weights.0 + scene.kv_pool.0 + leaked);
            let truth = workload.record(elapsed, dir.path()).unwrap();
            assert_eq!((truth.allocated, truth.leaked), (held, Bytes(leaked)), "after {elapsed:?}");
            assert_eq!(truth.onset_at.is_some(), scene.phase == Phase::Leaking);
        }
    }

    #[test]
    fn a_run_ends_when_told_and_leaves_the_truth_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let (sender, stop) = mpsc::channel();
        drop(sender);
        let truth = run(&small(), dir.path(), &stop).unwrap();
        assert_eq!((truth.leaked, truth.onset_at), (Bytes(0), None));
        assert!(truth.leak_rate.is_some());
        let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, [TRUTH_FILE]);
        let written: Truth =
            serde_json::from_slice(&std::fs::read(dir.path().join(TRUTH_FILE)).unwrap()).unwrap();
        assert_eq!(written, truth);
    }
}
