//! What can be said to `ebbtide engine`.

use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use ebbtide_core::Bytes;
use ebbtide_engine::inject::{Injector, Leak};
use ebbtide_engine::kv::{Backing, Format, Window};
use ebbtide_engine::model::{Geometry, RopeStyle};
use ebbtide_engine::scheduler::{Batching, Options, Placement, Preemption};
use ebbtide_engine::vram::VramError;

/// `ebbtide engine`
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  ebbtide engine --prompt 'O Romeo,' --max-tokens 200 --temperature 0.7\n  ebbtide engine --listen 127.0.0.1:8080\n  ebbtide engine --load poisson:5 --inject scratch:64M --seconds 600\n  ebbtide engine --load azure --time-scale auto:0.7 --kv-format int8 --window 128 --sinks 16 --preempt offload --pool-mib 1 --verify --seconds 1800\n\nWith --verify the pool's books are gone through after every step, and it exits 1 where they do not balance or memory does not return to where it began. Ends after --seconds, or when it is stopped."
)]
pub(crate) struct EngineArgs {
    /// Serve this model: a GGUF file, or safetensors beside their config.json; the bundled tiny one where none is given
    #[arg(long, value_name = "FILE", conflicts_with = "geometry")]
    pub(super) model: Option<PathBuf>,
    /// Serve random weights of these sizes, e.g. `layers=8,heads=16,kv_heads=4,head_dim=64,ffn=1024,context=4096`
    #[arg(long, value_name = "SIZES", value_parser = geometry)]
    pub(super) geometry: Option<Geometry>,
    /// How keys and values are kept
    #[arg(long, value_enum, default_value_t = KvFormat::F16)]
    pub(super) kv_format: KvFormat,
    /// Where blocks come from and when requests are admitted; several apart by commas
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(super) strategy: Vec<Strategy>,
    /// What happens to a sequence that gives way when the pool is full
    #[arg(long, value_enum, default_value_t = Preempt::Recompute)]
    pub(super) preempt: Preempt,
    /// Attend to so many of the newest tokens only
    #[arg(long, value_name = "TOKENS")]
    window: Option<usize>,
    /// With --window: and to so many of the first
    #[arg(long, value_name = "TOKENS", default_value_t = 16)]
    sinks: usize,
    /// Share nothing between requests that begin alike
    #[arg(long)]
    no_sharing: bool,
    /// The most that keys and values may take
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) pool_mib: u32,
    /// What the pool lies in: a memory file that a probe finds, or anonymous memory with huge pages
    #[arg(long, value_enum, default_value_t = PoolMemory::File)]
    pub(super) pool: PoolMemory,
    /// With --preempt offload: the most that the host file may take
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) offload_mib: u32,
    /// Sequences that run at once
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    running: u16,
    /// Compute on so many threads, which sleep when there is nothing to do; answers are the same for any number
    #[arg(long, value_name = "N", default_value = "1", value_parser = threads)]
    pub(super) threads: NonZeroU16,
    /// Answer HTTP here: /v1/completions and /metrics; loopback only
    #[arg(long, value_name = "ADDRESS")]
    pub(super) listen: Option<SocketAddr>,
    /// Who asks: azure, azure-code (recorded arrivals), poisson:RATE, closed:CLIENTS, script:FILE
    #[arg(long, value_name = "LOAD")]
    pub(super) load: Option<LoadChoice>,
    /// How much faster than recorded; auto:SHARE for a share of what the engine can do, measured first
    #[arg(long, value_name = "FACTOR", default_value = "1")]
    pub(super) time_scale: TimeScale,
    /// Steps a second at most, so that a load takes the same time on every machine that is fast enough
    #[arg(long, value_name = "STEPS", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(super) pace: Option<u16>,
    #[command(flatten)]
    pub(super) inject: InjectArgs,
    #[command(flatten)]
    pub(super) ask: AskArgs,
    /// The load ends and the model is unloaded so early; the process goes on
    #[arg(long, value_name = "SECONDS")]
    pub(super) unload_after: Option<u64>,
    /// How long it serves; for good where it is not said
    #[arg(long, value_name = "SECONDS")]
    pub(super) seconds: Option<u64>,
    /// Draws whatever is random
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Go through the pool's books after every step, and look at the end whether memory has returned
    #[arg(long)]
    pub(super) verify: bool,
    /// Keep a status file in this directory, where `probe.engine_dir` finds it
    #[arg(long, value_name = "DIR")]
    pub(super) status_dir: Option<PathBuf>,
    /// End when standard input does: for whoever starts it as a child
    #[arg(long)]
    pub(super) attached: bool,
    /// Print the report as JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// What is lost on purpose.
