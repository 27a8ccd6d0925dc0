//! Answers of Prometheus' `/api/v1/query_range`: what exporters have recorded of GPUs before ebbtide came.
//!
//! One file may hold several answers behind one another, one for each query. Series of other metrics are passed over
//! and named.

use std::collections::BTreeMap;
use std::fmt;
use std::io::BufRead;

use ebbtide_core::Absent;
use ebbtide_core::text::clean;
use ebbtide_core::units::MIB;
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

use super::gathered::Gathered;
use super::limits::{MAX_ANSWER_BYTES, MAX_ROWS, NAMED_SKIPS};
use super::rows::{GpuCells, Quantity, Rows, Skip, Subject, Values};
use super::{RecordedError, Report, SkippedLine};

/// The year 9999, where calendars of most libraries end, in seconds.
const LAST_SECOND: f64 = 253_402_300_800.0;

/// Metrics that are read: those of NVIDIA's dcgm-exporter (in MiB), of nvidia_gpu_exporter (in bytes, ratios from 0 to
/// 1; its docs/METRICS.md), and our own. With the factor to bytes or percent.
const METRICS: [(&str, Quantity, f64); 18] = [
    ("DCGM_FI_DEV_FB_USED", Quantity::Used, MIB as f64),
    ("DCGM_FI_DEV_FB_FREE", Quantity::Free, MIB as f64),
    ("DCGM_FI_DEV_FB_RESERVED", Quantity::Reserved, MIB as f64),
    ("DCGM_FI_DEV_FB_TOTAL", Quantity::Total, MIB as f64),
    ("DCGM_FI_DEV_GPU_UTIL", Quantity::Utilization, 1.0),
    ("nvidia_smi_memory_used_bytes", Quantity::Used, 1.0),
    ("nvidia_smi_memory_free_bytes", Quantity::Free, 1.0),
    ("nvidia_smi_memory_reserved_bytes", Quantity::Reserved, 1.0),
    ("nvidia_smi_memory_total_bytes", Quantity::Total, 1.0),
    ("nvidia_smi_mig_memory_used_bytes", Quantity::Used, 1.0),
    ("nvidia_smi_mig_memory_total_bytes", Quantity::Total, 1.0),
    ("nvidia_smi_utilization_gpu_ratio", Quantity::Utilization, 100.0),
    ("nvidia_smi_compute_app_used_memory_bytes", Quantity::Used, 1.0),
    ("ebbtide_gpu_memory_used_bytes", Quantity::Used, 1.0),
    ("ebbtide_gpu_memory_free_bytes", Quantity::Free, 1.0),
    ("ebbtide_gpu_memory_reserved_bytes", Quantity::Reserved, 1.0),
    ("ebbtide_gpu_memory_total_bytes", Quantity::Total, 1.0),
    ("ebbtide_process_memory_bytes", Quantity::Used, 1.0),
];

/// Whether a file that begins so is an answer of Prometheus: an object whose first field is one of an answer's.
pub(super) fn begins(bytes: &[u8]) -> bool {
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).trim_ascii_start();
    let Some(body) = text.strip_prefix(b"{").map(<[u8]>::trim_ascii_start) else { return false };
    [b"\"status\"".as_slice(), b"\"data\""].iter().any(|field| body.starts_with(field))
}

/// One answer.
#[derive(Debug, Deserialize)]
struct Answer {
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    data: Data,
}

#[derive(Debug, Default, Deserialize)]
struct Data {
    #[serde(default)]
    result: Vec<Series>,
}

/// One series of an answer. An instant query has `value` in the place of `values`.
#[derive(Debug, Deserialize)]
struct Series {
    #[serde(default)]
    metric: BTreeMap<String, String>,
    #[serde(default)]
    values: Vec<(f64, Amount)>,
}

/// A value, which Prometheus writes as text so that NaN and infinities have a form.
#[derive(Debug, Clone, Copy)]
struct Amount(f64);

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Amount;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number as text")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Amount, E> {
                Ok(Amount(text.parse().unwrap_or(f64::NAN)))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

