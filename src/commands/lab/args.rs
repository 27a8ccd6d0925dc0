//! What can be said to `ebbtide lab`.

use std::num::NonZeroU16;
use std::path::PathBuf;

use clap::Args;
use ebbtide_engine::lab::Scope;

use crate::commands::engine::threads;

/// `ebbtide lab`
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  ebbtide lab --quick                           the bundled model, under a minute\n  ebbtide lab --model SmolLM2.gguf --html lab.html\n  ebbtide lab --quick --json | jq '.figures[] | {what, reached, wanted}'\n\ndocs/kv-strategies.md explains what is tried and what was found. Memory follows from the arguments alone; times are of this machine and of what else it does."
)]
pub(crate) struct LabArgs {
    /// Try it on this model: a GGUF file, or safetensors beside their config.json; the bundled tiny one where none is given
    #[arg(long, value_name = "FILE")]
    pub(super) model: Option<PathBuf>,
    /// Judge less text
    #[arg(long)]
    quick: bool,
    /// Requests that each strategy serves
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    requests: Option<u16>,
    /// Tokens a request may have
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(128..=131_072))]
    context: Option<u32>,
    /// Texts that are judged
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    texts: Option<u16>,
    /// Tokens of each; the model's context, 2048 at most, where nothing is said
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(128..=131_072))]
    text_tokens: Option<u32>,
    /// Judge this text instead of a novel's
    #[arg(long, value_name = "FILE")]
    pub(super) text: Option<PathBuf>,
    /// Draws what is said in the load
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Compute on so many threads
    #[arg(long, value_name = "N", default_value = "1", value_parser = threads)]
    pub(super) threads: NonZeroU16,
    /// Print all of it as JSON
    #[arg(long, conflicts_with = "markdown")]
    pub(super) json: bool,
    /// Print the tables as Markdown
    #[arg(long)]
    pub(super) markdown: bool,
    /// Write a page with pictures to this file as well
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
}

impl LabArgs {
    /// How much is tried with a model trained on `trained` tokens.
    pub(super) fn scope(&self, trained: usize) -> Scope {
        let usual = if self.quick { Scope::quick(trained) } else { Scope::full(trained) };
        Scope {
            requests: self.requests.map_or(usual.requests, usize::from),
            context: self.context.map_or(usual.context, |tokens| tokens as usize),
            texts: self.texts.map_or(usual.texts, usize::from),
            text_tokens: self.text_tokens.map_or(usual.text_tokens, |tokens| tokens as usize),
            seed: self.seed,
            ..usual
        }
    }
}
