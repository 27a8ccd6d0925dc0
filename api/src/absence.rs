//! Why readings are NULL.
//!
//! A reading without a value is NULL on the wire, so that a script cannot take it for a number. The reason goes beside
//! the status, as `absent`: from the JSON pointer of a NULL to the reason. Who does not know of it reads on as before,
//! and a NULL without an entry has not been read yet.

use std::collections::BTreeMap;

use ebbtide_core::{
    Absent, DeviceMemory, EngineLedger, EngineSample, GpuSample, HostSample, Ledger, ProcSample, Reading,
};
use serde::{Deserialize, Serialize};

use crate::wire::Status;

/// A status as it leaves, with the reasons of its absences.
#[derive(Debug, Serialize)]
pub struct Reasoned<'a> {
    #[serde(flatten)]
    status: &'a Status,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    absent: BTreeMap<String, Absent>,
}

/// What is read beside a status.
#[derive(Debug, Default, Deserialize)]
struct Reasons {
    #[serde(default)]
    absent: BTreeMap<String, Absent>,
}

impl<'a> Reasoned<'a> {
    /// The status and why what it lacks is absent.
    #[must_use]
    pub fn of(status: &'a Status) -> Self {
        let mut absent = BTreeMap::new();
        let mut copy = status.clone();
        each_reading(&mut copy, &mut |pointer, reading| {
            // NULL alone says this much.
            absent.extend(
                reading.why().filter(|why| *why != Absent::NotYet).map(|why| (pointer.to_owned(), why)),
            );
        });
        Self { status, absent }
    }
}

/// Reads a status, and why what it lacks is absent.
///
/// # Errors
/// It is none of this version's.
pub fn parse(json: &[u8]) -> Result<Status, serde_json::Error> {
    let mut status = serde_json::from_slice(json)?;
    let Reasons { absent } = serde_json::from_slice(json)?;
    if !absent.is_empty() {
        each_reading(&mut status, &mut |pointer, reading| {
            if let Some(&why) = absent.get(pointer) {
                reading.explain(why);
            }
        });
    }
    Ok(status)
}

/// A reading, whatever it reads.
trait Slot {
    /// Why it has no value.
    fn why(&self) -> Option<Absent>;
    /// Gives the reason of an absence another one; a value stays.
    fn explain(&mut self, why: Absent);
}

impl<T> Slot for Reading<T> {
    fn why(&self) -> Option<Absent> {
        self.as_ref().err().copied()
    }

    fn explain(&mut self, why: Absent) {
        if let Err(absent) = self {
            *absent = why;
        }
    }
}

type Visit<'v> = dyn FnMut(&str, &mut dyn Slot) + 'v;

/// Visits the named readings of a struct. All of its fields are named, behind `beside` those that hold no reading or are
/// visited otherwise: a field that is added to it is either named here too, or this does not compile.
macro_rules! visit_each {
    ($visit:expr, $at:expr, $of:expr => $name:ident { $($reading:ident),+ } beside { $($rest:ident),* }) => {
        let $name { $($reading,)+ $($rest: _,)* } = $of;
        $($visit(&format!("{}/{}", $at, stringify!($reading)), $reading);)+
    };
}

/// Calls `visit` with each reading that can change from tick to tick and its JSON pointer.
fn each_reading(status: &mut Status, visit: &mut Visit<'_>) {
    visit_each!(visit, "/machine", &mut status.machine => HostSample { total, available } beside {});
    for (place, gpu) in status.gpus.iter_mut().enumerate() {
        let at = format!("/gpus/{place}");
        of_gpu(&at, &mut gpu.gpu, visit);
        of_ledger(&format!("{at}/ledger"), &mut gpu.ledger, visit);
    }
}

fn of_gpu(at: &str, gpu: &mut GpuSample, visit: &mut Visit<'_>) {
    visit_each!(visit, at, &mut *gpu => GpuSample { memory, utilization, processes }
        beside { uuid, index, name, kind, state, holders });
    if let Ok(memory) = &mut gpu.memory {
        visit_each!(visit, format!("{at}/memory"), memory => DeviceMemory { reserved }
            beside { total, used, free, source });
    }
    let entries = gpu.processes.as_mut().map_or(&mut [][..], |list| &mut list.entries);
    for (place, process) in entries.iter_mut().enumerate() {
        of_process(&format!("{at}/processes/entries/{place}"), process, visit);
    }
}

