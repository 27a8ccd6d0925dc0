//! The history: what was sampled, found, alerted and delivered, in one SQLite file.
//!
//! # The file
//!
//! | Table | One row for each | Kept |
//! |---|---|---|
//! | `meta` | fact about the file: the checksum of each migration, the newest merged window | for ever |
//! | `gpu`, `process` | GPU or process, with what it was called | `process`: as long as one of its series |
//! | `series` | (GPU, process, metric) that had a value, with its short id | until nothing of it is left |
//! | `tail` | tick that is not sealed yet | until it is: about 900 ticks |
//! | `tail_quarter` | quarter of an hour of the tail: what each series did in it | as long as its ticks are in the tail |
//! | `tick_window` | sealed window: the numbers and times of its ticks | 7 days |
//! | `chunk` | series in a window, or in eight | 7 days |
//! | `minute` | series and day: what it did in each minute | 90 days |
//! | `quarter` | series and week: what it did in each quarter of an hour | 2 years |
//! | `finding` | finding, as it was last | 100 000, and all that are open |
//! | `alert` | alert, as it was last | 30 days after it resolved |
//! | `delivery` | thing to tell a sink | until it has ended, then 10 000 |
//! | `incident` | end of a process that was not in order | 500, whatever their age |
//! | `gap` | run of ticks that could not be kept | 10 000 |
//! | `incident_series` | series in the ticks before such an end | with its incident |
//!
//! How long, and how large the file may become, is [`StoreConfig`]'s.
//!
//! `PRAGMA application_id` is `ebbt`, `PRAGMA user_version` counts the migrations in `migrations/` that have run. A file
//! with more of them than this build knows, with another program's id, or made by a script that differs, is refused and
//! left as it is. A file that SQLite finds damaged is renamed to `NAME.corrupt-SECONDS`, with its log, and a new one is
//! started; not again before that one has taken an hour of ticks, so that a dying disk is reported and not fed.
//!
//! Beside the file lie SQLite's `-wal` and `-shm`, and an empty `.lock` that its one writer holds.
//!
//! # A tick
//!
//! A row of `tail` is keyed on the sample's sequence, because wall time can step back. Its `blob` is
//!
//! ```text
//! blob    = tag content crc
//! tag     = 1 (whole) | 2 (changes)
//! content = entry*               for a whole blob
//!         | varint entry*        for changes; the varint is how far back the row is that they build on
//! entry   = varint [varint]
//! crc     = 4 bytes, little-endian: CRC-32 (IEEE 802.3) of the sequence as 8 little-endian bytes, tag and content
//! ```
//!
//! An entry's first varint is `(id - id of the entry before) * 4 + form`, ids ascending. Form 0: the series is no longer
//! asked. Form 1: it is asked and absent. Forms 2 and 3: it has a value, which differs from the series' value in the row
//! built on (from 0 where that has none) by the zigzag of the second varint, in form 3 times 4096, because memory comes in
//! pages. Varints carry seven bits a byte, low bits first. A whole blob is the same as changes to nothing.
//!
//! Every sixtieth blob is whole, as is the first after the file was opened and the first after the wall clock was set; so
//! damage costs at most the rest of a chain of sixty, and within a chain wall time keeps step with the steady clock. `NULL`
//! and form 1 mean absent; nothing stands for it by being zero.
//!
//! # The digest of the tail
//!
//! With each checkpoint the rows of `tail_quarter` are brought up to the newest tick: for each quarter of an hour, numbered
//! from 1970, what each series did in it. A long chart reads them and the few ticks behind the newest `last_seq` instead of
//! the tail. They go in the commit that takes ticks from the tail, and are made again with the next checkpoint; where ticks
//! are so slow that the tail spans more than eight quarters of an hour there are none.
//!
//! ```text
//! digest  = 0x40 varint column{5} crc: series; id less its place, count, last, last - least, greatest - last
//! ```
//!
//! # From the tail to the rollups
//!
//! When the tail holds 900 ticks the oldest of them become a *window*: its number counts from 1 and is never used again,
//! and its ticks end where a whole blob follows, or where the wall clock was set by more than a minute. Each series that
//! had an entry in it gets a *chunk*. Eight windows later (numbers 8k+1 to 8k+8) the chunks of a series are merged into
//! one, and its values are added to the rollups, in the same commit; `series.rolled_window` says how far that
//! has come. `series.closed_window` is the first window without the series, NULL while it is read. All this is done a
//! little after each tick, so that no tick waits for it: a chain is read, 256 chunks are written, up to 32 series are
//! merged.
//!
//! ```text
//! chunk.id, minute.id, quarter.id = series << 32 | number of the window, day or week (from 1970)
//!
//! chunk   = tag ticks [runs] [runs] column crc
//! tag     = 0x10, plus 1 where the first runs follow, plus 2 where the second do
//! ticks   = varint: how many ticks the chunk covers
//! runs    = varint list list: how many runs, lengths of those of yes, lengths of those of no; yes comes first
//! column  = 0 list | 1 varint pco: the values; bytes of pco, and what the crate pco wrote (standalone form)
//! list    = shift varint varint (varint varint)*: zero bits that first value and changes share at their end, first
//!           value (zigzag), changes, and for each how far it is from the one before and how much (zigzag)
//!         | nothing, where there are no values
//! crc     = 4 bytes, little-endian: CRC-32C of the id as 8 little-endian bytes and all before
//!
//! times   = 0x30 varint column column column crc: ticks, number less its place, wall time, steady time less wall time
//! rollup  = 0x20 varint column{6} crc: buckets; start in widths since 1970 less its place, last, last - least,
//!           greatest - last, sum - last * count, count
//! ```
//!
//! The first runs say which ticks asked the series, the second which of these answers were values: a bitmap as run
//! lengths, because a list that is read each fifth tick then takes ten bytes instead of 113. Of pco and the list the
//! smaller is taken: the list wins on memory that steps, pco on what changes all the time. A chunk is looked at only
//! together with its windows, so one whose seal was interrupted is nobody's.
//!
//! An *incident* is the end of a process with the ticks before it, copied so that nothing that expires takes them: `times`
//! under the incident's number, and a chunk a series under `incident << 32 | place`, which has the series' name beside it.
//!
//! A chart is made of ticks, minutes or quarters of an hour, whichever is fine enough and still kept; what is not in the
//! rollups yet comes from chunks, digest and tail. Least and greatest go through all tiers unchanged.
//!
//! # What survives
//!
//! A tick is acknowledged when its commit has returned: it is then in the write-ahead log. The end of the process, by
//! whatever signal, takes nothing that was acknowledged. A power cut can take the ticks since the last checkpoint, which
//! comes every sixtieth tick (`synchronous = NORMAL`); findings, alerts, deliveries and incidents are flushed before they
//! are acknowledged (`FULL`) and survive it. After any error, and when a call is cancelled, the writer gives up its connection
//! and opens another: `docs/adr/0001-one-writer-connection.md` says why.

mod catalogue;
mod chunk;
mod codec;
mod column;
mod compaction;
mod config;
mod crc;
mod damage;
mod digest;
mod directory;
mod error;
mod expire;
mod gap;
mod history;
mod incident;
mod inspection;
mod json;
mod lock;
mod merge;
mod names;
mod outbox;
mod pace;
mod query;
mod reader;
mod rollup;
mod schema;
mod seal;
mod session;
mod tail;
mod upkeep;
mod varint;
mod verification;
mod walk;
mod window;
mod writer;

pub use compaction::Compaction;
pub use config::StoreConfig;
pub use directory::{SeriesFilter, StoredSeries};
pub use error::Error;
pub use gap::Gap;
pub use history::Span;
pub use incident::{FrozenIncident, FrozenSeries, StoredIncident};
pub use inspection::{Counts, Overview, TierOverview};
pub use outbox::{DeliveryId, Pending, Settlement, Verdicts};
pub use reader::{Reader, Replay};
pub use verification::Verification;
pub use writer::{Writer, WriterStats};
