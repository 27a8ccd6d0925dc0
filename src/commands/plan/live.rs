//! `ebbtide plan --live`: the same questions about the engines that are running now.

use std::collections::BTreeMap;
use std::fmt::{Error, Write};

use ebbtide_api::Client;
use ebbtide_api::client::SocketClient;
use ebbtide_api::wire::Status;
use ebbtide_core::{Bytes, EngineReport, EngineSample, ProcKey};
use ebbtide_daemon::running;
use ebbtide_plan::weights::Source;
use ebbtide_plan::{Deployment, Load, Model, Question, Weights};
use serde::Serialize;

use super::args::usual_sequences;
use super::{PlanArgs, Report, answered, context, listing};
use crate::commands::status;
use crate::{exit, output};

/// One engine, what it counts, and what the planner says of it.
#[derive(Debug, Serialize)]
struct Live {
    /// As the engine's makers write it.
    engine_name: String,
    address: String,
    gpus: Vec<u32>,
    /// What it says it serves.
    served_model: Option<String>,
    /// Its pool on one GPU, and what of it is in use, as it counts them.
    pool_bytes: Option<Bytes>,
    used_bytes: Option<Bytes>,
    #[serde(flatten)]
    report: Option<Report>,
    #[serde(skip)]
    model: Option<Model>,
}

/// An engine as the status shows it: the processes of one address.
struct Seen<'s> {
    report: &'s EngineReport,
    sample: &'s EngineSample,
    processes: Vec<ProcKey>,
    gpus: Vec<u32>,
    /// The smallest card that it is on.
    card: Option<Bytes>,
}

pub(super) fn run(args: &PlanArgs) -> anyhow::Result<u8> {
    let status = SocketClient::new(status::socket(&args.socket)).status().map_err(status::unknown)?;
    let live: Vec<Live> = seen(&status).iter().map(|engine| planned(args, engine)).collect();
    if live.is_empty() {
        let message =
            "no engine is known to the daemon: name one in probe.engines, or set probe.discover_engines";
        return Err(exit::Coded { code: exit::DATA, message: message.to_owned() }.into());
    }
    if args.json {
        output::json(&live)?;
    } else {
        output::text(&text(&live)?)?;
    }
    Ok(0)
}

fn seen(status: &Status) -> Vec<Seen<'_>> {
    let mut engines: BTreeMap<&str, Seen<'_>> = BTreeMap::new();
    for gpu in &status.gpus {
        let entries = gpu.gpu.processes.as_ref().map_or(&[][..], |list| &list.entries);
        let total = gpu.gpu.memory.ok().map(|memory| memory.total);
        for process in entries {
            let Some(sample) = &process.engine else { continue };
            let Some(report) = sample.report.as_deref() else { continue };
            let engine = engines.entry(&report.address).or_insert_with(|| Seen {
                report,
                sample,
                processes: Vec::new(),
                gpus: Vec::new(),
                card: total,
            });
            engine.card = engine.card.min(total);
            if !engine.processes.contains(&process.key) {
                engine.processes.push(process.key);
            }
            if !engine.gpus.contains(&gpu.gpu.index) {
                engine.gpus.push(gpu.gpu.index);
            }
        }
    }
    engines.into_values().collect()
}

fn planned(args: &PlanArgs, engine: &Seen<'_>) -> Live {
    let report = engine.report;
    let parts = running::Parts { processes: engine.processes.len() as u64, gpus: engine.gpus.len() as u64 };
    let served = report.model.clone().ok();
    let known = engine.processes.first().and_then(|&key| running::look_up(key, served.as_deref()));
    let planned = known.and_then(|known| {
        let (deployment, assumed) = known.deployment(report, parts)?;
        let found = known.found;
        let deployment = Deployment { max_sequences: usual_sequences(engine.card), ..deployment };
        // What the engine counts itself goes before what is computed.
        let counted = report.weights.ok().map(|each| Weights {
            bytes: Bytes(each.0.saturating_mul(deployment.gpus())),
            source: Source::Stated,
        });
        let running = engine.sample.running.ok().map(u64::from).filter(|running| *running > 0);
        let requests = args.requests.or(running).unwrap_or(1);
        let question = Question {
            model: &found.model,
            weights: counted.or(found.weights),
            deployment,
            load: Load { context: context(args, &found.model), requests },
            card: engine.card,
        };
        let mut planned = answered(known.name, &question);
        planned.answer.notes.extend(assumed.into_iter().map(|what| format!("assumed: {what}")));
        Some((planned, found.model))
    });
    let (report, model) = planned.unzip();
    Live {
        engine_name: engine.report.engine.clone(),
        address: engine.report.address.clone(),
        gpus: engine.gpus.clone(),
        served_model: served,
        pool_bytes: engine.sample.kv_pool.ok(),
        used_bytes: engine.sample.kv_used.ok(),
        report,
        model,
    }
}

fn text(live: &[Live]) -> Result<String, Error> {
    let mut text = String::new();
    for (place, engine) in live.iter().enumerate() {
        if place > 0 {
            text.push('\n');
        }
        let gpus: Vec<String> = engine.gpus.iter().map(ToString::to_string).collect();
        let model = engine.served_model.as_deref().unwrap_or("a model it does not name");
        writeln!(text, "{} at {} on GPU {}: {model}", engine.engine_name, engine.address, gpus.join(", "))?;
        if let Some(pool) = engine.pool_bytes {
            let used = engine.used_bytes.map_or_else(|| "–".to_owned(), |used| used.to_string());
            writeln!(text, "now: a pool of {pool} on each GPU, {used} of it in use\n")?;
        }
        match (&engine.report, &engine.model) {
            (Some(report), Some(model)) => text.push_str(&listing::of(report, model)?),
            _ => writeln!(
                text,
                "its model is not in the catalogue and its files cannot be read from here: name them with --config, --gguf or --dir"
            )?,
        }
    }
    Ok(text)
}
