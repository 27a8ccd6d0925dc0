//! Who waits, and whose turn it is.

use std::collections::{BTreeMap, VecDeque};

use super::request::{ClientId, Job, RequestId};
use crate::kv::{SequenceId, Swapped};

/// What is left of a sequence that gave way.
#[derive(Debug)]
pub(super) enum Remains {
    /// Nothing: it is computed anew.
    None,
    /// Its blocks, in host memory, with so many tokens.
    Swapped(Box<Swapped>),
    /// Its table, with blocks in the host file.
    Offloaded(SequenceId),
}

/// A request that gave way.
#[derive(Debug)]
pub(super) struct Parked {
    pub(super) job: Job,
    pub(super) remains: Remains,
    /// Tokens whose keys and values remain.
    pub(super) done: usize,
}

/// Those that gave way, oldest first, and behind them a line for each client.
#[derive(Debug, Default)]
pub(super) struct Queue {
    parked: BTreeMap<RequestId, Parked>,
    /// The client whose turn it is first; none is empty.
    lines: VecDeque<(ClientId, VecDeque<Job>)>,
    fresh: usize,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.fresh + self.parked.len()
    }

    pub(super) fn push(&mut self, job: Job) {
        self.fresh += 1;
        match self.lines.iter_mut().find(|(client, _)| *client == job.client) {
            Some((_, line)) => line.push_back(job),
            None => self.lines.push_back((job.client, VecDeque::from([job]))),
        }
    }

    pub(super) fn park(&mut self, parked: Parked) {
        self.parked.insert(parked.job.id, parked);
    }

    /// Takes out whose turn it is. Who is not admitted after all goes back by [`Self::park`] or [`Self::put_back`].
    pub(super) fn pop_parked(&mut self) -> Option<Parked> {
        self.parked.pop_first().map(|(_, parked)| parked)
    }

    /// Whose turn it is among those that never ran.
    pub(super) fn head(&self) -> Option<&Job> {
        self.lines.front()?.1.front()
    }

    /// Takes [`Self::head`] out; its client's next turn comes after all others'.
    pub(super) fn pop_head(&mut self) -> Option<Job> {
        let (client, mut line) = self.lines.pop_front()?;
        let job = line.pop_front();
        if !line.is_empty() {
            self.lines.push_back((client, line));
        }
        self.fresh -= usize::from(job.is_some());
        job
    }

    /// Takes a request out; the sequence that it still holds.
    pub(super) fn remove(&mut self, id: RequestId) -> Option<Option<SequenceId>> {
        if let Some(parked) = self.parked.remove(&id) {
            return Some(match parked.remains {
                Remains::Offloaded(sequence) => Some(sequence),
                Remains::None | Remains::Swapped(_) => None,
            });
        }
        for index in 0..self.lines.len() {
            let line = &mut self.lines[index].1;
            if let Some(place) = line.iter().position(|job| job.id == id) {
                line.remove(place);
                self.fresh -= 1;
                if line.is_empty() {
                    self.lines.remove(index);
                }
                return Some(None);
            }
        }
        None
    }

    /// Makes all that wait with blocks of their own forget them; their sequences.
    pub(super) fn give_up_offloaded(&mut self) -> Vec<SequenceId> {
        let offloaded = self.parked.values_mut().filter_map(|parked| match parked.remains {
            Remains::Offloaded(sequence) => {
                (parked.remains, parked.done) = (Remains::None, 0);
                Some(sequence)
            }
            Remains::None | Remains::Swapped(_) => None,
        });
        offloaded.collect()
    }
}
