//! Threads that help the one that computes. They sleep between two pieces of work and never spin: on a machine that
//! is busy with something else, threads that wait for each other by spinning bring everything to a halt.

use std::any::Any;
use std::io;
use std::num::NonZeroU16;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// The calling thread and those that help it.
///
/// Work is split into parts that are taken one by one, so that a helper that wakes late finds less to do and nobody
/// waits for one that has not begun.
#[derive(Debug)]
pub struct Crew {
    shared: Arc<Shared>,
    helpers: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// There is work, or it is over.
    begun: Condvar,
    /// Nobody is busy any more.
    ended: Condvar,
}

#[derive(Default)]
struct State {
    /// What helpers may begin; taken back before [`Crew::run`] returns.
    work: Option<&'static (dyn Fn(usize) + Sync)>,
    /// Counts works, so that no helper begins one twice.
    round: u64,
    /// Helpers that have begun and not ended.
    busy: usize,
    panic: Option<Box<dyn Any + Send>>,
    is_over: bool,
}

impl Shared {
    /// A helper that panics does so outside of the lock, so what it guards is always whole.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Crew {
    /// `threads` in all, the caller's included: 1 starts none.
    ///
    /// # Errors
    /// Where the system starts no more threads.
    pub fn new(threads: NonZeroU16) -> io::Result<Self> {
        // From here on those that were started are ended when a later one cannot be.
        let mut crew = Self { shared: Arc::default(), helpers: Vec::new() };
        for index in 1..usize::from(threads.get()) {
            let shared = Arc::clone(&crew.shared);
            let thread = std::thread::Builder::new().name(format!("kernels-{index}"));
            crew.helpers.push(thread.spawn(move || help(&shared, index))?);
        }
        Ok(crew)
    }

    /// How many, the caller's thread included.
    #[must_use]
    pub const fn threads(&self) -> usize {
        self.helpers.len() + 1
    }

    /// Does `work` for each of `parts`, on whichever thread comes to it first. `work` is told which thread it is on,
    /// from 0.
    ///
    /// # Panics
    /// Where `work` does.
    pub(crate) fn share<T>(&mut self, parts: impl Iterator<Item = T> + Send, work: impl Fn(usize, T) + Sync) {
        if self.helpers.is_empty() {
            parts.for_each(|part| work(0, part));
            return;
        }
        let parts = Mutex::new(parts);
        // A part is taken in a statement of its own, so that the lock is free while the work is done.
        let next = || parts.lock().unwrap_or_else(PoisonError::into_inner).next();
        self.run(&|thread| {
            while let Some(part) = next() {
                work(thread, part);
            }
        });
    }

    /// Runs `work` here and on each helper that wakes before it ends here.
    fn run(&mut self, work: &(dyn Fn(usize) + Sync)) {
        // SAFETY: helpers find `work` only in `State::work`, and count as busy from then until they have let go of
        // it. `Recall` takes it back and waits for them before `run` returns or unwinds, and `&mut self` keeps a
        // second `run` away; so nobody uses it after its real lifetime.
        let work: &'static (dyn Fn(usize) + Sync) = unsafe { std::mem::transmute(work) };
        {
            let mut state = self.shared.lock();
            state.work = Some(work);
            state.round += 1;
        }
        self.shared.begun.notify_all();
        let recall = Recall(&self.shared);
        work(0);
        drop(recall);
        let panic = self.shared.lock().panic.take();
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }
}

/// Takes the work back from helpers that have not begun, and waits for those that have.
struct Recall<'a>(&'a Shared);

impl Drop for Recall<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.work = None;
        while state.busy > 0 {
            state = self.0.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.begun.notify_all();
        for helper in self.helpers.drain(..) {
            // What a helper panicked with was told by `run`.
            let _ = helper.join();
        }
    }
}

/// What a helper does until it is over.
fn help(shared: &Shared, index: usize) {
    let mut seen = 0;
    let mut state = shared.lock();
    while !state.is_over {
        match state.work.filter(|_| state.round != seen) {
            Some(work) => {
                seen = state.round;
                state.busy += 1;
                drop(state);
                let outcome = catch_unwind(AssertUnwindSafe(|| work(index)));
                state = shared.lock();
                state.busy -= 1;
                state.panic = outcome.err().or_else(|| state.panic.take());
                if state.busy == 0 {
                    shared.ended.notify_one();
                }
            }
            None => state = shared.begun.wait(state).unwrap_or_else(PoisonError::into_inner),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn crew(threads: u16) -> Crew {
        Crew::new(NonZeroU16::new(threads).unwrap()).unwrap()
    }

    #[test]
    fn every_part_is_done_once_and_before_it_returns() {
        for threads in 1..5 {
            let mut crew = crew(threads);
            assert_eq!(crew.threads(), usize::from(threads));
            for round in 0..if cfg!(miri) { 4 } else { 200 } {
                let mut done = vec![0; round];
                crew.share(done.iter_mut().enumerate(), |_, (index, done)| *done += index + 1);
                assert!(done.iter().enumerate().all(|(index, done)| *done == index + 1), "{done:?}");
            }
        }
    }

    #[test]
    fn parts_run_at_once_on_threads_of_their_own() {
        let (mut crew, met, threads) = (crew(3), Barrier::new(3), Mutex::new(HashSet::new()));
        crew.share(0..3, |thread, _| {
            // Opens only when all three are here.
            met.wait();
            threads.lock().unwrap().insert(thread);
        });
        assert_eq!(threads.into_inner().unwrap(), HashSet::from([0, 1, 2]));
    }

    #[test]
    fn a_panic_anywhere_reaches_the_caller_and_the_crew_goes_on() {
        let mut crew = crew(2);
        for culprit in 0..2 {
            let met = Barrier::new(2);
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                crew.share(0..2, |thread, _: i32| {
                    met.wait();
                    assert_ne!(thread, culprit, "the culprit");
                });
            }));
            assert!(outcome.is_err(), "thread {culprit}");
            let sum = AtomicUsize::new(0);
            crew.share(0..100, |_, part| _ = sum.fetch_add(part, Ordering::Relaxed));
            assert_eq!(sum.into_inner(), 4950);
        }
    }
}
