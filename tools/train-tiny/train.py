"""Train the bundled tiny model: a byte-level Llama of 0.77 M parameters, in a quarter of an hour on two CPU cores.

    pip install jax==0.10.2
    python train.py novels.txt OUTDIR [--bytes 9000000]

Writes OUTDIR/model.safetensors (fp16), config.json, heldout.txt (an excerpt that the loss is measured on)
and tiny.json (what the engine is compared with). The last fortieth of each of four parts
of the text is held out and never trained on.
"""

import argparse
import hashlib
import json
import math
import os
import re
import time

import jax
import jax.numpy as jnp
import numpy as np

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, FFN, VOCAB = 128, 4, 2, 1, 64, 352, 256
CONTEXT, ROPE_BASE, EPSILON = 512, 10_000.0, 1e-5
BATCH, PEAK_RATE, WARMUP, DECAY = 4, 4e-3, 100, 0.05
HELD_OUT_SHARE = 40
EXCERPT = 64 * 1024


def split(path):
    """(train, held out) as byte arrays; a part begins with a title page that names the author, as four novels have."""
    text = open(path, "rb").read()
    starts = [text.rfind(b"\n\n", 0, m.start()) + 1 for m in re.finditer(rb"(?i)by jane austen", text)]
    starts = [max(start, 0) for start in starts] or [0]
    starts[0] = 0
    train, held = [], []
    for begin, end in zip(starts, starts[1:] + [len(text)]):
        cut = end - (end - begin) // HELD_OUT_SHARE
        train.append(text[begin:cut])
        held.append(text[cut:end])
    return np.frombuffer(b"".join(train), np.uint8), b"".join(held)


def fresh(key):
    """Weights under the names and in the shapes ([out, in]) of Hugging Face's Llama."""
    shapes = {"model.embed_tokens.weight": (VOCAB, HIDDEN)}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        shapes |= {
            at + "self_attn.q_proj.weight": (HEADS * HEAD_DIM, HIDDEN),
            at + "self_attn.k_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            at + "self_attn.v_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            at + "self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD_DIM),
            at + "mlp.gate_proj.weight": (FFN, HIDDEN),
            at + "mlp.up_proj.weight": (FFN, HIDDEN),
            at + "mlp.down_proj.weight": (HIDDEN, FFN),
        }
    weights = {}
    for name, shape in shapes.items():
        key, draw = jax.random.split(key)
        depth = math.sqrt(2 * LAYERS) if name.endswith(("o_proj.weight", "down_proj.weight")) else 1.0
        weights[name] = jax.random.normal(draw, shape) * (0.05 if "embed" in name else shape[1] ** -0.5 / depth)
    norms = [f"model.layers.{layer}.{part}.weight" for layer in range(LAYERS)
             for part in ("input_layernorm", "post_attention_layernorm")]
    return weights | {name: jnp.ones(HIDDEN) for name in norms + ["model.norm.weight"]}


def norm(x, gain):
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + EPSILON) * gain


def rotate(x):
    """RoPE, half-split: dimension i turns with i + HEAD_DIM / 2."""
    half = HEAD_DIM // 2
    angle = jnp.arange(x.shape[1])[:, None] * ROPE_BASE ** (-jnp.arange(half) / half)
    cos, sin = jnp.cos(angle)[None, :, None], jnp.sin(angle)[None, :, None]
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def attend(w, at, x):
    batch, length, _ = x.shape
    heads = lambda name, count: (x @ w[at + name].T).reshape(batch, length, count, HEAD_DIM)
    q = rotate(heads("self_attn.q_proj.weight", HEADS))
    k = rotate(heads("self_attn.k_proj.weight", KV_HEADS))[:, :, 0]
    v = heads("self_attn.v_proj.weight", KV_HEADS)[:, :, 0]
    scores = jnp.einsum("bqhd,bkd->bhqk", q, k) * HEAD_DIM ** -0.5
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e30)
    mixed = jnp.einsum("bhqk,bkd->bqhd", jax.nn.softmax(scores), v)
    return mixed.reshape(batch, length, -1) @ w[at + "self_attn.o_proj.weight"].T


def logits(w, tokens):
    """[batch, length] byte values -> [batch, length, VOCAB]."""
    x = w["model.embed_tokens.weight"][tokens]
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        x = x + attend(w, at, norm(x, w[at + "input_layernorm.weight"]))
        y = norm(x, w[at + "post_attention_layernorm.weight"])
        gated = jax.nn.silu(y @ w[at + "mlp.gate_proj.weight"].T) * (y @ w[at + "mlp.up_proj.weight"].T)
        x = x + gated @ w[at + "mlp.down_proj.weight"].T
    return norm(x, w["model.norm.weight"]) @ w["model.embed_tokens.weight"].T


