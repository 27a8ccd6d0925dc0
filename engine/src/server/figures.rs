//! What an engine tells of itself, and the page it tells it on.

use std::fmt::Write;
use std::time::Duration;

use ebbtide_core::Bytes;

use super::Identity;
use crate::inject::Leak;
use crate::kv::{BLOCK_TOKENS, Counters as PoolCounters, Pool, Traffic, Usage};
use crate::scheduler::{Counters, Scheduler};
use crate::status::Load;

/// Bounds of the histogram of steps, in seconds: from a token of a tiny model to a long prompt of a large one.
const STEP_BOUNDS: [f64; 8] = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0];

/// How long steps took.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StepTime {
    /// Steps by bound, each in the first that it fits; the last takes what is longer.
    buckets: [u64; STEP_BOUNDS.len() + 1],
    /// All of it.
    pub total: Duration,
}

impl StepTime {
    /// Counts a step.
    pub(super) fn count(&mut self, time: Duration) {
        let place = STEP_BOUNDS.partition_point(|bound| *bound < time.as_secs_f64());
        self.buckets[place] += 1;
        self.total += time;
    }

    /// Steps counted.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

/// An engine at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    /// The pool.
    pub usage: Usage,
    /// Events in the pool.
    pub events: PoolCounters,
    /// What offloading has cost.
    pub traffic: Traffic,
    /// Requests and tokens.
    pub counters: Counters,
    /// Sequences that run.
    pub running: usize,
    /// Requests that wait.
    pub waiting: usize,
    /// Requests that were not taken.
    pub refused: u64,
    /// Steps.
    pub steps: StepTime,
    /// Times that the books were gone through and balanced.
    pub audits: u64,
    /// The leak that was injected, and what is lost by it.
    pub leak: Option<(Leak, Bytes)>,
    /// The model's weights.
    pub weights: Bytes,
    /// A block.
    pub block: Bytes,
}

impl Figures {
    pub(super) fn of(pool: &Pool, weights: Bytes) -> Self {
        let usage = pool.usage();
        Self {
            usage,
            events: pool.counters(),
            traffic: pool.traffic(),
            counters: Counters::default(),
            running: 0,
            waiting: 0,
            refused: 0,
            steps: StepTime::default(),
            audits: 0,
            leak: None,
            weights,
            block: usage.block,
        }
    }

    pub(super) fn follow(&mut self, pool: &Pool, scheduler: &Scheduler, leak: Option<(Leak, Bytes)>) {
        (self.usage, self.events, self.traffic) = (pool.usage(), pool.counters(), pool.traffic());
        (self.running, self.waiting) = (scheduler.running(), scheduler.waiting());
        (self.counters, self.leak) = (scheduler.counters(), leak);
    }

    /// For the status file, with the pool as `usage` has it.
    pub(super) fn load(&self, usage: &Usage) -> Load {
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Load {
            kv_used: self.blocks(usage.used),
            kv_cached: self.blocks(usage.cached),
            kv_pool: usage.held,
            weights: self.weights,
            running: count(self.running),
            waiting: count(self.waiting),
        }
    }

    const fn blocks(&self, count: usize) -> Bytes {
        Bytes(count as u64 * self.block.0)
    }

    /// The page of `/metrics`, in the Prometheus text format.
    #[must_use]
    pub fn page(&self, identity: &Identity) -> String {
        let mut page = Page(String::new());
        self.write_info(&mut page, identity);
        self.write_pool(&mut page);
        self.write_service(&mut page);
        self.write_steps(&mut page);
        page.0
    }

    fn write_info(&self, page: &mut Page, identity: &Identity) {
        page.family("info", "gauge", "The engine and how it keeps keys and values.");
        let Identity { model, kv_format, strategy, .. } = identity;
        let labels = format!(
            "model=\"{}\",kv_format=\"{kv_format}\",strategy=\"{strategy}\",block_tokens=\"{BLOCK_TOKENS}\",block_bytes=\"{}\",version=\"{}\"",
            escaped(model),
            self.block.0,
            env!("CARGO_PKG_VERSION"),
        );
        page.value("info", &labels, 1);
        page.one("weights_bytes", "gauge", "The model's weights.", self.weights.0);
        let (leak, bytes) = self.leak.map_or(("none", 0), |(leak, bytes)| (leak.name(), bytes.0));
        page.family("injected_leak_bytes_total", "counter", "Memory lost on purpose: the truth.");
        page.value("injected_leak_bytes_total", &format!("leak=\"{leak}\""), bytes);
    }

