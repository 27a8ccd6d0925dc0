//! Which ends of processes are incidents, and how things stood before them.
//!
//! A process leaves the list before it is known how it ended, and its findings resolve when it does. So what is known of
//! it is noted when it leaves, and told when its end is.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use ebbtide_core::{
    Absent, Bytes, EndCause, Ending, EventKind, Evidence, ExitStatus, Finding, FindingKey, Frame, GpuAtEnd,
    GpuSample, GpuUuid, Incident, Ledger, Liveness, Owner, ProcInfo, ProcKey, ProcSample, Reading,
    SeriesPart, Severity, Subject, Tick,
};

/// How much of the history is kept with an incident: ten minutes.
const FROZEN_MS: i64 = 600_000;
/// What happened on a GPU less than this before an end has to do with it: a process that meets an error of the device,
/// or finds no memory, takes seconds to give up, and lists are seconds apart.
const SHORTLY_MS: u64 = 60_000;
/// The same end of the same program again within this time is counted and makes no record of its own: the ticks that
/// would be kept with it are kept already.
const REPEAT_MS: u64 = 600_000;
/// A process that was listed last so long ago is forgotten: longer than its end is waited for.
const REMEMBERED_MS: u64 = 300_000;
/// A device with less than this share free is at its limit.
const FULL_SHARE: u64 = 100;
/// XIDs remembered; a faulty GPU can report many in a minute, and the newest say the most.
const MAX_XIDS: usize = 64;
/// Programs whose ends are counted; beyond it every end makes a record, and the store bounds those.
const MAX_TOLD: usize = 256;

type Open = BTreeMap<FindingKey, Finding>;

/// What is remembered to tell of an end.
#[derive(Debug, Default)]
pub(super) struct Endings {
    seen: BTreeMap<ProcKey, Seen>,
    gpus: BTreeMap<GpuUuid, AtList>,
    xids: VecDeque<Xid>,
    told: BTreeMap<Told, (u64, u32)>,
}

/// A process as it was last listed.
#[derive(Debug)]
struct Seen {
    mono_ms: u64,
    info: Arc<ProcInfo>,
    rss: Reading<Bytes>,
    host_limit: Reading<Bytes>,
    /// What it holds on the GPUs that list it.
    held: BTreeMap<GpuUuid, Reading<Bytes>>,
    /// The GPUs that list it no longer.
    left: Vec<GpuAtEnd>,
    findings: Vec<Finding>,
}

/// A GPU with the processes of its newest list.
#[derive(Debug)]
struct AtList {
    index: u32,
    name: Arc<str>,
    ledger: Ledger,
    /// When it was last at its limit.
    full_ms: Option<u64>,
}

#[derive(Debug)]
struct Xid {
    mono_ms: u64,
    gpu: Option<GpuUuid>,
    code: u64,
}

/// Ends that are one and the same to whoever reads of them: program, unit, cause.
type Told = (String, Option<String>, EndCause);

impl Endings {
    /// Takes note of a frame, before the detectors close what has gone; the incidents that it completes.
    pub(super) fn note(&mut self, frame: &Frame, open: &Open) -> Vec<Incident> {
        let tick = frame.sample.tick;
        self.forget(tick.mono_ms);
        for event in &frame.sample.events {
            if let EventKind::Xid(code) = event.kind {
                self.xids.push_back(Xid { mono_ms: tick.mono_ms, gpu: event.gpu.clone(), code });
            }
        }
        for (gpu, ledger) in frame.sample.gpus.iter().zip(&frame.ledgers) {
            self.note_gpu(gpu, ledger, tick, open);
        }
        let endings = frame.sample.endings.iter();
        endings.filter_map(|ending| self.end(ending, tick, open)).collect()
    }

    fn forget(&mut self, now_ms: u64) {
        let is_recent = |then: u64, within: u64| now_ms.saturating_sub(then) < within;
        self.seen.retain(|_, seen| is_recent(seen.mono_ms, REMEMBERED_MS));
        self.told.retain(|_, (told_ms, _)| is_recent(*told_ms, 2 * REPEAT_MS));
        while self.xids.len() > MAX_XIDS
            || self.xids.front().is_some_and(|xid| !is_recent(xid.mono_ms, SHORTLY_MS))
        {
            self.xids.pop_front();
        }
    }

    fn note_gpu(&mut self, gpu: &GpuSample, ledger: &Ledger, tick: Tick, open: &Open) {
        let fresh = gpu.processes.as_ref().ok().filter(|list| list.listed.seq == tick.seq);
        let alive: Option<Vec<&ProcSample>> =
            fresh.map(|list| list.entries.iter().filter(|p| p.liveness != Liveness::Dead).collect());
        if let Some(alive) = &alive {
            self.note_leaving(gpu, alive, open);
            alive.iter().for_each(|process| self.note_process(gpu, process, tick));
        }
        let full = gpu.memory.is_ok_and(|memory| memory.free.0 < memory.total.0 / FULL_SHARE);
        let known = self.gpus.entry(gpu.uuid.clone()).or_insert_with(|| AtList {
            index: gpu.index,
            name: Arc::clone(&gpu.name),
            ledger: ledger.clone(),
            full_ms: None,
        });
        if full {
            known.full_ms = Some(tick.mono_ms);
        }
        if alive.is_some() && (ledger.balances().is_some() || known.ledger.balances().is_none()) {
            known.ledger = ledger.clone();
        }
    }

