//! Tasks of this repository that are no part of the product: `cargo xtask tidy` and `cargo xtask incidents`.

use std::env;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

mod checksum;
mod incidents;
mod tidy;

const USAGE: &str = "\
usage: cargo xtask tidy
       cargo xtask incidents [--binary PATH] [--basis measured,levels] [--only ID] [--json]

tidy       checks layers, licences, budgets and papers; one line a violation
incidents  plays public incidents through `ebbtide check` and scores the diagnoses
";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let done = match arguments.split_first() {
        Some((task, [])) if task == "tidy" => tidy::run(&repository()),
        Some((task, rest)) if task == "incidents" => incidents::run(&repository(), rest),
        _ => Err(anyhow::anyhow!(USAGE)),
    };
    done.unwrap_or_else(|error| {
        // A closed standard error leaves nobody to tell.
        let _ = writeln!(io::stderr(), "xtask: {error:#}");
        ExitCode::FAILURE
    })
}

/// The root of the repository: one level above this crate.
fn repository() -> PathBuf {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    own.parent().map_or_else(|| own.clone(), PathBuf::from)
}
