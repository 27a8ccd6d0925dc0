//! What a model writes.

use ebbtide_core::text::clean;
use ebbtide_engine::forward::Forward;
use ebbtide_engine::kv::{BLOCK_TOKENS, Backing, Format, Pool, PoolOptions, Token};
use ebbtide_engine::scheduler::{ClientId, Options, Request, Sampling, Scheduler};

use super::text::folded;
use super::{LabArgs, Model};
use crate::output;

/// Below 1 the likelier tokens are preferred: at 0.6 the tiny model's words are mostly words.
const TEMPERATURE: f32 = 0.6;

/// Prints `prompt` and what follows it.
pub(super) fn run(args: &LabArgs, model: &mut Model, prompt: &str) -> anyhow::Result<()> {
    let tokens = model.tokenizer.encode(prompt);
    let answer = go_on(args, model, &tokens)?;
    let bytes = model.tokenizer.decode(&[tokens, answer].concat());
    let text = String::from_utf8_lossy(&bytes);
    let folded: String = text.lines().map(folded).collect();
    // In lines, since a longer text is taken for a name that got out of hand.
    let cleaned: String = folded.lines().map(|line| clean(line) + "\n").collect();
    Ok(output::text(&cleaned)?)
}

fn go_on(args: &LabArgs, model: &mut Model, prompt: &[Token]) -> anyhow::Result<Vec<Token>> {
    let geometry = model.forward.geometry();
    let (kv, context) = (geometry.kv(), geometry.context);
    let tokens = context.min(prompt.len() + usize::from(args.tokens));
    let blocks = u32::try_from(tokens.div_ceil(BLOCK_TOKENS) + 1)?;
    let mut pool = Pool::on_host(kv, Format::F16, Backing::File, PoolOptions::with_capacity(blocks))?;
    let mut scheduler = Scheduler::new(Options { is_sharing: false, ..Options::of_context(context) });
    scheduler.submit(Request {
        client: ClientId::default(),
        prompt: prompt.to_vec(),
        most: args.tokens.into(),
        sampling: Sampling::Temperature { temperature: TEMPERATURE, seed: args.seed },
        stop: model.tokenizer.end(),
    })?;
    let mut answer = Vec::new();
    while !scheduler.is_idle() {
        let step = scheduler.step(&mut pool, &mut model.forward)?;
        answer.extend(step.tokens.into_iter().map(|(_, token)| token));
    }
    Ok(answer)
}
