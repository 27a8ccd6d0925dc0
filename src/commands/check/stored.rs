//! `ebbtide check --db FILE`: a history once more, with the settings of today.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use ebbtide_core::{Finding, Ts};
use ebbtide_daemon::pipeline::{Input, Pipeline};
use ebbtide_daemon::record::Replayer;
use ebbtide_store::Reader;

use super::report::{FileReport, Report, Watch};
use crate::commands::db::{refused, runtime};
use crate::exit;
use crate::progress::Progress;

/// How long one step may take: a window is read at once, be it from a slow disk.
const DEADLINE: Duration = Duration::from_secs(60);

/// Plays the ticks from `from` to `to`, both included, as if they were live, and lays beside it what was found then.
pub(super) fn judge(path: &Path, span: (Ts, Ts), pipeline: Pipeline) -> anyhow::Result<Report> {
    let reader = Reader::new(path, DEADLINE);
    runtime()?.block_on(play(&reader, span, pipeline)).with_context(|| format!("{}", path.display()))
}

async fn play(reader: &Reader, (from, to): (Ts, Ts), mut pipeline: Pipeline) -> anyhow::Result<Report> {
    let mut replay = reader.replay(from, to).await.map_err(refused)?;
    let (mut replayer, mut watch) = (Replayer::default(), Watch::default());
    let mut progress = Progress::new("judged");
    let mut last = from;
    while let Some(record) = replay.next().await.map_err(refused)? {
        let sample = replayer.sample(record);
        last = sample.tick.at;
        watch.sample(&sample);
        pipeline.step(Input::Sample(sample)).into_iter().for_each(|effect| watch.effect(effect));
        watch.judged(pipeline.judgements());
        progress.tick(last);
    }
    progress.finish();
    if progress.ticks() == 0 {
        let message = "it holds no tick of that time: `ebbtide db info` says which it holds".to_owned();
        return Err(exit::Coded { code: exit::DATA, message }.into());
    }
    let stood_then = |finding: &Finding| {
        finding.opened_at <= last && finding.resolved_at.is_none_or(|resolved| resolved >= from)
    };
    let mut then = reader.findings(Ts(i64::MIN)).await.map_err(refused)?;
    then.retain(stood_then);
    watch.found_then(&then);
    let damaged = replay.unreadable();
    let warnings = (damaged > 0)
        .then(|| format!("{damaged} ticks are damaged and left out: `ebbtide db verify` says more"))
        .into_iter()
        .collect();
    Ok(watch.report(FileReport { lines: progress.ticks(), skipped: damaged, warnings }))
}
