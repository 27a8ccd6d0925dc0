//! Which column holds what: by its name in a header, by the user's word, or by the order in which nvidia-smi
//! prints.

use super::instant::instant;
use super::number::{Comma, Unit, amount, decimal, trim};
use super::rows::Quantity;

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    Time,
    GpuIndex,
    GpuUuid,
    GpuBus,
    GpuName,
    Pid,
    ProcessName,
    Event,
    Role,
    Value(Quantity, Unit),
    /// Nothing that is read here.
    Other,
}

/// Names of columns: those of `nvidia-smi --query-gpu` and `--query-compute-apps`, and those of the generic form.
const NAMES: [(&str, Column); 38] = [
    ("time", Column::Time),
    ("timestamp", Column::Time),
    ("gpu", Column::GpuIndex),
    ("index", Column::GpuIndex),
    ("gpu_index", Column::GpuIndex),
    ("uuid", Column::GpuUuid),
    ("gpu_uuid", Column::GpuUuid),
    ("pci.bus_id", Column::GpuBus),
    ("gpu_bus_id", Column::GpuBus),
    ("name", Column::GpuName),
    ("gpu_name", Column::GpuName),
    ("pid", Column::Pid),
    ("process_name", Column::ProcessName),
    ("process", Column::ProcessName),
    ("event", Column::Event),
    ("used_mib", Column::Value(Quantity::Used, Unit::Mib)),
    ("used_bytes", Column::Value(Quantity::Used, Unit::Bytes)),
    ("memory.used", Column::Value(Quantity::Used, Unit::Mib)),
    ("used_memory", Column::Value(Quantity::Used, Unit::Mib)),
    ("used_gpu_memory", Column::Value(Quantity::Used, Unit::Mib)),
    ("total_mib", Column::Value(Quantity::Total, Unit::Mib)),
    ("memory.total", Column::Value(Quantity::Total, Unit::Mib)),
    ("memory.free", Column::Value(Quantity::Free, Unit::Mib)),
    ("memory.reserved", Column::Value(Quantity::Reserved, Unit::Mib)),
    ("utilization.gpu", Column::Value(Quantity::Utilization, Unit::One)),
    ("kv_used_mib", Column::Value(Quantity::KvUsed, Unit::Mib)),
    ("kv_pool_mib", Column::Value(Quantity::KvPool, Unit::Mib)),
    ("running", Column::Value(Quantity::Running, Unit::One)),
    ("waiting", Column::Value(Quantity::Waiting, Unit::One)),
    ("utilization", Column::Value(Quantity::Utilization, Unit::One)),
    ("served", Column::Value(Quantity::Served, Unit::One)),
    ("tokens", Column::Value(Quantity::Tokens, Unit::One)),
    ("torch_reserved_mib", Column::Value(Quantity::Arena, Unit::Mib)),
    ("torch_allocated_mib", Column::Value(Quantity::ArenaUsed, Unit::Mib)),
    ("role", Column::Role),
    ("host_rss_mib", Column::Value(Quantity::HostRss, Unit::Mib)),
    ("host_available_mib", Column::Value(Quantity::HostAvailable, Unit::Mib)),
    ("host_limit_mib", Column::Value(Quantity::HostLimit, Unit::Mib)),
];

const USED: Column = Column::Value(Quantity::Used, Unit::Mib);
const TOTAL: Column = Column::Value(Quantity::Total, Unit::Mib);

/// The names of columns that are read, for messages.
pub(super) fn known_names() -> String {
    let names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
    names.join(", ")
}

/// The column of that name, be it with its unit: `memory.used [MiB]`.
pub(super) fn named(raw: &str) -> Option<Column> {
    let lower = trim(raw).to_ascii_lowercase();
    let (name, unit) = match lower.split_once(['[', '(']) {
        Some((name, unit)) => (name.trim_end(), Unit::named(unit.trim_end_matches([']', ')']).trim())),
        None => (lower.as_str(), None),
    };
    let (_, column) = NAMES.iter().find(|(known, _)| *known == name)?;
    Some(match (*column, unit) {
        (Column::Value(quantity, default), Some(unit)) if default != Unit::One => {
            Column::Value(quantity, unit)
        }
        (column, _) => column,
    })
}

