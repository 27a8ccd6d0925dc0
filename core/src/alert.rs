//! Alerts: what policy makes of a finding.

use serde::{Deserialize, Serialize};

use crate::finding::Finding;
use crate::units::Ts;

/// Where an alert stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AlertState {
    /// The finding is open, but not yet for as long as policy wants.
    Pending,
    /// People have been told.
    Firing,
    /// The finding has resolved for as long as policy wants; people have been told that too.
    Resolved,
}

/// A finding as policy sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Alert {
    /// Identity across restarts: no PID, no value, no time in it.
    pub fingerprint: String,
    /// Where it stands.
    pub state: AlertState,
    /// When the finding opened.
    pub since: Ts,
    /// When people were first told.
    pub fired_at: Option<Ts>,
    /// When people were last told.
    pub notified_at: Option<Ts>,
    /// The finding, as it was last.
    pub finding: Finding,
}

/// What people are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AlertTransition {
    /// It fires.
    Firing,
    /// It still fires; the minimum repeat has passed.
    Repeat,
    /// It is over.
    Resolved,
}

impl AlertTransition {
    /// The name in JSON and in hooks.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Firing => "firing",
            Self::Repeat => "repeat",
            Self::Resolved => "resolved",
        }
    }
}

/// One thing to tell people, to be delivered to every sink.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AlertEvent {
    /// What happened.
    pub transition: AlertTransition,
    /// When.
    pub at: Ts,
    /// To which alert.
    pub alert: Alert,
}
