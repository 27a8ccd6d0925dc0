//! An alert event in the two forms in which it leaves: a JSON document, and scalars for a hook's environment.

use ebbtide_core::{AlertEvent, SeriesPart, Ts, text};
use serde::Serialize;

/// Version of the JSON document. Additions are compatible; a change of meaning raises it.
pub const SCHEMA: u32 = 1;

/// The most bytes of one scalar in a hook's environment: far below what `execve` takes for one string (128 KiB).
pub const MAX_SCALAR_BYTES: usize = 4096;

/// One event, encoded once for all sinks.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    event: AlertEvent,
    json: String,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    #[serde(flatten)]
    event: &'a AlertEvent,
}

impl Message {
    /// Encodes an event.
    ///
    /// # Errors
    /// When a value of the event has no form in JSON; none of today's types has such a value.
    pub fn new(event: &AlertEvent) -> Result<Self, serde_json::Error> {
        let json = serde_json::to_string(&Document { schema: SCHEMA, event })?;
        Ok(Self { event: event.clone(), json })
    }

    /// The event as one line of JSON: `{"schema":1,"transition":...,"at":...,"alert":{...}}`.
    #[must_use]
    pub fn json(&self) -> &str {
        &self.json
    }

    /// The same text for every attempt to deliver this event and another for every other event, so that a receiver
    /// can drop what it has already.
    #[must_use]
    pub fn idempotency_key(&self) -> String {
        let AlertEvent { transition, at, alert } = &self.event;
        format!("{:016x}-{}-{}", fnv1a(alert.fingerprint.as_bytes()), at.0, transition.name())
    }

    /// The environment of a hook. What is not known has no variable, so that unknown never reads as zero.
    #[must_use]
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let AlertEvent { transition, at, alert } = &self.event;
        let finding = &alert.finding;
        let subject = &finding.subject;
        let owner = &subject.owner;
        let pod = owner.pod.as_ref();
        let pid = match finding.key.series.part {
            SeriesPart::Process(key) | SeriesPart::Host(key) => Some(key.pid.to_string()),
            SeriesPart::Device | SeriesPart::Unattributed => None,
        };
        let rate = finding.rate.map(|band| band.rate);
        let ms = |ts: Ts| ts.0.to_string();
        let known = [
            ("EBBTIDE_TRANSITION", Some(transition.name().to_owned())),
            ("EBBTIDE_KIND", Some(finding.key.kind.name().to_owned())),
            ("EBBTIDE_SEVERITY", Some(finding.severity.name().to_owned())),
            ("EBBTIDE_FINGERPRINT", Some(alert.fingerprint.clone())),
            ("EBBTIDE_IDEMPOTENCY_KEY", Some(self.idempotency_key())),
            ("EBBTIDE_SUMMARY", Some(finding.summary.clone())),
            ("EBBTIDE_GPU_UUID", Some(finding.key.series.gpu.as_str().to_owned())),
            ("EBBTIDE_GPU_INDEX", subject.gpu_index.map(|index| index.to_string())),
            ("EBBTIDE_GPU_NAME", known(&subject.gpu_name)),
            ("EBBTIDE_PID", pid),
            ("EBBTIDE_PROCESS", known(&subject.process)),
            ("EBBTIDE_UNIT", owner.unit.clone()),
            ("EBBTIDE_CONTAINER", owner.container.clone()),
            ("EBBTIDE_POD", pod.and_then(|pod| pod.name.clone())),
            ("EBBTIDE_POD_NAMESPACE", pod.and_then(|pod| pod.namespace.clone())),
            ("EBBTIDE_POD_UID", pod.map(|pod| pod.uid.clone())),
            ("EBBTIDE_RATE_BYTES_PER_S", rate.map(|rate| format!("{:.3}", rate.0))),
            ("EBBTIDE_RATE_MIB_PER_MIN", rate.map(|rate| format!("{:.3}", rate.mib_per_min()))),
            ("EBBTIDE_AT_MS", Some(ms(*at))),
            ("EBBTIDE_OPENED_AT_MS", Some(ms(finding.opened_at))),
            ("EBBTIDE_EXHAUSTED_AT_MS", finding.forecast.map(|forecast| ms(forecast.expected))),
        ];
        known.into_iter().filter_map(|(name, value)| Some((name, scalar(&value?)))).collect()
    }
}

