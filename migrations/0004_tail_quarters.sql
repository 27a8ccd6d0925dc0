-- The fourth layout: what the tail's series did, so that a long chart need not read the tail tick by tick.
-- Why it looks so, and how the blobs are read: the head of store/src/lib.rs. Append-only history, like 0001 to 0003.

-- One quarter of an hour, numbered from 1970, of the ticks that are in the tail: together the rows tell of all of them up
-- to the newest last_seq. They go with the ticks. from_ms and to_ms are the first and the last of their times.
CREATE TABLE tail_quarter (
    id       INTEGER PRIMARY KEY,
    last_seq INTEGER NOT NULL,
    from_ms  INTEGER NOT NULL,
    to_ms    INTEGER NOT NULL,
    data     BLOB NOT NULL
) STRICT;
