//! The socket file: made with the right mode from its first moment, never taken from a daemon that lives.

use std::fs;
use std::future::Future;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use super::{Api, ServeError, connection};

/// Owner and group may talk to the daemon.
const SOCKET_MODE: u32 = 0o660;

/// Mode of a directory that is made for the socket.
const DIRECTORY_MODE: u32 = 0o750;

/// What a unix socket's path may have: `sun_path` of unix(7) with its end.
const MAX_PATH_BYTES: usize = 107;

/// Why a socket cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another daemon answers there.
    #[error("another daemon already listens at {path}: stop it, or give this one another socket")]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// Something else is there.
    #[error("{path} is there and is no socket: remove it, or give the daemon another socket")]
    NotASocket {
        /// What is there.
        path: PathBuf,
    },
    /// The path has too many bytes.
    #[error("the socket's path {path} is too long for the system: choose one of at most 80 bytes")]
    TooLong {
        /// The path.
        path: PathBuf,
    },
    /// Somebody else could put a socket of his own in its place.
    #[error(
        "the directory {path} belongs to somebody else or may be written by everybody: choose another for the socket"
    )]
    ForeignDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// The system refused.
    #[error("the socket {path} cannot be made: may this user write its directory?")]
    System {
        /// The socket.
        path: PathBuf,
        /// What it said.
        #[source]
        source: io::Error,
    },
}

/// A bound socket. Its file goes when this does.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    file: SocketFile,
}

/// The file of a socket that is ours.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    /// Device and inode: by its end the path may be another daemon's.
    identity: (u64, u64),
}

impl Socket {
    /// Binds `path` with mode 0660, in a directory that is made where it is missing. A socket that nobody answers at
    /// is replaced, one that somebody does is not.
    ///
    /// # Errors
    /// See [`BindError`].
    pub fn bind(path: &Path) -> Result<Self, BindError> {
        let system = |source| BindError::System { path: path.to_owned(), source };
        let directory = directory_of(path);
        make_directory(directory).map_err(system)?;
        refuse_to_replace(path)?;
        // Bound beside its place and moved there, so that nobody finds it with the mode of the umask.
        let beside = directory.join(format!(".{}.sock", std::process::id()));
        if [path, &beside].iter().any(|path| path.as_os_str().len() > MAX_PATH_BYTES) {
            return Err(BindError::TooLong { path: path.to_owned() });
        }
        remove_if_there(&beside).map_err(system)?;
        let listener = UnixListener::bind(&beside).map_err(system)?;
        let moved = place(&beside, path, directory);
        if moved.is_err() {
            // What is left of a failed start is removed by the next one too.
            let _left: io::Result<()> = fs::remove_file(&beside);
        }
        Ok(Self { listener, file: moved? })
    }

    /// Where it lies.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// Answers until `shutdown`, and removes the file.
    ///
    /// # Errors
    /// When the runtime cannot wait on the socket.
    pub async fn serve(self, api: Api, shutdown: impl Future<Output = ()>) -> Result<(), ServeError> {
        self.listener.set_nonblocking(true).map_err(ServeError::Listen)?;
        let listener = tokio::net::UnixListener::from_std(self.listener).map_err(ServeError::Listen)?;
        connection::accept(&listener, api, shutdown).await;
        Ok(())
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let ours =
            fs::symlink_metadata(&self.path).is_ok_and(|meta| (meta.dev(), meta.ino()) == self.identity);
        if ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!(%error, path = %self.path.display(), "the socket's file stays behind");
        }
    }
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        _ => Path::new("."),
    }
}

fn make_directory(directory: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(DIRECTORY_MODE).create(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

fn refuse_to_replace(path: &Path) -> Result<(), BindError> {
    let system = |source| BindError::System { path: path.to_owned(), source };
    let meta = match fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(system(error)),
    };
    if !meta.file_type().is_socket() {
        return Err(BindError::NotASocket { path: path.to_owned() });
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(BindError::InUse { path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(error) => Err(system(error)),
    }
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Gives a fresh socket its mode and its place, once it is sure that nobody else can take that place.
fn place(fresh: &Path, path: &Path, directory: &Path) -> Result<SocketFile, BindError> {
    let system = |source| BindError::System { path: path.to_owned(), source };
    let meta = fs::symlink_metadata(fresh).map_err(system)?;
    let around = fs::metadata(directory).map_err(system)?;
    let trusted_owner = around.uid() == 0 || around.uid() == meta.uid();
    let open_to_all = around.mode() & 0o002 != 0 && around.mode() & 0o1000 == 0;
    if !trusted_owner || open_to_all {
        return Err(BindError::ForeignDirectory { path: directory.to_owned() });
    }
    fs::set_permissions(fresh, fs::Permissions::from_mode(SOCKET_MODE)).map_err(system)?;
    fs::rename(fresh, path).map_err(system)?;
    Ok(SocketFile { path: path.to_owned(), identity: (meta.dev(), meta.ino()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_has_its_mode_and_goes_with_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sub/ebbtide.sock");
        let socket = Socket::bind(&path).unwrap();
        let meta = fs::symlink_metadata(&path).unwrap();
        assert!(meta.file_type().is_socket());
        assert_eq!(meta.mode() & 0o7777, 0o660);
        drop(socket);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 0, "nothing stays behind");
    }

    #[test]
    fn a_living_daemon_keeps_its_socket_and_a_dead_ones_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let living = Socket::bind(&path).unwrap();
        assert!(matches!(Socket::bind(&path), Err(BindError::InUse { .. })));
        drop(living);
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "a killed daemon leaves its file");
        let heir = Socket::bind(&path).unwrap();
        assert_eq!(heir.path(), path);
    }

    #[test]
    fn what_is_not_a_socket_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("precious");
        fs::write(&path, "data").unwrap();
        assert!(matches!(Socket::bind(&path), Err(BindError::NotASocket { .. })));
        assert_eq!(fs::read_to_string(&path).unwrap(), "data");
    }

    #[test]
    fn a_directory_that_everybody_may_write_and_a_path_too_long_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(Socket::bind(&dir.path().join("s")), Err(BindError::ForeignDirectory { .. })));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing stays behind");
        let long = dir.path().join("x".repeat(120));
        assert!(matches!(Socket::bind(&long), Err(BindError::TooLong { .. })));
    }
}
