#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes testdata/gguf/*.gguf: golden models of testdata/golden as GGUF files.

    make_gguf_golden.py [SOURCE_DIR]

Names of tensors and keys are those of the gguf package; what converters do to weights (rows of
queries and keys in pairs, gains of Gemma plus one, BLOOM's fused heads apart, GPT-2 transposed)
is done here. gguf_model_test holds the conversion of each file to that of its folder. Needs numpy
and gguf.
"""

import json
import math
import os
import sys

import gguf
import numpy as np

# Golden folder to architecture of the GGUF file.
MODELS = {
    "llama_gqa_tied": "llama", "llama3": "llama", "qwen2": "qwen2",
    "qwen3": "qwen3", "phi2": "phi2", "phi3_long": "phi3", "gemma": "gemma", "gemma2": "gemma2",
    "gpt2_untied": "gpt2", "stablelm_parallel": "stablelm", "bloom": "bloom",
}


def read_folder(folder):
    """Returns {name: array of f32} of all parts of a model."""
    tensors = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".safetensors"):
            tensors.update(read_safetensors(os.path.join(folder, name)))
    return tensors


def read_safetensors(path):
    """Returns {name: array of f32}, from F32, F16 or BF16."""
    with open(path, "rb") as file:
        data = file.read()
    header_bytes = int.from_bytes(data[:8], "little")
    tensors = {}
    for name, about in json.loads(data[8:8 + header_bytes]).items():
        if name == "__metadata__":
            continue
        begin, end = about["data_offsets"]
        raw = data[8 + header_bytes + begin:8 + header_bytes + end]
        if about["dtype"] == "BF16":
            values = (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            values = np.frombuffer(raw, {"F32": np.float32, "F16": np.float16}[about["dtype"]])
        tensors[name] = values.astype(np.float32).reshape(about["shape"])
    return tensors


def in_pairs(rows, n_heads):
    """Rows of each head: the two halves become pairs of neighbours."""
    shape = rows.shape
    return rows.reshape(n_heads, 2, shape[0] // n_heads // 2, -1).swapaxes(1, 2).reshape(shape)


def change(arch, name, values, config):
    n_heads = config.get("num_attention_heads", config.get("n_head"))
    n_kv = config.get("num_key_value_heads", n_heads)
    if arch == "llama" and ".q_proj." in name:
        return in_pairs(values, n_heads)
    if arch == "llama" and ".k_proj." in name:
        return in_pairs(values, n_kv)
    if arch in ("gemma", "gemma2") and name.endswith("norm.weight"):
        return values + np.float32(1)
    if arch == "gpt2" and name.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight")):
        return np.ascontiguousarray(values.T)
    if arch == "bloom" and ".query_key_value." in name:
        parts = values.reshape(n_heads, 3, values.shape[0] // n_heads // 3, -1)
        return np.concatenate([parts[:, i].reshape(-1, *values.shape[1:]) for i in range(3)])
    return values


def rope_tensors(arch, config, head_dim):
    """Yields the tensors of divisors that converters make of a configuration."""
    rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
    kind = rope.get("rope_type", rope.get("type"))
    if kind == "llama3":
        theta = rope.get("rope_theta", config.get("rope_theta", 10000.0))
        low = rope["original_max_position_embeddings"] / rope["low_freq_factor"]
        high = rope["original_max_position_embeddings"] / rope["high_freq_factor"]
        factors = []
        for i in range(0, head_dim, 2):
            wave = 2 * math.pi * theta ** (i / head_dim)
            if wave < high:
                factors.append(1.0)
            elif wave > low:
                factors.append(rope["factor"])
            else:
                smooth = (rope["original_max_position_embeddings"] / wave - rope["low_freq_factor"]) / (
                    rope["high_freq_factor"] - rope["low_freq_factor"])
                factors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
        yield "rope_freqs.weight", np.array(factors, np.float32)
    if kind == "longrope":
        yield "rope_factors_long.weight", np.array(rope["long_factor"], np.float32)
        yield "rope_factors_short.weight", np.array(rope["short_factor"], np.float32)


def add_keys(writer, arch, config, tensors, names):
    hidden = config.get("hidden_size", config.get("n_embd", config.get("n_embed")))
    n_heads = config.get("num_attention_heads", config.get("n_head"))
    head_dim = config.get("head_dim") or hidden // n_heads
    context = config.get("max_position_embeddings", config.get("n_positions", config.get("seq_length", 2048)))
    rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
    writer.add_context_length(context)
    writer.add_embedding_length(hidden)
    writer.add_block_count(config.get("num_hidden_layers", config.get("n_layer")))
    up = next(values for name, values in tensors.items() if names[name] in ("blk.0.ffn_up.weight",))
    fused = arch == "phi3"
    ffn = up.shape[1] if arch == "gpt2" else up.shape[0] // (2 if fused else 1)
    writer.add_feed_forward_length(ffn)
    writer.add_head_count(n_heads)
    writer.add_head_count_kv(config.get("num_key_value_heads", n_heads))
    if "head_dim" in config:
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    if "rms_norm_eps" in config:
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    else:
        writer.add_layer_norm_eps(config.get("layer_norm_eps", config.get("layer_norm_epsilon")))
    if arch not in ("gpt2", "bloom"):
        share = config.get("partial_rotary_factor", rope.get("partial_rotary_factor", 1.0))
        writer.add_rope_dimension_count(int(head_dim * share))
        writer.add_rope_freq_base(rope.get("rope_theta", config.get("rope_theta", 10000.0)))
    kind = rope.get("rope_type", rope.get("type"))
    if kind == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    if kind == "longrope":
        original = config.get("original_max_position_embeddings", rope.get("original_max_position_embeddings"))
        writer.add_rope_scaling_orig_ctx_len(original)
        stretch = context / original
        writer.add_rope_scaling_attn_factors(
            math.sqrt(1 + math.log(stretch) / math.log(original)) if stretch > 1 else 1.0)
    if arch == "phi3":
        writer.add_sliding_window(config.get("sliding_window") or 0)
    if arch == "gemma2":
        writer.add_sliding_window(config["sliding_window"])
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    if arch == "stablelm":
        writer.add_parallel_residual(config["use_parallel_residual"])


def add_tokenizer(writer, n_vocab):
    pieces = ["<unk>", "<s>", "</s>"] + [f"t{i}" for i in range(3, n_vocab)]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(pieces)
    writer.add_token_scores([-float(i) for i in range(n_vocab)])
    writer.add_token_types([2, 3, 3] + [1] * (n_vocab - 3))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template("{{ messages[0].content }}")


def convert(folder, arch, out):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    tensors = {name: values for name, values in read_folder(folder).items()
               if not name.endswith((".attn.bias", ".attn.masked_bias"))}  # no weights
    n_layers = config.get("num_hidden_layers", config.get("n_layer"))
    known = next(known for known, name in gguf.MODEL_ARCH_NAMES.items() if name == arch)
    table = gguf.get_tensor_name_map(known, n_layers)
    names = {name: table.get_name(name, try_suffixes=(".weight", ".bias")) for name in tensors}
    if config.get("tie_word_embeddings", False):
        tensors.pop("lm_head.weight", None)
    writer = gguf.GGUFWriter(out, arch)
    add_keys(writer, arch, config, tensors, names)
    hidden = config.get("hidden_size", config.get("n_embd", config.get("n_embed")))
    n_heads = config.get("num_attention_heads", config.get("n_head"))
    add_tokenizer(writer, next(v.shape[0] for n, v in tensors.items() if names[n] == "token_embd.weight"))
    for name, values in rope_tensors(arch, config, config.get("head_dim") or hidden // n_heads):
        writer.add_tensor(name, values)
    for name, values in tensors.items():
        if names[name] is None:
            sys.exit(f"{folder}: {name}: the gguf package has no name for it")
        values = np.ascontiguousarray(change(arch, name, values, config))
        bits = values.view(np.uint32)
        if values.ndim > 1 and not (bits & 0xFFFF).any():
            half = (bits >> 16).astype(np.uint16)
            writer.add_tensor(names[name], half.view(np.uint8),
                              raw_dtype=gguf.GGMLQuantizationType.BF16)
        elif values.ndim > 1 and (values.astype(np.float16).astype(np.float32) == values).all():
            writer.add_tensor(names[name], values.astype(np.float16))
        else:
            writer.add_tensor(names[name], values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    source = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..", "..")
    out = os.path.join(source, "testdata", "gguf")
    os.makedirs(out, exist_ok=True)
    for model, arch in MODELS.items():
        path = os.path.join(out, model + ".gguf")
        convert(os.path.join(source, "testdata", "golden", model), arch, path)
        print(f"{path}: {os.path.getsize(path)} bytes")


if __name__ == "__main__":
    main()