    /// Notes how things stood with those whom `gpu` lists no longer.
    fn note_leaving(&mut self, gpu: &GpuSample, alive: &[&ProcSample], open: &Open) {
        let is_listed = |key: &ProcKey| alive.iter().any(|process| process.key == *key);
        let Some(known) = self.gpus.get(&gpu.uuid) else { return };
        for (key, seen) in self.seen.iter_mut().filter(|(key, _)| !is_listed(key)) {
            let Some(held) = seen.held.remove(&gpu.uuid) else { continue };
            seen.left.push(known.at_end(&gpu.uuid, held));
            seen.note_findings(*key, &gpu.uuid, open);
        }
    }

    fn note_process(&mut self, gpu: &GpuSample, process: &ProcSample, tick: Tick) {
        let seen = self.seen.entry(process.key).or_insert_with(|| Seen {
            mono_ms: tick.mono_ms,
            info: Arc::clone(&process.info),
            rss: process.rss,
            host_limit: process.host_limit,
            held: BTreeMap::new(),
            left: Vec::new(),
            findings: Vec::new(),
        });
        seen.mono_ms = tick.mono_ms;
        seen.held.insert(gpu.uuid.clone(), process.memory);
        seen.left.retain(|at_end| at_end.gpu != gpu.uuid);
        // A zombie has neither memory nor a name any more.
        if process.liveness == Liveness::Alive {
            seen.info = Arc::clone(&process.info);
            (seen.rss, seen.host_limit) = (process.rss, process.host_limit);
        }
    }

    fn end(&mut self, ending: &Ending, tick: Tick, open: &Open) -> Option<Incident> {
        let mut seen = self.seen.remove(&ending.proc)?;
        for (uuid, held) in std::mem::take(&mut seen.held) {
            seen.left.extend(self.gpus.get(&uuid).map(|known| known.at_end(&uuid, held)));
            seen.note_findings(ending.proc, &uuid, open);
        }
        let signs = self.signs(&seen, tick.mono_ms);
        let cause = signs.cause(ending)?;
        let repeats = self.count(&seen, cause, tick.mono_ms)?;
        let subject = self.subject(&seen);
        Some(Incident {
            at: tick.at,
            from: tick.at.plus_ms(-FROZEN_MS),
            proc: ending.proc,
            summary: summary(&whom(&subject, ending.proc), cause, ending.status, &seen),
            subject,
            cause,
            status: ending.status,
            gpus: seen.left,
            rss: seen.rss,
            host_limit: seen.host_limit,
            findings: seen.findings,
            evidence: signs.evidence(ending),
            repeats,
        })
    }

    /// What was amiss shortly before.
    fn signs(&self, seen: &Seen, now_ms: u64) -> Signs {
        let is_its = |gpu: &GpuUuid| seen.left.iter().any(|at_end| at_end.gpu == *gpu);
        let shortly = |then: u64| now_ms.saturating_sub(then) < SHORTLY_MS;
        let xid = self.xids.iter().rev().find(|xid| xid.gpu.as_ref().is_none_or(is_its));
        let full = seen.left.iter().find(|at_end| {
            self.gpus.get(&at_end.gpu).is_some_and(|known| known.full_ms.is_some_and(shortly))
        });
        Signs {
            xid: xid.map(|xid| xid.code),
            device_full: full.map(|at_end| at_end.ledger.free),
            host_full: seen
                .host_limit
                .is_ok_and(|limit| seen.rss.is_ok_and(|rss| rss.0 > limit.0.saturating_sub(limit.0 / 20))),
            warned: seen.findings.iter().any(|finding| finding.severity > Severity::Info),
        }
    }

    /// How many such ends made no record since the last one that did; `None` where this one makes none either.
    fn count(&mut self, seen: &Seen, cause: EndCause, now_ms: u64) -> Option<u32> {
        let name = seen.info.name.clone().unwrap_or_default();
        let told = (name, seen.info.owner.unit.clone(), cause);
        if let Some((told_ms, repeats)) = self.told.get_mut(&told) {
            if now_ms.saturating_sub(*told_ms) < REPEAT_MS {
                *repeats = repeats.saturating_add(1);
                return None;
            }
            *told_ms = now_ms;
            return Some(std::mem::take(repeats));
        }
        if self.told.len() < MAX_TOLD {
            self.told.insert(told, (now_ms, 0));
        }
        Some(0)
    }

