//! Who holds memory: unseen, dead, or beside the ones that ought to.

use ebbtide_core::units::MIB;
use ebbtide_core::{Bytes, FindingKind, Liveness, ProcSample};

use crate::explain::scene::{Scene, entries};
use crate::explain::words;

/// Less than this is what a driver keeps for itself here and there.
const SMALL: u64 = 64 * MIB;
/// A GPU is fuller than the others where it holds more than the fullest of them by this.
const FULLER: Bytes = Bytes::from_mib(256);
/// So many processes are named.
const NAMED: usize = 4;

/// What no process explains, and who may hold it.
pub(super) fn unseen(scene: &Scene<'_>) -> String {
    if scene.process.is_some() {
        return "This process is shown with what it holds; ask about its GPU for the rest.".to_owned();
    }
    let holders = &scene.gpu.gpu.holders;
    let Ok(rest) = scene.gpu.ledger.unattributed else {
        return "Not known: a term of the sum is absent, so what is left over cannot be said.".to_owned();
    };
    if rest.0 == 0 {
        return "Nobody: every byte has an owner that is listed.".to_owned();
    }
    if rest.0.unsigned_abs() < SMALL {
        return format!("Nobody: all but {rest} has an owner that is listed.");
    }
    if rest.0 < 0 {
        return format!(
            "Nobody: listed processes share {}, which the driver counts for each.",
            Bytes(rest.0.unsigned_abs())
        );
    }
    if holders.is_empty() {
        return format!(
            "{rest} have no listed owner and nobody is seen with the device open: another PID namespace, managed memory, or a process that has died."
        );
    }
    let named: Vec<String> = holders
        .iter()
        .take(NAMED)
        .map(|holder| format!("{} (process {})", holder.name, holder.key.pid))
        .collect();
    let more = holders.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!(
        "{rest} have no listed owner; the device is held open by {}{more}, in no list of the driver.",
        named.join(", ")
    )
}

/// Processes that have gone and are listed all the same.
pub(super) fn dead(scene: &Scene<'_>) -> String {
    if let Some(finding) = scene.finding(&[FindingKind::Orphan]) {
        return format!("Yes: {}: {} {}", words::subject(finding), finding.summary, finding.settle);
    }
    if let (None, Err(why)) = (scene.process, &scene.gpu.gpu.processes) {
        return format!("Not known: the list of processes cannot be read ({why}).");
    }
    let processes = scene.processes();
    let gone = processes.iter().find(|p| matches!(p.liveness, Liveness::Dead | Liveness::Zombie));
    match gone {
        Some(process) => format!(
            "{} has {} and is still listed with {}: an orphan if that lasts.",
            words::process(process),
            if process.liveness == Liveness::Zombie { "exited, unreaped by its parent," } else { "gone" },
            words::value(process.memory)
        ),
        None if processes.iter().any(|p| p.liveness == Liveness::Foreign) => {
            "Not known: the PIDs are of another namespace, so nobody can be looked up.".to_owned()
        }
        None if processes.is_empty() => "No process is listed; what has no owner is said above.".to_owned(),
        None => "No: every listed process lives.".to_owned(),
    }
}

/// What this GPU has that the others do not: most often contexts of processes that work elsewhere.
pub(super) fn fuller(scene: &Scene<'_>) -> String {
    let others = || scene.status.gpus.iter().filter(|gpu| gpu.gpu.uuid != scene.gpu.gpu.uuid);
    if let Some(process) = scene.process {
        return on_other_gpus(scene, process);
    }
    let Some(most) = others().filter_map(|gpu| gpu.gpu.memory.ok()).map(|memory| memory.used).max() else {
        return "There is no other GPU to compare it with.".to_owned();
    };
    let Ok(used) = scene.used() else {
        return "Not known: its memory cannot be read.".to_owned();
    };
    let extra: Vec<String> = scene
        .processes()
        .into_iter()
        .filter(|process| {
            let elsewhere = others().flat_map(entries).find(|other| other.key == process.key);
            elsewhere.is_some_and(|other| other.memory.ok() > process.memory.ok())
        })
        .take(NAMED)
        .map(|process| format!("{} with {}", words::process(process), words::value(process.memory)))
        .collect();
    if !extra.is_empty() {
        return format!("Processes that work on another GPU have a context here too: {}.", extra.join(", "));
    }
    if used > most + FULLER {
        let more = used.saturating_sub(most);
        format!("It holds {more} more than the next, all of it of its own processes.")
    } else {
        "It is not: another GPU holds about as much or more.".to_owned()
    }
}

fn on_other_gpus(scene: &Scene<'_>, process: &ProcSample) -> String {
    let here = &scene.gpu.gpu.uuid;
    let elsewhere: Vec<String> = scene
        .status
        .gpus
        .iter()
        .filter(|gpu| gpu.gpu.uuid != *here)
        .filter_map(|gpu| {
            let other = entries(gpu).iter().find(|other| other.key == process.key)?;
            Some(format!("{} on GPU {}", words::value(other.memory), gpu.gpu.index))
        })
        .collect();
    if elsewhere.is_empty() {
        "It is on this GPU alone.".to_owned()
    } else {
        format!("It also holds {}.", elsewhere.join(", "))
    }
}
