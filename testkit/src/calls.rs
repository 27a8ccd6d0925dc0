//! How often each NVML symbol was called, in a file that all processes of one world share.
//!
//! The file is an array of 64-byte records: the symbol's name, padded with zeros to 56 bytes, and its count as a
//! native 64-bit integer. Callers map it and count with one atomic addition, so that counting costs nothing that
//! a cost bench would see.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// Bytes of one record.
pub const RECORD: usize = 64;
/// Where the count stands in a record; the name fills what is before.
pub const COUNT_AT: usize = 56;
/// The environment variable that names the file; it wins over the scenario's `calls`.
pub const ENV: &str = "EBBTIDE_FAKE_NVML_CALLS";

/// Counts by symbol; symbols that nobody called are left out.
pub type CallCounts = BTreeMap<String, u64>;

/// The records of a file before anybody called: `symbols` in their order, all zero.
#[must_use]
pub fn blank(symbols: &[&str]) -> Vec<u8> {
    let mut records = vec![0; symbols.len() * RECORD];
    for (record, symbol) in records.chunks_exact_mut(RECORD).zip(symbols) {
        let length = symbol.len().min(COUNT_AT);
        record[..length].copy_from_slice(&symbol.as_bytes()[..length]);
    }
    records
}

/// Reads a count file.
///
/// # Errors
/// When the file cannot be read: nobody has called yet, or the path is wrong.
pub fn read(path: &Path) -> io::Result<CallCounts> {
    Ok(std::fs::read(path)?.chunks_exact(RECORD).filter_map(entry).collect())
}

fn entry(record: &[u8]) -> Option<(String, u64)> {
    let (name, count) = record.split_at_checked(COUNT_AT)?;
    let count = u64::from_ne_bytes(count.try_into().ok()?);
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(COUNT_AT);
    (count > 0).then(|| (String::from_utf8_lossy(&name[..end]).into_owned(), count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_back_by_name() {
        let mut records = blank(&["nvmlInit_v2", "nvmlShutdown"]);
        records[RECORD + COUNT_AT..].copy_from_slice(&7_u64.to_ne_bytes());
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), records).unwrap();
        assert_eq!(read(file.path()).unwrap(), CallCounts::from([("nvmlShutdown".to_owned(), 7)]));
    }
}
