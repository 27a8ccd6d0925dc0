//! What an engine did, and whether it left anything behind.

use std::fmt::Write;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ebbtide_core::engine_status::VRAM_FILE;
use ebbtide_core::{Bytes, Ts};
use ebbtide_engine::kv::Backing;
use ebbtide_engine::load::Load;
use ebbtide_engine::server::{Capacity, Figures, Identity, Worker};
use serde::Serialize;

/// The account of a run.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    #[serde(skip)]
    begun: Instant,
    /// How much faster than recorded the load was.
    pub(super) time_scale: f64,
    capacity_requests_per_s: Option<f64>,
    capacity_tokens_per_s: Option<f64>,
    seconds: f64,
    served: u64,
    starved: u64,
    refused: u64,
    preempted: u64,
    prompt_tokens: u64,
    generated_tokens: u64,
    prefix_hit_share: Option<f64>,
    blocks_dropped_behind_window: u64,
    blocks_offloaded: u64,
    offload_written_bytes: u64,
    offload_read_bytes: u64,
    steps: u64,
    audits: u64,
    injected_leak_bytes: Option<u64>,
    /// When the load and the leak's time began, in milliseconds since 1970.
    begun_at_ms: Ts,
    /// By the kernel: memory files of this process that play device memory, without those of pool and weights.
    device_bytes_beside: u64,
    checks: Vec<Check>,
}

/// Something that had to be so.
#[derive(Debug, Serialize)]
struct Check {
    what: &'static str,
    expected: u64,
    found: u64,
}

impl Report {
    pub(super) fn new() -> Self {
        Self {
            begun: Instant::now(),
            time_scale: 1.0,
            capacity_requests_per_s: None,
            capacity_tokens_per_s: None,
            seconds: 0.0,
            served: 0,
            starved: 0,
            refused: 0,
            preempted: 0,
            prompt_tokens: 0,
            generated_tokens: 0,
            prefix_hit_share: None,
            blocks_dropped_behind_window: 0,
            blocks_offloaded: 0,
            offload_written_bytes: 0,
            offload_read_bytes: 0,
            steps: 0,
            audits: 0,
            injected_leak_bytes: None,
            begun_at_ms: now(),
            device_bytes_beside: 0,
            checks: Vec::new(),
        }
    }

    pub(super) fn measured(&mut self, capacity: Capacity) {
        (self.capacity_requests_per_s, self.capacity_tokens_per_s) =
            (Some(capacity.requests), Some(capacity.tokens));
    }

    /// The load begins now.
    pub(super) fn begin(&mut self) {
        self.begun_at_ms = now();
    }

    /// What is going to be done.
    pub(super) fn opening(
        &self,
        identity: &Identity,
        address: Option<SocketAddr>,
        load: Option<&Load>,
    ) -> String {
        let mut text = format!(
            "ebbtide engine: {}, {} keys and values, {}, context {}\n",
            ebbtide_core::text::clean(&identity.model),
            identity.kv_format,
            identity.strategy,
            identity.context
        );
        // Writing to a String cannot fail.
        if let Some(address) = address {
            let _ = writeln!(text, "listening on http://{address}");
        }
        if let (Some(requests), Some(tokens)) = (self.capacity_requests_per_s, self.capacity_tokens_per_s) {
            let _ = writeln!(text, "capacity: {requests:.2} requests/s, {tokens:.0} tokens/s");
        }
        if let Some(load) = load {
            let (asked, cut) = load.lengths();
            let _ = writeln!(
                text,
                "load: mean prompt {:.0} tokens cut to {:.0}, answer {:.0} cut to {:.0}, {}",
                asked.prompt,
                cut.prompt,
                asked.answer,
                cut.answer,
                load.rate().map_or_else(
                    || "as fast as it is answered".to_owned(),
                    |rate| format!("{rate:.2} requests/s (time scale {:.2})", self.time_scale)
                ),
            );
        }
        text
    }

