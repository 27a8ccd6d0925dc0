//! `ebbtide explain`: the questions that people ask, answered from what the daemon knows.

use ebbtide_api::Client;
use ebbtide_api::client::SocketClient;
use ebbtide_api::explain::{About, Explanation, explain, named};
use ebbtide_api::wire::Status;

use super::status;
use crate::cli::ExplainArgs;
use crate::{exit, output};

pub(crate) fn run(args: &ExplainArgs) -> anyhow::Result<u8> {
    let status = SocketClient::new(status::socket(&args.socket)).status().map_err(status::unknown)?;
    let explanations: Vec<Explanation> =
        abouts(&status, args.what.as_deref())?.iter().filter_map(|about| explain(&status, about)).collect();
    if args.json {
        output::json(&explanations)?;
    } else {
        let texts: Vec<String> = explanations.iter().map(ToString::to_string).collect();
        output::text(&texts.join("\n"))?;
    }
    Ok(0)
}

/// What is asked about: all GPUs where nothing is named.
fn abouts(status: &Status, what: Option<&str>) -> anyhow::Result<Vec<About>> {
    let Some(asked) = what else {
        let all: Vec<About> = status.gpus.iter().map(|gpu| About::Gpu(gpu.gpu.uuid.clone())).collect();
        let why = "no GPU is known to the daemon: `ebbtide status` says why";
        return if all.is_empty() { Err(unanswered(why.to_owned())) } else { Ok(all) };
    };
    let found = named(status, asked);
    if found.is_empty() {
        let asked = ebbtide_core::text::clean(asked);
        return Err(unanswered(format!(
            "no GPU has the number or UUID {asked}, and none lists a process {asked}: `ebbtide status` shows both"
        )));
    }
    Ok(found)
}

fn unanswered(message: String) -> anyhow::Error {
    exit::Coded { code: exit::DATA, message }.into()
}
