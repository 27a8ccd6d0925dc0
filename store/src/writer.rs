//! The one writer of a file.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use ebbtide_core::{Incident, TickRecord, Ts};

use crate::config::StoreConfig;
use crate::error::Error;
use crate::gap::Gap;
use crate::lock;
use crate::outbox::{DeliveryId, Settlement, Verdicts};
use crate::schema::beside;
use crate::session::Session;

/// Ticks that a file must take after one was set aside before another is: a disk that damages every file is reported,
/// not fed with new ones.
const QUARANTINE_APART: u64 = 3600;

/// What the writer did since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WriterStats {
    /// Ticks acknowledged.
    pub stored: u64,
    /// Calls that came back with an error, and housekeeping that failed.
    pub failed: u64,
    /// Times the file was opened.
    pub opened: u64,
    /// Damaged files set aside.
    pub quarantined: u64,
    /// Pages of 4 KiB in the write-ahead log at the last checkpoint.
    pub log_pages: u64,
    /// Windows of ticks sealed.
    pub sealed: u64,
    /// Ticks that were found damaged when they were to be sealed, and are lost.
    pub lost: u64,
}

/// Stores ticks, findings, alerts and deliveries in one file.
///
/// It owns one connection, outside of any pool, and gives it up after any error and whenever a call is cancelled: the
/// next call opens the file anew. So an error is never the end, and nothing is acknowledged that stands in a
/// transaction which only the driver believes to be closed. While the file cannot be written every call fails at once;
/// what to keep in memory meanwhile is the caller's choice.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    config: StoreConfig,
    lock: Option<File>,
    session: Option<Session>,
    /// The session before met damage.
    damaged: bool,
    /// Ticks stored since a file was set aside; `None` while none was.
    since_quarantine: Option<u64>,
    stats: WriterStats,
}

