//! `ebbtide engine`: the embedded workload, a process of its own so that its memory is measured like anybody's.

mod answer;
mod args;
mod report;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::Context;
use ebbtide_core::Bytes;
use ebbtide_engine::forward::{Forward, Options as Computing, Transformer};
use ebbtide_engine::kv::{BLOCK_TOKENS, Backing, Format, HostFile, HostMemory, Layout, Pool, PoolOptions};
use ebbtide_engine::load::{Load, Texts, Trace};
use ebbtide_engine::model::{self, Loaded, Tokenizer};
use ebbtide_engine::scheduler::{Options, Placement};
use ebbtide_engine::server::{Face, Identity, ORDERS_MAX, Order, Service, Worker};
use ebbtide_engine::stop;

pub(crate) use args::{EngineArgs, threads};
use args::{LoadChoice, TimeScale};
use report::Report;

use crate::output;

/// Capacity is measured for so long at least: several generations of requests on the bundled model.
const MEASURE: Duration = Duration::from_secs(5);
/// Requests that wait or run at the end have so long to be answered: a full queue takes minutes on a busy machine.
const DRAIN: Duration = Duration::from_secs(600);

/// A model ready to serve.
struct Ready {
    name: String,
    transformer: Transformer,
    text: Arc<dyn Tokenizer>,
}

pub(crate) fn run(args: &EngineArgs) -> anyhow::Result<u8> {
    if let Some(prompt) = &args.ask.prompt {
        return answer::run(args, prompt);
    }
    let (orders, received) = sync_channel(ORDERS_MAX);
    let ready = model(args)?;
    let identity = identity(args, &ready);
    let mut worker = Worker::new(service(args, ready.transformer)?, received);
    let face = face(args, &identity, orders, &worker)?;
    // Whoever finds the memory finds an engine that explains it.
    if let Some(dir) = &args.status_dir {
        worker.tell_status_in(dir)?;
    }
    if matches!(args.pool, args::PoolMemory::File) {
        worker.hold_weights()?;
    }
    let stop = args.attached.then(|| stop::at_end_of(std::io::stdin()));
    let mut report = Report::new();
    let load = load(args, &identity, &mut worker, &mut report)?;
    let injector = args.inject.injector()?;
    if !args.json {
        let address = face.as_ref().map(Face::address);
        output::text(&report.opening(&identity, address, load.as_ref().map(|(load, _)| load)))?;
    }
    if let Some(steps) = args.pace {
        worker.keep_pace(Duration::from_secs(1) / u32::from(steps));
    }
    report.begin();
    worker.begin(load, injector);
    serve(args, &mut worker, stop.as_ref())?;
    report.end(&mut worker, args.verify && args.inject.inject.is_none())?;
    if args.json {
        output::json(&report)?;
    } else {
        output::text(&report.text())?;
    }
    Ok(u8::from(!report.is_sound()))
}

/// Serves until its time is over or whoever started it has gone, and answers what is under way.
fn serve(args: &EngineArgs, worker: &mut Worker, stop: Option<&Receiver<()>>) -> anyhow::Result<()> {
    let begun = Instant::now();
    let over = |seconds: Option<u64>| seconds.is_some_and(|seconds| begun.elapsed().as_secs() >= seconds);
    let is_stopped = || stop.is_some_and(|stop| stop.try_recv() != Err(TryRecvError::Empty));
    let mut is_loaded = true;
    while !over(args.seconds) && !is_stopped() {
        worker.turn()?;
        if is_loaded && over(args.unload_after) {
            worker.end_load();
            if worker.is_idle() {
                worker.unload()?;
                is_loaded = false;
            }
        }
    }
    worker.end_load();
    let ending = Instant::now();
    while !worker.is_idle() && ending.elapsed() < DRAIN && !is_stopped() {
        worker.turn()?;
    }
    Ok(())
}

fn model(args: &EngineArgs) -> anyhow::Result<Ready> {
    let computing = Computing { threads: args.threads, ..Computing::from_environment()? };
    let (name, Loaded { weights, tokenizer }) = match (&args.geometry, &args.model) {
        (None, None) => ("tiny".to_owned(), model::bundled()?),
        (None, Some(path)) => (name(path), model::open(path)?),
        (Some(geometry), _) => {
            let weights = Box::new(model::synthetic(geometry.clone(), args.seed)?);
            ("random weights".to_owned(), Loaded { weights, tokenizer: Box::new(model::Bytes) })
        }
    };
    let transformer = Transformer::load(&*weights, computing)?;
    Ok(Ready { name, transformer, text: tokenizer.into() })
}

