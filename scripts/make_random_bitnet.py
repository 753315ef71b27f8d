#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes a random BitNet model as GGUF, in Microsoft's I2_S: what bitnet.cpp and qsf-parity both read.

    make_random_bitnet.py OUT.gguf [--shape small|0.7b] [--text FILE] [--seed N]

The architecture is `bitnet`, that of 1bitLLM's models, which every version of bitnet.cpp has: SwiGLU, a
norm in front of the output and the down projection, the embedding (f16) as head. `small` (256 wide, 3 layers,
grouped heads) is for comparisons, `0.7b` has the shape of bitnet_b1_58-large and is for speed. The
vocabulary is one of scores: bytes, and the beginnings of the words of FILE (README.md), so that texts become
tokens of several lengths. Weights are random: what such a model says is nonsense by construction. Needs numpy.
"""

import argparse
import collections
import pathlib
import re
import sys

import numpy as np

import bitnet_gguf

ROOT = pathlib.Path(__file__).resolve().parent.parent
# hidden, ffn, layers, heads, kv heads, vocabulary
SHAPES = {"small": (256, 640, 3, 4, 2, 1024), "0.7b": (1536, 4096, 24, 16, 16, 32000)}
CONTEXT = 2048
N_BYTES = 256
N_CONTROL = 3


def pieces_of(text, n_pieces):
    """The beginnings of words, the frequent ones first: each is a shorter one and a character, so that merges
    can reach it."""
    counts = collections.Counter()
    for word in re.findall(r"[!-~]+", text):
        marked = "\u2581" + word
        for end in range(1, len(marked) + 1):
            counts[marked[:end]] += 1
        counts.update(word)
    best = sorted(counts, key=lambda piece: (-counts[piece], piece))[:n_pieces]
    return best + [f"\u2581unused{i}" for i in range(n_pieces - len(best))]


def tokenizer(n_vocab, text):
    n_pieces = n_vocab - N_CONTROL - N_BYTES
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(N_BYTES)] + pieces_of(text, n_pieces)
    return {
        "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [0.0] * (N_CONTROL + N_BYTES) + [-1.0 * i for i in range(n_pieces)],
        "tokenizer.ggml.token_type": [2, 3, 3] + [6] * N_BYTES + [1] * n_pieces,
        "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0, "tokenizer.ggml.add_bos_token": True,
    }


def header(shape, text):
    hidden, ffn, layers, heads, kv_heads, n_vocab = shape
    return {
        "general.architecture": "bitnet", "general.name": "random",
        "bitnet.vocab_size": n_vocab, "bitnet.context_length": CONTEXT, "bitnet.embedding_length": hidden,
        "bitnet.block_count": layers, "bitnet.feed_forward_length": ffn,
        "bitnet.rope.dimension_count": hidden // heads, "bitnet.attention.head_count": heads,
        "bitnet.attention.head_count_kv": kv_heads, "bitnet.attention.layer_norm_rms_epsilon": 1e-5,
        "bitnet.rope.freq_base": 10000.0, "general.file_type": 40, "general.quantization_version": 2,
        **tokenizer(n_vocab, text),
    }


def tensors(shape, rng):
    hidden, ffn, layers, heads, kv_heads, n_vocab = shape
    kv = hidden // heads * kv_heads

    def vector(name, size, mean, spread):
        values = (mean + spread * rng.standard_normal(size)).astype("<f4")
        return (name, bitnet_gguf.F32, values.shape, values.tobytes())

    def ternary(name, rows, cols):
        codes = rng.integers(0, 3, (rows, cols), dtype=np.uint8)
        scale = float(rng.uniform(1.0, 1.6) / cols ** 0.5)
        return (name, bitnet_gguf.I2_S, codes.shape, bitnet_gguf.i2s_a(codes, scale))

    embedding = (0.5 * rng.standard_normal((n_vocab, hidden))).astype("<f2")
    yield ("token_embd.weight", bitnet_gguf.F16, embedding.shape, embedding.tobytes())
    for layer in range(layers):
        at = f"blk.{layer}."
        yield vector(at + "attn_norm.weight", hidden, 0.5, 0.2)
        yield ternary(at + "attn_q.weight", hidden, hidden)
        yield ternary(at + "attn_k.weight", kv, hidden)
        yield ternary(at + "attn_v.weight", kv, hidden)
        yield vector(at + "attn_sub_norm.weight", hidden, 0.8, 0.3)
        yield ternary(at + "attn_output.weight", hidden, hidden)
        yield vector(at + "ffn_norm.weight", hidden, 1.2, 0.3)
        yield ternary(at + "ffn_gate.weight", ffn, hidden)
        yield ternary(at + "ffn_up.weight", ffn, hidden)
        yield vector(at + "ffn_sub_norm.weight", ffn, 0.3, 0.3)
        yield ternary(at + "ffn_down.weight", hidden, ffn)
    yield vector("output_norm.weight", hidden, 1.5, 0.4)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("out", metavar="OUT.gguf", type=pathlib.Path)
    parser.add_argument("--shape", choices=sorted(SHAPES), default="small")
    parser.add_argument("--text", metavar="FILE", type=pathlib.Path, default=ROOT / "README.md")
    parser.add_argument("--seed", metavar="N", type=int, default=1)
    args = parser.parse_args()
    shape = SHAPES[args.shape]
    text = args.text.read_text(encoding="utf-8")
    rng = np.random.default_rng(args.seed)
    bitnet_gguf.write_file(args.out, header(shape, text), list(tensors(shape, rng)))


if __name__ == "__main__":
    sys.exit(main())
