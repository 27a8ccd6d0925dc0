//! What can be said after `ebbtide db`, and after `ebbtide import`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use ebbtide_core::{Metric, Ts};
use ebbtide_probe::recorded;

use crate::cli::ConfigArgs;

/// `ebbtide db`
#[derive(Debug, Subcommand)]
pub(crate) enum DbCommand {
    /// What a database holds: sizes, spans, counts, its last tick, and who writes to it
    Info(InfoArgs),
    /// Check every page and every blob; exits 0 sound, 1 damaged, 65 where there is no database
    Verify(FileArgs),
    /// Give free space back to the file system, while no daemon writes to the database
    Compact(FileArgs),
    /// Print values, one a line, as CSV or JSON
    Export(ExportArgs),
}

/// Which database.
#[derive(Debug, Default, Args)]
pub(crate) struct FileArgs {
    /// The database; the configured one where none is given
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
}

/// `ebbtide db info`
#[derive(Debug, Args)]
pub(crate) struct InfoArgs {
    #[command(flatten)]
    pub(crate) file: FileArgs,
    /// Print it as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `ebbtide db export`
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  ebbtide db export --from 2026-11-30T03:00:00Z --series used-bytes > night.csv\n  ebbtide db export copy.db --format jsonl --gpu GPU-1 | jq -c 'select(.value != null)'\n\nTimes are UTC unless they have a zone. An empty cell, or null, is a value that was absent."
)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    pub(crate) file: FileArgs,
    /// The form of a line
    #[arg(long, value_enum, default_value_t = Format::Csv)]
    pub(crate) format: Format,
    /// From when on: RFC 3339, a date, or seconds since 1970
    #[arg(long, value_name = "TIME", value_parser = instant)]
    pub(crate) from: Option<Ts>,
    /// Until when, included
    #[arg(long, value_name = "TIME", value_parser = instant)]
    pub(crate) to: Option<Ts>,
    /// This metric alone, e.g. used-bytes; may be repeated
    #[arg(long, value_name = "METRIC", value_parser = metric)]
    pub(crate) series: Vec<Metric>,
    /// This GPU alone
    #[arg(long, value_name = "UUID")]
    pub(crate) gpu: Option<String>,
    /// This process alone
    #[arg(long, value_name = "N")]
    pub(crate) pid: Option<u32>,
}

/// The form of an exported line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Comma-separated values under a header
    Csv,
    /// One JSON object a line
    Jsonl,
}

/// `ebbtide import`
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  ebbtide import night.csv --into night.db && ebbtide top --db night.db\n  curl -s 'http://prometheus:9090/api/v1/query_range?query=DCGM_FI_DEV_FB_USED&start=2026-11-01T00:00:00Z&end=2026-11-08T00:00:00Z&step=60s' > week.json\n  ebbtide import week.json --into week.db\n\nReads what `ebbtide db export` writes, answers of Prometheus (several may stand behind one another), and all that `ebbtide check` reads. Exits 65 where the file holds none of these, or nothing that is newer than the database."
)]
pub(crate) struct ImportArgs {
    /// The file; `-` for standard input
    pub(crate) file: PathBuf,
    /// The database; made where there is none, and never one that a daemon writes to
    #[arg(long, value_name = "DB")]
    pub(crate) into: PathBuf,
    /// Size of the GPU, where the file does not record it
    #[arg(long, value_name = "MIB")]
    pub(crate) total_mib: Option<u64>,
}

/// An instant as people write it.
pub(crate) fn instant(text: &str) -> Result<Ts, String> {
    let expected = "expected RFC 3339, a date, or seconds since 1970, e.g. 2026-11-30T03:00:00Z";
    recorded::parse_instant(text).ok_or_else(|| expected.to_owned())
}

fn metric(text: &str) -> Result<Metric, String> {
    Metric::from_name(text).ok_or_else(|| {
        let known: Vec<&str> = Metric::ALL.iter().map(|metric| metric.name()).collect();
        format!("expected one of {}", known.join(", "))
    })
}
