#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes a random model with the shape, names and files of the published GPT-2 small.

    make_random_gpt2.py DIR [--vocab-gguf FILE]

DIR receives config.json, model.safetensors (f32, 124 M parameters, names without prefix, with the
causal-mask buffers of the published file), vocab.json, merges.txt and, where the tokenizers
package is installed, tokenizer.json. It serves to run scripts/check_gpt2 and size or speed
measurements where the real files are not at hand. Its text is noise, but not degenerate: the best
logit leads by 0.4 on average, far more than rounding, and depends on the whole context.

The vocabulary is that of a GGUF file, or a made-up byte-level one of the same size. Needs numpy
and safetensors, for --vocab-gguf also gguf.
"""

import argparse
import json
import pathlib
import string
import sys

import numpy as np
from safetensors.numpy import save_file

N_VOCAB, N_POSITIONS, WIDTH, N_LAYERS, N_HEADS = 50257, 1024, 768, 12, 12
END_OF_TEXT = "<|endoftext|>"

CONFIG = {
    "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"],
    "attn_pdrop": 0.1, "bos_token_id": N_VOCAB - 1, "embd_pdrop": 0.1,
    "eos_token_id": N_VOCAB - 1, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05,
    "model_type": "gpt2", "n_ctx": N_POSITIONS, "n_embd": WIDTH, "n_head": N_HEADS,
    "n_layer": N_LAYERS, "n_positions": N_POSITIONS, "resid_pdrop": 0.1, "vocab_size": N_VOCAB,
}


def byte_symbols():
    """Returns the character that byte-level BPE writes for each byte value.

    Printable bytes stand for themselves; the 68 others take the code points from 256 on.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    symbols, spare = [], 256
    for byte in range(256):
        symbols.append(chr(byte if byte in printable else spare))
        spare += byte not in printable
    return symbols


def made_up_vocabulary():
    """Returns (tokens, merges): bytes, then lower-case strings grown a letter at a time."""
    symbols = byte_symbols()
    tokens = sorted(symbols)
    merges, longest = [], [symbols[ord(" ")], *string.ascii_lowercase]
    while len(merges) < N_VOCAB - 257:
        grown = [(piece, letter) for piece in longest for letter in string.ascii_lowercase]
        merges += grown[:N_VOCAB - 257 - len(merges)]
        longest = [piece + letter for piece, letter in grown]
    tokens += [left + right for left, right in merges]
    return [*tokens, END_OF_TEXT], [" ".join(merge) for merge in merges]


def gguf_vocabulary(path):
    """Returns (tokens, merges) of a GGUF file with a GPT-2 vocabulary."""
    try:
        import gguf
    except ImportError:
        sys.exit("make_random_gpt2: --vocab-gguf needs the gguf package: pip install gguf")
    fields = gguf.GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = fields["tokenizer.ggml.merges"].contents()
    if len(tokens) != N_VOCAB:
        sys.exit(f"make_random_gpt2: {path}: {len(tokens)} tokens, expected {N_VOCAB}")
    return tokens, merges


def write_vocabulary(folder, tokens, merges):
    ids = {token: i for i, token in enumerate(tokens)}
    assert len(ids) == N_VOCAB
    (folder / "vocab.json").write_text(json.dumps(ids))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(m + "\n" for m in merges),
                                       encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": N_POSITIONS}))
    try:
        import tokenizers
    except ImportError:
        print("tokenizer.json not written: the tokenizers package is not installed")
        return
    model = tokenizers.models.BPE(ids, [tuple(m.split(" ")) for m in merges])
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens([END_OF_TEXT])
    tokenizer.save(str(folder / "tokenizer.json"))


def random_weights(seed):
    """Returns the tensors, at scales near those of the trained model.

    Attention scores get a standard deviation near 3 and logits near 2; the residual stream ends
    far larger than the embeddings, without which a tied head would repeat the last token.
    """
    rng = np.random.default_rng(seed)

    def normal(shape, scale, mean=0.0):
        return (mean + scale * rng.standard_normal(shape, dtype=np.float32)).astype(np.float32)

    tensors = {"wte.weight": normal((N_VOCAB, WIDTH), 0.14),
               "wpe.weight": normal((N_POSITIONS, WIDTH), 0.10)}
    mask = np.tril(np.ones((1, 1, N_POSITIONS, N_POSITIONS), dtype=np.float32))
    for layer in range(N_LAYERS):
        h = f"h.{layer}."
        for norm in ("ln_1", "ln_2"):
            tensors[h + norm + ".weight"] = normal(WIDTH, 0.10, mean=0.5)
            tensors[h + norm + ".bias"] = normal(WIDTH, 0.05)
        for name, rows, columns, scale in (
                ("attn.c_attn", WIDTH, 3 * WIDTH, 0.12), ("attn.c_proj", WIDTH, WIDTH, 0.10),
                ("mlp.c_fc", WIDTH, 4 * WIDTH, 0.13), ("mlp.c_proj", 4 * WIDTH, WIDTH, 0.09)):
            tensors[h + name + ".weight"] = normal((rows, columns), scale)
            tensors[h + name + ".bias"] = normal(columns, 0.2)
        tensors[h + "attn.bias"] = mask
    tensors["ln_f.weight"] = normal(WIDTH, 0.10, mean=0.5)
    tensors["ln_f.bias"] = normal(WIDTH, 0.05)
    return tensors


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("dir", type=pathlib.Path, metavar="DIR", help="folder to write")
    parser.add_argument("--vocab-gguf", type=pathlib.Path, metavar="FILE",
                        help="take the vocabulary of this GGUF file")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    args.dir.mkdir(parents=True, exist_ok=True)
    tokens, merges = (gguf_vocabulary(args.vocab_gguf) if args.vocab_gguf
                      else made_up_vocabulary())
    write_vocabulary(args.dir, tokens, merges)
    (args.dir / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    save_file(random_weights(args.seed), args.dir / "model.safetensors", {"format": "pt"})
    return 0


if __name__ == "__main__":
    sys.exit(main())