fn known(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// `raw` as one clean line of at most [`MAX_SCALAR_BYTES`]: each word is cleaned by itself, because a sentence may be
/// longer than the one name that [`text::clean`] cuts to size.
fn scalar(raw: &str) -> String {
    let mut out = String::new();
    for word in raw.split_whitespace().map(text::clean).filter(|word| !word.is_empty()) {
        if out.len() + 1 + word.len() > MAX_SCALAR_BYTES {
            break;
        }
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(&word);
    }
    out
}

/// FNV-1a, 64 bits (parameters of the reference by Fowler, Noll and Vo): spread enough for a key, and the same in
/// every build.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
pub(crate) mod tests {
    use ebbtide_core::{
        Alert, AlertState, AlertTransition, ByteRate, Bytes, Forecast, Owner, Pod, RateBand, Subject,
    };
    use proptest::prelude::*;

    use super::*;
    use crate::policy::tests::leak_of;

    /// A firing leak of process 4242 at 2 MiB a minute, with everything known that can be.
    pub(crate) fn firing() -> AlertEvent {
        let mut finding = leak_of(4242);
        let rate = ByteRate::from_mib_per_min(2.0);
        finding.rate = Some(RateBand { rate, low: rate, high: rate });
        finding.forecast =
            Some(Forecast { capacity: Bytes(1), earliest: Ts(5_000), expected: Ts(6_000), latest: None });
        finding.subject = Subject {
            gpu_index: Some(3),
            gpu_name: "NVIDIA H200".into(),
            process: "vllm\x1b[2J\nserve".into(),
            owner: Owner {
                unit: Some("vllm.service".into()),
                container: Some("c0ffee".into()),
                pod: Some(Pod {
                    uid: "u-1".into(),
                    namespace: Some("ml".into()),
                    name: Some("chat-0".into()),
                }),
            },
        };
        let alert = Alert {
            fingerprint: crate::fingerprint(&finding),
            state: AlertState::Firing,
            since: finding.opened_at,
            fired_at: Some(Ts(2_000)),
            notified_at: Some(Ts(2_000)),
            finding,
        };
        AlertEvent { transition: AlertTransition::Firing, at: Ts(2_000), alert }
    }

    fn value(message: &Message, name: &str) -> Option<String> {
        message.environment().into_iter().find(|(n, _)| *n == name).map(|(_, value)| value)
    }

    #[test]
    fn the_environment_says_what_is_known_and_leaves_out_what_is_not() {
        let message = Message::new(&firing()).unwrap();
        let of = |name| value(&message, name);
        assert_eq!(of("EBBTIDE_PROCESS").as_deref(), Some("vllm [2J serve"));
        assert_eq!(of("EBBTIDE_RATE_MIB_PER_MIN").as_deref(), Some("2.000"));
        assert_eq!(of("EBBTIDE_EXHAUSTED_AT_MS").as_deref(), Some("6000"));
        assert_eq!(of("EBBTIDE_PID").as_deref(), Some("4242"));
        assert_eq!(of("EBBTIDE_IDEMPOTENCY_KEY"), Some(message.idempotency_key()));
        let mut bare = firing();
        bare.alert.finding.rate = None;
        bare.alert.finding.subject = Subject::default();
        let message = Message::new(&bare).unwrap();
        for name in ["EBBTIDE_RATE_BYTES_PER_S", "EBBTIDE_GPU_INDEX", "EBBTIDE_POD", "EBBTIDE_PROCESS"] {
            assert_eq!(value(&message, name), None, "{name}");
        }
    }

    #[test]
    fn the_document_carries_its_version_and_reads_back() {
        let event = firing();
        let message = Message::new(&event).unwrap();
        let document: serde_json::Value = serde_json::from_str(message.json()).unwrap();
        assert_eq!(document["schema"], 1);
        assert_eq!(document["transition"], "firing");
        assert_eq!(serde_json::from_str::<AlertEvent>(message.json()).unwrap(), event);
    }

    #[test]
    fn the_key_is_the_same_for_the_same_event_only() {
        let event = firing();
        let later = AlertEvent { at: event.at.plus_ms(1), ..event.clone() };
        let key = |event: &AlertEvent| Message::new(event).unwrap().idempotency_key();
        assert_eq!(key(&event), key(&event.clone()));
        assert_ne!(key(&event), key(&later));
        assert!(key(&event).bytes().all(|b| b.is_ascii_graphic()));
    }

    proptest! {
        #[test]
        fn no_stranger_can_put_a_control_character_or_a_flood_into_a_scalar(raw in "(?s).{0,9000}") {
            let scalar = scalar(&raw);
            prop_assert!(scalar.len() <= MAX_SCALAR_BYTES);
            prop_assert!(!scalar.chars().any(char::is_control));
        }
    }
}
