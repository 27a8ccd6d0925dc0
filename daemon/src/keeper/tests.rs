//! The keeper beside sinks that cannot keep up.

use ebbtide_notify::sinks::QUEUE_EVENTS;
use ebbtide_store::Writer;

use super::*;
use crate::books::SharedHealth;
use crate::books::tests::{SINK, owe, owed, told};
use crate::config::exec_sink;

/// Deliveries beyond what a sink that is stuck with its first one can take.
const TOO_MANY: usize = 20;

#[tokio::test]
async fn more_alerts_than_a_stuck_sink_can_take_stop_nobody_and_are_told_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ebbtide.db");
    let health = SharedHealth::default();
    let mut books = Books::new(Writer::new(&path), health.clone());
    let events: Vec<AlertEvent> = (0..QUEUE_EVENTS + TOO_MANY).map(|at| told(at as i64)).collect();
    owe(&mut books, &events).await;
    let left = owed(&path).await;
    assert_eq!(left.len(), events.len());

    let (reports, reported) = mpsc::channel(REPORT_QUEUE);
    let stuck = exec_sink(&["/bin/sh", "-c", "exec sleep 600"]);
    let dispatcher = dispatcher(vec![stuck], reports).unwrap();
    assert_eq!(dispatcher.sinks().collect::<Vec<_>>(), [SINK]);
    let keeper = Keeper::new(books, dispatcher, left);
    let dropped = health.read().dropped_deliveries as usize;
    assert!((TOO_MANY - 1..=TOO_MANY).contains(&dropped), "one may be in the sink's hands: {dropped}");

    let (ops, queue) = mpsc::channel(QUEUE);
    drop(ops);
    keeper.run(queue, reported, Duration::from_millis(200)).await;
    assert_eq!(owed(&path).await.len(), events.len(), "what was not delivered is still owed");
}