/// Reads all answers of a file.
pub(super) fn read(
    reader: impl BufRead,
    (gathered, rows): (&mut Gathered, &mut Rows),
    report: &mut Report,
) -> Result<(), RecordedError> {
    let mut limited = reader.take(MAX_ANSWER_BYTES + 1);
    for answer in serde_json::Deserializer::from_reader(&mut limited).into_iter::<Answer>() {
        let answer = answer.map_err(|source| RecordedError::NoAnswer { source })?;
        if let Some(message) = answer.error {
            return Err(RecordedError::Refused { message: clean(&message) });
        }
        for series in answer.data.result {
            take(&series, (&mut *gathered, &mut *rows), report);
            if gathered.len() > MAX_ROWS {
                return Err(RecordedError::TooManyRows { line: report.lines });
            }
        }
    }
    Ok(())
}

fn take(series: &Series, (gathered, rows): (&mut Gathered, &mut Rows), report: &mut Report) {
    report.lines += series.values.len().max(1) as u64;
    if let Err(skip) = gather(series, gathered, rows) {
        report.skipped += series.values.len().max(1) as u64;
        if report.first_skipped.len() < NAMED_SKIPS {
            let text = clean(series.label(&["__name__"]).unwrap_or("a series without a name"));
            report.first_skipped.push(SkippedLine { number: report.lines, reason: skip.reason(), text });
        }
    }
}

fn gather(series: &Series, gathered: &mut Gathered, rows: &mut Rows) -> Result<(), Skip> {
    let name = series.label(&["__name__"]).ok_or(Skip::UnknownMetric)?;
    let (_, quantity, factor) =
        METRICS.iter().find(|(known, ..)| *known == name).ok_or(Skip::UnknownMetric)?;
    if series.values.is_empty() {
        return Err(Skip::NoRange);
    }
    let uuid = series.gpu();
    let gpu = rows.gpu(GpuCells {
        uuid: uuid.as_deref(),
        index: series.label(&["gpu", "index", "gpu_index", "minor_number"]),
        bus: series.label(&["pci_bus_id"]),
        name: series.label(&["modelName", "name", "gpu_name"]),
    })?;
    let subject = match series.label(&["pid"]) {
        Some(pid) => {
            let pid = pid.parse().map_err(|_| Skip::BadPid)?;
            Subject::Process(rows.process(pid, series.label(&["process_name", "process"]))?)
        }
        None => Subject::Device,
    };
    for (seconds, Amount(value)) in &series.values {
        if !(0.0..LAST_SECOND).contains(seconds) {
            rows.bad_cells += 1;
            continue;
        }
        let at_ms = (seconds * 1000.0).round() as i64;
        gathered.set((at_ms, gpu, subject), *quantity, amount(value * factor).ok_or(Absent::NotYet));
    }
    Ok(())
}

/// The amount that a value states; none for NaN, which stands for a stale series, and for what no card has: exporters
/// are known to hand on the driver's sentinels.
fn amount(value: f64) -> Option<u64> {
    (0.0..=Values::LARGEST as f64).contains(&value).then(|| value.round() as u64)
}

impl Series {
    /// The first of these labels that says something.
    fn label(&self, names: &[&str]) -> Option<&str> {
        names
            .iter()
            .filter_map(|name| self.metric.get(*name))
            .map(String::as_str)
            .find(|text| !text.is_empty())
    }

    /// The GPU's identity: its UUID in the form of NVML, since nvidia_gpu_exporter leaves out the prefix, and the
    /// instance where the GPU is partitioned. Where exporters of several machines give no UUID, theirs keep apart.
    fn gpu(&self) -> Option<String> {
        let instance = self.label(&["GPU_I_ID", "gpu_instance_id"]);
        let whole = match self.label(&["UUID", "uuid", "gpu_uuid"]) {
            Some(uuid) if uuid.len() == 36 && !uuid.starts_with("GPU-") => format!("GPU-{uuid}"),
            Some(uuid) => uuid.to_owned(),
            None => {
                let index = self.label(&["gpu", "index", "gpu_index", "minor_number"])?;
                let machine = self.label(&["hostname", "Hostname", "instance"])?;
                format!("{machine}/{index}")
            }
        };
        Some(instance.map_or_else(|| whole.clone(), |instance| format!("{whole}/{instance}")))
    }
}
