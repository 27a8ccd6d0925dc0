//! `ebbtide config check`

use std::collections::BTreeMap;
use std::fmt::Write;

use ebbtide_daemon::config::{Effective, Sources, load};

use crate::cli::ConfigArgs;
use crate::output;

/// Reads the configuration as a daemon with these arguments would.
///
/// # Errors
/// When it cannot be used.
pub(crate) fn effective(args: ConfigArgs) -> anyhow::Result<Effective> {
    Ok(load(&Sources { flags: args.set, ..Sources::usual(args.config) })?)
}

pub(crate) fn check(args: ConfigArgs, json: bool) -> anyhow::Result<u8> {
    let effective = effective(args)?;
    if json {
        let origins: BTreeMap<&String, String> =
            effective.origins.iter().map(|(key, (_, layer))| (key, layer.to_string())).collect();
        output::json(&serde_json::json!({ "config": effective.config, "origins": origins }))?;
    } else {
        output::text(&listing(&effective)?)?;
    }
    Ok(0)
}

fn listing(effective: &Effective) -> Result<String, std::fmt::Error> {
    let lines: Vec<(String, String)> = effective
        .origins
        .iter()
        .map(|(key, (value, layer))| (format!("{key} = {value}"), layer.to_string()))
        .collect();
    let width = lines.iter().map(|(line, _)| line.chars().count()).max().unwrap_or(0).min(60);
    let mut text = String::new();
    for (line, origin) in lines {
        writeln!(text, "{line:<width$}  # {origin}")?;
    }
    Ok(text)
}
