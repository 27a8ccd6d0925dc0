//! `ebbtide plan`: what a model, a context and a load will need, before anything is started.

mod args;
mod listing;
mod live;

use ebbtide_core::Bytes;
use ebbtide_daemon::model_files::{self, Found, ModelFileError};
use ebbtide_plan::{Answer, Load, Model, Question, Verdict, Weights, card, catalogue};
use serde::Serialize;

use crate::{exit, output};
pub(crate) use args::PlanArgs;

/// The context that is asked about where none is given: what most services allow.
const USUAL_CONTEXT: u64 = 8192;

/// What was asked and what the answer is; its JSON is the contract of `docs/plan.md`.
#[derive(Debug, Serialize)]
struct Report {
    model: String,
    family: String,
    engine: &'static str,
    kv_type: &'static str,
    tp: u64,
    pp: u64,
    dp: u64,
    context: u64,
    requests: u64,
    #[serde(flatten)]
    answer: Answer,
}

pub(crate) fn run(args: &PlanArgs) -> anyhow::Result<u8> {
    if args.live {
        return live::run(args);
    }
    let (mut name, mut found) = model(args)?;
    if let Some(draft) = &args.draft_model {
        let (draft_name, draft) = named(draft)?;
        found = found.with_draft(&draft);
        name = format!("{name} + {draft_name}");
    }
    let card = card(args)?;
    let report = report(args, name, &found, card);
    if args.json {
        output::json(&report)?;
    } else {
        output::text(&listing::of(&report, &found.model)?)?;
    }
    Ok(if args.exit_code { code(&report.answer, card) } else { 0 })
}

fn report(args: &PlanArgs, name: String, found: &Found, card: Option<Bytes>) -> Report {
    let stated =
        args.weights_gib.map(|bytes| Weights { bytes, source: ebbtide_plan::weights::Source::Stated });
    let question = Question {
        model: &found.model,
        weights: stated.or(found.weights),
        deployment: args.deployment(found.model.kv_type, card),
        load: Load { context: context(args, &found.model), requests: args.requests.unwrap_or(1) },
        card,
    };
    answered(name, &question)
}

/// The context that was asked about, or the usual one as far as the model goes.
fn context(args: &PlanArgs, model: &Model) -> u64 {
    let usual = || model.max_context.map_or(USUAL_CONTEXT, |longest| longest.clamp(1, USUAL_CONTEXT));
    args.context.unwrap_or_else(usual)
}

fn answered(name: String, question: &Question<'_>) -> Report {
    let deployment = question.deployment;
    Report {
        model: name,
        family: question.model.family.clone(),
        engine: deployment.engine.name(),
        kv_type: deployment.kv_type.name(),
        tp: deployment.tp,
        pp: deployment.pp,
        dp: deployment.dp,
        context: question.load.context,
        requests: question.load.requests,
        answer: question.answer(),
    }
}

fn model(args: &PlanArgs) -> anyhow::Result<(String, Found)> {
    let from = |path: &std::path::Path, found: Result<Found, ModelFileError>| {
        let name = ebbtide_core::text::clean(&path.display().to_string());
        found.map(|found| (name, found)).map_err(|error| coded(exit::DATA, &error.into()))
    };
    match (&args.config, &args.gguf, &args.dir) {
        (Some(path), _, _) => from(path, model_files::config(path)),
        (_, Some(path), _) => from(path, model_files::gguf(path)),
        (_, _, Some(path)) => from(path, model_files::folder(path)),
        _ => named(args.model.as_deref().unwrap_or_default()),
    }
}

fn named(name: &str) -> anyhow::Result<(String, Found)> {
    let entry = catalogue::find(name).map_err(|error| coded(exit::USAGE, &error.into()))?;
    let model = entry.model()?;
    Ok((entry.name.to_owned(), Found { weights: Weights::computed(&model), model }))
}

fn card(args: &PlanArgs) -> anyhow::Result<Option<Bytes>> {
    let named = args.gpu.as_deref().map(card::memory).transpose();
    let named = named.map_err(|error| coded(exit::USAGE, &error.into()))?;
    Ok(named.or(args.gpu_mib.map(Bytes::from_mib)))
}

fn coded(code: u8, error: &anyhow::Error) -> anyhow::Error {
    exit::Coded { code, message: format!("{error:#}") }.into()
}

/// With `--exit-code`: 0 where it fits or no card was named, 1 where it does not surely, 3 where nobody can say.
const fn code(answer: &Answer, card: Option<Bytes>) -> u8 {
    match answer.verdict {
        Verdict::Fits => 0,
        Verdict::Tight | Verdict::TooBig => 1,
        Verdict::Unknown if card.is_none() => 0,
        Verdict::Unknown => 3,
    }
}
