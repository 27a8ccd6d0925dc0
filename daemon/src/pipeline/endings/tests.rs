//! Ends of processes as the pipeline sees them.

use ebbtide_core::{FindingKind, Sample, WorldEvent};

use super::*;
use crate::pipeline::tests::{new, sample};
use crate::pipeline::{Effect, Input, Pipeline};

const VLLM: ProcKey = ProcKey { pid: 4711, start_ticks: Some(1) };

/// The tick after the process has left the list.
fn without(second: u64) -> Sample {
    let mut sample = sample(second, u64::MAX);
    sample.gpus[0].processes.as_mut().unwrap().entries.clear();
    let memory = sample.gpus[0].memory.as_mut().unwrap();
    (memory.used, memory.free) = (Bytes::ZERO, memory.total);
    sample
}

fn ended(status: Reading<ExitStatus>, oom_kills: Reading<u64>) -> Ending {
    Ending { proc: VLLM, status, oom_kills }
}

fn incidents(pipeline: &mut Pipeline, sample: Sample) -> Vec<Incident> {
    let freezes = |effect| if let Effect::Freeze(incident) = effect { Some(*incident) } else { None };
    pipeline.step(Input::Sample(sample)).into_iter().filter_map(freezes).collect()
}

/// What becomes of an end that is told a second after the process left the list, `seconds` into its life.
fn end(pipeline: &mut Pipeline, seconds: std::ops::Range<u64>, ending: Ending) -> Vec<Incident> {
    let left = seconds.end;
    for second in seconds {
        assert_eq!(incidents(pipeline, sample(second, u64::MAX)), []);
    }
    assert_eq!(incidents(pipeline, without(left)), []);
    let told = Sample { endings: vec![ending], ..without(left + 1) };
    incidents(pipeline, told)
}

#[test]
fn causes_are_told_apart_and_an_end_in_order_is_none() {
    use ExitStatus::{Exited, Signalled};
    let unread = || Err(Absent::NotSupported);
    let cases = [
        (Ok(Exited(0)), unread(), None),
        (Ok(Signalled(15)), Ok(1), None),
        (Ok(Exited(143)), unread(), None),
        (Ok(Signalled(9)), Ok(1), Some(EndCause::OomKill)),
        (Ok(Signalled(9)), Ok(0), Some(EndCause::Signal(9))),
        (Ok(Signalled(11)), Ok(1), Some(EndCause::Signal(11))),
        (Ok(Exited(1)), unread(), Some(EndCause::ExitCode(1))),
        (Err(Absent::NotSupported), Ok(1), Some(EndCause::OomKill)),
        (Err(Absent::NotSupported), Ok(0), None),
    ];
    for (status, kills, cause) in cases {
        let found = end(&mut new(), 0..5, ended(status, kills));
        assert_eq!(found.iter().map(|incident| incident.cause).next(), cause, "{status:?} {kills:?}");
    }
}

#[test]
fn an_incident_tells_how_things_stood_while_the_process_was_there() {
    let incident = end(&mut new(), 0..5, ended(Ok(ExitStatus::Signalled(9)), Ok(1))).remove(0);
    let last = Frame::of(sample(4, u64::MAX)).ledgers.remove(0);
    assert_eq!(incident.gpus[0].ledger, last, "the ledger has the process in it");
    assert_eq!(incident.gpus[0].held, Ok(Bytes(20 << 30)));
    assert_eq!((incident.at.0 - incident.from.0, incident.subject.process.as_str()), (FROZEN_MS, "vllm"));
    assert_eq!(
        incident.summary,
        "vllm (process 4711) was ended by the kernel's out-of-memory killer: host memory ran out (SIGKILL). It held 20.0 GiB of GPU 0"
    );
}

#[test]
fn an_error_of_the_device_shortly_before_is_the_cause_and_one_long_ago_is_not() {
    for (second, cause) in [(3, EndCause::Xid(31)), (0, EndCause::Signal(6))] {
        let mut pipeline = new();
        let gpu = Some(GpuUuid::new("GPU-1"));
        let xid = WorldEvent { gpu, proc: None, kind: EventKind::Xid(31) };
        let mut first = sample(second, u64::MAX);
        first.events.push(xid);
        assert_eq!(incidents(&mut pipeline, first), []);
        let last = if second == 0 { 70 } else { 10 };
        let found = end(&mut pipeline, second + 1..last, ended(Ok(ExitStatus::Signalled(6)), Ok(0)));
        assert_eq!(found[0].cause, cause);
    }
}

#[test]
fn where_nothing_is_told_an_open_finding_makes_it_worth_keeping_and_the_cause_is_unknown() {
    let mut pipeline = new();
    let leak_from = 900;
    let mut second = 0;
    while !pipeline.open.values().any(|f| f.key.kind == FindingKind::Leak && f.severity > Severity::Info) {
        incidents(&mut pipeline, sample(second, leak_from));
        second += 1;
        assert!(second < 3_600, "the leak is found within an hour");
    }
    incidents(&mut pipeline, without(second));
    let unread = ended(Err(Absent::NotSupported), Err(Absent::NotSupported));
    let told = Sample { endings: vec![unread], ..without(second + 1) };
    let incident = incidents(&mut pipeline, told).remove(0);
    assert_eq!(incident.cause, EndCause::Unknown);
    let of_process = |f: &Finding| f.key.series.part == SeriesPart::Process(VLLM);
    assert!(incident.findings.iter().any(of_process), "its findings resolved when it left: {incident:#?}");
}

#[test]
fn a_program_that_ends_again_and_again_makes_one_record_in_ten_minutes() {
    let mut pipeline = new();
    let killed = || ended(Ok(ExitStatus::Signalled(9)), Ok(0));
    let mut kept = Vec::new();
    for round in 0..50_u64 {
        kept.extend(end(&mut pipeline, round * 20..round * 20 + 5, killed()));
    }
    let repeats: Vec<u32> = kept.iter().map(|incident| incident.repeats).collect();
    assert_eq!(repeats, [0, 29], "1000 seconds, one end in 20");
}

#[test]
fn an_end_of_somebody_who_was_never_listed_is_nobodys() {
    let mut pipeline = new();
    let stranger = ProcKey { pid: 1, start_ticks: Some(9) };
    let ending = Ending { proc: stranger, ..ended(Ok(ExitStatus::Signalled(9)), Ok(1)) };
    assert_eq!(end(&mut pipeline, 0..5, ending), []);
}
