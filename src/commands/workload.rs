//! `ebbtide workload`: the demo's workload, a process of its own so that it is measured like anybody's.

use std::time::Duration;

use ebbtide_engine::{rehearsal, stop};

use crate::cli::WorkloadArgs;

/// Whoever watches the dashboard may watch for long; the leak stops where the machine has no more to spare.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

pub(crate) fn run(args: &WorkloadArgs) -> anyhow::Result<u8> {
    let mut plan = rehearsal::Plan::drawn(args.seed, Duration::from_secs(args.seconds));
    plan.deadline = LONGEST;
    // It ends with whoever started it: standard input is a pipe from there.
    rehearsal::run(&plan, &args.dir, &stop::at_end_of(std::io::stdin()))?;
    Ok(0)
}