/// The columns that a header names; `None` where the line is no header: it holds a number, or no known name.
pub(super) fn of_header(fields: &[&str]) -> Option<Vec<Column>> {
    let is_data = |field: &&str| trim(field).starts_with(|c: char| c.is_ascii_digit() || c == '[');
    if fields.iter().any(is_data) {
        return None;
    }
    let columns: Vec<Column> = fields.iter().map(|field| named(field).unwrap_or(Column::Other)).collect();
    columns.iter().any(|&column| column != Column::Other).then_some(columns)
}

/// The columns of a line of nvidia-smi without a header: an optional timestamp; then what names the GPU or the
/// process; then used, or used and total. `None` where that is not the only way to read it.
///
/// Amounts with a unit other than memory's are passed over wherever they stand.
pub(super) fn inferred(fields: &[&str], comma: Comma) -> Option<Vec<Column>> {
    let shapes: Vec<Shape> = fields.iter().map(|field| Shape::of(field, comma)).collect();
    let told: Vec<Shape> = shapes.iter().copied().filter(|&shape| shape != Shape::Foreign).collect();
    let mut columns = in_order(&told)?.into_iter();
    let place = |shape: &Shape| if *shape == Shape::Foreign { Some(Column::Other) } else { columns.next() };
    shapes.iter().map(place).collect()
}

fn in_order(shapes: &[Shape]) -> Option<Vec<Column>> {
    let timed = shapes.first() == Some(&Shape::Time);
    let mut columns = if timed { vec![Column::Time] } else { Vec::new() };
    let body = &shapes[usize::from(timed)..];
    let memory = body.iter().rev().take_while(|shape| shape.may_be_memory()).count();
    let (names, memory) = body.split_at(body.len() - memory);
    if let ([names @ .., Shape::Integer(_), Shape::Text], [_]) = (names, memory) {
        columns.extend(naming(names)?);
        columns.extend([Column::Pid, Column::ProcessName, USED]);
        return Some(columns);
    }
    columns.extend(naming(names)?);
    with_memory(columns, memory)
}

/// What a field without a name looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Time,
    Uuid,
    /// A bare whole number.
    Integer(u64),
    /// An amount with a unit of memory, or a word for "none".
    Memory,
    /// An amount with another unit: percent, watts, megahertz.
    Foreign,
    /// A GPU's product name.
    Product,
    Text,
}

impl Shape {
    fn of(field: &str, comma: Comma) -> Self {
        let field = trim(field);
        if field.starts_with("GPU-") || field.starts_with("MIG-") {
            return Self::Uuid;
        }
        if let Ok(number) = field.parse::<u64>() {
            // No card has a million GiB, so a number like that is a time.
            return if number >= 1_000_000_000 { Self::Time } else { Self::Integer(number) };
        }
        if ["NVIDIA ", "Tesla ", "GeForce ", "Quadro "].iter().any(|brand| field.starts_with(brand)) {
            return Self::Product;
        }
        let has_unit = field.ends_with("iB") || field.starts_with('[');
        if has_unit && amount(field, Unit::Mib, comma).is_some() {
            return Self::Memory;
        }
        let is_foreign = |unit: &str| field.strip_suffix(unit).is_some_and(|n| decimal(n, comma).is_some());
        if [" %", " W", " MHz", " C"].into_iter().any(is_foreign) {
            return Self::Foreign;
        }
        match instant(field, comma) {
            Some(ms) if ms >= 1_000_000_000 => Self::Time,
            _ => Self::Text,
        }
    }

    const fn may_be_memory(self) -> bool {
        matches!(self, Self::Integer(_) | Self::Memory)
    }
}