/// A model is called as its file is.
fn name(path: &Path) -> String {
    path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

fn identity(args: &EngineArgs, ready: &Ready) -> Identity {
    let geometry = ready.transformer.geometry();
    let format: Format = args.kv_format.into();
    let options = args.options(geometry.context);
    Identity {
        model: ready.name.clone(),
        kv_format: format.name(),
        strategy: strategy(&options),
        vocab: geometry.vocab,
        context: geometry.context,
        text: Arc::clone(&ready.text),
    }
}

/// How an engine works, in a few words.
fn strategy(options: &Options) -> String {
    let mut words = format!("{:?} {:?}", options.placement, options.batching).to_lowercase();
    if options.is_sharing && options.placement == Placement::Paged {
        words.push_str(" sharing");
    }
    if let Some(window) = options.window {
        words.push_str(&format!(" window {}+{}", window.sinks, window.tokens));
    }
    words + &format!(" {:?}", options.preemption).to_lowercase()
}

fn service(args: &EngineArgs, transformer: Transformer) -> anyhow::Result<Service> {
    let geometry = transformer.geometry();
    let options = args.options(geometry.context);
    let backing: Backing = args.pool.into();
    let mut layout = Layout::new(geometry.kv(), args.kv_format.into(), backing.granule())?;
    if options.placement == Placement::Contiguous {
        let blocks = geometry.context.div_ceil(BLOCK_TOKENS);
        layout = layout.with_extent(blocks, backing.granule());
    }
    let blocks = |mib: u32| {
        let blocks = Bytes::from_mib(u64::from(mib)).0 / layout.block_bytes() as u64;
        u32::try_from(blocks).unwrap_or(u32::MAX)
    };
    let capacity = PoolOptions::with_capacity(blocks(args.pool_mib).max(1));
    let mut pool = Pool::new(layout, capacity, |bytes| HostMemory::reserve(bytes, backing))?;
    if matches!(args.preempt, args::Preempt::Offload) {
        pool = pool.with_host_file(HostFile::create_in(&std::env::temp_dir(), blocks(args.offload_mib))?);
    }
    let weights = Bytes(transformer.weight_bytes() as u64);
    Ok(Service { forward: Box::new(transformer), pool, options, weights })
}

fn face(
    args: &EngineArgs,
    identity: &Identity,
    orders: SyncSender<Order>,
    worker: &Worker,
) -> anyhow::Result<Option<Face>> {
    let Some(address) = args.listen else { return Ok(None) };
    Ok(Some(Face::start(address, identity.clone(), orders, worker.figures())?))
}

/// The load that was asked for, at its pace; where that is a share of what the engine can do, that is measured.
fn load(
    args: &EngineArgs,
    identity: &Identity,
    worker: &mut Worker,
    report: &mut Report,
) -> anyhow::Result<Option<(Load, Texts)>> {
    let Some(choice) = &args.load else { return Ok(None) };
    let context = identity.context;
    let texts = Texts::new(identity.vocab, context, args.seed);
    let trace = if *choice == LoadChoice::AzureCode { Trace::Code } else { Trace::Chat };
    let scale = match args.time_scale {
        TimeScale::Factor(factor) => factor,
        TimeScale::Share(share) => {
            let capacity = worker.measure(trace, texts.clone(), MEASURE)?;
            report.measured(capacity);
            let natural = of_choice(choice, 1.0, context, args.seed)?.rate().unwrap_or(capacity.requests);
            share * capacity.requests / natural
        }
    };
    report.time_scale = scale;
    Ok(Some((of_choice(choice, scale, context, args.seed)?, texts)))
}

fn of_choice(choice: &LoadChoice, scale: f64, context: usize, seed: u64) -> anyhow::Result<Load> {
    Ok(match choice {
        LoadChoice::Azure => Load::replay(Trace::Chat, scale, context),
        LoadChoice::AzureCode => Load::replay(Trace::Code, scale, context),
        LoadChoice::Poisson(rate) => Load::poisson(rate * scale, Trace::Chat, context, seed),
        LoadChoice::Closed(clients) => Load::closed(*clients, Trace::Chat, context),
        LoadChoice::Script(path) => Load::script(&script(path)?, scale, context)?,
    })
}

fn script(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("reading the load script {}", path.display()))
}
