//! What could be done about a cache that is too large, what each would give, and what it would cost.

use ebbtide_core::{Bytes, SignedBytes};
use serde::Serialize;

use crate::deployment::{Deployment, Engine, Load};
use crate::kv_type::KvType;
use crate::model::{Model, Reach};
use crate::question::Question;

/// One thing that could be done.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Lever {
    /// What.
    pub name: String,
    /// Bytes of cache on the busiest GPU for the same load.
    pub kv_bytes: Bytes,
    /// How much less that is; negative where it is more.
    pub saved_bytes: SignedBytes,
    /// The most requests of this context that surely fit then.
    pub max_requests: Option<u64>,
    /// The longest context at which this many requests surely fit then.
    pub max_context: Option<u64>,
    /// Bytes of host memory for each GPU.
    pub host_bytes: Option<Bytes>,
    /// Seconds to bring one request's cache back over PCIe.
    pub fetch_seconds: Option<f64>,
    /// What it costs.
    pub cost: String,
}

/// The window that is tried: long enough for most conversations.
const WINDOW: u64 = 4096;

/// What one direction of PCIe 4.0 x16 carries in practice; 5.0 carries about twice that.
pub const PCIE_BYTES_PER_SECOND: f64 = 25e9;

/// All that applies to the question, narrower types first.
#[must_use]
pub fn all(question: &Question<'_>) -> Vec<Lever> {
    let now = question.cache().load(question.load);
    let mut levers = narrower(question, now);
    levers.push(contiguous(question, now));
    levers.extend(window(question, now));
    levers.extend(offload(question, now));
    levers.push(tensor_parallel(question, now));
    levers
}

/// The narrower types that an engine offers, and what they cost in quality.
const fn types(engine: Engine) -> &'static [(KvType, &'static str)] {
    const FP8: (KvType, &str) = (KvType::Fp8, "1 to 2 points on reasoning without calibration");
    const INT8: (KvType, &str) = (KvType::Int8, "within half a point in most tests");
    const INT4: (KvType, &str) = (KvType::Int4, "up to 3 points; small models break");
    const NVFP4: (KvType, &str) = (KvType::Nvfp4, "1 to 4 points; newest cards only");
    const Q8_0: (KvType, &str) = (KvType::Q8_0, "hardly measurable");
    const Q4_0: (KvType, &str) = (KvType::Q4_0, "1 to 2 % perplexity; small models break");
    match engine {
        Engine::LlamaCpp => &[Q8_0, Q4_0],
        Engine::Lmdeploy => &[INT8, INT4],
        Engine::TensorRtLlm => &[FP8, INT8, NVFP4],
        Engine::Sglang => &[FP8, NVFP4],
        Engine::Vllm | Engine::Vllm020 => &[FP8, INT8, INT4, NVFP4],
    }
}

fn narrower(question: &Question<'_>, now: Bytes) -> Vec<Lever> {
    let lever = |(kv_type, cost): &(KvType, &str)| {
        let deployment = Deployment { kv_type: *kv_type, ..question.deployment };
        let then = Question { deployment, ..question.clone() };
        measured(format!("kv-{kv_type}"), &then, now, (*cost).to_owned())
    };
    let offered = types(question.deployment.engine).iter().map(lever);
    offered.filter(|lever| lever.kv_bytes < now).collect()
}

/// A lever whose effect is the answer to another question.
fn measured(name: String, then: &Question<'_>, now: Bytes, cost: String) -> Lever {
    let kv_bytes = then.cache().load(then.load);
    let pool = then.division().map(|gpu| gpu.pool.low);
    Lever {
        name,
        kv_bytes,
        saved_bytes: now.signed_sub(kv_bytes),
        max_requests: pool.map(|pool| then.max_requests(pool)),
        max_context: pool.map(|pool| then.max_context(pool)),
        host_bytes: None,
        fetch_seconds: None,
        cost,
    }
}

/// What paging saves, seen from the other side: the longest context reserved for each request from its first token.
fn contiguous(question: &Question<'_>, now: Bytes) -> Lever {
    let longest = question.model.max_context.unwrap_or(question.load.context).max(question.load.context);
    let load = Load { context: longest, ..question.load };
    let then = Question { load, ..question.clone() };
    let used = 100.0 * question.load.context as f64 / longest.max(1) as f64;
    let cost = format!("{longest} tokens reserved for each request, of which {used:.0} % would be used");
    // The longest context is what is reserved; asking for it again would answer another question.
    Lever { max_context: None, ..measured("without-paging".to_owned(), &then, now, cost) }
}

fn window(question: &Question<'_>, now: Bytes) -> Option<Lever> {
    let mut groups = question.model.groups.clone();
    let full = groups.iter_mut().filter(|group| group.reach == Reach::Full);
    full.for_each(|group| group.reach = Reach::Window(WINDOW));
    let model = Model { groups, ..question.model.clone() };
    let then = Question { model: &model, ..question.clone() };
    let cost = format!(
        "forgets what lies more than {WINDOW} tokens back; the engine must support it for this model"
    );
    let lever = measured(format!("window-{WINDOW}"), &then, now, cost);
    (lever.kv_bytes < now).then_some(lever)
}

/// Requests that wait are parked in host memory: half of them, or as many as do not fit.
fn offload(question: &Question<'_>, now: Bytes) -> Option<Lever> {
    let cache = question.cache();
    let requests = question.deployment.requests_each(question.load.requests);
    let fit = question
        .division()
        .map(|gpu| gpu.pool.low.0.checked_div(cache.request(question.load.context).0).unwrap_or(requests));
    let parked = (requests / 2).max(requests.saturating_sub(fit.unwrap_or(requests)));
    // What is parked must come back to somewhere.
    if parked == 0 || fit == Some(0) {
        return None;
    }
    let request = cache.request(question.load.context);
    let host = Bytes(request.0.saturating_mul(parked));
    let seconds = request.0 as f64 / PCIE_BYTES_PER_SECOND;
    let kv_bytes = now.saturating_sub(host);
    Some(Lever {
        name: "offload".to_owned(),
        kv_bytes,
        saved_bytes: now.signed_sub(kv_bytes),
        max_requests: None,
        max_context: None,
        host_bytes: Some(host),
        fetch_seconds: Some(seconds),
        cost: format!(
            "{parked} requests parked in host memory; {:.0} ms to bring one back",
            seconds * 1000.0
        ),
    })
}

fn tensor_parallel(question: &Question<'_>, now: Bytes) -> Lever {
    let tp = question.deployment.tp.max(1).saturating_mul(2);
    let deployment = Deployment { tp, ..question.deployment };
    let then = Question { deployment, ..question.clone() };
    let gpus = deployment.gpus().saturating_mul(deployment.dp);
    let more = if tp == 2 && question.deployment.engine != Engine::LlamaCpp {
        ", and about 3 GiB more on each beside the cache"
    } else {
        ""
    };
    measured(format!("tp-{tp}"), &then, now, format!("{gpus} GPUs{more}"))
}
