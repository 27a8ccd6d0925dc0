//! `ebbtide engine --prompt`: one answer, and that is it.

use std::sync::mpsc::sync_channel;

use anyhow::bail;
use ebbtide_core::text::clean;
use ebbtide_engine::scheduler::{ClientId, Request, Sampling};
use ebbtide_engine::server::{Order, Piece, Worker};
use tokio::sync::mpsc;

use super::args::EngineArgs;
use crate::output;

pub(super) fn run(args: &EngineArgs, prompt: &str) -> anyhow::Result<u8> {
    let ready = super::model(args)?;
    let text = std::sync::Arc::clone(&ready.text);
    let (orders, received) = sync_channel(1);
    let mut worker = Worker::new(super::service(args, ready.transformer)?, received);
    let request = Request {
        client: ClientId(0),
        prompt: text.begin().into_iter().chain(text.encode(prompt)).collect(),
        most: args.ask.max_tokens as usize,
        sampling: match args.ask.temperature {
            temperature if temperature > 0.0 => Sampling::Temperature { temperature, seed: args.seed },
            _ => Sampling::Greedy,
        },
        stop: text.end(),
    };
    // Room for the whole answer and its end.
    let (reply, mut pieces) = mpsc::channel(request.most + 1);
    orders.send(Order { request, reply })?;
    let mut said = prompt.as_bytes().to_vec();
    loop {
        match pieces.try_recv() {
            Ok(Piece::Token(token)) => said.extend(text.decode(&[token])),
            Ok(Piece::End(_)) => break,
            Ok(Piece::Refused(why)) => bail!(why),
            Err(_) => worker.turn()?,
        }
    }
    let said = String::from_utf8_lossy(&said);
    let lines: Vec<String> = said.lines().map(clean).collect();
    output::text(&(lines.join("\n") + "\n"))?;
    Ok(0)
}
