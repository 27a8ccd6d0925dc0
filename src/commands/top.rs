//! `ebbtide top`: the dashboard.

use ebbtide_api::Client;
use ebbtide_api::client::SocketClient;
use ebbtide_tui::TopOptions;

use super::status::socket;
use crate::cli::TopArgs;
use crate::stored::StoredClient;

pub(crate) fn run(args: &TopArgs) -> anyhow::Result<u8> {
    let client: Box<dyn Client> = match &args.db {
        Some(file) => Box::new(StoredClient::open(file)?),
        None => Box::new(SocketClient::new(socket(&args.socket))),
    };
    ebbtide_tui::run(client, TopOptions::from_environment(args.ascii))?;
    Ok(0)
}
