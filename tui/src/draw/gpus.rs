//! The list of GPUs: who is how full, as a bar and in numbers.

use ebbtide_api::wire::{GpuStatus, Level};
use ebbtide_core::{DeviceMemory, GpuKind, GpuSample, GpuState, MemorySource};

use super::palette::{self, LOUD, QUIET, USED};
use super::pen::{Pen, window};
use super::wording::{self, UNKNOWN};
use crate::model::{Model, Pane};
use crate::row;

/// Columns of the numbers: `62.1 GiB of 80.0 GiB  78 %`.
const NUMBERS: u16 = 27;
/// Columns of `util 100 %`.
const UTILIZATION: u16 = 10;
/// Columns of the longest diagnosis.
const DIAGNOSIS: u16 = 12;
/// Columns of `STALE` with a space on either side.
const STATE: u16 = 7;
/// Below this a bar says nothing.
const SHORTEST_BAR: u16 = 6;

pub(super) fn draw(pen: &mut Pen<'_>, model: &Model) {
    let gpus = model.gpus();
    let selected = model.gpu_place();
    let height = usize::from(pen.height().saturating_sub(1));
    let first = window(gpus.len(), selected, height);
    let shown = gpus.len().min(first + height);
    let note = if shown - first < gpus.len() {
        format!("{} to {shown} of {}", first + 1, gpus.len())
    } else {
        String::new()
    };
    let focused = model.pane == Pane::Gpus;
    pen.rule("GPUs", &note, focused);
    for (y, place) in (1..).zip(first..shown) {
        draw_gpu(pen, y, &gpus[place]);
        if place == selected {
            pen.mark(y, focused);
        }
    }
}

fn draw_gpu(pen: &mut Pen<'_>, y: u16, status: &GpuStatus) {
    let gpu = &status.gpu;
    let width = pen.width();
    let name_width = (width * 3 / 10).clamp(8, 32);
    let end = pen.text((2, y), &gpu.index.to_string(), 4, LOUD) + 1;
    pen.text((end, y), &label(gpu), name_width.saturating_sub(end), QUIET);
    let mut right = width;
    if width >= 70 {
        if let Some(diagnosis) = row::gravest(status) {
            pen.text((right - DIAGNOSIS, y), diagnosis.name(), DIAGNOSIS, palette::diagnosis(diagnosis));
        }
        right -= DIAGNOSIS + 1;
    }
    if width >= 90 {
        let util = gpu.utilization.map_or_else(|_| UNKNOWN.to_owned(), |p| format!("{:>3} %", p.0));
        pen.text((right - UTILIZATION, y), &format!("util {util}"), UTILIZATION, QUIET);
        right -= UTILIZATION + 1;
    }
    let x = name_width + 1;
    if let Some(word) = state_word(gpu.state) {
        right = right.saturating_sub(STATE);
        pen.text((right.max(x) + 1, y), word, STATE, palette::level(Level::Critical));
    }
    let width = right.saturating_sub(x);
    match gpu.memory {
        Ok(memory) => draw_memory(pen, (x, y), width, &memory),
        Err(why) => {
            pen.text((x, y), &wording::unknown(why), width, QUIET);
        }
    }
}

const fn state_word(state: GpuState) -> Option<&'static str> {
    match state {
        GpuState::Present => None,
        GpuState::Lost => Some("LOST"),
        GpuState::Stale => Some("STALE"),
    }
}

fn draw_memory(pen: &mut Pen<'_>, (x, y): (u16, u16), width: u16, memory: &DeviceMemory) {
    let share = percent(memory.used.0, memory.total.0).map_or_else(|| UNKNOWN.to_owned(), |p| p.to_string());
    let numbers = format!("{} of {} {share:>3} %", memory.used, memory.total);
    let bar = width.saturating_sub(NUMBERS);
    if bar < SHORTEST_BAR {
        pen.text((x, y), &numbers, width, LOUD);
        return;
    }
    draw_bar(pen, (x, y), bar, memory);
    pen.right((x + width, y), &numbers, NUMBERS - 1, LOUD);
}

/// Used, then reserved, then free, each with a glyph of its own.
fn draw_bar(pen: &mut Pen<'_>, (x, y): (u16, u16), width: u16, memory: &DeviceMemory) {
    let columns = |bytes: u64| {
        let share = bytes as f64 / memory.total.0.max(1) as f64;
        ((share * f64::from(width)).round() as u16).min(width)
    };
    // What is there at all is seen: one column at least.
    let used = columns(memory.used.0).max(u16::from(memory.used.0 > 0));
    let reserved = memory.reserved.map_or(0, |r| columns(r.0)).min(width - used);
    for column in 0..width {
        let (glyph, style) = match column {
            c if c < used => ("█", USED),
            c if c < used + reserved => ("▒", QUIET),
            _ => ("·", QUIET),
        };
        pen.glyph((x + column, y), glyph, style);
    }
}

fn percent(part: u64, whole: u64) -> Option<u64> {
    (whole > 0).then(|| u64::try_from(u128::from(part) * 100 / u128::from(whole)).unwrap_or(u64::MAX))
}

fn label(gpu: &GpuSample) -> String {
    let kind = match &gpu.kind {
        GpuKind::Discrete => String::new(),
        GpuKind::Unified => " (unified memory)".to_owned(),
        GpuKind::Mig(mig) => format!(" (MIG {}/{})", mig.gpu_instance, mig.compute_instance),
        GpuKind::HostMemory => return "host memory, no GPU".to_owned(),
    };
    // Figures of the older call count reserved memory as used: they read higher than other tools'.
    let source = match gpu.memory.map(|m| m.source) {
        Ok(MemorySource::NvmlV1) => ", with reserved",
        _ => "",
    };
    // All are of one maker: its name would push the model's off a narrow screen.
    let name = gpu.name.strip_prefix("NVIDIA ").unwrap_or(&gpu.name);
    format!("{name}{kind}{source}")
}
