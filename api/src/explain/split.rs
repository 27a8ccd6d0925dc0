//! What the memory is for, and what of that cannot be known.

use ebbtide_core::{Difference, EngineLedger, EngineTerm, KvSemantics, ProcSample, Term};

use super::scene::Scene;
use super::words::{process, value};

/// Owners of a GPU's memory, or parts of a process's.
pub(super) fn lines(scene: &Scene<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    if scene.process.is_none() {
        let ledger = &scene.gpu.ledger;
        lines.push(format!(
            "{} = {} free + {} driver and firmware + {} processes + {} unattributed",
            value(ledger.total),
            value(ledger.free),
            value(ledger.driver_reserved),
            value(ledger.processes),
            value(ledger.unattributed),
        ));
    }
    lines.extend(scene.engines().iter().flat_map(|(process, ledger)| of_engine(process, ledger)));
    lines
}

fn of_engine(sample: &ProcSample, ledger: &EngineLedger) -> [String; 2] {
    let (vram, weights, pool) = (value(ledger.vram), value(ledger.weights), value(ledger.pool));
    let whole = format!(
        "{}: {vram} = weights {weights} + KV pool {pool} + remainder {}",
        process(sample),
        value(ledger.remainder)
    );
    let semantics = sample.engine.as_ref().map(|engine| engine.semantics);
    let used = match semantics {
        Some(KvSemantics::ReferencedAndCached) => "in use or kept for reuse",
        Some(KvSemantics::Reserved) => "reserved for the worst case of running requests",
        _ => "in use by requests",
    };
    let spare = match (ledger.cached, ledger.idle) {
        (Ok(cached), Ok(idle)) => format!("{cached} kept for reuse + {idle} idle"),
        (_, Ok(idle)) => format!("{idle} idle"),
        _ => format!("{} idle or kept for reuse", value(ledger.spare)),
    };
    [whole, format!("  in the pool: {} {used} + {spare}", value(ledger.used))]
}

/// What is not known, and what would open it.
pub(super) fn unknown(scene: &Scene<'_>) -> Vec<String> {
    let mut unknown = Vec::new();
    if scene.process.is_none() {
        unknown.extend(scene.gpu.ledger.missing.iter().map(|term| match term {
            Term::Device => "the device does not tell its memory, so nothing is added up".to_owned(),
            Term::DriverReserved => {
                "this driver does not tell what it reserves, so nothing is added up".to_owned()
            }
            Term::Processes => "the list of processes is not known, so nobody is named".to_owned(),
            Term::ProcessMemory => "a listed process's memory is not told, so nothing is added up".to_owned(),
        }));
    }
    let engines = scene.engines();
    for (sample, ledger) in &engines {
        let missing: Vec<_> = ledger.missing.iter().copied().map(EngineTerm::name).collect();
        if !missing.is_empty() {
            unknown.push(format!("{}: not known: {}", process(sample), missing.join(", ")));
        }
        if ledger.remainder.is_ok_and(Difference::is_surely_negative) {
            unknown.push(format!(
                "{}: the parts are more than it holds, so an assumption about the model is wrong, or a part lies elsewhere",
                process(sample)
            ));
        }
        unknown.extend(assumed(sample));
    }
    if !engines.is_empty() {
        unknown.push(
            "allocated versus reserved inside of PyTorch is known only in the process (torch.cuda.memory_stats)"
                .to_owned(),
        );
    } else if !scene.processes().is_empty() {
        unknown.push(
            "no engine's counters are read, so weights, KV pool and use are not told apart: set probe.engines or probe.discover_engines"
                .to_owned(),
        );
    }
    unknown
}

fn assumed(sample: &ProcSample) -> Option<String> {
    let report = sample.engine.as_ref()?.report.as_ref()?;
    let appraisal = report.appraisal.as_ref()?;
    let assumed = appraisal.assumed.join(" and that ");
    let basis = format!("{}: ~ is computed from {}", process(sample), appraisal.source);
    Some(if assumed.is_empty() { basis } else { format!("{basis}; assumed is that {assumed}") })
}
