//! `ebbtide top`: the dashboard.

use ebbtide_api::client::SocketClient;
use ebbtide_tui::TopOptions;

use super::status::socket;
use crate::cli::TopArgs;

pub(crate) fn run(args: &TopArgs) -> anyhow::Result<u8> {
    let client = SocketClient::new(socket(&args.socket));
    ebbtide_tui::run(Box::new(client), TopOptions::from_environment(args.ascii))?;
    Ok(0)
}
