//! `ebbtide check FILE`: the daemon's pipeline over a recorded series.

mod report;
mod text;

use std::time::Duration;

use ebbtide_core::Bytes;
use ebbtide_daemon::pipeline::{Input, Pipeline, PipelineConfig};
use ebbtide_probe::recorded::{self, Options, Recording};

use crate::cli::CheckArgs;
use crate::{exit, output};
use report::{Report, Watch};

pub(crate) fn run(args: CheckArgs) -> anyhow::Result<u8> {
    let (json, exit_code) = (args.json, args.exit_code);
    let report = judge(&read(args)?);
    if json {
        output::json(&report)?;
    } else {
        output::text(&text::render(&report))?;
    }
    Ok(if exit_code { report.worst_alert() } else { 0 })
}

fn read(args: CheckArgs) -> anyhow::Result<Recording> {
    let options = Options {
        columns: args.columns,
        interval: args.interval.map(Duration::from_secs_f64),
        total: args.total_mib.map(Bytes::from_mib),
    };
    let recording = if args.file.as_os_str() == "-" {
        recorded::read(std::io::stdin().lock(), &options)
    } else {
        recorded::read_path(&args.file, &options)
    };
    recording.map_err(|error| {
        let message = format!("{}: {:#}", args.file.display(), anyhow::Error::new(error));
        anyhow::Error::new(exit::Coded { code: exit::DATA, message })
    })
}

/// Plays the recording as if it were live.
fn judge(recording: &Recording) -> Report {
    let mut pipeline =
        Pipeline::new(PipelineConfig { host: "recorded".to_owned(), ..PipelineConfig::default() });
    let mut watch = Watch::default();
    for sample in recording.samples() {
        watch.sample(&sample);
        pipeline.step(Input::Sample(sample)).into_iter().for_each(|effect| watch.effect(effect));
        watch.judged(pipeline.judgements());
    }
    watch.report(&recording.report)
}
