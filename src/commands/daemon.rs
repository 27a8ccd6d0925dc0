//! `ebbtide daemon`: watch this machine.

use super::config::effective;
use crate::cli::DaemonArgs;

pub(crate) fn run(args: DaemonArgs) -> anyhow::Result<u8> {
    let config = effective(args.config)?.config;
    ebbtide_daemon::log::start(&config.log);
    ebbtide_daemon::run(&config)?;
    Ok(0)
}
