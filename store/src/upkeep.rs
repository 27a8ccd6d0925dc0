//! What is done beside storing ticks, a little after each: checkpoints, seals, merges, expiry.

use ebbtide_core::Ts;
use sqlx::Connection;
use sqlx::sqlite::SqliteConnection;

use crate::catalogue::SeriesIds;
use crate::chunk::WindowId;
use crate::config::StoreConfig;
use crate::digest::Digest;
use crate::expire::{Expire, Horizon};
use crate::merge::{MERGED_KEY, Merge};
use crate::outbox;
use crate::seal::{Seal, WINDOW_TICKS};
use crate::window::MERGED;

/// Ticks between two checkpoints: what a power cut may take at `synchronous = NORMAL`, a minute at one tick a second.
const CHECKPOINT_TICKS: u32 = 60;

/// Free pages that stay in the file for the next rows (4 MiB); more are given back to the file system.
const SPARE_PAGES: i64 = 1024;

/// Bytes of a page, SQLite's default.
const PAGE_BYTES: u64 = 4096;

/// What one step did.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Done {
    /// Pages in the log, where it was a checkpoint.
    pub(crate) log_pages: Option<i64>,
    /// Where it completed a window, the ticks of it that were damaged and are lost.
    pub(crate) sealed: Option<u64>,
}

/// What is under way and what is due.
#[derive(Debug)]
pub(crate) struct Upkeep {
    config: StoreConfig,
    /// The newest window with a number.
    sealed: WindowId,
    /// The newest window that is merged.
    merged: WindowId,
    /// Ticks in the tail; too many where their numbers have gaps.
    unsealed: u64,
    since_checkpoint: u32,
    /// What is to go; looked at with each checkpoint.
    horizon: Option<Horizon>,
    /// What is gone.
    expired: Option<Horizon>,
    job: Option<Job>,
}

#[derive(Debug)]
enum Job {
    Seal(Box<Seal>),
    Merge(Box<Merge>),
    Expire(Box<Expire>),
}

impl Upkeep {
    /// Looks how things stand in a file.
    pub(crate) async fn begin(conn: &mut SqliteConnection, config: StoreConfig) -> Result<Self, sqlx::Error> {
        let merged: Option<String> = sqlx::query_scalar("SELECT value FROM meta WHERE key = ?")
            .bind(MERGED_KEY)
            .fetch_optional(&mut *conn)
            .await?;
        let merged = merged.and_then(|merged| merged.parse().ok()).unwrap_or(0);
        let newest: Option<WindowId> =
            sqlx::query_scalar("SELECT max(id) FROM tick_window").fetch_one(&mut *conn).await?;
        Ok(Self {
            config,
            sealed: merged.max(newest.unwrap_or(0)),
            merged,
            unsealed: count_unsealed(conn).await?,
            since_checkpoint: 0,
            horizon: None,
            expired: None,
            job: None,
        })
    }

    /// A tick came in.
    pub(crate) const fn note_tick(&mut self) {
        self.unsealed = self.unsealed.saturating_add(1);
        self.since_checkpoint = self.since_checkpoint.saturating_add(1);
    }

    /// Does what is most due, or a little of it. `now` is the newest tick's time, `newest` its number.
    pub(crate) async fn step(
        &mut self,
        conn: &mut SqliteConnection,
        series: &mut SeriesIds,
        digest: &mut Digest,
        (now, newest): (Ts, i64),
    ) -> Result<Done, sqlx::Error> {
        if self.since_checkpoint >= CHECKPOINT_TICKS {
            return self.checkpoint(conn, digest, now).await;
        }
        let Some(mut job) = self.job.take() else {
            self.job = self.next_job(conn, now).await?;
            return Ok(Done::default());
        };
        let mut done = Done::default();
        let over = match &mut job {
            Job::Seal(seal) => {
                done.sealed = seal.step(conn, newest).await?;
                if done.sealed.is_some() {
                    digest.reset();
                }
                done.sealed.is_some()
            }
            Job::Merge(merge) => merge.step(conn).await?,
            Job::Expire(expire) => {
                let over = expire.step(conn).await?;
                series.forget_before(expire.oldest_seq());
                over
            }
        };
        if over {
            self.note_end(conn, &job).await?;
        } else {
            self.job = Some(job);
        }
        Ok(done)
    }

