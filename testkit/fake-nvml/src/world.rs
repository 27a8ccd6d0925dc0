//! What is true now: the scenario and its live file, read again whenever either changes.

use std::ffi::{CStr, OsStr, c_void};
use std::fmt::Display;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use ebbtide_testkit::Scenario;
use ebbtide_testkit::driver::{SCENARIO_ENV, SCENARIO_FILE};
use ebbtide_testkit::scenario::{Live, wall_ms};

use crate::counting;

/// The scenario file, if there is one; where the library lies and what the environment says do not change.
static PATH: LazyLock<Option<PathBuf>> = LazyLock::new(|| beside_library().or_else(from_environment));
/// The world last read. Readers clone the inner pointer and let go, so that a hanging call holds no lock.
static CURRENT: RwLock<Option<Current>> = RwLock::new(None);

/// One moment of one world.
#[derive(Clone)]
pub(crate) struct Moment {
    /// The scenario with its live file laid over; `None` when the file cannot be read.
    pub(crate) scenario: Option<Arc<Scenario>>,
    /// Wall time, ms since 1970.
    pub(crate) wall_ms: i64,
}

impl Moment {
    /// Milliseconds of the scenario.
    pub(crate) fn of(&self, scenario: &Scenario) -> i64 {
        self.wall_ms.saturating_sub(scenario.epoch_ms)
    }
}

struct Current {
    scenario: Option<Arc<Scenario>>,
    live: Option<PathBuf>,
    checked_ms: i64,
    seen: Seen,
}

/// What the two files looked like when they were read.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Seen {
    scenario: Option<Look>,
    live: Option<Look>,
}

/// Device, inode, size and time of change: a rename or a rewrite changes at least one.
type Look = (u64, u64, u64, i64, i64);

/// The world now. Files are looked at once a millisecond: two system calls then, a read lock otherwise.
pub(crate) fn now() -> Moment {
    let wall_ms = wall_ms();
    if let Some(current) = &*CURRENT.read().unwrap_or_else(PoisonError::into_inner)
        && current.checked_ms == wall_ms
    {
        return Moment { scenario: current.scenario.clone(), wall_ms };
    }
    let mut current = CURRENT.write().unwrap_or_else(PoisonError::into_inner);
    let live = current.as_ref().and_then(|current| current.live.clone());
    let seen = Seen { scenario: PATH.as_deref().and_then(look), live: live.as_deref().and_then(look) };
    match &mut *current {
        Some(current) if current.seen == seen => current.checked_ms = wall_ms,
        stale => *stale = Some(read(stale.take(), wall_ms)),
    }
    Moment { scenario: current.as_ref().and_then(|current| current.scenario.clone()), wall_ms }
}

/// Tells the person who runs the client what is wrong with the world; NVML has no other way to say it.
#[allow(clippy::print_stderr, reason = "a C library has no log and no error texts")]
pub(crate) fn complain(text: &str) {
    eprintln!("fake libnvidia-ml: {text}");
}

/// Reads both files. A broken one is complained about once; the world of before stays, if there was one. Each file is
/// looked at before it is read, so that a change in between is seen the next time.
fn read(before: Option<Current>, wall_ms: i64) -> Current {
    let mut seen = Seen { scenario: PATH.as_deref().and_then(look), live: None };
    let base = match &*PATH {
        None => Ok(Scenario::two_gpus()),
        Some(path) => parse(path, Scenario::from_toml),
    };
    let live = base.as_ref().ok().and_then(|scenario| scenario.live.clone());
    seen.live = live.as_deref().and_then(look);
    if let Ok(scenario) = &base {
        counting::begin(scenario.calls.as_deref());
    }
    let whole = base.and_then(|scenario| match live.as_deref().filter(|_| seen.live.is_some()) {
        None => Ok(scenario),
        Some(path) => parse(path, Live::from_toml).map(|live| scenario.overlaid(&live)),
    });
    let scenario = match whole {
        Ok(scenario) => Some(Arc::new(scenario)),
        Err(text) => {
            complain(&text);
            before.and_then(|before| before.scenario)
        }
    };
    Current { scenario, live, checked_ms: wall_ms, seen }
}

fn parse<T, E: Display>(path: &Path, from: fn(&str) -> Result<T, E>) -> Result<T, String> {
    let text =
        fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    from(&text).map_err(|error| format!("{}: {error}", path.display()))
}

fn look(path: &Path) -> Option<Look> {
    let meta = fs::metadata(path).ok()?;
    Some((meta.dev(), meta.ino(), meta.size(), meta.mtime(), meta.mtime_nsec()))
}

fn from_environment() -> Option<PathBuf> {
    std::env::var_os(SCENARIO_ENV).map(PathBuf::from)
}

/// The scenario in the directory that this copy of the library was loaded from.
fn beside_library() -> Option<PathBuf> {
    let mut info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    let here = now as *const c_void;
    // SAFETY: any address may be asked about, and `info` is ours to fill.
    if unsafe { libc::dladdr(here, &raw mut info) } == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's name of this library, zero-terminated and alive as long as the library.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    let path = Path::new(OsStr::from_bytes(name.to_bytes())).with_file_name(SCENARIO_FILE);
    path.is_file().then_some(path)
}