    fn subject(&self, seen: &Seen) -> Subject {
        let first = seen.left.first();
        let name = first.and_then(|at_end| Some(self.gpus.get(&at_end.gpu)?.name.to_string()));
        Subject {
            gpu_index: first.map(|at_end| at_end.index),
            gpu_name: name.unwrap_or_default(),
            process: seen.info.name.clone().unwrap_or_default(),
            owner: Owner::clone(&seen.info.owner),
        }
    }
}

impl Seen {
    fn note_findings(&mut self, key: ProcKey, gpu: &GpuUuid, open: &Open) {
        let is_its = |finding: &&Finding| {
            let series = &finding.key.series;
            match series.part {
                SeriesPart::Process(of) | SeriesPart::Host(of) => of == key,
                SeriesPart::Device | SeriesPart::Unattributed => series.gpu == *gpu,
            }
        };
        for finding in open.values().filter(is_its) {
            if self.findings.iter().all(|noted| noted.key != finding.key) {
                self.findings.push(finding.clone());
            }
        }
    }
}

impl AtList {
    fn at_end(&self, gpu: &GpuUuid, held: Reading<Bytes>) -> GpuAtEnd {
        GpuAtEnd { gpu: gpu.clone(), index: self.index, held, ledger: self.ledger.clone() }
    }
}

/// What was amiss shortly before an end.
#[derive(Debug)]
struct Signs {
    xid: Option<u64>,
    /// A GPU was at its limit, and what the ledger said was free.
    device_full: Option<Reading<Bytes>>,
    /// Its host memory was within a twentieth of its limit.
    host_full: bool,
    warned: bool,
}

impl Signs {
    /// Why it ended; `None` where that was in order, or nothing says that it was not.
    fn cause(&self, ending: &Ending) -> Option<EndCause> {
        let killed = ending.oom_kills.is_ok_and(|kills| kills > 0);
        match ending.status {
            Ok(status) if status.is_orderly() => None,
            Ok(ExitStatus::Signalled(9) | ExitStatus::Exited(_)) | Err(_) if killed => {
                Some(EndCause::OomKill)
            }
            status => self.xid.map(EndCause::Xid).or_else(|| match status {
                Ok(ExitStatus::Signalled(signal)) => Some(EndCause::Signal(signal)),
                Ok(ExitStatus::Exited(code)) => Some(EndCause::ExitCode(code)),
                Err(_) if self.device_full.is_some() || self.host_full || self.warned => {
                    Some(EndCause::Unknown)
                }
                Err(_) => None,
            }),
        }
    }

    fn evidence(&self, ending: &Ending) -> Vec<Evidence> {
        let mut evidence = Vec::new();
        if let Ok(kills) = ending.oom_kills {
            evidence.push(Evidence::against("oom-kills", kills as f64, "", 1.0));
        }
        if let Some(code) = self.xid {
            evidence.push(Evidence::new("xid", code as f64, ""));
        }
        if let Some(Ok(free)) = self.device_full {
            evidence.push(Evidence::new("device-free", free.0 as f64, "bytes"));
        }
        if self.host_full {
            evidence.push(Evidence::new("host-memory-of-limit", 0.95, "share"));
        }
        evidence
    }
}

fn whom(subject: &Subject, key: ProcKey) -> String {
    if subject.process.is_empty() {
        format!("process {key}")
    } else {
        format!("{} (process {key})", subject.process)
    }
}

fn summary(whom: &str, cause: EndCause, status: Reading<ExitStatus>, seen: &Seen) -> String {
    let how = status.map_or_else(|_: Absent| "how is not known".to_owned(), |status| status.to_string());
    let what = match (cause, status) {
        (EndCause::OomKill, Ok(ExitStatus::Exited(code))) => format!(
            "{whom} ended with exit code {code} after the out-of-memory killer had ended a process of its control group"
        ),
        (EndCause::OomKill, _) => {
            format!("{whom} was ended by the kernel's out-of-memory killer: host memory ran out ({how})")
        }
        (EndCause::Xid(code), _) => format!("{whom} ended ({how}) after the driver had reported XID {code}"),
        (EndCause::Signal(9), _) => format!("{whom} was ended by SIGKILL; nothing read says by whom"),
        (EndCause::Signal(_), _) => format!("{whom} was ended by {how}"),
        (EndCause::ExitCode(_), _) => format!("{whom} gave up with {how}"),
        (EndCause::Unknown, _) => {
            format!("{whom} is gone; the kernel does not tell how it ended, and something was amiss before")
        }
    };
    let held: Vec<String> = seen
        .left
        .iter()
        .filter_map(|at_end| Some(format!("{} of GPU {}", at_end.held.ok()?, at_end.index)))
        .collect();
    if held.is_empty() { what } else { format!("{what}. It held {}", held.join(", ")) }
}

#[cfg(test)]
mod tests;
