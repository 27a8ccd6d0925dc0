//! Where the figures of the engine in a process come from: a status file it keeps, or what it says over HTTP.

use ebbtide_core::{EngineSample, GpuSample, Liveness, ProcKey, Tick};

use super::watch::EngineWatch;
use crate::engine_status::EngineStatusDir;

/// All sources of engine figures; by default none.
#[derive(Debug, Default)]
pub(crate) struct EngineSource {
    /// Engines that keep a file, which is nearer than asking.
    pub(crate) files: Option<EngineStatusDir>,
    /// Engines that are asked.
    pub(crate) watch: Option<EngineWatch>,
}

impl EngineSource {
    /// What the engine in process `key` says; `None` where none is known.
    pub(crate) fn read(&mut self, key: ProcKey, tick: Tick) -> Option<EngineSample> {
        let from_file = self.files.as_mut().and_then(|files| files.read(key, tick));
        from_file.or_else(|| self.watch.as_ref()?.read(key))
    }

    /// Says which processes are on `gpus`, so that engines are looked for among them.
    pub(crate) fn set_gpus(&self, gpus: &[GpuSample]) {
        let Some(watch) = &self.watch else { return };
        let lists = gpus.iter().filter_map(|gpu| gpu.processes.as_ref().ok());
        let alive = lists.flat_map(|list| &list.entries).filter(|entry| entry.liveness == Liveness::Alive);
        watch.set_holders(alive.map(|entry| entry.key).collect());
    }

    /// What is wrong with the engines that are asked, one line each.
    pub(crate) fn notes(&self) -> Vec<String> {
        self.watch.as_ref().map_or_else(Vec::new, EngineWatch::notes)
    }
}
