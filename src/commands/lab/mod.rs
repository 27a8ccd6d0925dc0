//! `ebbtide lab`: strategies of a KV cache side by side.

mod args;
mod page;
mod table;
#[cfg(test)]
mod tests;
mod text;

use anyhow::Context;
use ebbtide_engine::forward::{Forward, Options, Transformer};
use ebbtide_engine::lab::{self, HELD_OUT, Outcome, Subject};
use ebbtide_engine::model::{self, Loaded, Tokenizer};

pub(crate) use args::LabArgs;

use crate::output;
use crate::progress::Stage;

/// A model that can be tried.
struct Model {
    name: String,
    forward: Transformer,
    tokenizer: Box<dyn Tokenizer>,
}

pub(crate) fn run(args: &LabArgs) -> anyhow::Result<u8> {
    let mut stage = Stage::default();
    stage.tell("reading the model");
    let mut model = open(args)?;
    let outcome = tried(args, &mut model, &mut stage)?;
    stage.finish();
    if let Some(path) = &args.html {
        std::fs::write(path, page::of(&outcome))
            .with_context(|| format!("writing the page {}", path.display()))?;
    }
    if args.json {
        output::json(&outcome)?;
    } else if args.markdown {
        output::text(&text::markdown(&outcome))?;
    } else {
        output::text(&text::of(&outcome))?;
    }
    Ok(0)
}

fn tried(args: &LabArgs, model: &mut Model, stage: &mut Stage) -> anyhow::Result<Outcome> {
    let text = match &args.text {
        Some(path) => {
            let text = std::fs::read(path).with_context(|| format!("reading the text {}", path.display()))?;
            model.tokenizer.encode(&String::from_utf8_lossy(&text))
        }
        None => model.tokenizer.encode(HELD_OUT),
    };
    let scope = args.scope(model.forward.geometry().context);
    let mut subject = Subject { name: &model.name, forward: &mut model.forward, text: &text };
    Ok(lab::run(&mut subject, scope, &mut |what| stage.tell(what))?)
}

fn open(args: &LabArgs) -> anyhow::Result<Model> {
    let path = args.model.as_deref();
    let Loaded { weights, tokenizer } = path.map_or_else(model::bundled, model::open)?;
    let name = path
        .map_or_else(|| "tiny".into(), |path| path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy());
    let name = ebbtide_core::text::clean(&name);
    let computing = Options { threads: args.threads, ..Options::from_environment()? };
    let forward = Transformer::load(&*weights, computing)?;
    Ok(Model { name, forward, tokenizer })
}
