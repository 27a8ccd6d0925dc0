//! The tables that a plain `nvidia-smi`, or `nvidia-smi -l N`, prints: one row of two lines a GPU, then the list of
//! processes.

use super::number::{Comma, Unit, amount};
use super::rows::{GpuCells, Quantity, Row, Rows, Skip, Subject, Values};

/// Reads the lines of tables.
#[derive(Debug, Default)]
pub(super) struct Table {
    at_ms: Option<i64>,
    section: Section,
    gpu: Option<u16>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Section {
    #[default]
    Devices,
    /// MIG instances: their memory is a part of the device's and is not read twice.
    Mig,
    Processes,
}

impl Table {
    /// Whether a line belongs to a table.
    pub(super) fn owns(line: &str) -> bool {
        line.starts_with(['|', '+'])
    }

    /// A time was printed: it is that of the table below it.
    pub(super) fn begin(&mut self, at_ms: i64) {
        *self = Self { at_ms: Some(at_ms), ..Self::default() };
    }

    /// Takes one line of a table.
    pub(super) fn take(&mut self, line: &str, rows: &mut Rows) -> Result<(), Skip> {
        if line.starts_with('+') || self.turned(line, rows)? {
            return Ok(());
        }
        match self.section {
            Section::Devices => self.device(line, rows),
            Section::Mig => Ok(()),
            Section::Processes => self.process(line, rows),
        }
    }

    /// Whether the line is a heading that opens another part of the table.
    fn turned(&mut self, line: &str, rows: &mut Rows) -> Result<bool, Skip> {
        if line.contains("NVIDIA-SMI") {
            self.section = Section::Devices;
        } else if line.contains("MIG devices:") {
            self.section = Section::Mig;
        } else if line.contains("Processes:") {
            self.section = Section::Processes;
            let gpu = match self.gpu {
                Some(gpu) => gpu,
                None => rows.gpu(GpuCells::default())?,
            };
            self.push(gpu, Subject::List, Values::unrecorded(), rows);
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn device(&mut self, line: &str, rows: &mut Rows) -> Result<(), Skip> {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let &[first, second, third, ..] = cells.as_slice() else { return Ok(()) };
        // Unified memory shows `Not Supported` in the place of both amounts.
        let amounts = second.split_once(" / ").or((second == "Not Supported").then_some(("[N/A]", "[N/A]")));
        if let (Some((used, total)), Some(gpu)) = (amounts, self.gpu) {
            let mut values = Values::unrecorded();
            let read = |cell| amount(cell, Unit::Mib, Comma::Thousands).ok_or(Skip::NotARow);
            values.set(Quantity::Used, read(used)?);
            values.set(Quantity::Total, read(total)?);
            if let Some((percent, _)) = third.split_once('%')
                && let Some(share) = amount(percent, Unit::One, Comma::Thousands)
            {
                values.set(Quantity::Utilization, share);
            }
            self.push(gpu, Subject::Device, values, rows);
            return Ok(());
        }
        // `0  NVIDIA A100-SXM4-80GB  On`, beside the bus id `00000000:07:00.0 Off`.
        if let Some((index, name)) = first.split_once(' ')
            && index.parse::<u32>().is_ok()
            && second.contains(':')
        {
            let name = name.trim().trim_end_matches("On").trim_end_matches("Off").trim_end();
            self.gpu = None;
            self.gpu =
                Some(rows.gpu(GpuCells { index: Some(index), name: Some(name), ..GpuCells::default() })?);
        }
        Ok(())
    }

    /// `0   N/A  N/A      1234      C   python3      123MiB`, before 2020 without the two instance ids.
    fn process(&self, line: &str, rows: &mut Rows) -> Result<(), Skip> {
        let words: Vec<&str> = line.trim_matches('|').split_whitespace().collect();
        let Some(index) = words.first().filter(|word| word.parse::<u32>().is_ok()) else { return Ok(()) };
        let is_kind = |word: &&str| word.chars().all(|c| matches!(c, 'C' | 'G' | 'M' | '+'));
        let kind = words.iter().take(6).position(is_kind).ok_or(Skip::NotARow)?;
        let (before, after) = (&words[..kind], &words[kind + 1..]);
        let (Some(pid), Some((memory, name))) = (before.last(), after.split_last()) else {
            return Err(Skip::NotARow);
        };
        let name = name.join(" ");
        let pid = pid.parse().map_err(|_| Skip::BadPid)?;
        let mut values = Values::unrecorded();
        values.set(Quantity::Used, amount(memory, Unit::Mib, Comma::Thousands).ok_or(Skip::NotARow)?);
        let gpu = rows.gpu(GpuCells { index: Some(index), ..GpuCells::default() })?;
        let process = rows.process(pid, Some(&name))?;
        self.push(gpu, Subject::Process(process), values, rows);
        Ok(())
    }

    fn push(&self, gpu: u16, subject: Subject, values: Values, rows: &mut Rows) {
        rows.rows.push(Row { at_ms: self.at_ms, gpu, subject, values });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str]) -> Rows {
        let (mut table, mut rows) = (Table::default(), Rows::default());
        for line in lines {
            assert!(Table::owns(line), "{line}");
            table.take(line, &mut rows).unwrap();
        }
        rows
    }

    #[test]
    fn instances_of_a_partitioned_gpu_are_not_read_twice() {
        let rows = read(&[
            "|   0  NVIDIA A100-SXM4-40GB          On  | 00000000:01:00.0 Off |                   On |",
            "| N/A   35C    P0              51W / 400W |     87MiB / 40960MiB |     N/A      Default |",
            "| MIG devices:                                                                          |",
            "|  0    7   0   0  |              37MiB /  4864MiB  | 14      0 |  1   0    0    0    0 |",
            "| Processes:                                                                            |",
        ]);
        let subjects: Vec<Subject> = rows.rows.iter().map(|row| row.subject).collect();
        assert_eq!(subjects, [Subject::Device, Subject::List]);
        assert_eq!(rows.rows[0].values.get(Quantity::Used), Ok(87 << 20));
    }

    #[test]
    fn unified_memory_shows_no_amounts_and_old_drivers_no_instance_ids() {
        let rows = read(&[
            "|   0  NVIDIA GB10                    On  | 0000000F:01:00.0 Off |                  N/A |",
            "| N/A   45C    P8               4W /  N/A |        Not Supported |      0%      Default |",
            "| Processes:                                                       GPU Memory |",
            "|    0      4711      C   python                                      60993MiB |",
        ]);
        assert_eq!(rows.rows[0].values.get(Quantity::Used), Err(ebbtide_core::Absent::NotSupported));
        assert_eq!(rows.rows[2].values.get(Quantity::Used), Ok(60993 << 20));
        assert_eq!((rows.processes[0].key.pid, rows.processes[0].name.as_deref()), (4711, Some("python")));
    }
}
