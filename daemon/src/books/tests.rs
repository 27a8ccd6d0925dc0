//! What is owed while the store comes and goes.

use std::fs;
use std::path::Path;

use super::*;
use ebbtide_core::{
    Alert, AlertState, Finding, FindingKey, FindingKind, GpuUuid, SeriesPart, SeriesRef, Severity, Subject,
    Tick, Tier,
};

/// The sink of these tests.
pub(crate) const SINK: &str = "exec /bin/sh";

/// Somebody is told of a leak at `at`.
pub(crate) fn told(at: i64) -> AlertEvent {
    let finding = Finding {
        key: FindingKey {
            series: SeriesRef { gpu: GpuUuid::new("GPU-a"), part: SeriesPart::Device },
            kind: FindingKind::Leak,
        },
        subject: Subject::default(),
        tier: Tier::Confirmed,
        severity: Severity::Warning,
        opened_at: Ts(1),
        resolved_at: None,
        onset_at: None,
        rate: None,
        grown: None,
        forecast: None,
        evidence: Vec::new(),
        summary: String::new(),
        settle: String::new(),
    };
    let alert = Alert {
        fingerprint: "leak/GPU-a/device".to_owned(),
        state: AlertState::Firing,
        since: Ts(1),
        fired_at: Some(Ts(1)),
        notified_at: Some(Ts(at)),
        finding,
    };
    AlertEvent { transition: AlertTransition::Repeat, at: Ts(at), alert }
}

/// Enters `events` for [`SINK`].
pub(crate) async fn owe(books: &mut Books, events: &[AlertEvent]) -> Vec<DeliveryId> {
    let sinks = [SINK.to_owned()];
    let verdicts = Verdicts { findings: &[], alerts: &[], events, sinks: &sinks };
    books.decided(&verdicts).await.expect("the store can be written")
}

/// What the store would have told again after a restart.
pub(crate) async fn owed(path: &Path) -> Vec<Pending> {
    Reader::new(path, WRITE_DEADLINE).pending_deliveries().await.unwrap()
}

fn delivered(event: &AlertEvent) -> DeliveryReport {
    DeliveryReport {
        sink: Arc::from(SINK),
        fingerprint: event.alert.fingerprint.clone(),
        transition: event.transition,
        at: event.at,
        attempt: 1,
        outcome: Outcome::Delivered,
    }
}

/// Books of the database at `path`.
pub(crate) fn new(path: &Path) -> Books {
    Books::new(path, StoreConfig::default(), SharedHealth::default())
}

fn tick(seq: u64) -> TickRecord {
    let tick = Tick { seq, at: Ts(seq.cast_signed()), mono_ms: seq };
    TickRecord { tick, points: Vec::new(), gpus: Vec::new(), processes: Vec::new() }
}

#[tokio::test]
async fn what_was_delivered_while_the_store_was_away_is_not_told_again_after_a_restart() {
    let around = tempfile::tempdir().unwrap();
    let (dir, away) = (around.path().join("store"), around.path().join("away"));
    let path = dir.join("ebbtide.db");
    fs::create_dir(&dir).unwrap();
    let mut books = new(&path);
    let event = told(5);
    let ids = owe(&mut books, std::slice::from_ref(&event)).await;
    books.expect(SINK, &event, ids[0]);

    fs::rename(&dir, &away).unwrap();
    fs::write(&dir, "a file where the directory was").unwrap();
    books.settle(delivered(&event)).await;
    assert!(books.health().read().store_error.is_some());
    fs::remove_file(&dir).unwrap();
    fs::rename(&away, &dir).unwrap();

    assert_eq!(owed(&path).await.len(), 1, "nothing could be noted yet");
    assert!(books.tick(&mut tick(1)).await);
    assert_eq!(owed(&path).await, []);
    books.close().await;
}

#[tokio::test]
async fn a_report_settles_its_own_delivery_and_no_other_of_the_same_alert() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ebbtide.db");
    let mut books = new(&path);
    let events = [told(5), told(6)];
    let ids = owe(&mut books, &events).await;
    for (event, id) in events.iter().zip(ids) {
        books.expect(SINK, event, id);
    }
    books.settle(delivered(&events[1])).await;
    let left: Vec<Ts> = owed(&path).await.into_iter().map(|pending| pending.event.at).collect();
    assert_eq!(left, [Ts(5)]);
    books.close().await;
}

#[tokio::test]
async fn a_database_that_appears_later_and_holds_more_is_counted_on_from_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let (path, earlier) = (dir.path().join("ebbtide.db"), dir.path().join("earlier.db"));
    let mut writer = Writer::new(&earlier);
    writer.append(&tick(500)).await.unwrap();
    writer.close().await;
    let mut books = new(&path);
    assert!(books.tick(&mut tick(1)).await);
    fs::rename(&earlier, &path).unwrap();
    for seq in [2, 3] {
        assert!(books.tick(&mut tick(seq)).await, "{:?}", books.health().read().store_error);
    }
    assert_eq!(books.health().read().last_stored_seq, Some(3), "our own number");
    books.close().await;
    assert_eq!(Reader::new(&path, WRITE_DEADLINE).next_seq().await.unwrap(), 503);
}

#[tokio::test]
async fn ticks_that_could_not_be_kept_are_marked_as_a_gap_once_writing_works_again() {
    let dir = tempfile::tempdir().unwrap();
    let blocked = dir.path().join("blocked");
    fs::write(&blocked, "a file where a directory should be").unwrap();
    let path = blocked.join("ebbtide.db");
    let mut books = new(&path);
    assert!(!books.tick(&mut tick(1)).await);
    for seq in 1..=5 {
        books.lose(tick(seq).tick);
    }
    fs::remove_file(&blocked).unwrap();
    fs::create_dir(&blocked).unwrap();
    assert!(books.tick(&mut tick(6)).await);
    assert!(books.tick(&mut tick(7)).await);
    assert_eq!(books.health().read().unstored_ticks, 5);
    books.close().await;
    let gaps = Reader::new(&path, WRITE_DEADLINE).gaps(Ts(0), Ts(100)).await.unwrap();
    assert_eq!(gaps.len(), 1);
    assert_eq!((gaps[0].from, gaps[0].to, gaps[0].ticks), (Ts(1), Ts(5), 5));
    assert!(gaps[0].reason.contains("cannot be opened"), "{}", gaps[0].reason);
}