impl Writer {
    /// A writer for the file at `path`, which is opened, or made, with the first call.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self::with(path, StoreConfig::default())
    }

    /// The same, which keeps what `config` says.
    #[must_use]
    pub fn with(path: &Path, config: StoreConfig) -> Self {
        Self {
            path: path.to_path_buf(),
            config,
            lock: None,
            session: None,
            damaged: false,
            since_quarantine: None,
            stats: WriterStats::default(),
        }
    }

    /// The number for the next tick: one more than the newest in the file, 1 in a new one. Opens the file.
    ///
    /// # Errors
    /// Those of opening. A caller that has to start without the file can count from the wall clock in milliseconds:
    /// that is past anything a count of ticks has reached, and the file takes it later.
    pub async fn next_seq(&mut self) -> Result<u64, Error> {
        let session = self.take_session().await?;
        let next = session.last_seq().map_or(1, |last| last.saturating_add(1));
        self.session = Some(session);
        Ok(next)
    }

    /// Stores a tick. When this returns `Ok` its commit has returned: a crash of this process cannot take it back, a
    /// power cut only within the minute to the next checkpoint.
    ///
    /// A tick that failed may be given again, the newest one even where it was stored after all.
    ///
    /// # Errors
    /// Any [`Error`]; the tick is then not acknowledged, and the next call opens the file anew.
    pub async fn append(&mut self, record: &TickRecord) -> Result<(), Error> {
        self.append_all(std::slice::from_ref(record)).await
    }

    /// Stores ticks, in the order of their numbers, in one commit: what has been recorded elsewhere and need not be safe
    /// tick by tick. As for [`Self::append`], all or none.
    ///
    /// # Errors
    /// As for [`Self::append`]; none of them is then acknowledged.
    pub async fn append_all(&mut self, records: &[TickRecord]) -> Result<(), Error> {
        let Some(newest) = records.last() else { return Ok(()) };
        let mut session = self.take_session().await?;
        let outcome = session.append(records).await;
        self.give_back(session, outcome).await?;
        let count = records.len() as u64;
        self.stats.stored += count;
        self.since_quarantine = self.since_quarantine.map(|ticks| ticks + count);
        for _ in records {
            self.keep_house(newest.tick.at).await;
        }
        Ok(())
    }

    /// Stores verdicts in one commit that waits for the disk. Returns an id for each event and sink: those of the
    /// first event in the order of the sinks, then those of the second, and so on.
    ///
    /// # Errors
    /// Any [`Error`]; nothing is then acknowledged, and storing the same again is harmless for findings and alerts.
    pub async fn record(&mut self, verdicts: &Verdicts<'_>) -> Result<Vec<DeliveryId>, Error> {
        let mut session = self.take_session().await?;
        let outcome = session.record(verdicts).await;
        self.give_back(session, outcome).await
    }

    /// Keeps an incident, and with it a copy of the stored ticks from its `from` to its `at`: of the host's series and of
    /// all on its GPUs. Nothing that expires takes them. Waits for the disk.
    ///
    /// # Errors
    /// Any [`Error`]; giving the same incident again is harmless.
    pub async fn freeze(&mut self, incident: &Incident) -> Result<(), Error> {
        let mut session = self.take_session().await?;
        let outcome = session.freeze(incident).await;
        self.give_back(session, outcome).await
    }

    /// Enters a gap, so that answers can tell ticks that could not be kept from a daemon that did not run.
    ///
    /// # Errors
    /// Any [`Error`]; the gap is then not marked.
    pub async fn mark(&mut self, gap: &Gap) -> Result<(), Error> {
        let mut session = self.take_session().await?;
        let outcome = session.mark(gap).await;
        self.give_back(session, outcome).await
    }

    /// Notes how a delivery ended, so that it is not tried again after a restart.
    ///
    /// # Errors
    /// Any [`Error`]; the delivery then stays pending and may reach its sink twice.
    pub async fn settle(&mut self, id: DeliveryId, how: Settlement) -> Result<(), Error> {
        let mut session = self.take_session().await?;
        let outcome = session.settle(id, how).await;
        self.give_back(session, outcome).await
    }

    /// What was done so far.
    #[must_use]
    pub const fn stats(&self) -> WriterStats {
        self.stats
    }

    /// Closes the file; the log is folded into it where no reader is in the way.
    pub async fn close(mut self) {
        if let Some(session) = self.session.take() {
            session.finish().await;
        }
    }

    /// The open session, or a new one. It is taken out, so that a call which is cancelled half-way drops it.
    async fn take_session(&mut self) -> Result<Session, Error> {
        if let Some(session) = self.session.take() {
            if session.is_in_place() {
                return Ok(session);
            }
            tracing::warn!(path = %self.path.display(), "the database was moved or deleted: starting a new one");
            session.close().await;
            self.remove_orphans();
        }
        let opened = self.open().await;
        self.stats.failed += u64::from(opened.is_err());
        opened
    }

    async fn open(&mut self) -> Result<Session, Error> {
        if self.lock.is_none() {
            self.lock = Some(lock::exclusive(&self.path)?);
        }
        if std::mem::take(&mut self.damaged) && self.may_quarantine() {
            self.quarantine()?;
        }
        let opened = match Session::open(&self.path, self.config).await {
            Err(Error::Corrupt { source, .. }) if self.may_quarantine() => {
                tracing::warn!(path = %self.path.display(), %source, "the database is damaged");
                self.quarantine()?;
                Session::open(&self.path, self.config).await
            }
            Err(error @ (Error::Io { .. } | Error::Unreachable { .. })) => {
                Err(self.ask_the_disk().unwrap_or(error))
            }
            opened => opened,
        };
        self.stats.opened += u64::from(opened.is_ok());
        opened
    }

    async fn give_back<T>(&mut self, session: Session, outcome: Result<T, Error>) -> Result<T, Error> {
        match outcome {
            Ok(value) => {
                self.session = Some(session);
                Ok(value)
            }
            Err(error) => {
                self.damaged = matches!(error, Error::Corrupt { .. });
                self.stats.failed += 1;
                session.close().await;
                Err(error)
            }
        }
    }

    /// The tick that occasions this has been acknowledged, so a failure here is told to the log only; if it lasts, the
    /// next tick meets it.
    async fn keep_house(&mut self, now: Ts) {
        let Some(mut session) = self.session.take() else {
            return;
        };
        let outcome = session.keep_house(now).await;
        match self.give_back(session, outcome).await {
            Ok(done) => {
                if let Some(pages) = done.log_pages {
                    self.stats.log_pages = pages.try_into().unwrap_or(0);
                }
                if let Some(lost) = done.sealed {
                    self.stats.sealed += 1;
                    self.stats.lost += lost;
                }
            }
            Err(error) => tracing::warn!(error = %error, cause = ?error, "database housekeeping failed"),
        }
    }

    /// What the disk says to a new block. The first thing that a connection makes is the log and its index, and when it
    /// cannot, SQLite calls that an I/O error or a file that cannot be opened, though the disk may just be full or
    /// read-only.
    fn ask_the_disk(&self) -> Option<Error> {
        let file = self.lock.as_ref()?;
        let refusal = file.write_all_at(&[0; 4096], 0).and_then(|()| file.set_len(0)).err()?;
        Some(Error::of_system(&self.path, refusal))
    }

    /// The log of a file that was taken away must not be applied to the one that now bears its name.
    fn remove_orphans(&self) {
        for suffix in ["-wal", "-shm"] {
            let orphan = beside(&self.path, suffix);
            if let Err(error) = std::fs::remove_file(&orphan)
                && error.kind() != std::io::ErrorKind::NotFound
            {
                tracing::warn!(path = %orphan.display(), %error, "a log without its database cannot be removed");
            }
        }
    }

    fn may_quarantine(&self) -> bool {
        self.since_quarantine.is_none_or(|ticks| ticks >= QUARANTINE_APART)
    }

    /// Sets the damaged file aside with its log, under a name that nothing opens.
    fn quarantine(&mut self) -> Result<(), Error> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let aside = beside(&self.path, &format!(".corrupt-{now}"));
        for suffix in ["", "-wal", "-shm"] {
            match std::fs::rename(beside(&self.path, suffix), beside(&aside, suffix)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::of_system(&self.path, error));
                }
                _ => {}
            }
        }
        self.since_quarantine = Some(0);
        self.stats.quarantined += 1;
        tracing::error!(
            path = %self.path.display(), kept = %aside.display(),
            "the damaged database was set aside and a new one is started; history begins anew"
        );
        Ok(())
    }
}
