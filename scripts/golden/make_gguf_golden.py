#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes testdata/gguf/*.gguf: golden models of testdata/golden as GGUF files.

    make_gguf_golden.py [SOURCE_DIR]

Names of tensors and keys are those of the gguf package; what converters do to weights (rows of
queries and keys in pairs, gains of Gemma plus one, fused queries, keys and values apart, GPT-2
transposed) is done here. gguf_model_test holds the conversion of each file to that of its folder.
Needs numpy and gguf.
"""

import json
import math
import os
import sys

import gguf
import numpy as np

import gguf_delta
import gguf_gemma3n
import gguf_gpt_oss
import gguf_hybrid
import golden_layouts as layouts
from golden_layouts import scan_sizes

# Golden folder to architecture of the GGUF file.
MODELS = {
    "llama_gqa_tied": "llama", "llama3": "llama", "qwen2": "qwen2",
    "qwen3": "qwen3", "phi2": "phi2", "phi3_long": "phi3", "gemma": "gemma", "gemma2": "gemma2",
    "gpt2_untied": "gpt2", "stablelm_parallel": "stablelm", "bloom": "bloom",
    "phi3_gqa": "phi3", "gemma3": "gemma3", "smollm3": "smollm3", "olmo2_gqa": "olmo2",
    "olmo3": "olmo2", "granite": "granite", "ministral3": "mistral3", "glm4": "glm4",
    "exaone4": "exaone4", "cohere_biased": "command-r",
    "cohere_normed": "command-r", "granite4": "granite", "mpt_clipped": "mpt",
    "cohere2": "cohere2", "falcon": "falcon",
    "falcon_groups": "falcon", "gpt_neox": "gptneox", "starcoder2": "starcoder2", "mpt": "mpt",
    "qwen2_moe": "qwen2moe", "glm4_moe": "glm4moe", "granitemoeshared": "granitemoe",
    "phimoe": "phimoe", "mixtral": "llama", "qwen3_moe": "qwen3moe", "olmoe": "olmoe",
    "deepseek_v2_lite": "deepseek2", "deepseek_v3": "deepseek2", "glm4_moe_lite": "deepseek2",
    "llama4": "llama4", "llama4_dense_layers": "llama4",
    "granitemoe": "granitemoe", "gpt_oss": "gpt-oss", "gpt_oss_floats": "gpt-oss", "lfm2": "lfm2",
    "lfm2_moe": "lfm2moe", "granite4h": "granitehybrid", "granite4h_experts": "granitehybrid",
    "qwen3_5": "qwen35", "qwen3_5_moe": "qwen35moe", "qwen3_next": "qwen3next",
    "gemma3n": "gemma3n", "gemma4": "gemma4", "gemma4_a4b": "gemma4", "gemma4_e": "gemma4",
    "nemotron_h": "nemotron_h", "nemotron_h_moe": "nemotron_h_moe",
    "falcon_h1": "falcon-h1",
}
# Architectures whose queries and keys rotate in pairs, though the folders' rotate in halves.
IN_PAIRS = ("llama", "smollm3", "granite", "granitehybrid", "granitemoe", "mistral3")
# Tensors that converters leave in f32, whatever their dimensions.
ALWAYS_F32 = (".ssm_a", ".ssm_d", ".ssm_norm.weight", ".ssm_conv1d.weight")
WITHOUT_ROPE = ("gpt2", "bloom", "mpt", "nemotron_h", "nemotron_h_moe")
NO_WEIGHTS = (".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias",
              ".rotary_emb.inv_freq")


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
        if name == "__metadata__" or name.endswith(NO_WEIGHTS):
            continue
        begin, end = about["data_offsets"]
        raw = data[8 + header_bytes + begin:8 + header_bytes + end]
        if about["dtype"] == "BF16":
            values = (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
        elif about["dtype"] == "U8":
            tensors[name] = np.frombuffer(raw, np.uint8).reshape(about["shape"])
            continue
        else:
            values = np.frombuffer(raw, {"F32": np.float32, "F16": np.float16}[about["dtype"]])
        tensors[name] = values.astype(np.float32).reshape(about["shape"])
    return tensors


def in_pairs(rows, n_heads):
    """Rows of each head: the two halves become pairs of neighbours."""
    shape = rows.shape
    return rows.reshape(n_heads, 2, shape[0] // n_heads // 2, -1).swapaxes(1, 2).reshape(shape)


def head_shape(config):
    """Returns (query heads, key-value heads, head width)."""
    if config["model_type"] == "gpt2":
        return config["n_head"], config["n_head"], config["n_embd"] // config["n_head"]
    return layouts.head_shape(config)


def qkv_apart(arch, values, config):
    """All queries, all keys, all values, of rows that are fused by head or by KV head."""
    n_heads, n_kv, width = head_shape(config)
    if arch != "falcon":
        n_kv = n_heads
    groups = values.reshape(n_kv, n_heads // n_kv + 2, width, -1)
    parts = (groups[:, :-2], groups[:, -2], groups[:, -1])
    return np.concatenate([part.reshape(-1, *values.shape[1:]) for part in parts])


def change(arch, name, values, config):
    n_heads, n_kv, _ = head_shape(config)
    if arch == "falcon-h1":
        values = gguf_hybrid.multiplied(name, values, config)
    if arch in gguf_delta.ARCHITECTURES:
        values = gguf_delta.change(arch, name, values, config)
    if arch in IN_PAIRS and ".q_proj." in name:
        return in_pairs(values, n_heads)
    if arch in IN_PAIRS and ".k_proj." in name:
        return in_pairs(values, n_kv)
    if arch in ("gemma", "gemma2", "gemma3") and name.endswith("norm.weight"):
        return values + np.float32(1)
    if arch == "gpt2" and name.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight")):
        return np.ascontiguousarray(values.T)
    if name.endswith(".shared_expert_gate.weight"):
        return values[0]
    if name.endswith((".conv.conv.weight", ".conv1d.weight")):
        return values[:, 0]
    if name.endswith(".A_log") and arch not in gguf_delta.ARCHITECTURES:
        return -np.exp(values.astype(np.float64)).astype(np.float32)[:, None]
    if name.endswith((".mamba.D", ".mixer.D")):
        return values[:, None]
    if name.endswith((".mamba.norm.weight", ".mixer.norm.weight")):
        return values.reshape(scan_sizes(config)[2], -1)
    if ".query_key_value." in name:
        return qkv_apart(arch, values, config)
    return values


def stack_experts(tensors, names):
    """Puts the matrices of all experts of a layer into one tensor of each kind."""
    kinds = {"w1": "gate", "w3": "up", "w2": "down", "gate_proj": "gate", "up_proj": "up",
             "down_proj": "down"}
    for name in [name for name in tensors if ".experts.0." in name]:
        before, after = name.split(".experts.0.")
        layer = next(part for part in before.split(".") if part.isdigit())
        stack = []
        while f"{before}.experts.{len(stack)}.{after}" in tensors:
            stack.append(tensors.pop(f"{before}.experts.{len(stack)}.{after}"))
        stacked = f"{before}.experts.{after}"
        tensors[stacked] = np.stack(stack)
        names[stacked] = f"blk.{layer}.ffn_{kinds[after.split('.')[0]]}_exps.weight"
    for name in [name for name in tensors if name.endswith(".input_linear.weight")]:
        gate, up = np.split(tensors.pop(name), 2, axis=-2)
        place = "shexp" if ".shared_mlp." in name else "exps"
        layer = next(part for part in name.split(".") if part.isdigit())
        for kind, values in (("gate", gate), ("up", up)):
            tensors[f"{name}.{kind}"] = values
            names[f"{name}.{kind}"] = f"blk.{layer}.ffn_{kind}_{place}.weight"


def split_latent(tensors, names, config):
    """Of each head its keys by latent column, and its values."""
    n_heads, n_key = config["num_attention_heads"], config["qk_nope_head_dim"]
    for name in [name for name in tensors if ".kv_b_proj." in name]:
        layer = next(part for part in name.split(".") if part.isdigit())
        heads = tensors.pop(name).reshape(n_heads, n_key + config["v_head_dim"], -1)
        for kind, values in (("k_b", heads[:, :n_key].swapaxes(1, 2)), ("v_b", heads[:, n_key:])):
            tensors[f"{name}.{kind}"] = values
            names[f"{name}.{kind}"] = f"blk.{layer}.attn_{kind}.weight"


def split_stacked(tensors, names):
    """Matrices [experts, in, out], of gates and ups together."""
    for name in [name for name in tensors if ".feed_forward.experts." in name]:
        layer = next(part for part in name.split(".") if part.isdigit())
        values = tensors.pop(name).swapaxes(1, 2)
        kinds = ("gate", "up") if name.endswith("gate_up_proj") else ("down",)
        for kind, part in zip(kinds, np.split(values, len(kinds), axis=1)):
            tensors[f"{name}.{kind}"] = np.ascontiguousarray(part)
            names[f"{name}.{kind}"] = f"blk.{layer}.ffn_{kind}_exps.weight"


def split_shared_ffn(tensors, names):
    """A Granite 4 without experts has the names of a dense FFN."""
    for name in [name for name in tensors if ".shared_mlp." in name]:
        layer = next(part for part in name.split(".") if part.isdigit())
        if ".output_linear." in name:
            names[name] = f"blk.{layer}.ffn_down.weight"
            continue
        for kind, values in zip(("gate", "up"), np.split(tensors.pop(name), 2)):
            tensors[f"{name}.{kind}"] = values
            names[f"{name}.{kind}"] = f"blk.{layer}.ffn_{kind}.weight"


def rope_tensors(config):
    """Yields the tensors of divisors that converters make of a configuration."""
    if config["model_type"] in layouts.WITHOUT_ROTATION:
        return
    rope = layouts.rope_by_kind(config)["full_attention"]
    if rope["rope_type"] == "llama3":
        width = layouts.rotated_columns(config)
        plain = [rope["rope_theta"] ** (-2 * i / width) for i in range(width // 2)]
        scaled = layouts.llama3_frequencies(rope, plain)
        yield "rope_freqs.weight", np.array([p / s for p, s in zip(plain, scaled)], np.float32)
    if rope["rope_type"] in ("longrope", "su"):
        yield "rope_factors_long.weight", np.array(rope["long_factor"], np.float32)
        yield "rope_factors_short.weight", np.array(rope["short_factor"], np.float32)
    if rope["rope_type"] == "proportional":  # pairs that stand divide by a number without end
        n_pairs = config["global_head_dim"] // 2
        turning = int(rope["partial_rotary_factor"] * n_pairs)
        yield "rope_freqs.weight", np.array([1.0] * turning + [1e30] * (n_pairs - turning),
                                            np.float32)


def add_rope_keys(writer, arch, config, context):
    ropes = layouts.rope_by_kind(config)
    rope = ropes["full_attention"]
    if arch == "gemma4":
        writer.add_rope_dimension_count(config["global_head_dim"])
        writer.add_rope_dimension_count_swa(config["head_dim"])
    else:
        writer.add_rope_dimension_count(layouts.rotated_columns(config))
    writer.add_rope_freq_base(rope["rope_theta"])
    local = ropes.get("sliding_attention", rope)["rope_theta"]
    if local not in (10000.0, rope["rope_theta"]):
        writer.add_rope_freq_base_swa(local)
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        for key, add in (("attention_factor", writer.add_rope_scaling_yarn_attn_factor),
                         ("beta_fast", writer.add_rope_scaling_yarn_beta_fast),
                         ("beta_slow", writer.add_rope_scaling_yarn_beta_slow)):
            if rope.get(key) is not None:
                add(rope[key])
    if arch == "deepseek2" and rope["rope_type"] == "yarn":
        writer.add_rope_scaling_yarn_log_mul(0.1 * rope["mscale_all_dim"])
    if arch == "mistral3":
        writer.add_rope_scaling_yarn_log_mul(rope["mscale_all_dim"])
        writer.add_attn_temperature_scale(rope["llama_4_scaling_beta"])
    if rope["rope_type"] in ("longrope", "su"):
        original = config.get("original_max_position_embeddings",
                              rope.get("original_max_position_embeddings"))
        writer.add_rope_scaling_orig_ctx_len(original)
        stretch = context / original
        writer.add_rope_scaling_attn_factors(
            math.sqrt(1 + math.log(stretch) / math.log(original)) if stretch > 1 else 1.0)


def add_window_keys(writer, arch, config):
    window = config.get("sliding_window")
    if arch in ("phi3", "phimoe"):
        writer.add_sliding_window(window or 0)
    elif window is not None and arch in ("gemma2", "gemma3", "gemma3n", "gemma4", "olmo2", "exaone4",
                                         "cohere2", "starcoder2", "gpt-oss"):
        writer.add_sliding_window(window)
        kinds = layouts.layer_kinds(config)
        local = [kind == "sliding_attention" for kind in kinds]
        by_default = [(layer + 1) % layouts.DEFAULT_PATTERN.get(config["model_type"], 1) != 0
                      for layer in range(len(kinds))]
        always = arch in ("olmo2", "exaone4", "gemma3n", "gemma4")
        if always or (arch in ("gemma3", "cohere2") and local != by_default):
            writer.add_sliding_window_pattern(local)


def add_family_keys(writer, arch, config):
    """Keys that one architecture alone has, or a few."""
    if arch == "gemma2":
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    if arch in ("gemma3", "gemma3n", "gemma4") and config.get("final_logit_softcapping"):
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    if config.get("enable_moe_block"):
        writer.add_expert_count(config["num_experts"])
        writer.add_expert_used_count(config["top_k_experts"])
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    if arch == "gemma4":
        writer.add_shared_kv_layers(config["num_kv_shared_layers"])
        writer.add_embedding_length_per_layer_input(config["hidden_size_per_layer_input"])
        writer.add_key_length_swa(config["head_dim"])
        writer.add_value_length_swa(config["head_dim"])
    if arch in ("stablelm", "gptneox"):
        writer.add_parallel_residual(config["use_parallel_residual"])
    if arch == "granitehybrid":
        writer.add_rope_scaling_finetuned(layouts.rotates(config))
        writer.add_ssm_conv_kernel(config["mamba_d_conv"])
        writer.add_ssm_state_size(config["mamba_d_state"])
        writer.add_ssm_group_count(config["mamba_n_groups"])
        writer.add_ssm_inner_size(config["mamba_expand"] * config["hidden_size"])
        writer.add_ssm_time_step_rank(config["mamba_n_heads"])
    if arch == "falcon-h1":
        gguf_hybrid.add_scan_keys(writer, config, config["mamba_d_conv"])
    if arch in ("granite", "granitehybrid", "granitemoe"):
        writer.add_attention_scale(config["attention_multiplier"])
        writer.add_embedding_scale(config["embedding_multiplier"])
        writer.add_residual_scale(config["residual_multiplier"])
        writer.add_logit_scale(config["logits_scaling"])
    if arch in gguf_delta.ARCHITECTURES:
        gguf_delta.add_keys(writer, arch, config)
    if layouts.has_experts(config):
        writer.add_expert_count(config[layouts.first_key(
            config, ("num_local_experts", "num_experts", "n_routed_experts"))])
        writer.add_expert_used_count(config["num_experts_per_tok"])
    if arch in ("qwen2moe", "qwen3moe", "glm4moe", "lfm2moe", "deepseek2", "qwen35moe",
                "qwen3next"):
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    if arch == "gpt-oss":
        writer.add_expert_count(config["num_local_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
        writer.add_expert_feed_forward_length(config["intermediate_size"])
    for key in ("shared_expert_intermediate_size", "shared_intermediate_size"):
        if config.get(key) and arch != "granite":
            writer.add_expert_shared_feed_forward_length(config[key])
    if arch in ("glm4moe", "lfm2moe", "deepseek2"):
        softmax = config.get("scoring_func") == "softmax"
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SOFTMAX if softmax
                                      else gguf.ExpertGatingFuncType.SIGMOID)
    if arch == "lfm2moe":
        writer.add_leading_dense_block_count(config["num_dense_layers"])
    if arch in ("glm4moe", "deepseek2"):
        writer.add_expert_group_count(config["n_group"])
        writer.add_expert_group_used_count(config["topk_group"])
        writer.add_expert_shared_count(config["n_shared_experts"])
        writer.add_expert_weights_norm(config["norm_topk_prob"])
        writer.add_expert_weights_scale(config["routed_scaling_factor"])
        writer.add_leading_dense_block_count(config["first_k_dense_replace"])
        writer.add_nextn_predict_layers(count_blocks(config) - layouts.count_layers(config))
    if arch == "llama4":
        writer.add_expert_count(config["num_local_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
        writer.add_expert_feed_forward_length(config["intermediate_size"])
        writer.add_interleave_moe_layer_step(config["interleave_moe_layer_step"])
        writer.add_sliding_window(config["attention_chunk_size"])
        writer.add_attn_temperature_scale(config["attn_scale"])
        writer.add_attn_temperature_length(config["floor_scale"])
    if arch in ("command-r", "cohere2"):
        writer.add_logit_scale(config["logit_scale"])
        writer.add_rope_scaling_type(gguf.RopeScalingType.NONE)
    if arch == "falcon":
        writer.add_tensor_data_layout("jploski")
    if arch == "mpt":
        writer.add_max_alibi_bias(config["attn_config"]["alibi_bias_max"])
        if config["attn_config"]["clip_qkv"]:
            writer.add_clamp_kqv(config["attn_config"]["clip_qkv"])


def has_blocks_of_further_tokens(config):
    """Says whether the file keeps the blocks that predict further tokens."""
    return not layouts.has_latent(config)


def count_blocks(config):
    """Returns the number of layers and of blocks behind them that predict further tokens."""
    further = config.get("num_nextn_predict_layers", 0)
    return layouts.count_layers(config) + has_blocks_of_further_tokens(config) * further


def has_one_kv_tensor(config):
    """Says whether the file is made as older ones are, which say nothing of a compressed cache."""
    return config["model_type"] == "deepseek_v2"


def add_latent_keys(writer, config):
    n_latent, n_rope = config["kv_lora_rank"], config["qk_rope_head_dim"]
    if has_one_kv_tensor(config):
        writer.add_key_length(config["qk_nope_head_dim"] + n_rope)
        writer.add_value_length(config["v_head_dim"])
    else:
        writer.add_key_length(n_latent + n_rope)
        writer.add_value_length(n_latent)
        writer.add_key_length_mla(config["qk_nope_head_dim"] + n_rope)
        writer.add_value_length_mla(config["v_head_dim"])
    writer.add_kv_lora_rank(n_latent)
    if config["q_lora_rank"]:
        writer.add_q_lora_rank(config["q_lora_rank"])


def add_keys(writer, arch, config, tensors, names):
    n_heads, n_kv, width = head_shape(config)
    context = config[layouts.first_key(config, ("max_position_embeddings", "n_positions",
                                                "seq_length", "max_seq_len"))]
    writer.add_context_length(context)
    writer.add_embedding_length(next(v.shape[1] for n, v in tensors.items()
                                     if names[n] == "token_embd.weight"))
    writer.add_block_count(count_blocks(config))
    down = next((values for name, values in tensors.items()
                 if names[name] == "blk.0.ffn_down.weight"), None)
    if arch in gguf_hybrid.ARCHITECTURES:
        gguf_hybrid.add_keys(writer, config)
    elif down is None and "intermediate_size" in config:
        writer.add_feed_forward_length(
            config.get("intermediate_size_mlp", config["intermediate_size"]))
    elif down is None:
        pass  # a mixture of experts alone
    elif isinstance(config.get("intermediate_size"), list):
        writer.add_feed_forward_length(config["intermediate_size"])
    elif config.get("use_double_wide_mlp"):  # in the last layers
        n_wide = config["num_kv_shared_layers"]
        n_narrow = layouts.count_layers(config) - n_wide
        writer.add_feed_forward_length([down.shape[1]] * n_narrow + [2 * down.shape[1]] * n_wide)
    else:
        writer.add_feed_forward_length(down.shape[0] if arch == "gpt2" else down.shape[1])
    writer.add_head_count(n_heads)
    attending = layouts.attention_layers(config)
    if arch in gguf_hybrid.ARCHITECTURES:
        pass  # lists of its own
    elif len(attending) < layouts.count_layers(config) and arch not in gguf_delta.ARCHITECTURES:
        writer.add_head_count_kv([n_kv if layer in attending else 0
                                  for layer in range(layouts.count_layers(config))])
        if arch in ("lfm2", "lfm2moe"):
            writer.add_shortconv_l_cache(config["conv_L_cache"])
    elif arch == "gemma4" and config["attention_k_eq_v"]:
        writer.add_head_count_kv([n_kv if kind == "sliding_attention"
                                  else config["num_global_key_value_heads"]
                                  for kind in layouts.layer_kinds(config)])
    else:
        one = layouts.has_latent(config) and not has_one_kv_tensor(config)
        writer.add_head_count_kv(1 if one else n_kv)
    if layouts.has_latent(config):
        add_latent_keys(writer, config)
    width = config.get("global_head_dim", width)
    if "head_dim" in config and arch != "granite":
        writer.add_key_length(width)
        writer.add_value_length(width)
    epsilon = config.get(layouts.first_key(config, layouts.EPSILON_KEYS), 1e-5)
    if "rms_norm_eps" in config or arch in ("lfm2", "lfm2moe"):
        writer.add_layer_norm_rms_eps(epsilon)
    else:
        writer.add_layer_norm_eps(epsilon)
    if arch not in WITHOUT_ROPE:
        add_rope_keys(writer, arch, config, context)
    add_window_keys(writer, arch, config)
    add_family_keys(writer, arch, config)


def add_tokenizer(writer, n_vocab):
    pieces = ["<unk>", "<s>", "</s>"] + [f"t{i}" for i in range(3, n_vocab)]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(pieces)
    writer.add_token_scores([-float(i) for i in range(n_vocab)])
    writer.add_token_types([2, 3, 3] + [1] * (n_vocab - 3))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template("{{ messages[0].content }}")


def name_gemma4(names):
    """Names what the gguf package knows under the name of a module alone."""
    for name in names:
        layer = next((part for part in name.split(".") if part.isdigit()), "")
        for own, known in ((".router.scale", "ffn_gate_inp.scale"),
                           (".router.per_expert_scale", "ffn_down_exps.scale"),
                           (".experts.gate_up_proj", "ffn_gate_up_exps.weight"),
                           (".experts.down_proj", "ffn_down_exps.weight"),
                           (".layer_scalar", "layer_output_scale.weight")):
            if name.endswith(own):
                names[name] = f"blk.{layer}.{known}"


def convert(folder, arch, out):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = layouts.text_config(json.load(file))
    tensors = read_folder(folder)
    for block in range(count_blocks(config), layouts.count_layers(config) + 1):
        for name in [name for name in tensors if f".layers.{block}." in name]:
            del tensors[name]
    if arch in gguf_hybrid.ARCHITECTURES:
        gguf_hybrid.take_layers(tensors)
    if arch == "gemma3n":
        gguf_gemma3n.stack_streams(tensors)
    known = next(known for known, name in gguf.MODEL_ARCH_NAMES.items() if name == arch)
    table = gguf.get_tensor_name_map(known, count_blocks(config))
    names = {name: table.get_name(name.replace("correction_bias", "correction.bias")
                                  .replace(".dt_bias", ".dt_proj.bias")
                                  .replace(".expert_bias", ".expert_bias.bias"),
                                  try_suffixes=(".weight", ".bias")) for name in tensors}
    if arch in gguf_delta.ARCHITECTURES:
        gguf_delta.take_language_model(arch, tensors, names, table)
    if arch == "gemma4":
        name_gemma4(names)
    if arch in ("granite", "granitehybrid") and not layouts.has_experts(config):
        split_shared_ffn(tensors, names)
    if layouts.has_latent(config) and not has_one_kv_tensor(config):
        split_latent(tensors, names, config)
    stack_experts(tensors, names)
    if arch == "llama4":
        split_stacked(tensors, names)
    mxfp4 = gguf_gpt_oss.split_experts(tensors, names) if arch == "gpt-oss" else ()
    if layouts.is_tied(config):
        tensors.pop("lm_head.weight", None)
    writer = gguf.GGUFWriter(out, arch)
    add_keys(writer, arch, config, tensors, names)
    if arch == "gemma3n":
        gguf_gemma3n.add_keys(writer, config)
    add_tokenizer(writer, next(v.shape[0] for n, v in tensors.items() if names[n] == "token_embd.weight"))
    for name, values in rope_tensors(config):
        writer.add_tensor(name, values)
    for name, values in tensors.items():
        if names[name] is None:
            sys.exit(f"{folder}: {name}: the gguf package has no name for it")
        if name in mxfp4:
            writer.add_tensor(names[name], values, raw_dtype=gguf.GGMLQuantizationType.MXFP4)
            continue
        values = np.ascontiguousarray(change(arch, name, values, config))
        bits = values.view(np.uint32)
        if names[name].endswith(ALWAYS_F32):
            writer.add_tensor(names[name], values)
        elif values.ndim > 1 and not (bits & 0xFFFF).any():
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
