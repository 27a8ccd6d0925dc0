//! Who may have written a hook: whoever can write it could run commands as the daemon's user.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Why a file is not run as a hook. The rules are those of ZFS's event daemon for its scripts (zed(8)), with the
/// daemon's own user trusted beside root.
#[derive(Debug, thiserror::Error)]
pub enum HookFileError {
    /// A name would be searched for in PATH, and where it is found may change.
    #[error("the hook {path} is not an absolute path: write it out from /")]
    NotAbsolute {
        /// What was given.
        path: PathBuf,
    },
    /// It cannot be looked at.
    #[error("the hook {path} cannot be looked at")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It is a directory, a device or the like.
    #[error("the hook {path} is not a regular file: name a program or a script")]
    NotAFile {
        /// The file.
        path: PathBuf,
    },
    /// Nobody may execute it.
    #[error("the hook {path} is not executable: run `chmod u+x {path}`")]
    NotExecutable {
        /// The file.
        path: PathBuf,
    },
    /// It belongs to somebody else.
    #[error(
        "the hook {path} belongs to user {owner}, who could make it run anything as user {us}: give it to root or to user {us}"
    )]
    ForeignOwner {
        /// The file.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// The daemon's user.
        us: u32,
    },
    /// Others may write it.
    #[error(
        "the hook {path} (mode {mode:04o}) may be written by others than its owner, who could make it run anything as the daemon's user: run `chmod go-w {path}`"
    )]
    WritableByOthers {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
}

/// Looks whether a file may be run as a hook; a link is followed to what would be run.
pub(super) fn check(path: &Path) -> Result<(), HookFileError> {
    let path_buf = || path.to_owned();
    if !path.is_absolute() {
        return Err(HookFileError::NotAbsolute { path: path_buf() });
    }
    let meta = fs::metadata(path).map_err(|source| HookFileError::Unreadable { path: path_buf(), source })?;
    if !meta.is_file() {
        return Err(HookFileError::NotAFile { path: path_buf() });
    }
    let mode = meta.permissions().mode() & 0o7777;
    if mode & 0o111 == 0 {
        return Err(HookFileError::NotExecutable { path: path_buf() });
    }
    let us = rustix::process::geteuid().as_raw();
    if meta.uid() != 0 && meta.uid() != us {
        return Err(HookFileError::ForeignOwner { path: path_buf(), owner: meta.uid(), us });
    }
    if mode & 0o022 != 0 {
        return Err(HookFileError::WritableByOthers { path: path_buf(), mode });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(mode: u32) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hook");
        fs::write(&path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        (dir, path)
    }

    #[test]
    fn what_only_its_owner_may_write_is_run() {
        let (_dir, path) = file(0o755);
        check(&path).unwrap();
        check(Path::new("/bin/sh")).unwrap();
    }

    #[test]
    fn what_others_may_write_is_refused_with_the_remedy() {
        for mode in [0o775, 0o757, 0o777] {
            let (_dir, path) = file(mode);
            let error = check(&path).unwrap_err();
            assert!(matches!(error, HookFileError::WritableByOthers { .. }), "{error}");
            assert!(error.to_string().contains(&format!("chmod go-w {}", path.display())), "{error}");
        }
    }

    #[test]
    fn names_directories_and_plain_text_are_refused() {
        let (dir, path) = file(0o644);
        assert!(matches!(check(&path), Err(HookFileError::NotExecutable { .. })));
        assert!(matches!(check(dir.path()), Err(HookFileError::NotAFile { .. })));
        assert!(matches!(check(Path::new("sh")), Err(HookFileError::NotAbsolute { .. })));
        assert!(matches!(check(&dir.path().join("none")), Err(HookFileError::Unreadable { .. })));
    }
}
