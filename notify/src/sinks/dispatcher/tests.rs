use std::sync::Mutex;

use super::*;
use crate::message::tests::firing;
use crate::sinks::receiver::Receiver as Web;
use crate::sinks::{ExecConfig, WebhookConfig};

const QUICK: Backoff = Backoff { first: Duration::from_millis(1), longest: Duration::from_millis(4) };
const SLOW: Backoff = Backoff { first: Duration::from_secs(600), longest: Duration::from_secs(600) };

fn shell(script: &str) -> SinkConfig {
    SinkConfig::Exec(ExecConfig::new(["/bin/sh", "-c", script].map(str::to_owned).into()))
}

fn start(sinks: Vec<SinkConfig>, backoff: Backoff) -> (Dispatcher, Receiver<DeliveryReport>) {
    let (sender, reports) = mpsc::channel();
    let sender = Mutex::new(sender);
    let report: Arc<Report> = Arc::new(move |report| {
        // The test may have ended by now.
        let _heard = sender.lock().unwrap().send(report);
    });
    (Dispatcher::paced(sinks, &report, backoff).unwrap(), reports)
}

/// Hands an event to every sink.
fn deliver(dispatcher: &Dispatcher, event: &AlertEvent) {
    for sink in dispatcher.sinks() {
        assert_eq!(dispatcher.deliver(sink, event), Handed::Queued, "{sink}");
    }
}

fn next(reports: &Receiver<DeliveryReport>) -> DeliveryReport {
    reports.recv_timeout(Duration::from_secs(30)).expect("a report within the deadline")
}

const LONG: Duration = Duration::from_secs(30);

#[test]
fn every_sink_gets_every_event_in_order_and_shutdown_works_off_the_queue() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let web = Web::answering(&["200 OK"]);
    let script = format!("echo $EBBTIDE_AT_MS >> {}", log.display());
    let (dispatcher, _reports) =
        start(vec![shell(&script), SinkConfig::Webhook(WebhookConfig::new(web.url()))], QUICK);
    for n in 0..5 {
        deliver(&dispatcher, &AlertEvent { at: Ts(n), ..firing() });
    }
    assert_eq!(dispatcher.shutdown(LONG), 0);
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "0\n1\n2\n3\n4\n");
    for n in 0..5 {
        assert!(web.next_request().body.contains(&format!("\"at\":{n},")));
    }
}

#[test]
fn what_fails_for_a_while_is_tried_again_with_the_same_key() {
    let web = Web::answering(&["503 Service Unavailable", "503 Service Unavailable", "200 OK"]);
    let (dispatcher, reports) = start(vec![SinkConfig::Webhook(WebhookConfig::new(web.url()))], QUICK);
    deliver(&dispatcher, &firing());
    assert!(matches!(next(&reports).outcome, Outcome::Retrying { .. }));
    assert!(matches!(next(&reports).outcome, Outcome::Retrying { .. }));
    let last = next(&reports);
    assert_eq!((last.attempt, last.outcome), (3, Outcome::Delivered));
    let key = |head: &str| head.lines().find(|l| l.starts_with("idempotency-key")).map(str::to_owned);
    let keys = [0; 3].map(|_| key(&web.next_request().head.to_lowercase()).unwrap());
    assert!(keys.iter().all(|k| *k == keys[0]), "{keys:?}");
    assert_eq!(dispatcher.shutdown(LONG), 0);
}

#[test]
fn what_never_works_is_given_up_after_a_bounded_number_of_tries() {
    let (dispatcher, reports) = start(vec![shell("exit 75")], QUICK);
    deliver(&dispatcher, &firing());
    let outcomes: Vec<DeliveryReport> = (0..MAX_ATTEMPTS).map(|_| next(&reports)).collect();
    let last = outcomes.last().unwrap();
    assert_eq!(last.attempt, MAX_ATTEMPTS);
    assert!(matches!(&last.outcome, Outcome::GivenUp { reason } if reason.contains("12 tries")), "{last:?}");
    assert_eq!(dispatcher.shutdown(LONG), 0);
}

#[test]
fn a_stuck_sink_blocks_neither_the_caller_nor_the_others_and_what_it_cannot_take_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let gate = dir.path().join("gate");
    assert!(std::process::Command::new("mkfifo").arg(&gate).status().unwrap().success());
    let stuck = shell(&format!("read x < {}", gate.display()));
    let web = Web::answering(&["200 OK"]);
    let (dispatcher, reports) = start(vec![stuck, SinkConfig::Webhook(WebhookConfig::new(web.url()))], QUICK);
    let many = QUEUE_EVENTS + 20;
    let [stuck, web_sink]: [String; 2] =
        dispatcher.sinks().map(str::to_owned).collect::<Vec<_>>().try_into().unwrap();
    let mut dropped = 0;
    for _ in 0..many {
        dropped += usize::from(dispatcher.deliver(&stuck, &firing()) == Handed::Full);
        // The web sink is waited for, so that only the stuck one can fall behind.
        assert_eq!(dispatcher.deliver(&web_sink, &firing()), Handed::Queued);
        let report = next(&reports);
        assert_eq!((&*report.sink, report.outcome), ("webhook 127.0.0.1", Outcome::Delivered));
    }
    assert!((19..=20).contains(&dropped), "one may be in the sink's hands: {dropped}");
    let left = dispatcher.shutdown(Duration::from_millis(300));
    assert_eq!(left as usize, many - dropped);
}

#[test]
fn shutdown_does_not_wait_for_a_back_off() {
    let (dispatcher, reports) = start(vec![shell("exit 75")], SLOW);
    deliver(&dispatcher, &firing());
    assert!(matches!(next(&reports).outcome, Outcome::Retrying { .. }));
    assert_eq!(dispatcher.shutdown(Duration::from_secs(60)), 1);
    assert!(matches!(next(&reports).outcome, Outcome::Retrying { .. }), "one last try is made");
}

#[test]
fn a_script_that_is_run_by_its_own_name_is_delivered_to() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hook");
    std::fs::write(&path, "#!/bin/sh\nexit 0\n").unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let argv = vec![path.to_str().unwrap().to_owned()];
    let (dispatcher, reports) = start(vec![SinkConfig::Exec(ExecConfig::new(argv))], QUICK);
    deliver(&dispatcher, &firing());
    let outcome = loop {
        // Another test's fork may hold the file open for a moment: then it is tried again.
        match next(&reports).outcome {
            Outcome::Retrying { .. } => {}
            outcome => break outcome,
        }
    };
    assert_eq!(outcome, Outcome::Delivered);
    assert_eq!(dispatcher.shutdown(LONG), 0);
}

#[test]
fn a_delivery_left_over_goes_to_its_own_sink_alone() {
    let dir = tempfile::tempdir().unwrap();
    let script = |log: &str| format!("echo told >> {}/{log}", dir.path().display());
    let (dispatcher, _reports) = start(vec![shell(&script("a")), shell(&script("b"))], QUICK);
    let names: Vec<String> = dispatcher.sinks().map(str::to_owned).collect();
    assert!(names[0] != names[1], "{names:?}");
    assert_eq!(dispatcher.deliver(&names[1], &firing()), Handed::Queued);
    assert_eq!(dispatcher.deliver("no such sink", &firing()), Handed::NoSuchSink);
    assert_eq!(dispatcher.shutdown(LONG), 0);
    assert!(!dir.path().join("a").exists());
    assert_eq!(std::fs::read_to_string(dir.path().join("b")).unwrap(), "told\n");
}