#[derive(Debug, Args)]
pub(crate) struct InjectArgs {
    /// Leak on purpose: forgotten-refs:REQUESTS, scratch:BYTES (a minute), per-request:BYTES, bursts:BYTES:SECONDS, doubling:BYTES:SECONDS, prefix-unbounded, not-released, host-ram:BYTES (a minute), orphan:BYTES
    #[arg(long, value_name = "LEAK")]
    pub(super) inject: Option<Leak>,
    /// The leak begins so late
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    inject_after: u64,
    /// No more is lost than this, and never more than half of what the machine can spare
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..))]
    inject_most_mib: Option<u64>,
}

impl InjectArgs {
    pub(super) fn injector(&self) -> Result<Option<Injector>, VramError> {
        let Some(leak) = self.inject else { return Ok(None) };
        let injector = Injector::new(leak, Duration::from_secs(self.inject_after))?;
        Ok(Some(match self.inject_most_mib {
            Some(most) => injector.at_most(Bytes::from_mib(most)),
            None => injector,
        }))
    }
}

/// A question to the model.
#[derive(Debug, Args)]
pub(crate) struct AskArgs {
    /// Go on from this text, print it all, and end
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["load", "listen", "inject", "verify"])]
    pub(super) prompt: Option<String>,
    /// With --prompt: the longest answer
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) max_tokens: u32,
    /// With --prompt: 0 for the likeliest token each time, above for a draw that --seed repeats
    #[arg(long, value_name = "T", default_value_t = 0.0, value_parser = temperature)]
    pub(super) temperature: f32,
}

impl EngineArgs {
    /// How requests are scheduled for a model of `context` tokens.
    pub(super) fn options(&self, context: usize) -> Options {
        let has = |strategy| self.strategy.contains(&strategy);
        let standard = Options::of_context(context);
        Options {
            running_max: usize::from(self.running),
            is_sharing: !self.no_sharing,
            window: self.window.map(|tokens| Window { tokens: tokens.max(1), sinks: self.sinks }),
            preemption: self.preempt.into(),
            batching: if has(Strategy::Static) { Batching::Static } else { Batching::Dynamic },
            placement: if has(Strategy::Contiguous) { Placement::Contiguous } else { Placement::Paged },
            is_audited: self.verify || standard.is_audited,
            ..standard
        }
    }
}

/// `--kv-format`
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum KvFormat {
    F32,
    F16,
    Int8,
    Fp8,
}

impl From<KvFormat> for Format {
    fn from(format: KvFormat) -> Self {
        match format {
            KvFormat::F32 => Self::F32,
            KvFormat::F16 => Self::F16,
            KvFormat::Int8 => Self::Int8,
            KvFormat::Fp8 => Self::Fp8,
        }
    }
}

/// `--strategy`
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Strategy {
    /// Blocks come as tokens do
    Paged,
    /// The whole context is taken at once
    Contiguous,
    /// Requests are admitted when there is room
    Dynamic,
    /// Requests are admitted when the whole batch before has ended
    Static,
}

/// `--preempt`
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Preempt {
    /// Compute it anew later
    Recompute,
    /// Keep it in host memory
    Swap,
    /// Keep it in a file on the host
    Offload,
}

impl From<Preempt> for Preemption {
    fn from(preempt: Preempt) -> Self {
        match preempt {
            Preempt::Recompute => Self::Recompute,
            Preempt::Swap => Self::Swap,
            Preempt::Offload => Self::Offload,
        }
    }
}

/// `--pool`
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum PoolMemory {
    /// A memory file named ebbtide-vram
    File,
    /// Anonymous memory with huge pages
    Anon,
}

impl From<PoolMemory> for Backing {
    fn from(pool: PoolMemory) -> Self {
        match pool {
            PoolMemory::File => Self::File,
            PoolMemory::Anon => Self::Anonymous,
        }
    }
}

/// `--load`
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum LoadChoice {
    Azure,
    AzureCode,
    Poisson(f64),
    Closed(usize),
    Script(PathBuf),
}

