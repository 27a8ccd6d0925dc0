-- The second layout: behind the tail come sealed windows, one chunk a series, and two tiers of rollups.
-- Why it looks so, and how the blobs are read: the head of store/src/lib.rs. Append-only history, like 0001.

-- rolled_window: the newest window of this series that is merged and in the rollups; in one commit with them, so that no
-- value is ever counted twice. closed_window: the first window without it, NULL while it is read.
ALTER TABLE series ADD COLUMN rolled_window INTEGER NOT NULL DEFAULT 0;
ALTER TABLE series ADD COLUMN closed_window INTEGER;

-- Some ticks in a row that left the tail together. times holds the number, wall time and steady time of each of them,
-- once for all series. The numbers rise by one and are never used again.
CREATE TABLE tick_window (
    id        INTEGER PRIMARY KEY,
    first_seq INTEGER NOT NULL,
    last_seq  INTEGER NOT NULL,
    from_ms   INTEGER NOT NULL,
    to_ms     INTEGER NOT NULL,
    ticks     INTEGER NOT NULL,
    times     BLOB NOT NULL
) STRICT;

-- A time is looked up here, without a page of the blobs.
CREATE INDEX tick_window_time ON tick_window (from_ms, to_ms);

-- What a series did in one window, or in eight. id = (series << 32) | its first window: the row tree is the index.
CREATE TABLE chunk (
    id      INTEGER PRIMARY KEY,
    windows INTEGER NOT NULL,
    data    BLOB NOT NULL
) STRICT;

-- Minutes of a day and quarter hours of a week. id = (series << 32) | number of the day or week since 1970.
CREATE TABLE minute (
    id   INTEGER PRIMARY KEY,
    data BLOB NOT NULL
) STRICT;

CREATE TABLE quarter (
    id   INTEGER PRIMARY KEY,
    data BLOB NOT NULL
) STRICT;
