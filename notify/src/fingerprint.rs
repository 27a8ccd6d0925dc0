//! The identity of an alert across restarts of the daemon, of the process and of the machine.

use ebbtide_core::{Finding, SeriesPart, Subject, text};

/// `kind/gpu uuid/part`, and for a process whom it belongs to. No PID, no value and no time are in it, so a service
/// that is restarted and leaks again is the same alert, not a new one.
///
/// A process is named by the steadiest thing known of it: its pod, its systemd unit, its container, or else its name.
/// Several processes of one owner on one GPU share a fingerprint, hence one alert.
#[must_use]
pub fn fingerprint(finding: &Finding) -> String {
    let series = &finding.key.series;
    let kind = finding.key.kind.name();
    match series.part {
        SeriesPart::Device => format!("{kind}/{}/device", series.gpu),
        SeriesPart::Unattributed => format!("{kind}/{}/unattributed", series.gpu),
        SeriesPart::Process(_) => format!("{kind}/{}/process/{}", series.gpu, identity(&finding.subject)),
        SeriesPart::Host(_) => format!("{kind}/{}/host/{}", series.gpu, identity(&finding.subject)),
    }
}

fn identity(subject: &Subject) -> String {
    let owner = &subject.owner;
    if let Some(pod) = &owner.pod {
        return match (&pod.namespace, &pod.name) {
            (Some(namespace), Some(name)) => format!("pod:{}:{}", text::clean(namespace), text::clean(name)),
            _ => format!("pod:{}", text::clean(&pod.uid)),
        };
    }
    match (&owner.unit, &owner.container) {
        (Some(unit), _) => format!("unit:{}", text::clean(unit)),
        (None, Some(container)) => format!("container:{}", text::clean(container)),
        (None, None) => format!("name:{}", text::clean(&subject.process)),
    }
}

#[cfg(test)]
mod tests {
    use ebbtide_core::{FindingKind, Pod};

    use super::*;
    use crate::policy::tests::leak_of;

    #[test]
    fn a_restarted_service_keeps_its_fingerprint() {
        let mut before = leak_of(4_000);
        before.subject.owner.unit = Some("vllm.service".into());
        let mut after = leak_of(5_000);
        after.subject.owner.unit = Some("vllm.service".into());
        after.opened_at = before.opened_at.plus_ms(9_000);
        assert_eq!(fingerprint(&before), fingerprint(&after));
        assert_eq!(fingerprint(&before), "leak/GPU-a/process/unit:vllm.service");
    }

    #[test]
    fn kind_owner_and_name_each_tell_alerts_apart() {
        let leak = leak_of(1);
        let mut faster = leak.clone();
        faster.key.kind = FindingKind::SlopeChange;
        let mut other = leak.clone();
        other.subject.process = "trainer".into();
        let mut pod = leak.clone();
        pod.subject.owner.pod =
            Some(Pod { uid: "u-1".into(), namespace: Some("ml".into()), name: Some("chat-0".into()) });
        let prints = [&leak, &faster, &other, &pod].map(fingerprint);
        for (i, print) in prints.iter().enumerate() {
            assert!(!prints[..i].contains(print), "{print} stands for two");
        }
        assert_eq!(prints[3], "leak/GPU-a/process/pod:ml:chat-0");
    }
}
