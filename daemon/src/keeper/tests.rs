//! The keeper beside sinks that cannot keep up.

use std::path::Path;

use ebbtide_core::{Tick, Ts};
use ebbtide_notify::sinks::QUEUE_EVENTS;
use ebbtide_store::StoreConfig;

use super::*;
use crate::books::SharedHealth;
use crate::books::tests::{owe, owed, told};
use crate::config::exec_sink;

/// Deliveries beyond what a sink that is stuck with its first one can take.
const TOO_MANY: usize = 20;

/// A keeper that has taken over more deliveries than its one sink can take, which runs `script` for each.
async fn overfull(path: &Path, script: &str) -> (Keeper, mpsc::Receiver<DeliveryReport>, SharedHealth) {
    let health = SharedHealth::default();
    let mut books = Books::new(path, StoreConfig::default(), health.clone());
    let events: Vec<AlertEvent> = (0..QUEUE_EVENTS + TOO_MANY).map(|at| told(at as i64)).collect();
    owe(&mut books, &events).await;
    let left = owed(path).await;
    assert_eq!(left.len(), events.len());
    let (reports, reported) = mpsc::channel(REPORT_QUEUE);
    let dispatcher = dispatcher(vec![exec_sink(&["/bin/sh", "-c", script])], reports).unwrap();
    (Keeper::new(books, dispatcher, left), reported, health)
}

#[tokio::test]
async fn more_alerts_than_a_stuck_sink_can_take_stop_nobody_and_are_told_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ebbtide.db");
    let (keeper, reported, health) = overfull(&path, "exec sleep 600").await;
    assert_eq!(keeper.full.len(), 1);
    let (ops, queue) = mpsc::channel(QUEUE);
    drop(ops);
    keeper.run(queue, reported, Duration::from_millis(200)).await;
    assert_eq!(owed(&path).await.len(), QUEUE_EVENTS + TOO_MANY, "what was not delivered is still owed");
    assert_eq!(health.read().dropped_deliveries, 0);
}

#[tokio::test]
async fn what_found_a_queue_full_is_told_in_order_once_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let (path, heard) = (dir.path().join("ebbtide.db"), dir.path().join("heard"));
    let script = format!("echo $EBBTIDE_AT_MS >> {}", heard.display());
    let (keeper, reported, health) = overfull(&path, &script).await;
    let (ops, queue) = mpsc::channel(QUEUE);
    let running = tokio::spawn(keeper.run(queue, reported, Duration::from_secs(60)));
    let all = (QUEUE_EVENTS + TOO_MANY) as u64;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    let mut seq = 0;
    while health.read().delivered < all {
        assert!(tokio::time::Instant::now() < deadline, "only {} were told", health.read().delivered);
        seq += 1;
        let tick = Tick { seq, at: Ts(seq.cast_signed()), mono_ms: seq };
        let record = TickRecord { tick, points: Vec::new(), gpus: Vec::new(), processes: Vec::new() };
        ops.send(Op::Tick(Box::new(record))).await.unwrap();
    }
    drop(ops);
    running.await.unwrap();
    assert!(owed(&path).await.is_empty());
    let heard = std::fs::read_to_string(heard).unwrap();
    let order: Vec<i64> = heard.lines().map(|at| at.parse().unwrap()).collect();
    assert!(order.is_sorted() && order.len() as u64 == all, "{} in order: {order:?}", order.len());
}
