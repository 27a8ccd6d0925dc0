//! `ebbtide config check`

use std::collections::BTreeMap;
use std::fmt::Write;

use ebbtide_daemon::config::{Effective, SinkConfig, Sources, load};

use crate::cli::ConfigArgs;
use crate::{exit, output};

/// Reads the configuration as a daemon with these arguments would.
///
/// # Errors
/// When it cannot be used.
pub(crate) fn effective(args: ConfigArgs) -> anyhow::Result<Effective> {
    Ok(load(&Sources { flags: args.set, ..Sources::usual(args.config) })?)
}

pub(crate) fn check(args: ConfigArgs, json: bool) -> anyhow::Result<u8> {
    let effective = effective(args)?;
    for sink in &effective.config.sinks {
        if let Err(error) = sink.check() {
            let message = format!("{}: {:#}", sink.name(), anyhow::Error::new(error));
            return Err(exit::Coded { code: exit::CONFIG, message }.into());
        }
    }
    if json {
        output::json(&document(&effective)?)?;
    } else {
        output::text(&listing(&effective)?)?;
    }
    Ok(0)
}

/// Sinks by name only: their URLs and headers may be secrets.
fn sinks(effective: &Effective) -> Vec<String> {
    effective.config.sinks.iter().map(SinkConfig::name).collect()
}

fn document(effective: &Effective) -> serde_json::Result<serde_json::Value> {
    let mut config = serde_json::to_value(&effective.config)?;
    config["sinks"] = serde_json::to_value(sinks(effective))?;
    let origins: BTreeMap<&String, String> =
        effective.origins.iter().map(|(key, (_, layer))| (key, layer.to_string())).collect();
    Ok(serde_json::json!({ "config": config, "origins": origins }))
}

fn listing(effective: &Effective) -> Result<String, std::fmt::Error> {
    let shown = |key: &str, value: &str| match key {
        "sinks" => format!("sinks = {:?}", sinks(effective)),
        _ => format!("{key} = {value}"),
    };
    let lines: Vec<(String, String)> = effective
        .origins
        .iter()
        .map(|(key, (value, layer))| (shown(key, value), layer.to_string()))
        .collect();
    let width = lines.iter().map(|(line, _)| line.chars().count()).max().unwrap_or(0).min(60);
    let mut text = String::new();
    for (line, origin) in lines {
        writeln!(text, "{line:<width$}  # {origin}")?;
    }
    Ok(text)
}
