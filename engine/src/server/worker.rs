//! The thread that computes: between two steps it takes orders, asks the load, leaks what is due, and tells figures.

use std::collections::HashMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ebbtide_core::Bytes;
use tokio::sync::mpsc::Sender;

use super::figures::Figures;
use super::notice::{Announced, Notice};
use crate::forward::Forward;
use crate::inject::{InjectError, Injector, Progress};
use crate::kv::{BLOCK_TOKENS, Pool, Token};
use crate::load::{Load, Texts, Trace};
use crate::scheduler::{Finish, Options, Refusal, Request, RequestId, Scheduler, SchedulerError, Step};
use crate::status::{StatusError, StatusFile};
use crate::vram::{Vram, VramError};

/// An idle worker looks up this often.
const IDLE: Duration = Duration::from_millis(50);

/// Somebody asks over HTTP.
#[derive(Debug)]
pub struct Order {
    /// What for.
    pub request: Request,
    /// Where the answer goes, with room for the whole of it: the worker waits for nobody.
    pub reply: Sender<Piece>,
}

/// A piece of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece {
    /// The next token.
    Token(Token),
    /// The end.
    End(Finish),
    /// There will be none.
    Refused(Refusal),
}

/// A service that cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// A step failed.
    #[error(transparent)]
    Scheduler(#[from] SchedulerError),
    /// A leak failed.
    #[error(transparent)]
    Inject(#[from] InjectError),
    /// The status file failed.
    #[error(transparent)]
    Status(#[from] StatusError),
    /// The kernel does not tell what is held.
    #[error(transparent)]
    Memory(#[from] VramError),
    /// The kernel counts something else than the pool.
    #[error("the pool counts {counted} of memory held and its owner {held}")]
    Held {
        /// By the pool.
        counted: Bytes,
        /// By the kernel.
        held: Bytes,
    },
}

/// What is served with what.
pub struct Service {
    /// The model.
    pub forward: Box<dyn Forward>,
    /// Its cache.
    pub pool: Pool,
    /// How requests are scheduled.
    pub options: Options,
    /// Bytes of the model's weights.
    pub weights: Bytes,
}

/// What an engine can do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Capacity {
    /// Requests a second, with the lengths of the load it was measured with.
    pub requests: f64,
    /// Tokens a second, of prompts and answers.
    pub tokens: f64,
}

/// Who waits for an answer.
#[derive(Debug)]
struct Asked {
    prompt: usize,
    reply: Option<Sender<Piece>>,
}

/// Steps begin `every` apart at least.
#[derive(Debug, Clone, Copy)]
struct Pace {
    every: Duration,
    /// The next one may begin then.
    next: Instant,
}

impl Pace {
    fn left(self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    /// A step begins: the next one is due an interval after this one was, or from now on where this one was late.
    fn begin_step(&mut self) {
        self.next = (self.next + self.every).max(Instant::now());
    }
}

/// The engine at work.
pub struct Worker {
    service: Service,
    scheduler: Scheduler,
    orders: Receiver<Order>,
    asked: HashMap<RequestId, Asked>,
    load: Option<(Load, Texts)>,
    injector: Option<Injector>,
    notice: Option<Notice>,
    /// What a device holds of the weights.
    weights: Option<Vram>,
    pace: Option<Pace>,
    shared: Arc<Mutex<Figures>>,
    figures: Figures,
    begun: Instant,
}

impl Worker {
    /// An idle engine that takes `orders`.
    #[must_use]
    pub fn new(service: Service, orders: Receiver<Order>) -> Self {
        let scheduler = Scheduler::new(service.options);
        let figures = Figures::of(&service.pool, service.weights);
        Self {
            service,
            scheduler,
            orders,
            asked: HashMap::new(),
            load: None,
            injector: None,
            notice: None,
            weights: None,
            pace: None,
            shared: Arc::new(Mutex::new(figures.clone())),
            figures,
            begun: Instant::now(),
        }
    }

    /// Its figures as of the last step, for another thread to look at.
    #[must_use]
    pub fn figures(&self) -> Arc<Mutex<Figures>> {
        Arc::clone(&self.shared)
    }

    /// Its cache.
    #[must_use]
    pub const fn pool(&self) -> &Pool {
        &self.service.pool
    }

    /// From now on `load` asks, and `injector` leaks; their time begins now.
    pub fn begin(&mut self, load: Option<(Load, Texts)>, injector: Option<Injector>) {
        (self.load, self.injector, self.begun) = (load, injector, Instant::now());
    }

    /// No more is asked by the load.
    pub fn end_load(&mut self) {
        self.load = None;
    }

    /// Keeps the status file of this process in `dir`, which a probe on host memory reads.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn tell_status_in(&mut self, dir: &Path) -> Result<(), ServiceError> {
        self.notice = Some(Notice::new(StatusFile::in_dir(dir)?));
        self.publish()
    }

    /// Takes as much memory as the weights have in a memory file of its own, as they would lie on a device; what is
    /// computed with lies in ordinary memory, which has huge pages.
    ///
    /// # Errors
    /// Where the memory is not to be had.
    pub fn hold_weights(&mut self) -> Result<(), ServiceError> {
        let mut vram = Vram::create()?;
        // To drop the extent is to hold it as long as the file. A device gives whole pages.
        self.figures.weights = vram.allocate(self.service.weights)?.bytes();
        self.weights = Some(vram);
        Ok(())
    }

    /// What the kernel counts for the weights; nothing where they are not held.
    ///
    /// # Errors
    /// Where it does not count.
    pub fn weights_held(&self) -> Result<Bytes, VramError> {
        self.weights.as_ref().map_or(Ok(Bytes::ZERO), Vram::allocated)
    }

    /// From now on a step begins `every` after the one before at the earliest, so that a load takes the same time on
    /// every machine that is fast enough for it.
    pub fn keep_pace(&mut self, every: Duration) {
        self.pace = Some(Pace { every, next: Instant::now() });
    }

    /// Whether nobody runs or waits.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.scheduler.is_idle()
    }

    /// One step where there is something to do, else a short wait; in the meantime everything that is due.
    ///
    /// # Errors
    /// Where the engine cannot go on.
    pub fn turn(&mut self) -> Result<(), ServiceError> {
        let elapsed = self.begun.elapsed();
        self.take_orders();
        self.ask(elapsed);
        if let Some(injector) = &self.injector {
            self.scheduler.forget_every(injector.forget_every(elapsed));
        }
        let mut progress = Progress { elapsed, ..Progress::default() };
        let pause = self.pace.map_or(Duration::ZERO, Pace::left);
        if self.scheduler.is_idle() || !pause.is_zero() {
            self.wait(elapsed, if pause.is_zero() { IDLE } else { pause.min(IDLE) });
        } else {
            let step = self.step()?;
            self.deliver(step, &mut progress)?;
            self.compare()?;
        }
        if let Some(injector) = &mut self.injector {
            injector.follow(progress)?;
        }
        self.publish()
    }

    fn step(&mut self) -> Result<Step, ServiceError> {
        let begun = Instant::now();
        self.pace.as_mut().map(Pace::begin_step);
        let Service { forward, pool, .. } = &mut self.service;
        let mut forward =
            Announced { forward: &mut **forward, notice: self.notice.as_mut(), figures: &self.figures };
        let step = self.scheduler.step(pool, &mut forward)?;
        self.figures.steps.count(begun.elapsed());
        Ok(step)
    }

    /// Gives up the weights and what is cached, as an engine does whose model is unloaded, unless the leak is about just that.
    ///
    /// # Errors
    /// Where figures cannot be told.
    pub fn unload(&mut self) -> Result<(), ServiceError> {
        Injector::unload(self.injector.as_mut(), &mut self.service.pool);
        self.weights = None;
        self.figures.weights = Bytes::ZERO;
        self.publish()
    }

    /// What it can do with the lengths of `trace` in a closed loop of as many as run at once: measured for `time` at
    /// least, and until every one of them has been answered several times or `time` is over four times. Afterwards
    /// it is as before, but for its counts.
    ///
    /// # Errors
    /// Where the engine cannot go on.
    pub fn measure(&mut self, trace: Trace, texts: Texts, time: Duration) -> Result<Capacity, ServiceError> {
        let clients = self.service.options.running_max;
        let load = Load::closed(clients, trace, self.service.options.context);
        self.begin(Some((load, texts)), None);
        let before = self.scheduler.counters();
        let enough = before.served + 8 * clients as u64;
        while self.begun.elapsed() < time
            || (self.scheduler.counters().served < enough && self.begun.elapsed() < 4 * time)
        {
            self.turn()?;
        }
        let (after, seconds) = (self.scheduler.counters(), self.begun.elapsed().as_secs_f64());
        self.end_load();
        while !self.is_idle() {
            self.turn()?;
        }
        self.service.pool.trim();
        let tokens = |c: crate::scheduler::Counters| (c.prompt_tokens + c.generated_tokens) as f64;
        let requests = (after.served - before.served) as f64 / seconds;
        Ok(Capacity { requests, tokens: (tokens(after) - tokens(before)) / seconds })
    }

    fn take_orders(&mut self) {
        loop {
            match self.orders.try_recv() {
                Ok(order) => self.submit(order.request, Some(order.reply)),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return,
            }
        }
    }

    fn ask(&mut self, elapsed: Duration) {
        let outstanding = self.scheduler.running() + self.scheduler.waiting();
        let Some((load, texts)) = &mut self.load else { return };
        let requests: Vec<Request> =
            load.due(elapsed, outstanding).into_iter().map(|arrival| texts.request(arrival)).collect();
        requests.into_iter().for_each(|request| self.submit(request, None));
    }

    fn submit(&mut self, request: Request, reply: Option<Sender<Piece>>) {
        let prompt = request.prompt.len();
        match self.scheduler.submit(request) {
            Ok(id) => {
                self.asked.insert(id, Asked { prompt, reply });
            }
            Err(refusal) => {
                self.figures.refused += 1;
                // Whoever has gone away need not know.
                let _ = reply.map(|reply| reply.try_send(Piece::Refused(refusal)));
            }
        }
    }

    /// Waits for an order, `longest` at most and not beyond what the load asks next.
    fn wait(&mut self, elapsed: Duration, longest: Duration) {
        let outstanding = self.scheduler.running() + self.scheduler.waiting();
        let next = self.load.as_ref().and_then(|(load, _)| load.next_at(outstanding));
        let time = next.map_or(longest, |at| at.saturating_sub(elapsed).min(longest));
        match self.orders.recv_timeout(time) {
            Ok(order) => self.submit(order.request, Some(order.reply)),
            Err(RecvTimeoutError::Timeout) => {}
            // Nobody will ever order; only the load's time passes.
            Err(RecvTimeoutError::Disconnected) => std::thread::park_timeout(time),
        }
    }

    /// Sends what a step brought to those who asked; who has gone away is given up.
    fn deliver(&mut self, step: Step, progress: &mut Progress) -> Result<(), ServiceError> {
        for (id, token) in step.tokens {
            let reply = self.asked.get(&id).and_then(|asked| asked.reply.as_ref());
            if reply.is_some_and(|reply| reply.try_send(Piece::Token(token)).is_err()) {
                self.asked.remove(&id);
                self.scheduler.cancel(&mut self.service.pool, id)?;
            }
        }
        for (id, finish) in step.finished {
            let Some(asked) = self.asked.remove(&id) else { continue };
            progress.requests += 1;
            let blocks = (asked.prompt / BLOCK_TOKENS) as u64;
            progress.prefixes = progress.prefixes.saturating_add(Bytes(blocks * self.figures.block.0));
            let _ = asked.reply.map(|reply| reply.try_send(Piece::End(finish)));
        }
        Ok(())
    }

    /// Where books are gone through, the memory's owner is asked too.
    fn compare(&mut self) -> Result<(), ServiceError> {
        if self.service.options.is_audited {
            let (counted, held) = (self.service.pool.usage().held, self.service.pool.memory_held()?);
            if counted != held {
                return Err(ServiceError::Held { counted, held });
            }
            self.figures.audits += 1;
        }
        Ok(())
    }

    fn publish(&mut self) -> Result<(), ServiceError> {
        let leak =
            self.injector.as_ref().map(|injector| (injector.leak(), injector.leaked(&self.service.pool)));
        self.figures.follow(&self.service.pool, &self.scheduler, leak);
        self.figures.clone_into(&mut self.shared.lock().unwrap_or_else(PoisonError::into_inner));
        match &mut self.notice {
            Some(notice) => Ok(notice.tell(self.figures.load(&self.figures.usage))?),
            None => Ok(()),
        }
    }
}
