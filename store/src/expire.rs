//! Expiry: what is too old goes, and under a size cap what is oldest.
//!
//! A pass walks over all series, some with each tick, and takes from each what lies behind the horizon, the series itself
//! where nothing is left of it, and in the end the windows and the processes that nobody needs any more.

use std::time::Instant;

use ebbtide_core::Ts;
use sqlx::Connection;
use sqlx::sqlite::SqliteConnection;

use crate::catalogue::{self, FORGET_PROCESSES, FORGET_SERIES};
use crate::chunk::WindowId;
use crate::config::StoreConfig;
use crate::pace::Pace;
use crate::rollup::{MINUTE, Period, QUARTER, Tier};
use crate::window::{MERGED, group_of};

/// Series, then processes, looked at with one tick, at most.
const MOST_A_STEP: i64 = 256;

/// What goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Horizon {
    /// Windows up to this one.
    window: WindowId,
    /// Minutes outside of these days.
    minute: (Period, Period),
    /// Quarters of an hour outside of these weeks.
    quarter: (Period, Period),
}

impl Horizon {
    /// What is too old at `now`, or so far in the future that the clock was wrong when it was made. Windows go eight at a
    /// time, once they are merged.
    pub(crate) async fn of_age(
        conn: &mut SqliteConnection,
        config: &StoreConfig,
        now: Ts,
        merged: WindowId,
    ) -> Result<Self, sqlx::Error> {
        let mut horizon = Self {
            window: 0,
            minute: kept(&MINUTE, now, config.minute_ms),
            quarter: kept(&QUARTER, now, config.quarter_ms),
        };
        if let Some(oldest) = oldest_group(conn, merged).await? {
            let needed: bool = sqlx::query_scalar(
                "SELECT EXISTS (SELECT 1 FROM tick_window WHERE id <= ? AND to_ms BETWEEN ? AND ?)",
            )
            .bind(oldest)
            .bind(now.plus_ms(config.raw_ms.saturating_neg()).0)
            .bind(now.plus_ms(config.raw_ms).0)
            .fetch_one(conn)
            .await?;
            horizon.window = if needed { 0 } else { oldest };
        }
        Ok(horizon)
    }

    /// The same, and the oldest thing beyond it: ticks before minutes, minutes before quarters of an hour. `None` where
    /// nothing is left to go.
    pub(crate) async fn and_oldest(
        mut self,
        conn: &mut SqliteConnection,
        merged: WindowId,
    ) -> Result<Option<Self>, sqlx::Error> {
        if let Some(oldest) = oldest_group(conn, merged).await? {
            self.window = oldest;
            return Ok(Some(self));
        }
        if let Some(oldest) = oldest_period(conn, &MINUTE).await? {
            self.minute.0 = self.minute.0.max(oldest.saturating_add(1));
            return Ok(Some(self));
        }
        if let Some(oldest) = oldest_period(conn, &QUARTER).await? {
            self.quarter.0 = self.quarter.0.max(oldest.saturating_add(1));
            return Ok(Some(self));
        }
        Ok(None)
    }
}

/// The last window of the oldest eight, where they are merged.
async fn oldest_group(
    conn: &mut SqliteConnection,
    merged: WindowId,
) -> Result<Option<WindowId>, sqlx::Error> {
    let oldest: Option<WindowId> =
        sqlx::query_scalar("SELECT min(id) FROM tick_window").fetch_one(conn).await?;
    Ok(oldest.map(|oldest| group_of(oldest) + (MERGED - 1)).filter(|end| *end <= merged))
}

async fn oldest_period(conn: &mut SqliteConnection, tier: &Tier) -> Result<Option<Period>, sqlx::Error> {
    sqlx::query_scalar(tier.oldest).fetch_one(conn).await
}

fn kept(tier: &Tier, now: Ts, age_ms: i64) -> (Period, Period) {
    let period = |ms| tier.nearest_period(now.plus_ms(ms));
    (period(age_ms.saturating_neg()), period(age_ms))
}

