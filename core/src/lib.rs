//! The words everybody in ebbtide uses: units, ids, readings, samples, ledgers, frames, findings, alerts.
//!
//! This crate holds types and the few pure functions that belong to them; it reads nothing, decides nothing
//! about memory and has no clock. `docs/data-model.md` opens with the glossary.

pub mod alert;
pub mod engine_ledger;
pub mod engine_report;
pub mod engine_status;
pub mod finding;
pub mod frame;
pub mod ids;
pub mod incident;
pub mod judgement;
pub mod ledger;
pub mod reading;
pub mod record;
pub mod sample;
pub mod series;
pub mod text;
pub mod units;

pub use alert::{Alert, AlertEvent, AlertState, AlertTransition};
pub use engine_ledger::{Amount, Difference, EngineLedger, EngineTerm};
pub use engine_report::{Appraisal, EngineReport, EngineRole, KvCount, KvUnit};
pub use engine_status::EngineStatus;
pub use finding::{
    Evidence, Finding, FindingEvent, FindingKey, FindingKind, RateBand, Severity, Subject, Tier,
};
pub use frame::Frame;
pub use ids::{GpuUuid, MigId, ProcKey};
pub use incident::{EndCause, Ending, ExitStatus, GpuAtEnd, Incident};
pub use judgement::{Diagnosis, Forecast, Judgement};
pub use ledger::{Ledger, Term};
pub use reading::{Absent, Reading};
pub use record::{GpuCard, Point, ProcessCard, TickRecord};
pub use sample::{
    DeviceMemory, EngineSample, EventKind, GpuKind, GpuSample, GpuState, Holder, HostSample, KvSemantics,
    Liveness, MemorySource, Owner, Pod, ProbeHealth, ProcInfo, ProcKinds, ProcSample, ProcessList, Sample,
    WorldEvent,
};
pub use series::{Metric, SeriesKey, SeriesPart, SeriesRef};
pub use units::{ByteRate, Bytes, Percent, SignedBytes, Tick, Ts};