    /// Unloads the model and takes account; with `is_verified` looks whether memory is back where it began.
    pub(super) fn end(&mut self, worker: &mut Worker, is_verified: bool) -> anyhow::Result<()> {
        let end = figures(worker);
        if is_verified {
            self.check("requests that run or wait", 0, (end.running + end.waiting) as u64);
            self.check("blocks in use when idle", 0, end.usage.used as u64);
            self.check("sequences when idle", 0, end.usage.sequences as u64);
            self.check("blocks in the host file when idle", 0, end.usage.offloaded as u64);
            worker.unload()?;
            self.check("bytes held after unloading, as the pool counts", 0, worker.pool().usage().held.0);
            let held = worker.pool().memory_held()?;
            self.check("bytes held after unloading, as the kernel counts", 0, held.0);
            self.check("steps after which the books were gone through", end.steps.steps(), end.audits);
        }
        self.enter(&end);
        let pool = if is_file(worker) { worker.pool().memory_held()?.0 } else { 0 };
        self.device_bytes_beside = device_bytes()?.saturating_sub(pool + worker.weights_held()?.0);
        Ok(())
    }

    fn check(&mut self, what: &'static str, expected: u64, found: u64) {
        self.checks.push(Check { what, expected, found });
    }

    fn enter(&mut self, end: &Figures) {
        let (counters, events) = (end.counters, end.events);
        self.seconds = self.begun.elapsed().as_secs_f64();
        (self.served, self.starved, self.refused) = (counters.served, counters.starved, end.refused);
        (self.preempted, self.steps, self.audits) = (counters.preempted, counters.steps, end.audits);
        (self.prompt_tokens, self.generated_tokens) = (counters.prompt_tokens, counters.generated_tokens);
        let queries = events.prefix_queries;
        self.prefix_hit_share = (queries > 0).then(|| events.prefix_hits as f64 / queries as f64);
        self.blocks_dropped_behind_window = events.dropped;
        self.blocks_offloaded = events.offloaded;
        (self.offload_written_bytes, self.offload_read_bytes) = (end.traffic.written.0, end.traffic.read.0);
        self.injected_leak_bytes = end.leak.map(|(_, bytes)| bytes.0);
    }

    /// Whether everything was as it had to be.
    pub(super) fn is_sound(&self) -> bool {
        self.checks.iter().all(|check| check.expected == check.found)
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        writeln!(
            text,
            "{:.0} s{}: {} requests served, {} starved, {} refused; {} preemptions; {} prompt and {} generated tokens",
            self.seconds,
            if self.capacity_requests_per_s.is_some() { ", measuring included" } else { "" },
            self.served,
            self.starved,
            self.refused,
            self.preempted,
            self.prompt_tokens,
            self.generated_tokens
        )?;
        let share = self.prefix_hit_share.map_or_else(|| "–".to_owned(), |s| format!("{:.1} %", s * 100.0));
        writeln!(
            text,
            "prompts found cached {share}; {} blocks dropped behind the window; {} offloaded ({} written, {} read)",
            self.blocks_dropped_behind_window,
            self.blocks_offloaded,
            Bytes(self.offload_written_bytes),
            Bytes(self.offload_read_bytes)
        )?;
        if let Some(leaked) = self.injected_leak_bytes {
            let per_minute = Bytes((leaked as f64 / self.seconds * 60.0) as u64);
            let outside = Bytes(self.device_bytes_beside);
            writeln!(
                text,
                "lost on purpose: {} ({per_minute} a minute); beside pool and weights the kernel counts {outside}",
                Bytes(leaked)
            )?;
        }
        for Check { what, expected, found } in &self.checks {
            let mark = if expected == found { "ok  " } else { "FAIL" };
            writeln!(text, "{mark} {what}: {found}, expected {expected}")?;
        }
        if !self.checks.is_empty() {
            let verdict =
                if self.is_sound() { "Nothing is left behind." } else { "Something is left behind." };
            writeln!(text, "{verdict}")?;
        }
        Ok(())
    }
}

fn now() -> Ts {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ts(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}

fn is_file(worker: &Worker) -> bool {
    worker.pool().memory().place().backing == Backing::File
}

/// What the kernel has allocated for memory files of this process that play device memory.
fn device_bytes() -> std::io::Result<u64> {
    let is_device =
        |path: &Path| std::fs::read_link(path).is_ok_and(|name| name.to_string_lossy().contains(VRAM_FILE));
    let files = std::fs::read_dir("/proc/self/fd")?.flatten().map(|entry| entry.path());
    // st_blocks counts in units of 512 bytes (stat(2)).
    let blocks = files.filter(|path| is_device(path)).filter_map(|path| std::fs::metadata(path).ok());
    Ok(blocks.map(|file| file.blocks() * 512).sum())
}

fn figures(worker: &Worker) -> Figures {
    worker.figures().lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
}
