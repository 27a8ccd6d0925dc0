//! How much of a file is read: a recording is a stranger's file.

/// The largest file: a year of one GPU at 1 s is about that.
pub(super) const MAX_FILE_BYTES: u64 = 1 << 30;
/// The longest line; longer ones are skipped without being held in memory.
pub(super) const MAX_LINE_BYTES: usize = 1 << 20;
/// The most fields of a line: `nvidia-smi --help-query-gpu` knows fewer names.
pub(super) const MAX_FIELDS: usize = 256;
/// The most GPUs: four times the largest machine that NVML enumerates in one chassis.
pub(super) const MAX_GPUS: usize = 64;
/// The most processes: the driver's own lists hold fewer than a thousand.
pub(super) const MAX_PIDS: usize = 4096;
/// The most rows: sixteen weeks of one series at 1 s, and about 1.2 GB while they are held.
pub(super) const MAX_ROWS: usize = 10_000_000;
/// How many skipped lines are named.
pub(super) const NAMED_SKIPS: usize = 5;
/// The largest file of answers of Prometheus, which are held while they are read: 64 GPUs with eight metrics at the
/// 11 000 points a series that Prometheus answers at most are about half of that.
pub(super) const MAX_ANSWER_BYTES: u64 = 256 << 20;
