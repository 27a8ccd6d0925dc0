//! The process table: who holds the selected GPU's memory, until the sum is the whole.

use ebbtide_api::wire::GpuStatus;
use ebbtide_core::{Absent, Ledger, Liveness, ProcSample, Term, Ts};
use ratatui::style::Style;

use super::palette::{self, LOUD, QUIET};
use super::pen::{Pen, window};
use super::wording::{self, UNKNOWN};
use crate::model::{Model, Pane};
use crate::row::{Row, RowKey};

/// From this width on the whole sum fits beside the title.
const WIDE_SUM: u16 = 126;

/// One column of the table.
struct Column {
    title: &'static str,
    /// Columns of the screen it takes; what is left over goes to the name.
    width: u16,
    /// The narrowest screen that has room for it.
    from: u16,
    numeric: bool,
    cell: fn(&Row<'_>, Ts) -> (String, Style),
}

const TABLE: [Column; 8] = [
    Column { title: "PID", width: 8, from: 0, numeric: true, cell: pid },
    Column { title: "USER", width: 9, from: 90, numeric: false, cell: user },
    Column { title: "NAME", width: 0, from: 0, numeric: false, cell: name },
    Column { title: "OWNER", width: 24, from: 110, numeric: false, cell: owner },
    Column { title: "MEMORY", width: 9, from: 0, numeric: true, cell: memory },
    Column { title: "SLOPE", width: 13, from: 60, numeric: true, cell: slope },
    Column { title: "DIAGNOSIS", width: 12, from: 50, numeric: false, cell: diagnosis },
    Column { title: "SINCE", width: 5, from: 70, numeric: true, cell: since },
];

pub(super) fn draw(pen: &mut Pen<'_>, model: &Model) {
    let focused = model.pane == Pane::Processes;
    let (Some(gpu), Some(status)) = (model.selected_gpu(), &model.status) else {
        pen.rule("Processes", "", focused);
        return;
    };
    let rows = model.rows();
    let title = format!("Processes on GPU {} by {}", gpu.gpu.index, model.order.name());
    pen.rule(&title, &sum(&gpu.ledger, pen.width()), focused);
    let columns = place(pen.width());
    for (x, width, column) in &columns {
        cell(pen, (*x, 1), *width, column, (column.title.to_owned(), QUIET));
    }
    let selected = model.row_place(&rows);
    let height = usize::from(pen.height().saturating_sub(2));
    let first = window(rows.len(), selected, height);
    for (y, (at, row)) in (2..).zip(rows.iter().enumerate().skip(first).take(height)) {
        for (x, width, column) in &columns {
            cell(pen, (*x, y), *width, column, (column.cell)(row, status.tick.at));
        }
        if at == selected {
            pen.mark(y, focused);
        }
    }
    let end = u16::try_from(rows.len() + 2).unwrap_or(u16::MAX);
    if let Some(remark) = remark(gpu) {
        pen.text((2, end), &remark, pen.width(), QUIET);
    }
}

/// Why processes are missing from the table, or who might hold what nobody is listed for.
fn remark(gpu: &GpuStatus) -> Option<String> {
    if let Err(why) = gpu.gpu.processes {
        return Some(format!("no list of processes: {why}"));
    }
    let holders: Vec<String> = gpu.gpu.holders.iter().map(|h| format!("{} {}", h.key.pid, h.name)).collect();
    (!holders.is_empty()).then(|| format!("unlisted, but with the device open: {}", holders.join(", ")))
}

/// Where each column that fits begins, and how wide it is. The first two columns are for the mark.
fn place(screen: u16) -> Vec<(u16, u16, &'static Column)> {
    let fitting: Vec<&Column> = TABLE.iter().filter(|c| screen >= c.from).collect();
    let taken: u16 = fitting.iter().map(|c| c.width + 1).sum();
    let name = screen.saturating_sub(taken + 2);
    let mut x = 2;
    let mut placed = Vec::with_capacity(fitting.len());
    for column in fitting {
        let width = if column.width == 0 { name } else { column.width };
        placed.push((x, width, column));
        x += width + 1;
    }
    placed
}

fn cell(pen: &mut Pen<'_>, (x, y): (u16, u16), width: u16, column: &Column, (text, style): (String, Style)) {
    if column.numeric {
        pen.right((x + width, y), &text, width, style);
    } else {
        pen.text((x, y), &text, width, style);
    }
}

fn pid(row: &Row<'_>, _: Ts) -> (String, Style) {
    (row.process.map_or_else(String::new, |p| p.key.to_string()), Style::new())
}

fn user(row: &Row<'_>, _: Ts) -> (String, Style) {
    let text = row.process.map_or_else(String::new, |p| {
        p.info
            .user
            .clone()
            .or_else(|_| p.info.uid.map(|uid| uid.to_string()))
            .unwrap_or_else(|_| UNKNOWN.into())
    });
    (text, QUIET)
}

fn name(row: &Row<'_>, _: Ts) -> (String, Style) {
    let shared = row.memory.is_ok_and(|m| m.0 < 0);
    match (row.key, row.process) {
        (_, Some(process)) => (process_name(process), LOUD),
        (RowKey::Reserved, _) => ("driver reserved".to_owned(), QUIET),
        _ if shared => ("shared, counted twice".to_owned(), QUIET),
        _ => ("unattributed".to_owned(), QUIET),
    }
}

/// The name, and what else is to be known of a process that cannot be looked at.
pub(super) fn process_name(process: &ProcSample) -> String {
    let mark = match process.liveness {
        Liveness::Alive => "",
        Liveness::Zombie => " (zombie)",
        Liveness::Dead => " (gone, memory held)",
        Liveness::Foreign => " (in another PID namespace)",
    };
    match &process.info.name {
        Ok(name) => format!("{name}{mark}"),
        Err(_) if !mark.is_empty() => format!("{UNKNOWN}{mark}"),
        Err(why) => wording::unknown(*why),
    }
}

fn owner(row: &Row<'_>, _: Ts) -> (String, Style) {
    let owner = row.process.map(|p| wording::owner(&p.info.owner).unwrap_or_else(|| UNKNOWN.to_owned()));
    (owner.unwrap_or_default(), QUIET)
}

fn memory(row: &Row<'_>, _: Ts) -> (String, Style) {
    (wording::value(row.memory), LOUD)
}

fn slope(row: &Row<'_>, _: Ts) -> (String, Style) {
    let text = row.judgement.map_or_else(String::new, |j| wording::value(j.slope.map(|band| band.rate)));
    (text, Style::new())
}

fn diagnosis(row: &Row<'_>, _: Ts) -> (String, Style) {
    row.judgement.map_or_else(
        || (String::new(), QUIET),
        |j| (j.diagnosis.name().to_owned(), palette::diagnosis(j.diagnosis)),
    )
}

fn since(row: &Row<'_>, now: Ts) -> (String, Style) {
    let text =
        row.judgement.map_or_else(String::new, |j| wording::short_duration(wording::elapsed(j.since, now)));
    (text, QUIET)
}

/// The ledger's identity in numbers, or which of its terms is missing.
fn sum(ledger: &Ledger, width: u16) -> String {
    if let Some(term) = ledger.missing.first() {
        let (name, why) = match term {
            Term::Device => ("device memory", ledger.total.err()),
            Term::DriverReserved => ("driver reserved", ledger.driver_reserved.err()),
            Term::Processes => ("process list", ledger.processes.err()),
            Term::ProcessMemory => ("memory of a process", ledger.processes.err()),
        };
        return format!("no sum: {name} unknown ({})", why.unwrap_or(Absent::NotYet));
    }
    let [free, processes] = [ledger.free, ledger.processes].map(wording::value);
    if width < WIDE_SUM {
        return format!("processes {processes}, free {free}");
    }
    let [total, reserved] = [ledger.total, ledger.driver_reserved].map(wording::value);
    let rest = wording::value(ledger.unattributed);
    format!("{total} = free {free} + reserved {reserved} + processes {processes} + unattributed {rest}")
}
