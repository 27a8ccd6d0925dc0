//! Where a daemon's socket lies when nobody says.

use std::path::{Path, PathBuf};

/// The socket of a daemon that runs as a service of the system.
pub const SYSTEM_SOCKET: &str = "/run/ebbtide/ebbtide.sock";

/// What the choice depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Surroundings {
    /// `$EBBTIDE_SOCKET`.
    pub named: Option<PathBuf>,
    /// Whether [`SYSTEM_SOCKET`] exists.
    pub system_socket_exists: bool,
    /// `$XDG_RUNTIME_DIR`.
    pub runtime_dir: Option<PathBuf>,
    /// The user.
    pub uid: u32,
}

impl Surroundings {
    /// Those of this process.
    #[must_use]
    pub fn here() -> Self {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        Self {
            named: variable("EBBTIDE_SOCKET"),
            system_socket_exists: Path::new(SYSTEM_SOCKET).exists(),
            runtime_dir: variable("XDG_RUNTIME_DIR"),
            uid: rustix::process::geteuid().as_raw(),
        }
    }
}

/// `$EBBTIDE_SOCKET`; else the system's daemon where there is one; else the user's own, in the directory that the
/// session gives him or in one under `/tmp` that bears his number.
#[must_use]
pub fn default_socket(surroundings: &Surroundings) -> PathBuf {
    if let Some(named) = &surroundings.named {
        return named.clone();
    }
    if surroundings.system_socket_exists {
        return PathBuf::from(SYSTEM_SOCKET);
    }
    match &surroundings.runtime_dir {
        Some(dir) => dir.join("ebbtide/ebbtide.sock"),
        None => PathBuf::from(format!("/tmp/ebbtide-{}/ebbtide.sock", surroundings.uid)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_applies_wins() {
        let mut around = Surroundings {
            named: Some("/a/b.sock".into()),
            system_socket_exists: true,
            runtime_dir: Some("/run/user/7".into()),
            uid: 7,
        };
        assert_eq!(default_socket(&around), Path::new("/a/b.sock"));
        around.named = None;
        assert_eq!(default_socket(&around), Path::new("/run/ebbtide/ebbtide.sock"));
        around.system_socket_exists = false;
        assert_eq!(default_socket(&around), Path::new("/run/user/7/ebbtide/ebbtide.sock"));
        around.runtime_dir = None;
        assert_eq!(default_socket(&around), Path::new("/tmp/ebbtide-7/ebbtide.sock"));
    }
}
