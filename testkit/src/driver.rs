//! A driver of one's own: the fake library and its scenario in a private directory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use crate::calls::{self, CallCounts};
use crate::scenario::{Live, Scenario, wall_ms};

/// The name under which every client asks for the library.
pub const SONAME: &str = "libnvidia-ml.so.1";
/// A scenario of this name beside the library wins over the environment: it is that copy's world.
pub const SCENARIO_FILE: &str = "ebbtide-scenario.toml";
/// The environment variable that names a scenario for copies of the library with none beside them.
pub const SCENARIO_ENV: &str = "EBBTIDE_FAKE_NVML";
/// What cargo calls the library that it builds from `fake-nvml`.
const BUILT: &str = "libnvidia_ml.so";

/// The fake library in a directory of its own. It is a copy: the loader treats one file under two names as one
/// library, and two worlds in one process need two.
#[derive(Debug)]
pub struct FakeDriver {
    dir: TempDir,
    library: PathBuf,
}

impl FakeDriver {
    /// Sets up a driver that shows `scenario`. The library is the one cargo built beside the running binary, so
    /// the calling crate must have `fake-nvml` among its dev-dependencies.
    ///
    /// # Errors
    /// When the library was not built, or the directory cannot be written.
    pub fn new(scenario: &Scenario) -> io::Result<Self> {
        let dir = tempfile::Builder::new().prefix("ebbtide-nvml-").tempdir()?;
        let library = dir.path().join(SONAME);
        fs::copy(built_library()?, &library)?;
        let driver = Self { dir, library };
        driver.set(scenario)?;
        Ok(driver)
    }

    /// The library, for clients that take a path.
    #[must_use]
    pub fn library_path(&self) -> &Path {
        &self.library
    }

    /// The directory, for clients that are told by `LD_LIBRARY_PATH`.
    #[must_use]
    pub fn lib_dir(&self) -> &Path {
        self.dir.path()
    }

    /// The live file, for a process that allocates while others look.
    #[must_use]
    pub fn live_path(&self) -> PathBuf {
        self.dir.path().join("live.toml")
    }

    /// Replaces the world. Calls that begin after this returns see the new one.
    ///
    /// # Errors
    /// When the file cannot be written or an amount does not fit in it.
    pub fn set(&self, scenario: &Scenario) -> io::Result<()> {
        let mut scenario = scenario.clone();
        scenario.live.get_or_insert_with(|| self.live_path());
        scenario.calls.get_or_insert_with(|| self.calls_path());
        let text = scenario.to_toml().map_err(io::Error::other)?;
        replace(&self.dir.path().join(SCENARIO_FILE), &text)
    }

    /// Replaces what is laid over the world. Calls that begin after this returns see it.
    ///
    /// # Errors
    /// When the file cannot be written or an amount does not fit in it.
    pub fn set_live(&self, live: &Live) -> io::Result<()> {
        replace(&self.live_path(), &live.to_toml().map_err(io::Error::other)?)
    }

    /// How often each symbol was called so far, by all processes that loaded this copy.
    ///
    /// # Errors
    /// When nobody has called yet.
    pub fn calls(&self) -> io::Result<CallCounts> {
        calls::read(&self.calls_path())
    }

    fn calls_path(&self) -> PathBuf {
        self.dir.path().join("calls")
    }
}

/// Rewrites a scenario or live file by rename, so that no reader sees half of it, and returns once every call
/// that begins later sees it: the library looks at its files once in each millisecond of the wall clock.
///
/// # Errors
/// When the file cannot be written.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    let fresh = path.with_extension("new");
    fs::write(&fresh, text)?;
    fs::rename(&fresh, path)?;
    let written = wall_ms();
    while wall_ms() == written {
        std::thread::park_timeout(Duration::from_micros(200));
    }
    Ok(())
}

/// The library that cargo built from `fake-nvml`: beside the running test, or in the `deps` beside a binary. `deps`
/// goes first because a test run renews that one only.
///
/// # Errors
/// When it is not there, with the ways to get it.
pub fn built_library() -> io::Result<PathBuf> {
    let exe = std::env::current_exe()?;
    let places =
        exe.ancestors().skip(1).take(2).flat_map(|dir| [dir.join("deps").join(BUILT), dir.join(BUILT)]);
    places.into_iter().find(|path| path.is_file()).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotFound,
            format!(
                "no {BUILT} beside {}: name fake-nvml in the crate's dev-dependencies, or run cargo build -p fake-nvml",
                exe.display()
            ),
        )
    })
}