    async fn note_end(&mut self, conn: &mut SqliteConnection, job: &Job) -> Result<(), sqlx::Error> {
        match job {
            Job::Seal(_) => {
                self.sealed += 1;
                self.unsealed = count_unsealed(conn).await?;
            }
            Job::Merge(merge) => self.merged = merge.last(),
            Job::Expire(expire) => self.expired = Some(expire.horizon()),
        }
        Ok(())
    }

    /// A seal comes first, since the tail is what costs most; before it there has to be room.
    async fn next_job(&mut self, conn: &mut SqliteConnection, now: Ts) -> Result<Option<Job>, sqlx::Error> {
        if self.unsealed > WINDOW_TICKS {
            if let Some(horizon) = self.to_make_room(conn, now).await? {
                return Ok(Some(Job::Expire(Box::new(Expire::begin(conn, horizon).await?))));
            }
            return Ok(Some(Job::Seal(Box::new(Seal::begin(self.sealed + 1)))));
        }
        if let Some(horizon) = self.horizon.take_if(|horizon| self.expired != Some(*horizon)) {
            return Ok(Some(Job::Expire(Box::new(Expire::begin(conn, horizon).await?))));
        }
        if self.sealed - self.merged >= MERGED {
            return Ok(Some(Job::Merge(Box::new(Merge::begin(conn, self.merged + 1).await?))));
        }
        Ok(None)
    }

    /// What has to go so that the file stays below its cap; `None` where there is room, or nothing is left to go.
    async fn to_make_room(
        &self,
        conn: &mut SqliteConnection,
        now: Ts,
    ) -> Result<Option<Horizon>, sqlx::Error> {
        let (pages, free): (i64, i64) = sqlx::query_as(
            "SELECT (SELECT page_count FROM pragma_page_count), (SELECT freelist_count FROM pragma_freelist_count)",
        )
        .fetch_one(&mut *conn)
        .await?;
        let used = (pages - free).max(0).unsigned_abs().saturating_mul(PAGE_BYTES);
        if used <= self.config.high_water() {
            return Ok(None);
        }
        let by_age = Horizon::of_age(conn, &self.config, now, self.merged).await?;
        let horizon = by_age.and_oldest(conn, self.merged).await?;
        if horizon.is_none() {
            tracing::warn!(
                used,
                cap = self.config.max_bytes,
                "the database is at its cap and nothing old is left to go"
            );
        }
        Ok(horizon)
    }

    /// Moves the log into the file, and looks for what is too old.
    async fn checkpoint(
        &mut self,
        conn: &mut SqliteConnection,
        digest: &mut Digest,
        now: Ts,
    ) -> Result<Done, sqlx::Error> {
        let mut tx = conn.begin_with("BEGIN IMMEDIATE").await?;
        outbox::forget_oldest(&mut tx, now).await?;
        digest.store(&mut tx).await?;
        tx.commit().await?;
        self.horizon = Some(Horizon::of_age(conn, &self.config, now, self.merged).await?);
        give_back_pages(conn).await?;
        let (_busy, log_pages, _moved): (i64, i64, i64) =
            sqlx::query_as("PRAGMA wal_checkpoint(PASSIVE)").fetch_one(conn).await?;
        self.since_checkpoint = 0;
        Ok(Done { log_pages: Some(log_pages), sealed: None })
    }
}

async fn count_unsealed(conn: &mut SqliteConnection) -> Result<u64, sqlx::Error> {
    let (oldest, newest): (Option<i64>, Option<i64>) =
        sqlx::query_as("SELECT (SELECT min(seq) FROM tail), (SELECT max(seq) FROM tail)")
            .fetch_one(conn)
            .await?;
    Ok(oldest.zip(newest).map_or(0, |(oldest, newest)| newest.abs_diff(oldest).saturating_add(1)))
}

async fn give_back_pages(conn: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    let free: i64 = sqlx::query_scalar("PRAGMA freelist_count").fetch_one(&mut *conn).await?;
    if free > SPARE_PAGES {
        sqlx::raw_sql("PRAGMA incremental_vacuum(256)").execute(conn).await?;
    }
    Ok(())
}
