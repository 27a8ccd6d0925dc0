-- The first layout: the raw tail of samples, the names in it, and what was made of it.
-- Why it looks so, and how a blob is read: the head of store/src/lib.rs. This file is append-only history: a build
-- compares its checksum with the one kept in the database, so it is never edited, only followed by 0002.

-- Facts about the file itself; 'migration-NNNN' holds the checksum of each script that was run.
CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- What a GPU was called when it was last introduced. kind is JSON.
CREATE TABLE gpu (
    uuid     TEXT PRIMARY KEY,
    position INTEGER NOT NULL,
    name     TEXT NOT NULL,
    kind     TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- What a process was. start_ticks is NULL where /proc did not show it. info is JSON.
CREATE TABLE process (
    id          INTEGER PRIMARY KEY,
    pid         INTEGER NOT NULL,
    start_ticks INTEGER,
    introduced_seq INTEGER NOT NULL,
    info        TEXT NOT NULL
) STRICT;

-- NULLs differ from each other in a plain unique index, so the index folds them.
CREATE UNIQUE INDEX process_key ON process (pid, coalesce(start_ticks, -1));

-- Short ids for series, so that a blob need not spell them.
-- seen_seq: no tick later than seen_seq + 3600 has a value of this series; that is what makes deleting it safe.
CREATE TABLE series (
    id          INTEGER PRIMARY KEY,
    gpu         TEXT,
    pid         INTEGER,
    start_ticks INTEGER,
    metric      TEXT NOT NULL,
    seen_seq    INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX series_key
    ON series (coalesce(pid, -1), coalesce(start_ticks, -1), coalesce(gpu, ''), metric);

CREATE INDEX series_seen ON series (seen_seq);

-- One row a tick, keyed on the sample's number: wall time can step back, a sequence cannot.
CREATE TABLE tail (
    seq     INTEGER PRIMARY KEY,
    at_ms   INTEGER NOT NULL,
    mono_ms INTEGER NOT NULL,
    whole   INTEGER NOT NULL,
    blob    BLOB NOT NULL
) STRICT;

-- Only the rows at which reading can begin: one index page touched a minute, not one a second.
CREATE INDEX tail_whole ON tail (at_ms) WHERE whole = 1;

-- part and body are JSON.
CREATE TABLE finding (
    id             INTEGER PRIMARY KEY,
    gpu            TEXT NOT NULL,
    part           TEXT NOT NULL,
    kind           TEXT NOT NULL,
    opened_at_ms   INTEGER NOT NULL,
    resolved_at_ms INTEGER,
    body           TEXT NOT NULL,
    UNIQUE (gpu, part, kind, opened_at_ms)
) STRICT;

CREATE INDEX finding_opened ON finding (opened_at_ms);
CREATE INDEX finding_open ON finding (id) WHERE resolved_at_ms IS NULL;

-- Where each alert stands. body is JSON.
CREATE TABLE alert (
    fingerprint TEXT PRIMARY KEY,
    state       TEXT NOT NULL,
    changed_ms  INTEGER NOT NULL,
    body        TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- The outbox: one row for each thing to tell each sink. body is JSON.
CREATE TABLE delivery (
    id     INTEGER PRIMARY KEY,
    sink   TEXT NOT NULL,
    at_ms  INTEGER NOT NULL,
    state  TEXT NOT NULL,
    body   TEXT NOT NULL
) STRICT;

CREATE INDEX delivery_pending ON delivery (id) WHERE state = 'pending';
