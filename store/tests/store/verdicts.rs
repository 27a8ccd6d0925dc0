//! Findings, alerts and deliveries.

use ebbtide_core::{Alert, AlertEvent, AlertState, AlertTransition, Finding, FindingEvent, Ts};
use ebbtide_store::{Settlement, Verdicts, Writer};

use crate::records::{self, finding};

fn alert(finding: Finding, state: AlertState) -> Alert {
    let fingerprint = format!("leak/{}", finding.key.series.gpu);
    Alert { fingerprint, state, since: finding.opened_at, fired_at: None, notified_at: None, finding }
}

#[tokio::test]
async fn verdicts_are_there_after_a_restart_until_they_are_settled() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history.db");
    let sinks = ["hook".to_owned(), "webhook".to_owned()];
    let (first, second) = (finding(0, 1_000), finding(1, 2_000));
    let firing = AlertEvent {
        transition: AlertTransition::Firing,
        at: Ts(1_500),
        alert: alert(first.clone(), AlertState::Firing),
    };
    let mut writer = Writer::new(&path);
    let ids = writer
        .record(&Verdicts {
            findings: &[FindingEvent::Opened(first.clone()), FindingEvent::Opened(second.clone())],
            alerts: &[alert(second.clone(), AlertState::Pending)],
            events: std::slice::from_ref(&firing),
            sinks: &sinks,
        })
        .await
        .unwrap();
    writer.settle(ids[0], Settlement::Delivered).await.unwrap();
    drop(writer);

    let reader = records::reader(&path);
    assert_eq!(reader.findings(Ts(0)).await.unwrap(), [first.clone(), second.clone()]);
    let fingerprints: Vec<_> =
        reader.open_alerts().await.unwrap().into_iter().map(|a| (a.fingerprint, a.state)).collect();
    let named = |n| format!("leak/{}", records::uuid(n));
    assert_eq!(fingerprints, [(named(0), AlertState::Firing), (named(1), AlertState::Pending)]);
    let pending = reader.pending_deliveries().await.unwrap();
    assert_eq!(pending.len(), 1);
    assert_eq!((pending[0].id, pending[0].sink.as_str(), &pending[0].event), (ids[1], "webhook", &firing));

    let resolved = Finding { resolved_at: Some(Ts(9_000)), ..first };
    let mut writer = Writer::new(&path);
    writer
        .record(&Verdicts {
            findings: &[FindingEvent::Resolved(resolved.clone())],
            alerts: &[alert(resolved.clone(), AlertState::Resolved)],
            ..Verdicts::default()
        })
        .await
        .unwrap();
    writer.settle(pending[0].id, Settlement::GivenUp).await.unwrap();
    assert_eq!(reader.findings(Ts(0)).await.unwrap(), [resolved, second.clone()]);
    assert_eq!(reader.findings(Ts(5_000)).await.unwrap(), [second], "open ones whatever their age");
    assert_eq!(reader.open_alerts().await.unwrap().len(), 1);
    assert!(reader.pending_deliveries().await.unwrap().is_empty());
}