/// Columns that name a GPU, in front of the memory.
fn naming(shapes: &[Shape]) -> Option<Vec<Column>> {
    let column = |shape: &Shape| match shape {
        Shape::Uuid => Some(Column::GpuUuid),
        Shape::Integer(_) => Some(Column::GpuIndex),
        Shape::Product => Some(Column::GpuName),
        Shape::Time | Shape::Memory | Shape::Foreign | Shape::Text => None,
    };
    let columns: Vec<Column> = shapes.iter().map(column).collect::<Option<_>>()?;
    let twice = (1..columns.len()).any(|at| columns[..at].contains(&columns[at]));
    (!twice).then_some(columns)
}

/// Appends used, or used and total; a small bare number in front of others is the GPU's index.
fn with_memory(mut columns: Vec<Column>, memory: &[Shape]) -> Option<Vec<Column>> {
    let mut memory = memory;
    let identified =
        columns.iter().any(|c| matches!(c, Column::GpuIndex | Column::GpuUuid | Column::GpuName));
    if let [Shape::Integer(0..=63), rest @ ..] = memory
        && !identified
        && !rest.is_empty()
    {
        columns.push(Column::GpuIndex);
        memory = rest;
    }
    match memory {
        [_] => columns.push(USED),
        [Shape::Integer(first), Shape::Integer(second)] if first > second => columns.extend([TOTAL, USED]),
        [_, _] => columns.extend([USED, TOTAL]),
        _ => return None,
    }
    Some(columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_with_and_without_units() {
        let header = ["timestamp", " index", " memory.used [MiB]", " memory.total", " fan.speed [%]"];
        let columns = [Column::Time, Column::GpuIndex, USED, TOTAL, Column::Other];
        assert_eq!(of_header(&header), Some(columns.to_vec()));
        assert_eq!(of_header(&["\u{feff}time", "used_bytes"]).unwrap()[1], named("used_bytes").unwrap());
        assert_eq!(named("used_memory [KiB]"), Some(Column::Value(Quantity::Used, Unit::Kib)));
        assert_eq!(of_header(&["0", "NVIDIA A100", "name"]), None);
        assert_eq!(of_header(&["nvidia-smi has failed", "because"]), None);
    }

    #[test]
    fn the_order_of_nvidia_smi_is_inferred() {
        let time = "2024/01/31 12:34:56.789";
        let cases: [(&[&str], &[Column]); 9] = [
            (&["45 %", "12 MiB", "81559 MiB", "61.00 W"], &[Column::Other, USED, TOTAL, Column::Other]),
            (&[time, "0", "12 MiB", "81559 MiB"], &[Column::Time, Column::GpuIndex, USED, TOTAL]),
            (&[time, "0", "12", "81559"], &[Column::Time, Column::GpuIndex, USED, TOTAL]),
            (&[time, "GPU-1", "12 MiB"], &[Column::Time, Column::GpuUuid, USED]),
            (&[time, "NVIDIA A100", "12", "81559"], &[Column::Time, Column::GpuName, USED, TOTAL]),
            (
                &[time, "3", "NVIDIA A100", "7", "81559"],
                &[Column::Time, Column::GpuIndex, Column::GpuName, USED, TOTAL],
            ),
            (&["1234"], &[USED]),
            (&["81559 MiB", "[N/A]"], &[USED, TOTAL]),
            (&["81559", "1234"], &[TOTAL, USED]),
        ];
        for (fields, columns) in cases {
            assert_eq!(inferred(fields, Comma::Thousands), Some(columns.to_vec()), "{fields:?}");
        }
    }

    #[test]
    fn the_order_of_compute_apps_is_inferred_and_doubt_is_not_resolved() {
        let apps = ["2024/01/31 12:34:56.789", "GPU-1", "4711", "python3", "1234 MiB"];
        let columns = [Column::Time, Column::GpuUuid, Column::Pid, Column::ProcessName, USED];
        assert_eq!(inferred(&apps, Comma::Thousands), Some(columns.to_vec()));
        assert_eq!(inferred(&["2024/01/31 12:34:56", "45", "12", "13", "14", "15"], Comma::Thousands), None);
        assert_eq!(inferred(&["some", "words"], Comma::Thousands), None);
        assert_eq!(inferred(&["45 %"], Comma::Thousands), None);
    }
}
