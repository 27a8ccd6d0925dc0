//! `ebbtide demo`: a workload that leaks, and ebbtide finding it; no GPU, no network, no configuration.
//!
//! The workload is a process of its own and its memory is read from outside, by the kernel's accounts. Its leak is
//! drawn at random and written down by the workload alone; the demo reads that only at the end.

mod headless;
mod stage;
mod verdict;

use std::io::IsTerminal;

use ebbtide_api::client::SocketClient;
use ebbtide_tui::TopOptions;

use crate::cli::DemoArgs;
use crate::output;
use stage::Stage;

pub(crate) fn run(args: &DemoArgs) -> anyhow::Result<u8> {
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..));
    let headless = args.headless || !std::io::stdout().is_terminal();
    let mut stage = Stage::set(args.seconds, seed)?;
    let seen = if headless {
        headless::watch(&stage)?
    } else {
        ebbtide_tui::run(Box::new(SocketClient::new(stage.socket())), TopOptions::from_environment(false))?;
        headless::last_seen(&stage)?
    };
    let truth = stage.end_workload()?;
    let hook_log = stage.hook_log();
    stage.clear()?;
    let verdict = verdict::Verdict::of(&seen, &truth, &hook_log);
    output::text(&verdict.text(&truth))?;
    // Whoever leaves the dashboard early has not failed.
    Ok(u8::from(headless && !verdict.passed()))
}
