//! The questions that people ask about video memory, answered in one line each from a [`Status`] alone.
//!
//! The ten are those asked most in the trackers of inference engines. An answer says what is read, marks what is only
//! computed with `~`, and says so where something cannot be known. Nothing here reads, waits or looks at a clock.

mod questions;
mod scene;
mod split;
mod words;

use std::fmt;

use ebbtide_core::{GpuUuid, ProcKey};
use serde::{Deserialize, Serialize};

use crate::wire::Status;
use scene::Scene;

/// Whose memory is asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum About {
    /// All of a GPU's.
    Gpu(GpuUuid),
    /// That of one process on a GPU.
    Process(GpuUuid, ProcKey),
}

/// What can be said of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// Whose memory it is about.
    pub title: String,
    /// What the memory is for, a line for each owner or part.
    pub split: Vec<String>,
    /// The questions and their answers, in the order in which they are asked most.
    pub answers: Vec<Answer>,
    /// What nobody can know from outside, or not as things stand, and what would open it.
    pub unknown: Vec<String>,
}

/// One question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// One word for it, which stays the same: `reserved`, `kept`, `growing`, `unseen`, `dead`, `released`, `fuller`,
    /// `headroom`, `climbs`, `host`.
    pub topic: String,
    /// As a person would ask it.
    pub question: String,
    /// In one line.
    pub answer: String,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title)?;
        self.split.iter().try_for_each(|line| writeln!(f, "  {line}"))?;
        self.answers.iter().try_for_each(|a| writeln!(f, "\n{}\n  {}", a.question, a.answer))?;
        if !self.unknown.is_empty() {
            writeln!(f, "\nNot known:")?;
        }
        self.unknown.iter().try_for_each(|line| writeln!(f, "  {line}"))
    }
}

/// Explains the memory of a GPU or a process; `None` where the status does not have it.
#[must_use]
pub fn explain(status: &Status, about: &About) -> Option<Explanation> {
    let scene = Scene::of(status, about)?;
    Some(Explanation {
        title: scene.title(),
        split: split::lines(&scene),
        answers: questions::all(&scene),
        unknown: split::unknown(&scene),
    })
}

/// What `asked` names in a status: a GPU by its number or UUID, else a process by its number, on each GPU that lists
/// it. Empty where nothing is called so.
#[must_use]
pub fn named(status: &Status, asked: &str) -> Vec<About> {
    let number = asked.parse::<u32>().ok();
    let is_asked =
        |gpu: &crate::wire::GpuStatus| Some(gpu.gpu.index) == number || gpu.gpu.uuid.as_str() == asked;
    if let Some(gpu) = status.gpus.iter().find(|gpu| is_asked(gpu)) {
        return vec![About::Gpu(gpu.gpu.uuid.clone())];
    }
    let of_gpu = |gpu: &crate::wire::GpuStatus| {
        let entries = gpu.gpu.processes.as_ref().map_or(&[][..], |list| &list.entries);
        let found = entries.iter().find(|process| Some(process.key.pid) == number);
        found.map(|process| About::Process(gpu.gpu.uuid.clone(), process.key))
    };
    status.gpus.iter().filter_map(of_gpu).collect()
}

#[cfg(test)]
pub(crate) mod tests;
