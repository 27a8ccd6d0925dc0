//! `ebbtide db`: look into a database, check it, make it small, export it.

mod args;
mod export;
mod info;

use std::path::PathBuf;

use ebbtide_core::Bytes;
use ebbtide_store::{Compaction, Error, Verification};
use tokio::runtime::Runtime;

use args::FileArgs;
pub(crate) use args::{DbCommand, ImportArgs, instant};

use super::config;
use crate::{exit, output};

/// The exit code of a database in which something is damaged.
const DAMAGED: u8 = 1;

pub(crate) fn run(command: DbCommand) -> anyhow::Result<u8> {
    match command {
        DbCommand::Info(args) => info::run(args),
        DbCommand::Verify(args) => verify(args),
        DbCommand::Compact(args) => compact(args),
        DbCommand::Export(args) => export::run(args),
    }
}

/// The database that was named, or the configured one.
fn path(args: FileArgs) -> anyhow::Result<PathBuf> {
    match args.file {
        Some(file) => Ok(file),
        None => Ok(config::effective(args.config)?.config.store.path),
    }
}

/// What asks the store: one thread is enough for one question.
pub(crate) fn runtime() -> std::io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// A store's error, with the exit code for a file that is no database of ours.
pub(crate) fn refused(error: Error) -> anyhow::Error {
    let is_none = matches!(
        error,
        Error::Missing { .. } | Error::Foreign { .. } | Error::Newer { .. } | Error::Altered { .. }
    );
    let code = if is_none { exit::DATA } else { exit::FAILURE };
    anyhow::Error::new(exit::Coded { code, message: format!("{:#}", anyhow::Error::new(error)) })
}

fn verify(args: FileArgs) -> anyhow::Result<u8> {
    let path = path(args)?;
    let found = match runtime()?.block_on(Verification::of(&path)) {
        Ok(found) => found,
        Err(error @ Error::Corrupt { .. }) => {
            let message = format!("{:#}", anyhow::Error::new(error));
            return Err(exit::Coded { code: DAMAGED, message }.into());
        }
        Err(error) => return Err(refused(error)),
    };
    let mut text = format!(
        "{}: {}\n  {} ticks read, {} damaged\n  {} rows read, {} damaged\n",
        path.display(),
        if found.is_sound() { "sound" } else { "DAMAGED" },
        found.ticks,
        found.damaged_ticks,
        found.rows,
        found.damaged_rows,
    );
    for complaint in &found.complaints {
        text += &format!("  {}\n", ebbtide_core::text::clean(complaint));
    }
    output::text(&text)?;
    Ok(if found.is_sound() { 0 } else { DAMAGED })
}

fn compact(args: FileArgs) -> anyhow::Result<u8> {
    let path = path(args)?;
    let Compaction { before, after } = runtime()?.block_on(Compaction::run(&path)).map_err(refused)?;
    output::text(&format!("{}: {} before, {} now\n", path.display(), Bytes(before), Bytes(after)))?;
    Ok(0)
}
