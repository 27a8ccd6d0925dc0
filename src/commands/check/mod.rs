//! `ebbtide check FILE`: the daemon's pipeline over a recorded series, or over a history.

mod course;
mod report;
mod stored;
mod text;

use std::path::Path;
use std::time::Duration;

use ebbtide_core::{Bytes, Ts};
use ebbtide_daemon::pipeline::{Input, Pipeline, PipelineConfig};
use ebbtide_probe::recorded::{self, Options, Recording};

use super::config;
use crate::cli::{CheckArgs, CheckedFileArgs, ConfigArgs};
use crate::{exit, output};
use report::{FileReport, Report, Watch};

pub(crate) fn run(args: CheckArgs) -> anyhow::Result<u8> {
    let pipeline = pipeline(args.config)?;
    let report = match (&args.recording.file, &args.db) {
        (Some(file), _) => judge(&read(file, &args.recording)?, pipeline),
        (None, Some(db)) => {
            let span = (args.from.unwrap_or(Ts(i64::MIN)), args.to.unwrap_or(Ts(i64::MAX)));
            stored::judge(db, span, pipeline)?
        }
        (None, None) => {
            let message = "nothing to judge: name a file, or a database with --db".to_owned();
            return Err(exit::Coded { code: exit::USAGE, message }.into());
        }
    };
    if args.json {
        output::json(&report)?;
    } else {
        output::text(&text::render(&report))?;
    }
    Ok(if args.exit_code { report.worst_alert() } else { 0 })
}

/// What a daemon with these settings would judge with.
fn pipeline(config: ConfigArgs) -> anyhow::Result<Pipeline> {
    let config = config::effective(config)?.config;
    Ok(Pipeline::new(PipelineConfig {
        host: "recorded".to_owned(),
        detect: config.detect.judged(),
        policy: config.alerts,
    }))
}

fn read(file: &Path, args: &CheckedFileArgs) -> anyhow::Result<Recording> {
    let options = Options {
        columns: args.columns.clone(),
        interval: args.interval.map(Duration::from_secs_f64),
        total: args.total_mib.map(Bytes::from_mib),
    };
    let recording = if file.as_os_str() == "-" {
        recorded::read(std::io::stdin().lock(), &options)
    } else {
        recorded::read_path(file, &options)
    };
    recording.map_err(|error| {
        let message = format!("{}: {:#}", file.display(), anyhow::Error::new(error));
        anyhow::Error::new(exit::Coded { code: exit::DATA, message })
    })
}

/// Plays the recording as if it were live.
fn judge(recording: &Recording, mut pipeline: Pipeline) -> Report {
    let mut watch = Watch::default();
    for sample in recording.samples() {
        watch.sample(&sample);
        pipeline.step(Input::Sample(sample)).into_iter().for_each(|effect| watch.effect(effect));
        watch.judged(pipeline.judgements());
    }
    watch.report(FileReport::from(&recording.report))
}
