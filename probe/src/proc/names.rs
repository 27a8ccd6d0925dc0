//! Names that the host keeps in files: users, and the pods behind uids.

use std::path::Path;

use ebbtide_core::Pod;
use ebbtide_core::text::clean;

use super::file::read_text;

/// Local user databases are a few KiB; one of this size is a mistake.
const PASSWD_CAP: u64 = 4 << 20;
/// A kubelet runs 110 pods by default; dirs of finished pods linger.
const MAX_POD_DIRS: usize = 8192;

/// The name of user `uid` in the file at `passwd`, cleaned.
pub(crate) fn user(passwd: &Path, uid: u32) -> Option<String> {
    let text = read_text(passwd, PASSWD_CAP).ok()?;
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| clean(name))
    })
}

/// Completes a pod's namespace and name from the kubelet's log directories, `<namespace>_<name>_<uid>`; neither a
/// namespace nor a pod may hold an underscore (RFC 1123 labels).
pub(crate) fn complete(pod: &mut Pod, pods: &Path) {
    let Ok(entries) = std::fs::read_dir(pods) else { return };
    for entry in entries.take(MAX_POD_DIRS).flatten() {
        let file_name = entry.file_name();
        let parts: Option<Vec<&str>> = file_name.to_str().map(|name| name.split('_').collect());
        if let Some([namespace, name, uid]) = parts.as_deref()
            && *uid == pod.uid
        {
            pod.namespace = Some(clean(namespace));
            pod.name = Some(clean(name));
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_number_past_broken_lines() {
        let dir = tempfile::tempdir().unwrap();
        let passwd = dir.path().join("passwd");
        std::fs::write(&passwd, "broken\n:x:7:\nroot:x:0:0::/root:/bin/sh\nm\x1b[31m:x:1000:1:\n").unwrap();
        assert_eq!(user(&passwd, 0).as_deref(), Some("root"));
        assert_eq!(user(&passwd, 1000).as_deref(), Some("m [31m"));
        assert_eq!((user(&passwd, 7), user(&dir.path().join("none"), 0)), (None, None));
    }

    #[test]
    fn pods_are_named_where_their_logs_are_visible() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("serving_llama-0_0b6e1f3a")).unwrap();
        std::fs::create_dir(dir.path().join("odd")).unwrap();
        let mut pod = Pod { uid: "0b6e1f3a".into(), namespace: None, name: None };
        complete(&mut pod, dir.path());
        assert_eq!((pod.namespace.as_deref(), pod.name.as_deref()), (Some("serving"), Some("llama-0")));
    }
}