fn of_process(at: &str, process: &mut ProcSample, visit: &mut Visit<'_>) {
    visit_each!(visit, at, &mut *process => ProcSample { memory, rss, host_limit }
        beside { key, kinds, liveness, info, engine });
    if let Some(engine) = &mut process.engine {
        visit_each!(visit, format!("{at}/engine"), engine => EngineSample {
            kv_used, kv_cached, kv_pool, running, waiting, served, tokens, arena, arena_used
        } beside { semantics, report });
    }
}

fn of_ledger(at: &str, ledger: &mut Ledger, visit: &mut Visit<'_>) {
    visit_each!(visit, at, &mut *ledger => Ledger { total, free, driver_reserved, processes, unattributed }
        beside { tick, missing, engines });
    for (place, engine) in ledger.engines.iter_mut().enumerate() {
        visit_each!(visit, format!("{at}/engines/{place}"), engine => EngineLedger {
            vram, weights, pool, used, spare, cached, idle, remainder
        } beside { key, missing });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::tests::{gpu, process, status as world};
    use ebbtide_core::Bytes;
    use proptest::prelude::*;

    /// An engine that says nothing, on a GPU that says little.
    fn silent() -> Status {
        let engine = Some(EngineSample::absent(Absent::Timeout));
        let (rss, host_limit) = (Err(Absent::NoPermission), Err(Absent::NotSupported));
        let process = ProcSample { engine, rss, host_limit, ..process(7, "vllm", Bytes(1 << 30)) };
        let mut gpu = gpu(0, vec![process], Bytes::ZERO);
        gpu.gpu.utilization = Err(Absent::NotSupported);
        gpu.gpu.memory.iter_mut().for_each(|memory| memory.reserved = Err(Absent::NotSupported));
        gpu.ledger = Ledger::of(&gpu.gpu, gpu.ledger.tick);
        world(vec![gpu])
    }

    /// The same, absent for any reasons.
    fn status() -> impl Strategy<Value = Status> {
        let why = prop::sample::select(vec![
            Absent::NotSupported,
            Absent::NoPermission,
            Absent::DeviceLost,
            Absent::Timeout,
            Absent::NotYet,
        ]);
        prop::collection::vec(prop::option::of(why), 60).prop_map(|reasons| {
            let mut status = silent();
            let mut reasons = reasons.into_iter().cycle();
            each_reading(&mut status, &mut |_, reading| {
                reasons.next().flatten().into_iter().for_each(|why| reading.explain(why));
            });
            status
        })
    }

    proptest! {
        #[test]
        fn every_reason_survives_the_wire(status in status()) {
            let text = serde_json::to_vec(&Reasoned::of(&status)).unwrap();
            prop_assert_eq!(parse(&text).unwrap(), status);
        }

        /// Each pointer leads to a NULL, for those who read JSON.
        #[test]
        fn every_pointer_leads_to_a_null(status in status()) {
            let document = serde_json::to_value(Reasoned::of(&status)).unwrap();
            let absent = document.get("absent").and_then(|absent| absent.as_object()).cloned().unwrap_or_default();
            for pointer in absent.keys() {
                prop_assert_eq!(document.pointer(pointer), Some(&serde_json::Value::Null), "{}", pointer);
            }
        }
    }

    #[test]
    fn an_older_sender_gives_no_reasons_and_an_older_reader_passes_them_over() {
        let mut status = silent();
        status.gpus[0].gpu.memory = Err(Absent::DeviceLost);
        let old = parse(&serde_json::to_vec(&status).unwrap()).unwrap();
        assert_eq!(old.gpus[0].gpu.memory.err(), Some(Absent::NotYet));
        let text = serde_json::to_vec(&Reasoned::of(&status)).unwrap();
        assert!(serde_json::from_slice::<Status>(&text).is_ok());
        assert_eq!(parse(&text).unwrap().gpus[0].gpu.memory.err(), Some(Absent::DeviceLost));
    }
}
