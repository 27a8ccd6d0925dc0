//! Files in which something is not as it was.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ebbtide_store::{Verification, Writer};

use crate::records::{record, stored};
use crate::{Extent, block_on, figure, times};

/// Ticks before the damage: a sealed window and a tail.
const BEFORE: u64 = 1_100;
/// Ticks after it: housekeeping meets every table that it visits.
const AFTER: u64 = 1_100;

/// Some bytes anywhere, the log included.
pub(crate) fn flipped(extent: Extent) {
    damaged(extent, |file, dice| {
        let length = file.metadata().unwrap().len();
        for _ in 0..dice.below(24) + 1 {
            let mut byte = [0];
            let at = dice.below(length);
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 1 << dice.below(8)], at).unwrap();
        }
    });
}

/// Its end is missing.
pub(crate) fn truncated(extent: Extent) {
    damaged(extent, |file, dice| {
        let length = file.metadata().unwrap().len();
        file.set_len(dice.below(length)).unwrap();
    });
}

/// A run of it, or all, is zero: what some file systems leave after a power cut.
pub(crate) fn zeroed(extent: Extent) {
    damaged(extent, |file, dice| {
        let length = file.metadata().unwrap().len();
        let (from, to) =
            if dice.below(4) == 0 { (0, length) } else { (dice.below(length), dice.below(length)) };
        let zeros = vec![0; usize::try_from(to.abs_diff(from)).unwrap()];
        file.write_all_at(&zeros, from.min(to)).unwrap();
    });
}

/// Whatever the damage, writing goes on, at most one file is set aside, and every reader comes to an end.
fn damaged(extent: Extent, damage: fn(&File, &mut Dice)) {
    let (mut aside, mut left_alone, mut refused, mut waits) = (0, 0, 0, Vec::new());
    let sound = tempfile::tempdir().unwrap();
    let template = sound.path().join("history.db");
    block_on(write(&template, 1, BEFORE));
    for round in 0..extent.damages {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history.db");
        std::fs::copy(&template, &path).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        damage(&file, &mut Dice(0x9E37_79B9_7F4A_7C15 ^ (round as u64 + 1) << 7));
        drop(file);
        block_on(async {
            // Whether they find something or not, they return.
            let _ = Verification::of(&path).await;
            let mut writer = Writer::new(&path);
            let begun = Instant::now();
            let mut first: Option<Duration> = None;
            let (mut newest, mut why) = (0, "");
            for seq in BEFORE + 1..=BEFORE + AFTER {
                match writer.append(&record(seq)).await {
                    Ok(()) => {
                        first.get_or_insert_with(|| begun.elapsed());
                        newest = seq;
                    }
                    Err(error) => {
                        refused += 1;
                        why = error.name();
                    }
                }
            }
            waits.extend(first);
            let stats = writer.stats();
            writer.close().await;
            assert!(stats.quarantined <= 1, "round {round}: a loop: {stats:?}");
            assert_eq!(set_aside(dir.path()).len() as u64, stats.quarantined);
            aside += stats.quarantined;
            if newest == 0 {
                // A header that says that the file is not ours to write: it is left as it is, for a person to decide.
                assert!(["newer", "foreign", "altered", "behind"].contains(&why), "round {round}: {why}");
                left_alone += 1;
                return;
            }
            assert_eq!(newest, BEFORE + AFTER, "round {round}: writing went on to the end, but {why}");
            let (ticks, _) = stored(&path).await;
            assert_eq!(ticks.last().unwrap().tick.seq, newest, "round {round}");
        });
    }
    figure(&format!("of {} files set aside", extent.damages), &aside.to_string(), "");
    figure("set aside more than once", "0", "0");
    figure("refused as not ours, and left as they were", &left_alone.to_string(), "");
    figure(&format!("of {} ticks after it refused", extent.damages as u64 * AFTER), &refused.to_string(), "");
    times("first tick after it, middle / longest", waits, "<= 2000 ms");
}

async fn write(path: &Path, from: u64, to: u64) {
    let mut writer = Writer::new(path);
    for seq in from..=to {
        writer.append(&record(seq)).await.unwrap();
    }
    writer.close().await;
}

/// The databases that were set aside, without their logs.
fn set_aside(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let is_one = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("history.db.corrupt-") && !name.ends_with("-wal") && !name.ends_with("-shm")
    };
    entries.filter(is_one).collect()
}

/// Xorshift of Marsaglia, 64 bits: each run does the same.
struct Dice(u64);

impl Dice {
    fn below(&mut self, count: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % count.max(1)
    }
}
