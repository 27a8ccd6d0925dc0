//! The history: what was sampled, found, alerted and delivered, in one SQLite file.
//!
//! # The file
//!
//! | Table | One row for each | Kept |
//! |---|---|---|
//! | `meta` | fact about the file: the checksum of each migration | for ever |
//! | `gpu`, `process` | GPU or process, with what it was called | `process`: as long as one of its series |
//! | `series` | (GPU, process, metric) that had a value, with its short id | until no tick in the tail can mention it |
//! | `tail` | tick | 48 hours |
//! | `finding` | finding, as it was last | 100 000, and all that are open |
//! | `alert` | alert, as it was last | 30 days after it resolved |
//! | `delivery` | thing to tell a sink | until it has ended, then 10 000 |
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
//! # What survives
//!
//! A tick is acknowledged when its commit has returned: it is then in the write-ahead log. The end of the process, by
//! whatever signal, takes nothing that was acknowledged. A power cut can take the ticks since the last checkpoint, which
//! comes every sixtieth tick (`synchronous = NORMAL`); findings, alerts and deliveries are flushed before they are
//! acknowledged (`FULL`) and survive it. After any error, and when a call is cancelled, the writer gives up its connection
//! and opens another: `docs/adr/0001-one-writer-connection.md` says why.

mod catalogue;
mod codec;
mod crc;
mod error;
mod history;
mod json;
mod names;
mod outbox;
mod reader;
mod schema;
mod session;
mod tail;
mod writer;

pub use error::Error;
pub use history::Span;
pub use outbox::{DeliveryId, Pending, Settlement, Verdicts};
pub use reader::{Reader, Replay};
pub use session::KEPT_MS;
pub use writer::{Writer, WriterStats};
