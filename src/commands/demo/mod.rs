//! `ebbtide demo`: an engine that leaks, and ebbtide finding it; no GPU, no network, no configuration.
//!
//! The engine is a process of its own, `ebbtide engine`, and its memory is read from outside, by the kernel's accounts.
//! Its leak is drawn at random; the daemon is not told of it, and what was said is held against it only at the end.

mod headless;
mod plan;
mod stage;
mod verdict;

use std::io::IsTerminal;

use ebbtide_api::client::SocketClient;
use ebbtide_tui::TopOptions;

use crate::cli::DemoArgs;
use crate::output;
use stage::Stage;
use verdict::Verdict;

/// The chart of the dashboard covers the whole story.
const SPAN_MS: i64 = 120_000;

pub(crate) fn run(args: &DemoArgs) -> anyhow::Result<u8> {
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..));
    let headless = args.headless || !std::io::stdout().is_terminal();
    let stage = Stage::set(args.seconds, seed)?;
    let (seen, aftermath) = if headless {
        (headless::watch(&stage)?, stage.clear()?)
    } else {
        let account = headless::account(&stage)?;
        let options = TopOptions { span_ms: Some(SPAN_MS), ..TopOptions::from_environment(false) };
        ebbtide_tui::run(Box::new(SocketClient::new(stage.socket())), options)?;
        let aftermath = stage.clear()?;
        (account.join().map_err(|_| anyhow::anyhow!("the account of what happened panicked"))?, aftermath)
    };
    let verdict = Verdict::of(&seen, &aftermath);
    if headless && !seen.is_whole {
        output::text("\nStopped before the end: nothing is compared.\n")?;
        return Ok(1);
    }
    output::text(&verdict.text(&aftermath.truth))?;
    // Whoever leaves the dashboard early has not failed.
    Ok(u8::from(headless && !verdict.passed()))
}
