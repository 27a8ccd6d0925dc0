//! Feeds the decoders of everything sealed with bytes that no encoder wrote: `cargo bench -p ebbtide-store --bench fuzz
//! -- SECONDS [SEED]`, two seconds where nothing is said. Ends with an error, the seed and the bytes when a decoder
//! panics, answers with more than it may, or reads back something else than it wrote.
//!
//! Each round takes what an encoder wrote of columns as they occur, and changes it: bits, bytes, lengths, pieces of
//! another. The checksum is left out or made to fit, so that what lies behind it is reached.

#![allow(clippy::unwrap_used, reason = "a run that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "the counts are the result")]
#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "the decoders bring more than is asked of them here"
)]

#[path = "../src/chunk.rs"]
mod chunk;
#[path = "../src/codec.rs"]
mod codec;
#[path = "../src/column.rs"]
mod column;
#[path = "../src/crc.rs"]
mod crc;
#[path = "../src/damage.rs"]
mod damage;
#[path = "../src/digest.rs"]
mod digest;
#[path = "../src/history.rs"]
mod history;
mod random;
#[path = "../src/rollup.rs"]
mod rollup;
#[path = "../src/tail.rs"]
mod tail;
#[path = "../src/varint.rs"]
mod varint;
#[path = "../src/window.rs"]
mod window;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use chunk::Cells;
use ebbtide_core::{Tick, Ts};
use random::Random;

/// Rounds between two looks at the clock.
const ROUNDS: u64 = 256;

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|arg| arg.parse::<u64>().ok());
    let time = Duration::from_secs(numbers.next().unwrap_or(2));
    let mut random = Random::new(numbers.next().unwrap_or(0x5EED));
    let begun = Instant::now();
    let (mut rounds, mut accepted) = (0_u64, 0_u64);
    while begun.elapsed() < time {
        for _ in 0..ROUNDS {
            let seed = random.0;
            let bytes = made_up(&mut random);
            match catch_unwind(AssertUnwindSafe(|| read(&bytes))) {
                Ok(understood) => accepted += understood,
                Err(_) => panic!("seed {seed}: {bytes:02x?}"),
            }
        }
        rounds += ROUNDS;
    }
    println!("{rounds} inputs in {} s, {accepted} of them read as something", time.as_secs());
}

/// Reads the bytes as everything that they could be; how many of these they were.
fn read(bytes: &[u8]) -> u64 {
    let id = 7;
    let stored = chunk::sealed(id, bytes.to_vec());
    let mut understood = 0;
    if let Ok(cells) = Cells::decode(id, &stored) {
        assert!(cells.len() <= column::MAX_LENGTH);
        assert_eq!(Cells::decode(id, &cells.encode(id)).unwrap(), cells);
        assert_eq!(cells.clone().play().count(), cells.len());
        understood += 1;
    }
    if let Ok(buckets) = rollup::decode(id, &stored) {
        assert_eq!(rollup::decode(id, &rollup::encode(id, &buckets)).unwrap(), buckets);
        understood += 1;
    }
    if let Ok(ticks) = window::decode(id as u32, &stored) {
        assert_eq!(window::decode(id as u32, &window::encode(id as u32, &ticks)).unwrap(), ticks);
        understood += 1;
    }
    if let Ok(series) = digest::decode(id, &stored) {
        assert_eq!(digest::decode(id, &digest::encode(id, &series)).unwrap(), series);
        understood += 1;
    }
    // Without the checksum: what a reader does with a row that was damaged.
    assert!(Cells::decode(id + 1, &stored).is_err());
    understood
}

fn made_up(random: &mut Random) -> Vec<u8> {
    let mut bytes = written(random);
    if pick(random, 4) == 0 {
        let (other, cut) = (written(random), pick(random, bytes.len() + 1));
        bytes.truncate(cut);
        bytes.extend_from_slice(&other[pick(random, other.len() + 1)..]);
    }
    for _ in 0..pick(random, 5) {
        change(&mut bytes, random);
    }
    bytes
}

fn change(bytes: &mut Vec<u8>, random: &mut Random) {
    let at = pick(random, bytes.len() + 1);
    let odd = [0, 1, 0x7F, 0x80, 0xFF, pick(random, 256) as u8][pick(random, 6)];
    match (pick(random, 5), bytes.get_mut(at)) {
        (0, Some(byte)) => *byte ^= 1 << pick(random, 8),
        (1, Some(byte)) => *byte = odd,
        (2, Some(_)) => drop(bytes.remove(at)),
        (3, _) => bytes.truncate(at),
        _ => bytes.insert(at, odd),
    }
}

/// What an encoder writes, without its checksum.
fn written(random: &mut Random) -> Vec<u8> {
    let id = 7;
    let values = column(random);
    let mut bytes = match pick(random, 4) {
        0 => {
            let mut cells = Cells::default();
            let beat = 1 + pick(random, 6);
            for (at, value) in values.iter().enumerate() {
                cells.push(at.is_multiple_of(beat).then_some((pick(random, 30) > 0).then_some(*value)));
            }
            cells.encode(id)
        }
        1 => {
            let at = |at: usize, value: i64| (Ts(1_700_000_000_000 + at as i64 * 25_000), value);
            let values = values.iter().enumerate().map(|(place, value)| at(place, *value));
            let buckets = rollup::Buckets::of(&rollup::MINUTE, values);
            rollup::encode(id, &buckets.into_vec())
        }
        2 => {
            let series = values.iter().zip(1..).map(|(value, series)| (series, digest::part(id, *value)));
            digest::encode(id, &series.collect::<Vec<_>>())
        }
        _ => {
            let tick = |(at, value): (usize, &i64)| Tick {
                seq: at as u64,
                at: Ts(value % 1000 + at as i64 * 1000),
                mono_ms: at as u64 * 1000,
            };
            window::encode(id as u32, &values.iter().enumerate().map(tick).collect::<Vec<_>>())
        }
    };
    bytes.truncate(bytes.len() - 4);
    bytes
}

/// One of so many places.
fn pick(random: &mut Random, count: usize) -> usize {
    random.below(count as u64) as usize
}

fn column(random: &mut Random) -> Vec<i64> {
    let (length, kind) = (pick(random, 600), pick(random, 4));
    let mut value = (pick(random, 1 << 16) as i64) << 21;
    let mut next = || {
        match kind {
            0 => value += i64::from(pick(random, 90) == 0) << 21,
            1 => value += pick(random, 300) as i64 - 150,
            2 => value = random.next().cast_signed(),
            _ => {}
        }
        value
    };
    (0..length).map(|_| next()).collect()
}
