//! How much of a card an engine makes its pool of blocks.
//!
//! | engine | pool on one GPU |
//! |---|---|
//! | vLLM | share x card - weights - activations - what libraries add; from 0.21 on less its graphs too |
//! | SGLang | share x free before loading - weights; the share follows from the card where it is not set |
//! | TensorRT-LLM | share x what is free once the model is loaded |
//! | LMDeploy | share x what is free once the weights are loaded |
//! | llama.cpp | what the contexts need, allocated when it loads; at the most what is free |

use ebbtide_core::Bytes;
use ebbtide_core::units::MIB;

use crate::deployment::{Deployment, Engine};
use crate::remainder::{DRIVER_RESERVE, Remainder};
use crate::span::{Span, part};

/// The pool that an engine makes on a card of `card` bytes (as NVML says) beside `weights` bytes of that card.
#[must_use]
pub fn pool(deployment: &Deployment, remainder: &Remainder, card: Bytes, weights: Bytes) -> Span {
    let usable = card.saturating_sub(DRIVER_RESERVE);
    let share = deployment.share.or(deployment.engine.default_share());
    let free = remainder.context.rest_of(usable);
    let loaded = |extra: Span| (remainder.context + extra + Span::exactly(weights)).rest_of(usable);
    match deployment.engine {
        Engine::Vllm | Engine::Vllm020 => {
            let requested = part(usable, share.unwrap_or(1.0));
            let mut beside = remainder.activation + remainder.non_torch + Span::exactly(weights);
            if deployment.engine == Engine::Vllm {
                beside = beside + remainder.graphs;
            }
            beside.rest_of(requested)
        }
        Engine::Sglang => {
            let share = share.unwrap_or_else(|| sglang_share(deployment, usable));
            let taken = free.times(share);
            let less = |bytes: Bytes| bytes.saturating_sub(weights);
            Span { low: less(taken.low), likely: less(taken.likely), high: less(taken.high) }
        }
        Engine::TensorRtLlm => loaded(remainder.activation + remainder.non_torch).times(share.unwrap_or(1.0)),
        Engine::Lmdeploy => loaded(Span::default()).times(share.unwrap_or(1.0)),
        Engine::LlamaCpp => loaded(remainder.activation + remainder.graphs).times(share.unwrap_or(1.0)),
    }
}

/// Up to so many MiB of card, tokens of a chunk, and sequences of the largest graph (below four-way tensor
/// parallelism, and from there on), as SGLang 0.5 chooses them.
const SGLANG_CARDS: [(u64, u64, u64, u64); 6] = [
    (20 * 1024, 2048, 8, 8),
    (35 * 1024, 2048, 24, 80),
    (60 * 1024, 4096, 32, 160),
    (90 * 1024, 8192, 256, 512),
    (160 * 1024, 8192, 256, 512),
    (u64::MAX, 16_384, 512, 512),
];

/// SGLang's automatic `mem_fraction_static`: the card less 512 MiB, 1.5 MiB a token of the chunk, 2 MiB a sequence
/// of the largest graph and 128 MiB a GPU of the replica; at least 10 GiB on cards above 60 GiB.
fn sglang_share(deployment: &Deployment, usable: Bytes) -> f64 {
    let card = usable.0 / MIB;
    let row = SGLANG_CARDS.iter().find(|(up_to, ..)| card < *up_to).unwrap_or(&SGLANG_CARDS[5]);
    let (_, chunk, narrow, wide) = *row;
    let sequences = if deployment.tp < 4 { narrow } else { wide };
    let reserved =
        512.0 + 1.5 * chunk.max(2048) as f64 + 2.0 * sequences as f64 + 128.0 * deployment.gpus() as f64;
    let reserved = if card > 60 * 1024 { reserved.max(10.0 * 1024.0) } else { reserved };
    // Three decimals, as SGLang rounds it.
    ((1.0 - reserved / card.max(1) as f64).max(0.0) * 1000.0).round() / 1000.0
}
