//! Counts calls in a file shared by every process of the world, at the price of one atomic addition.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use ebbtide_testkit::calls::{COUNT_AT, ENV, RECORD, blank};

use crate::symbols::{SYMBOLS, Symbol};
use crate::world::complain;

/// The mapping, made when the first world is read; `None` where nobody counts.
static COUNTERS: OnceLock<Option<Counters>> = OnceLock::new();

/// Begins to count, in the file of the environment or else of the scenario. The first call decides for good.
pub(crate) fn begin(scenario: Option<&Path>) {
    COUNTERS.get_or_init(|| {
        let path = std::env::var_os(ENV).map(PathBuf::from).or_else(|| scenario.map(Path::to_path_buf))?;
        match Counters::open(&path) {
            Ok(counters) => Some(counters),
            Err(error) => {
                complain(&format!("cannot count calls in {}: {error}", path.display()));
                None
            }
        }
    });
}

/// Counts one call.
pub(crate) fn count(symbol: Symbol) {
    if let Some(Some(counters)) = COUNTERS.get() {
        counters.at(symbol).fetch_add(1, Ordering::Relaxed);
    }
}

/// A shared mapping of one record per symbol, for the life of the process.
struct Counters(NonNull<u8>);

// SAFETY: the mapping is never unmapped and only its 64-bit counts are touched, atomically.
unsafe impl Send for Counters {}
// SAFETY: as above.
unsafe impl Sync for Counters {}

impl Counters {
    fn open(path: &Path) -> io::Result<Self> {
        let length = SYMBOLS.len() * RECORD;
        create(path)?;
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        if file.metadata()?.len() != length as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is not a count file of this library"));
        }
        // SAFETY: a fresh shared mapping of a file of exactly this length; the kernel chooses the address.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        NonNull::new(address.cast()).map(Self).ok_or_else(|| io::Error::other("mapped at the null address"))
    }

    fn at(&self, symbol: Symbol) -> &AtomicU64 {
        let place = symbol.place() * RECORD + COUNT_AT;
        // SAFETY: a symbol's place is below SYMBOLS.len(), so the count lies in the mapping; 56 is a multiple of
        // 8 and a mapping starts on a page, so it is aligned.
        unsafe { AtomicU64::from_ptr(self.0.as_ptr().add(place).cast()) }
    }
}

/// Puts a file of zeros at `path` unless one is there: by a link, so that processes that start together agree.
fn create(path: &Path) -> io::Result<()> {
    if path.exists() {
        return Ok(());
    }
    let fresh = path.with_extension(format!("new-{}", std::process::id()));
    std::fs::File::create(&fresh)?.write_all(&blank(SYMBOLS))?;
    let linked = std::fs::hard_link(&fresh, path);
    std::fs::remove_file(&fresh)?;
    linked.or_else(|error| if error.kind() == io::ErrorKind::AlreadyExists { Ok(()) } else { Err(error) })
}
