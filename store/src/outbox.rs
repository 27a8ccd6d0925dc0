//! Findings, alerts, and what is still to be told to whom.

use ebbtide_core::{Alert, AlertEvent, AlertState, FindingEvent, Ts};
use sqlx::sqlite::SqliteConnection;
use sqlx::{Connection, Row as _};

use crate::gap::KEPT_GAPS;
use crate::json;

/// Findings that are kept; the oldest resolved ones beyond it go. At ten a day this is decades.
const KEPT_FINDINGS: i64 = 100_000;

/// Settled deliveries that are kept, for `who was told what`.
const KEPT_DELIVERIES: i64 = 10_000;

/// How long a resolved alert is remembered: longer than any minimum repeat.
const KEPT_ALERTS_MS: i64 = 30 * 24 * 3600 * 1000;

/// Old rows deleted in one step.
const DELETED_ROWS: i64 = 100;

/// What detector and policy made of a tick: one commit, so that no alert is on disk without its deliveries.
#[derive(Debug, Clone, Copy, Default)]
pub struct Verdicts<'a> {
    /// What happened to findings.
    pub findings: &'a [FindingEvent],
    /// Alerts whose state changed without anybody being told. Those in `events` need not be repeated here.
    pub alerts: &'a [Alert],
    /// What people are to be told.
    pub events: &'a [AlertEvent],
    /// To whom each of `events` goes: names of sinks.
    pub sinks: &'a [String],
}

impl Verdicts<'_> {
    /// Whether there is nothing to store.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.findings.is_empty() && self.alerts.is_empty() && self.events.is_empty()
    }
}

/// One thing to tell one sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliveryId(pub(crate) i64);

/// How a delivery ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settlement {
    /// The sink took it.
    Delivered,
    /// It was tried for as long as it is worth.
    GivenUp,
}

impl Settlement {
    const fn name(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::GivenUp => "given-up",
        }
    }
}

/// A delivery that has not ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Pending {
    /// Its number, for [`crate::Writer::settle`].
    pub id: DeliveryId,
    /// For whom.
    pub sink: String,
    /// What to tell.
    pub event: AlertEvent,
}

/// Writes verdicts in one transaction; the ids are those of the first event for each sink, then of the second, ...
pub(crate) async fn record(
    conn: &mut SqliteConnection,
    verdicts: &Verdicts<'_>,
) -> Result<Vec<DeliveryId>, sqlx::Error> {
    let mut tx = conn.begin_with("BEGIN IMMEDIATE").await?;
    for event in verdicts.findings {
        upsert_finding(&mut tx, event).await?;
    }
    for alert in verdicts.alerts.iter().chain(verdicts.events.iter().map(|event| &event.alert)) {
        upsert_alert(&mut tx, alert).await?;
    }
    let mut ids = Vec::with_capacity(verdicts.events.len() * verdicts.sinks.len());
    for event in verdicts.events {
        for sink in verdicts.sinks {
            ids.push(enqueue(&mut tx, event, sink).await?);
        }
    }
    tx.commit().await?;
    Ok(ids)
}

/// Notes how a delivery ended.
pub(crate) async fn settle(
    conn: &mut SqliteConnection,
    id: DeliveryId,
    how: Settlement,
) -> Result<(), sqlx::Error> {
    sqlx::query("UPDATE delivery SET state = ? WHERE id = ? AND state = 'pending'")
        .bind(how.name())
        .bind(id.0)
        .execute(conn)
        .await
        .map(drop)
}

/// Deletes, a bounded number at a time, what nobody will ask for again.
pub(crate) async fn forget_oldest(conn: &mut SqliteConnection, now: Ts) -> Result<(), sqlx::Error> {
    sqlx::query(
        "DELETE FROM finding WHERE resolved_at_ms IS NOT NULL AND id IN (
             SELECT id FROM finding WHERE id <= (SELECT max(id) FROM finding) - ? ORDER BY id LIMIT ?)",
    )
    .bind(KEPT_FINDINGS)
    .bind(DELETED_ROWS)
    .execute(&mut *conn)
    .await?;
    sqlx::query(
        "DELETE FROM delivery WHERE state <> 'pending' AND id IN (
             SELECT id FROM delivery WHERE id <= (SELECT max(id) FROM delivery) - ? ORDER BY id LIMIT ?)",
    )
    .bind(KEPT_DELIVERIES)
    .bind(DELETED_ROWS)
    .execute(&mut *conn)
    .await?;
    sqlx::query("DELETE FROM gap WHERE id <= (SELECT max(id) FROM gap) - ?")
        .bind(KEPT_GAPS)
        .execute(&mut *conn)
        .await?;
    sqlx::query("DELETE FROM alert WHERE state = 'resolved' AND changed_ms < ?")
        .bind(now.plus_ms(-KEPT_ALERTS_MS).0)
        .execute(conn)
        .await
        .map(drop)
}

async fn upsert_finding(conn: &mut SqliteConnection, event: &FindingEvent) -> Result<(), sqlx::Error> {
    let finding = event.finding();
    sqlx::query(
        "INSERT INTO finding (gpu, part, kind, opened_at_ms, resolved_at_ms, body) VALUES (?, ?, ?, ?, ?, ?)
         ON CONFLICT (gpu, part, kind, opened_at_ms) DO UPDATE
         SET resolved_at_ms = excluded.resolved_at_ms, body = excluded.body",
    )
    .bind(finding.key.series.gpu.as_str().to_owned())
    .bind(json::text(&finding.key.series.part)?)
    .bind(finding.key.kind.name())
    .bind(finding.opened_at.0)
    .bind(finding.resolved_at.map(|at| at.0))
    .bind(json::text(finding)?)
    .execute(conn)
    .await
    .map(drop)
}

async fn upsert_alert(conn: &mut SqliteConnection, alert: &Alert) -> Result<(), sqlx::Error> {
    let changed = alert.finding.resolved_at.or(alert.notified_at).unwrap_or(alert.since);
    sqlx::query(
        "INSERT INTO alert (fingerprint, state, changed_ms, body) VALUES (?, ?, ?, ?)
         ON CONFLICT (fingerprint) DO UPDATE
         SET state = excluded.state, changed_ms = excluded.changed_ms, body = excluded.body",
    )
    .bind(alert.fingerprint.clone())
    .bind(state_name(alert.state))
    .bind(changed.0)
    .bind(json::text(alert)?)
    .execute(conn)
    .await
    .map(drop)
}

async fn enqueue(
    conn: &mut SqliteConnection,
    event: &AlertEvent,
    sink: &str,
) -> Result<DeliveryId, sqlx::Error> {
    let row = sqlx::query(
        "INSERT INTO delivery (sink, at_ms, state, body) VALUES (?, ?, 'pending', ?) RETURNING id",
    )
    .bind(sink.to_owned())
    .bind(event.at.0)
    .bind(json::text(event)?)
    .fetch_one(conn)
    .await?;
    Ok(DeliveryId(row.try_get(0)?))
}

const fn state_name(state: AlertState) -> &'static str {
    match state {
        AlertState::Pending => "pending",
        AlertState::Firing => "firing",
        AlertState::Resolved => "resolved",
    }
}
