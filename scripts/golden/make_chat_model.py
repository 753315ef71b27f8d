#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the model of testdata/chat_model: a tiny random one that can be chatted with.

    make_chat_model.py DIR

Hugging Face layout: config.json, model.safetensors (f16), tokenizer.json and tokenizer_config.json.
The tokenizer is a byte-level BPE: a token for each byte, five merges (so that a text can be cut into
tokens in more than one way) and the control tokens of ChatML, of which the model's own list of end
tokens has none. Its text is noise. Needs nothing but Python; the same bytes every time.
"""

import json
import pathlib
import random
import struct
import sys

HIDDEN, N_LAYERS, N_HEADS, N_KV_HEADS, FFN, CONTEXT = 32, 2, 4, 2, 64, 1024
MERGES = [("a", "a"), ("aa", "aa"), ("t", "h"), ("th", "e"), ("\u0120", "the")]
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


def byte_symbols():
    """Returns the character that byte-level BPE writes for each byte value."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    symbols, spare = [], 256
    for byte in range(256):
        symbols.append(chr(byte if byte in printable else spare))
        spare += byte not in printable
    return symbols


def tokenizer(tokens):
    added = [{"id": len(tokens) + i, "content": text, "single_word": False, "lstrip": False,
              "rstrip": False, "normalized": False, "special": True}
             for i, text in enumerate(CONTROL)]
    bytes_alike = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                   "use_regex": True}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
            "normalizer": None, "pre_tokenizer": bytes_alike, "post_processor": None,
            "decoder": bytes_alike,
            "model": {"type": "BPE", "dropout": None, "unk_token": None,
                      "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": {token: i for i, token in enumerate(tokens)},
                      "merges": [" ".join(pair) for pair in MERGES]}}


def config(n_vocab):
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": n_vocab,
            "hidden_size": HIDDEN, "intermediate_size": FFN, "num_hidden_layers": N_LAYERS,
            "num_attention_heads": N_HEADS, "num_key_value_heads": N_KV_HEADS,
            "max_position_embeddings": CONTEXT, "hidden_act": "silu", "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0, "bos_token_id": None, "eos_token_id": n_vocab - len(CONTROL),
            "tie_word_embeddings": False, "torch_dtype": "float16"}


def shapes(n_vocab):
    """Yields (name, shape) of every tensor."""
    yield "model.embed_tokens.weight", (n_vocab, HIDDEN)
    kv = HIDDEN // N_HEADS * N_KV_HEADS
    for i in range(N_LAYERS):
        layer = f"model.layers.{i}."
        yield layer + "input_layernorm.weight", (HIDDEN,)
        for name, rows in (("q", HIDDEN), ("k", kv), ("v", kv), ("o", HIDDEN)):
            yield f"{layer}self_attn.{name}_proj.weight", (rows, HIDDEN)
        yield layer + "post_attention_layernorm.weight", (HIDDEN,)
        yield layer + "mlp.gate_proj.weight", (FFN, HIDDEN)
        yield layer + "mlp.up_proj.weight", (FFN, HIDDEN)
        yield layer + "mlp.down_proj.weight", (HIDDEN, FFN)
    yield "model.norm.weight", (HIDDEN,)
    yield "lm_head.weight", (n_vocab, HIDDEN)


def safetensors(n_vocab):
    # A sum of n products of numbers of unit size has size sqrt(n); the factor 2 keeps the text from
    # settling on one token.
    numbers = random.Random(20261121)
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, shape in shapes(n_vocab):
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        if len(shape) == 1:
            values = [1.0 + 0.1 * numbers.gauss(0.0, 1.0) for _ in range(count)]
        else:
            scale = 1.0 if "embed" in name else 2.0 / shape[1] ** 0.5
            values = [scale * numbers.gauss(0.0, 1.0) for _ in range(count)]
        packed = struct.pack(f"<{count}e", *values)
        header[name] = {"dtype": "F16", "shape": list(shape),
                        "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    tokens = sorted(byte_symbols()) + [left + right for left, right in MERGES]
    n_vocab = len(tokens) + len(CONTROL)
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": False,
                "bos_token": None, "eos_token": CONTROL[0], "chat_template": TEMPLATE}
    for name, content in (("config.json", config(n_vocab)), ("tokenizer.json", tokenizer(tokens)),
                          ("tokenizer_config.json", settings)):
        (folder / name).write_text(json.dumps(content, indent=1) + "\n", encoding="ascii")
    (folder / "model.safetensors").write_bytes(safetensors(n_vocab))


if __name__ == "__main__":
    main()