    fn write_pool(&self, page: &mut Page) {
        let usage = &self.usage;
        let absent = usage.free.saturating_sub(usage.idle);
        let states =
            [("used", usage.used), ("cached", usage.cached), ("idle", usage.idle), ("absent", absent)];
        page.family(
            "kv_blocks",
            "gauge",
            "Blocks: referred to, kept for their content, empty but held, and not held.",
        );
        states.iter().for_each(|(state, blocks)| {
            page.value("kv_blocks", &format!("state=\"{state}\""), *blocks as u64);
        });
        page.family("kv_bytes", "gauge", "The same in bytes.");
        states.iter().for_each(|(state, blocks)| {
            page.value("kv_bytes", &format!("state=\"{state}\""), self.blocks(*blocks).0);
        });
        let held = usage.used + usage.cached + usage.idle;
        page.one("kv_held_blocks", "gauge", "Blocks whose memory is held.", held as u64);
        page.one("kv_held_bytes", "gauge", "Memory that the pool holds.", usage.held.0);
        page.one("kv_capacity_blocks", "gauge", "Blocks there may be.", usage.capacity as u64);
        page.one("kv_offloaded_blocks", "gauge", "Blocks in the host file.", usage.offloaded as u64);
        page.one(
            "kv_offloaded_bytes",
            "gauge",
            "Blocks in the host file, in bytes.",
            self.blocks(usage.offloaded).0,
        );
        page.one("offload_written_bytes_total", "counter", "Sent to the host file.", self.traffic.written.0);
        page.one("offload_read_bytes_total", "counter", "Brought back from it.", self.traffic.read.0);
        page.family("pool_events_total", "counter", "What happened in the pool.");
        for (event, count) in self.events() {
            page.value("pool_events_total", &format!("event=\"{event}\""), count);
        }
        page.one(
            "audits_total",
            "counter",
            "Times that the pool's books were found to balance.",
            self.audits,
        );
    }

    // tidy: table
    const fn events(&self) -> [(&'static str, u64); 12] {
        let events = &self.events;
        [
            ("alloc", events.allocated),
            ("free", events.freed),
            ("share", events.shared),
            ("cache", events.cached),
            ("copy", events.copied),
            ("evict", events.evicted),
            ("drop", events.dropped),
            ("offload", events.offloaded),
            ("restore", events.restored),
            ("take", events.taken),
            ("give_back", events.given_back),
            ("refused", events.refused),
        ]
    }

    fn write_service(&self, page: &mut Page) {
        let counters = &self.counters;
        page.one("requests_running", "gauge", "Sequences that run.", self.running as u64);
        page.one("requests_waiting", "gauge", "Requests that wait.", self.waiting as u64);
        page.family("requests_total", "counter", "Requests by what became of them.");
        for (end, count) in [
            ("served", counters.served),
            ("starved", counters.starved),
            ("cancelled", counters.cancelled),
            ("refused", self.refused),
        ] {
            page.value("requests_total", &format!("end=\"{end}\""), count);
        }
        page.one("preemptions_total", "counter", "Times a sequence gave way.", counters.preempted);
        page.one(
            "prompt_tokens_total",
            "counter",
            "Tokens of prompts that were computed.",
            counters.prompt_tokens,
        );
        page.one("generation_tokens_total", "counter", "Tokens generated.", counters.generated_tokens);
        let (queries, hits) = (self.events.prefix_queries, self.events.prefix_hits);
        page.one("prefix_cache_queries_total", "counter", "Tokens of prompts looked for.", queries);
        page.one("prefix_cache_hits_total", "counter", "Tokens of prompts found.", hits);
    }

    fn write_steps(&self, page: &mut Page) {
        page.family("step_seconds", "histogram", "How long steps took.");
        let mut below = 0;
        for (bound, count) in STEP_BOUNDS.iter().zip(self.steps.buckets) {
            below += count;
            page.value("step_seconds_bucket", &format!("le=\"{bound}\""), below);
        }
        let steps = self.steps.steps();
        page.value("step_seconds_bucket", "le=\"+Inf\"", steps);
        page.value("step_seconds_sum", "", self.steps.total.as_secs_f64());
        page.value("step_seconds_count", "", steps);
    }
}

/// A page as it grows. Writing to a string cannot fail.
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {PREFIX}{name} {help}\n# TYPE {PREFIX}{name} {kind}");
    }

    fn value(&mut self, name: &str, labels: &str, value: impl std::fmt::Display) {
        let _ = if labels.is_empty() {
            writeln!(self.0, "{PREFIX}{name} {value}")
        } else {
            writeln!(self.0, "{PREFIX}{name}{{{labels}}} {value}")
        };
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: u64) {
        self.family(name, kind, help);
        self.value(name, "", value);
    }
}

/// Before the name of every metric.
const PREFIX: &str = "ebbtide_engine_";

/// A label's value, as the text format wants it.
fn escaped(text: &str) -> String {
    ebbtide_core::text::clean(text).replace('\\', "\\\\").replace('"', "\\\"")
}