def loss(w, windows):
    """Mean negative log likelihood, nats a byte, of all but the first byte of each window."""
    scores = jax.nn.log_softmax(logits(w, windows[:, :-1]))
    return -jnp.mean(jnp.take_along_axis(scores, windows[:, 1:, None], axis=-1))


@jax.jit
def step(w, first, second, windows, count, rate):
    """AdamW, gradients clipped to a norm of one."""
    value, slope = jax.value_and_grad(loss)(w, windows)
    size = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(slope)))
    slope = jax.tree.map(lambda g: g / jnp.maximum(1.0, size), slope)
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, slope)
    second = jax.tree.map(lambda v, g: 0.98 * v + 0.02 * g * g, second, slope)
    def move(p, m, v):
        change = (m / (1 - 0.9 ** count)) / (jnp.sqrt(v / (1 - 0.98 ** count)) + 1e-9)
        return p - rate * (change + (DECAY * p if p.ndim > 1 else 0.0))
    return jax.tree.map(move, w, first, second), first, second, value


measured = jax.jit(loss)


def held_out(w, text):
    """Nats a byte of each window of CONTEXT + 1 bytes; windows share one byte, the rest is dropped."""
    tokens = np.frombuffer(text, np.uint8).astype(np.int32)
    windows = [tokens[at : at + CONTEXT + 1] for at in range(0, len(tokens) - CONTEXT, CONTEXT)]
    return [float(measured(w, window[None])) for window in windows]


def halves(w):
    """The weights as the file will hold them: rounded to fp16."""
    return {name: np.asarray(value, np.float16) for name, value in w.items()}


def safetensors(w):
    header, data = {}, b""
    for name in sorted(w):
        header[name] = {"dtype": "F16", "shape": list(w[name].shape), "data_offsets": [len(data), len(data) + w[name].nbytes]}
        data += w[name].tobytes()
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    return len(head).to_bytes(8, "little") + head + data


CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM, "intermediate_size": FFN,
    "vocab_size": VOCAB, "max_position_embeddings": CONTEXT, "rope_theta": ROPE_BASE, "rms_norm_eps": EPSILON,
    "tie_word_embeddings": True, "torch_dtype": "float16", "tokenizer": "bytes",
}


def write(out, w, held):
    """Everything that the project keeps of a training, the figures taken with the weights as rounded."""
    os.makedirs(out, exist_ok=True)
    w = halves(w)
    content, excerpt = safetensors(w), held[:EXCERPT]
    open(f"{out}/model.safetensors", "wb").write(content)
    json.dump(CONFIG, open(f"{out}/config.json", "w"), indent=2)
    open(f"{out}/heldout.txt", "wb").write(excerpt)
    exact = {name: jnp.asarray(value, jnp.float32) for name, value in w.items()}
    prompt = list(b"It is a truth universally acknowledged")
    rows = np.asarray(logits(exact, jnp.asarray([prompt]))[0])
    whole, windows = np.mean(held_out(exact, held)), held_out(exact, excerpt)
    sha256 = hashlib.sha256(content).hexdigest()
    json.dump({"prompt": bytes(prompt).decode(), "logits": [[round(float(x), 4) for x in row] for row in rows[[0, 9, -1]]],
               "positions": [0, 9, len(prompt) - 1], "heldout_nats_per_byte": [round(nats, 4) for nats in windows],
               "sha256": sha256}, open(f"{out}/tiny.json", "w"))
    print(f"{len(content)} bytes, sha256 {sha256}", flush=True)
    print(f"held out: {whole:.4f} nats a byte (all), {np.mean(windows):.4f} (excerpt)", flush=True)


def main():
    args = argparse.ArgumentParser()
    args.add_argument("corpus")
    args.add_argument("out")
    args.add_argument("--bytes", type=int, default=9_000_000)
    args = args.parse_args()
    train, held = split(args.corpus)
    w = fresh(jax.random.key(1))
    first, second = (jax.tree.map(jnp.zeros_like, w) for _ in range(2))
    dice, steps, begin = np.random.default_rng(1), args.bytes // (BATCH * CONTEXT), time.time()
    for count in range(1, steps + 1):
        starts = dice.integers(0, len(train) - CONTEXT - 1, BATCH)
        windows = np.stack([train[at : at + CONTEXT + 1] for at in starts]).astype(np.int32)
        rate = PEAK_RATE * min(count / WARMUP, 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * count / steps)))
        w, first, second, value = step(w, first, second, windows, count, rate)
        if count % 250 == 0:
            print(f"{count}/{steps} {float(value):.3f} {time.time() - begin:.0f} s", flush=True)
        if count % 1000 == 0:
            write(args.out, w, held)
    write(args.out, w, held)


if __name__ == "__main__":
    main()
