-- The third layout: what is kept of processes that ended out of order, for as long as the file lives, and gaps by name.
-- Why it looks so, and how the blobs are read: the head of store/src/lib.rs. Append-only history, like 0001 and 0002.

-- One end of one process. times holds the ticks before it, as tick_window does; body is JSON.
CREATE TABLE incident (
    id          INTEGER PRIMARY KEY,
    at_ms       INTEGER NOT NULL,
    pid         INTEGER NOT NULL,
    start_ticks INTEGER,
    times       BLOB NOT NULL,
    body        TEXT NOT NULL
) STRICT;

-- The same end is entered once, however often it is tried. NULLs differ in a plain unique index.
CREATE UNIQUE INDEX incident_end ON incident (at_ms, pid, coalesce(start_ticks, -1));

-- What a series did in those ticks, with its name: its row in series may be long gone. id = (incident << 32) | its place.
CREATE TABLE incident_series (
    id          INTEGER PRIMARY KEY,
    gpu         TEXT,
    pid         INTEGER,
    start_ticks INTEGER,
    metric      TEXT NOT NULL,
    data        BLOB NOT NULL
) STRICT;

-- Ticks that were made and could not be kept: it tells a gap from a daemon that did not run.
CREATE TABLE gap (
    id      INTEGER PRIMARY KEY,
    from_ms INTEGER NOT NULL,
    to_ms   INTEGER NOT NULL,
    ticks   INTEGER NOT NULL,
    reason  TEXT NOT NULL
) STRICT;