impl std::str::FromStr for LoadChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "expected azure, azure-code, poisson:RATE, closed:CLIENTS or script:FILE".to_owned();
        match text.split_once(':').unwrap_or((text, "")) {
            ("azure", "") => Ok(Self::Azure),
            ("azure-code", "") => Ok(Self::AzureCode),
            ("poisson", rate) => positive(rate).map(Self::Poisson).ok_or_else(wrong),
            ("closed", clients) => match clients.parse() {
                Ok(clients @ 1..=1024) => Ok(Self::Closed(clients)),
                _ => Err(wrong()),
            },
            ("script", file) if !file.is_empty() => Ok(Self::Script(file.into())),
            _ => Err(wrong()),
        }
    }
}

/// `--time-scale`
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum TimeScale {
    Factor(f64),
    Share(f64),
}

impl std::str::FromStr for TimeScale {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = match text.strip_prefix("auto:") {
            Some(share) => positive(share).map(Self::Share),
            None => positive(text).map(Self::Factor),
        };
        read.ok_or_else(|| "expected a factor above 0, or auto: and a share".to_owned())
    }
}

/// More than a machine has hardly help, and a number with a digit too many would start that many threads.
const THREADS_MAX: u16 = 256;

pub(crate) fn threads(text: &str) -> Result<NonZeroU16, String> {
    let read = text.parse().ok().filter(|threads: &NonZeroU16| threads.get() <= THREADS_MAX);
    read.ok_or_else(|| format!("expected a number from 1 to {THREADS_MAX}"))
}

fn temperature(text: &str) -> Result<f32, String> {
    let read = text.parse().ok().filter(|t: &f32| (0.0..=100.0).contains(t));
    read.ok_or_else(|| "expected a number from 0 to 100".to_owned())
}

fn positive(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0)
}

/// `key=value` pairs over the sizes of a small model.
fn geometry(text: &str) -> Result<Geometry, String> {
    let mut sizes = [
        ("layers", 4),
        ("heads", 4),
        ("kv_heads", 2),
        ("head_dim", 64),
        ("ffn", 512),
        ("hidden", 0),
        ("vocab", 256),
        ("context", 2048),
    ];
    for pair in text.split(',') {
        let (key, value) = pair.split_once('=').ok_or("expected KEY=NUMBER, apart by commas")?;
        let names = || sizes.map(|(name, _)| name).join(", ");
        let wrong = format!("{key} is none of {}", names());
        let size = sizes.iter_mut().find(|(name, _)| *name == key).ok_or(wrong)?;
        size.1 = value.parse().map_err(|_| format!("{key} is a number"))?;
    }
    let [layers, heads, kv_heads, head_dim, ffn, hidden, vocab, context] = sizes.map(|(_, size)| size);
    let hidden = if hidden == 0 { heads * head_dim } else { hidden };
    let geometry = Geometry {
        hidden,
        layers,
        heads,
        kv_heads,
        head_dim,
        ffn,
        vocab,
        context,
        rope_base: 10_000.0,
        rope_style: RopeStyle::Interleaved,
        rms_eps: 1e-5,
        tied: true,
    };
    geometry.check().map(|()| geometry).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_and_scales_are_read() {
        assert_eq!("poisson:2.5".parse(), Ok(LoadChoice::Poisson(2.5)));
        assert_eq!("closed:8".parse(), Ok(LoadChoice::Closed(8)));
        assert_eq!("script:a:b".parse(), Ok(LoadChoice::Script("a:b".into())));
        assert_eq!("auto:0.7".parse(), Ok(TimeScale::Share(0.7)));
        for wrong in ["", "azure:1", "poisson:0", "poisson:inf", "closed:0", "script:"] {
            assert!(wrong.parse::<LoadChoice>().is_err(), "{wrong}");
        }
        assert!("auto:-1".parse::<TimeScale>().is_err() && "nan".parse::<TimeScale>().is_err());
    }

    #[test]
    fn threads_are_counted_from_one() {
        assert_eq!(threads("2").map(NonZeroU16::get), Ok(2));
        for wrong in ["0", "-1", "257", "two"] {
            assert!(threads(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_are_read_over_those_of_a_small_model() {
        let read = geometry("layers=2,heads=8,kv_heads=8").unwrap();
        assert_eq!((read.layers, read.hidden, read.context), (2, 512, 2048));
        for wrong in ["layers", "layer=2", "layers=x", "kv_heads=3", "heads=0"] {
            assert!(geometry(wrong).is_err(), "{wrong}");
        }
    }
}
