//! Simulated worlds for tests: a GPU driver that other programs load and believe.
//!
//! [`scenario`] describes a world as data (TOML), with builders so that a test states it in a few lines.
//! [`driver::FakeDriver`] puts the real shared library of `fake-nvml` beside such a scenario, in a directory of
//! its own, so that tests run in parallel and every program takes the ordinary loader path. [`calls`] counts what
//! was asked of it.
//!
//! ```no_run
//! use ebbtide_core::{ByteRate, Bytes};
//! use ebbtide_testkit::{Curve, FakeDriver, Fault, Gpu, Process, Scenario};
//!
//! let leak = Curve::linear(Bytes::from_mib(4096), ByteRate::from_mib_per_min(400.0));
//! let scenario = Scenario::new()
//!     .gpu(Gpu::h100(0).process(Process::compute(4242, leak)))
//!     .gpu(Gpu::h100(1))
//!     .fault(Fault::code(15, "*").gpu(1).from_ms(2_000));
//! let driver = FakeDriver::new(&scenario)?;
//! // Nvml::builder().lib_path(driver.library_path().as_os_str()).init()
//! # Ok::<(), std::io::Error>(())
//! ```

pub mod calls;
pub mod driver;
pub mod scenario;
pub mod traces;

pub use driver::FakeDriver;
pub use scenario::{
    Curve, Ecc, Event, Fault, Gpu, Live, LiveProcess, MigInstance, Outage, Process, ProcessKind, Scenario,
};