/// A pass under way.
#[derive(Debug)]
pub(crate) struct Expire {
    horizon: Horizon,
    /// The oldest tick in the tail: what only older ones mention is not needed for it.
    oldest_seq: u64,
    /// Series, then processes, up to this one are done.
    done: i64,
    series_done: bool,
    pace: Pace,
}

impl Expire {
    /// Begins a pass.
    pub(crate) async fn begin(conn: &mut SqliteConnection, horizon: Horizon) -> Result<Self, sqlx::Error> {
        let oldest: Option<i64> = sqlx::query_scalar("SELECT min(seq) FROM tail").fetch_one(conn).await?;
        let oldest_seq = oldest.unwrap_or(0).cast_unsigned();
        Ok(Self { horizon, oldest_seq, done: -1, series_done: false, pace: Pace::up_to(MOST_A_STEP) })
    }

    /// What the pass is for.
    pub(crate) const fn horizon(&self) -> Horizon {
        self.horizon
    }

    /// Series seen only before this tick may be gone from the file.
    pub(crate) const fn oldest_seq(&self) -> u64 {
        self.oldest_seq
    }

    /// Does a little more; true when the pass is over.
    pub(crate) async fn step(&mut self, conn: &mut SqliteConnection) -> Result<bool, sqlx::Error> {
        let names = if self.series_done {
            "SELECT max(id) FROM (SELECT id FROM process WHERE id > ? ORDER BY id LIMIT ?)"
        } else {
            "SELECT max(id) FROM (SELECT id FROM series WHERE id > ? ORDER BY id LIMIT ?)"
        };
        let upto: Option<i64> =
            sqlx::query_scalar(names).bind(self.done).bind(self.pace.now()).fetch_one(&mut *conn).await?;
        let Some(upto) = upto else {
            return self.next_stage(conn).await;
        };
        let begun = Instant::now();
        let some = (self.done + 1, upto);
        let mut tx = conn.begin_with("BEGIN IMMEDIATE").await?;
        if self.series_done {
            catalogue::forget(&mut tx, FORGET_PROCESSES, some, self.oldest_seq).await?;
        } else {
            self.expire_series(&mut tx, some).await?;
        }
        tx.commit().await?;
        self.done = upto;
        self.pace.note(begun);
        Ok(false)
    }

    async fn next_stage(&mut self, conn: &mut SqliteConnection) -> Result<bool, sqlx::Error> {
        if self.series_done {
            return Ok(true);
        }
        sqlx::query("DELETE FROM tick_window WHERE id <= ?").bind(self.horizon.window).execute(conn).await?;
        (self.series_done, self.done) = (true, -1);
        Ok(false)
    }

    async fn expire_series(&self, conn: &mut SqliteConnection, some: (i64, i64)) -> Result<(), sqlx::Error> {
        sqlx::query(
            "DELETE FROM chunk WHERE id IN (
                 SELECT c.id FROM series s CROSS JOIN chunk c ON c.id BETWEEN s.id << 32 AND s.id << 32 | ?
                 WHERE s.id BETWEEN ? AND ?)",
        )
        .bind(self.horizon.window)
        .bind(some.0)
        .bind(some.1)
        .execute(&mut *conn)
        .await?;
        for (tier, kept) in [(&MINUTE, self.horizon.minute), (&QUARTER, self.horizon.quarter)] {
            let before = kept.0.checked_sub(1).map(|last| (0, last));
            let after = kept.1.checked_add(1).map(|first| (first, Period::MAX));
            for (first, last) in before.into_iter().chain(after) {
                sqlx::query(tier.delete)
                    .bind(first)
                    .bind(last)
                    .bind(some.0)
                    .bind(some.1)
                    .execute(&mut *conn)
                    .await?;
            }
        }
        catalogue::forget(conn, FORGET_SERIES, some, self.oldest_seq).await
    }
}
