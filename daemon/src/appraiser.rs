//! What the planner knows of the models that engines serve: bytes where an engine counts blocks and tokens, and its
//! weights.
//!
//! A model's files may lie on a disk that hangs, so they are read on a thread that nobody waits for: until it has
//! answered, and where it finds nothing, a sample stays as it was read.

mod estimate;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ebbtide_core::{EngineReport, EngineSample, GpuUuid, ProcKey, ProcSample, Sample};
use ebbtide_probe::engine::watch::MAX_TARGETS;

use crate::running::{self, Running};

/// Models that wait to be looked up: one for each engine that can be watched. What does not fit is asked for again
/// with the next sample.
const QUESTIONS: usize = MAX_TARGETS;
/// A header's reader needs little stack.
const STACK: usize = 512 << 10;

/// Which model is asked for: what a process serves. Another name from the same process is another model.
type Question = (ProcKey, Option<String>);

/// What has been found so far; `None` where the model is not known.
type Answers = Arc<Mutex<BTreeMap<Question, Option<Arc<Running>>>>>;

/// Completes samples with what is known of the models.
#[derive(Debug)]
pub(crate) struct Appraiser {
    answers: Answers,
    asked: BTreeSet<Question>,
    /// Its thread ends when this is dropped, once it has finished what it reads.
    ask: SyncSender<Question>,
}

impl Appraiser {
    /// An appraiser of the processes under `proc`. Where no thread can be had it completes nothing.
    pub(crate) fn start(proc: PathBuf) -> Self {
        let (ask, questions) = mpsc::sync_channel::<Question>(QUESTIONS);
        let answers = Answers::default();
        let found = Arc::clone(&answers);
        let look_up = move || {
            for question in questions {
                let known = running::in_proc(&proc, question.0, question.1.as_deref()).map(Arc::new);
                lock(&found).insert(question, known);
            }
        };
        let thread = std::thread::Builder::new().name("models".to_owned()).stack_size(STACK).spawn(look_up);
        if let Err(error) = thread {
            tracing::warn!(%error, "no thread for looking up models: engines' blocks stay blocks");
        }
        Self { answers, asked: BTreeSet::new(), ask }
    }

    /// Completes the engines of a sample.
    pub(crate) fn complete(&mut self, sample: &mut Sample) {
        let parts = Parts::of(sample);
        let mut present = BTreeSet::new();
        let lists = sample.gpus.iter_mut().filter_map(|gpu| gpu.processes.as_mut().ok());
        for process in lists.flat_map(|list| &mut list.entries) {
            let Some((key, engine, report)) = reported(process) else { continue };
            let question = (key, report.model.clone().ok());
            let parts = parts.of_engine(&report.address);
            if let Some(known) = self.answer(&question) {
                estimate::complete(engine, &known, parts);
            }
            present.insert(question);
        }
        if self.asked != present {
            self.asked.retain(|question| present.contains(question));
            lock(&self.answers).retain(|question, _| present.contains(question));
        }
    }

    /// What is known, asking for it the first time.
    fn answer(&mut self, question: &Question) -> Option<Arc<Running>> {
        if let Some(answer) = lock(&self.answers).get(question) {
            return answer.clone();
        }
        if !self.asked.contains(question) && self.ask.try_send(question.clone()).is_ok() {
            self.asked.insert(question.clone());
        }
        None
    }
}

fn lock(answers: &Answers) -> MutexGuard<'_, BTreeMap<Question, Option<Arc<Running>>>> {
    // Each change is one insertion, so what a panic left is whole.
    answers.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The engine of a process and what it reports.
fn reported(process: &mut ProcSample) -> Option<(ProcKey, &mut EngineSample, Arc<EngineReport>)> {
    let key = process.key;
    let engine = process.engine.as_mut()?;
    let report = engine.report.clone()?;
    Some((key, engine, report))
}

/// In how many parts each engine runs: its processes, and the GPUs they are on.
#[derive(Debug, Default)]
struct Parts(BTreeMap<String, (BTreeSet<ProcKey>, BTreeSet<GpuUuid>)>);

impl Parts {
    fn of(sample: &Sample) -> Self {
        let mut parts = Self::default();
        for gpu in &sample.gpus {
            let entries = gpu.processes.as_ref().map_or(&[][..], |list| &list.entries);
            for process in entries {
                let report = process.engine.as_ref().and_then(|engine| engine.report.as_ref());
                let Some(report) = report else { continue };
                let (processes, gpus) = parts.0.entry(report.address.clone()).or_default();
                processes.insert(process.key);
                gpus.insert(gpu.uuid.clone());
            }
        }
        parts
    }

    fn of_engine(&self, address: &str) -> running::Parts {
        let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        self.0.get(address).map_or(running::Parts { processes: 1, gpus: 1 }, |(processes, gpus)| {
            running::Parts { processes: count(processes.len()), gpus: count(gpus.len()) }
        })
    }
}

#[cfg(test)]
mod tests;
