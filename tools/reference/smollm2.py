"""What SmolLM2-135M says when it is computed in f32, as a fixture for the engine's tests.

    pip install numpy gguf==0.19.0 tokenizers==0.23.3
    python smollm2.py SmolLM2-135M-Instruct.Q4_1.gguf engine/models/tiny/heldout.txt engine/tests/fixtures/smollm2.json

Independent of the engine: weights are dequantised by the package gguf, text is split by the package tokenizers, the
rest is plain numpy over whole sequences, without a cache.
"""

import hashlib
import json
import sys

import gguf
import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

PROMPTS = [
    "The KV cache of a language model is",
    "Once upon a time, in 1847, there was a lighthouse keeper who",
    "def fibonacci(n):\n    ",
]
GREEDY, JUDGED = 32, 1024


class Model:
    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.values = {name: field.contents() for name, field in reader.fields.items()}
        self.tensors = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32) for t in reader.tensors}
        number = lambda name: self.values[f"llama.{name}"]
        self.layers, self.heads = number("block_count"), number("attention.head_count")
        self.kv_heads, self.epsilon = number("attention.head_count_kv"), number("attention.layer_norm_rms_epsilon")
        self.dim = number("embedding_length") // self.heads
        self.base = number("rope.freq_base")

    def tokenizer(self):
        vocab = {text: id for id, text in enumerate(self.values["tokenizer.ggml.tokens"])}
        merges = [tuple(merge.split(" ")) for merge in self.values["tokenizer.ggml.merges"]]
        tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
        tokenizer.decoder = decoders.ByteLevel()
        return tokenizer

    def norm(self, x, name):
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.epsilon) * self.tensors[name]

    def rotate(self, x):
        """Neighbours turn together, as the rows of queries and keys are ordered in GGUF."""
        angle = np.arange(x.shape[0])[:, None] * self.base ** (-np.arange(0, self.dim, 2) / self.dim)
        cos, sin = np.cos(angle)[:, None].astype(np.float32), np.sin(angle)[:, None].astype(np.float32)
        out = np.empty_like(x)
        out[..., 0::2] = x[..., 0::2] * cos - x[..., 1::2] * sin
        out[..., 1::2] = x[..., 0::2] * sin + x[..., 1::2] * cos
        return out

    def logits(self, tokens):
        """[tokens, vocab]"""
        t, count = self.tensors, len(tokens)
        x = t["token_embd.weight"][tokens]
        future = np.triu(np.full((count, count), -np.inf, np.float32), 1)
        for layer in range(self.layers):
            at = f"blk.{layer}."
            y = self.norm(x, at + "attn_norm.weight")
            q = self.rotate((y @ t[at + "attn_q.weight"].T).reshape(count, self.heads, self.dim))
            k = self.rotate((y @ t[at + "attn_k.weight"].T).reshape(count, self.kv_heads, self.dim))
            v = (y @ t[at + "attn_v.weight"].T).reshape(count, self.kv_heads, self.dim)
            shared = self.heads // self.kv_heads
            k, v = np.repeat(k, shared, axis=1), np.repeat(v, shared, axis=1)
            scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(self.dim) + future
            scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
            mixed = np.einsum("hqk,khd->qhd", scores / scores.sum(axis=-1, keepdims=True), v)
            x = x + mixed.reshape(count, -1) @ t[at + "attn_output.weight"].T
            y = self.norm(x, at + "ffn_norm.weight")
            gate = y @ t[at + "ffn_gate.weight"].T
            x = x + (gate / (1 + np.exp(-gate)) * (y @ t[at + "ffn_up.weight"].T)) @ t[at + "ffn_down.weight"].T
        return self.norm(x, "output_norm.weight") @ t["token_embd.weight"].T


def greedy(model, tokens):
    """The next tokens, and by how much each was the best."""
    tokens, margins = list(tokens), []
    for _ in range(GREEDY):
        row = model.logits(tokens)[-1]
        second, best = np.sort(row)[-2:]
        margins.append(round(float(best - second), 4))
        tokens.append(int(row.argmax()))
    return tokens[-GREEDY:], margins


def judged(model, tokens):
    """Negative log likelihoods of all tokens but the first, nats."""
    rows = model.logits(tokens[:-1]).astype(np.float64)
    rows -= rows.max(axis=-1, keepdims=True)
    scores = np.log(np.exp(rows).sum(axis=-1)) - rows[np.arange(len(rows)), tokens[1:]]
    return scores


def main():
    path, text, out = sys.argv[1:]
    model = Model(path)
    tokenizer = model.tokenizer()
    fixture = {"sha256": hashlib.sha256(open(path, "rb").read()).hexdigest(), "greedy": []}
    for prompt in PROMPTS:
        tokens = tokenizer.encode(prompt).ids
        following, margins = greedy(model, tokens)
        fixture["greedy"].append({"prompt": prompt, "tokens": tokens, "next": following, "margins": margins})
        print(repr(prompt + tokenizer.decode(following)), flush=True)
    tokens = tokenizer.encode(open(text, encoding="latin-1").read()).ids[: JUDGED + 1]
    scores = judged(model, tokens)
    fixture["judged"] = {"tokens": tokens, "nats": round(float(scores.mean()), 5)}
    print(f"{len(scores)} tokens, {scores.mean():.5f} nats, perplexity {np.exp(scores.mean()):.3f}")
    json.dump(fixture, open(out, "w"))


if __name__ == "__main__":
    main()
