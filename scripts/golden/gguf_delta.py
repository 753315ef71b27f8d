# SPDX-License-Identifier: MIT
"""What converters do to Qwen 3.5 and Qwen3-Next: tensors apart, heads in another order, keys."""

import numpy as np

import golden_layouts as layouts

ARCHITECTURES = ("qwen35", "qwen35moe", "qwen3next")
# The gguf package has no names for these.
RATES = {".in_proj_b.": "ssm_beta", ".in_proj_a.": "ssm_alpha"}


def take_language_model(arch, tensors, names, table):
    """Leaves what sees and what predicts further tokens out, and puts apart what is fused."""
    for name in list(tensors):
        if ".visual." in name or name.startswith("mtp."):
            del tensors[name], names[name]
            continue
        plain = name.replace("model.language_model.", "model.").replace(".dt_bias", ".dt_proj.bias")
        names[name] = table.get_name(plain, try_suffixes=(".weight", ".bias"))
        layer = next((part for part in name.split(".") if part.isdigit()), None)
        for part, own in RATES.items():
            if part in name:
                names[name] = f"blk.{layer}.{own}.weight"
        if name.endswith(".experts.gate_up_proj"):
            for kind, values in zip(("gate", "up"), np.split(tensors.pop(name), 2, axis=1)):
                tensors[f"{name}.{kind}"] = values
                names[f"{name}.{kind}"] = f"blk.{layer}.ffn_{kind}_exps.weight"
        elif name.endswith(".experts.down_proj"):
            names[name] = f"blk.{layer}.ffn_down_exps.weight"
        elif ".in_proj_qkvz." in name:
            tensors[f"{name}.both"] = tensors.pop(name)
            names[f"{name}.both"] = None
    for name in [name for name in tensors if name.endswith(".both")]:
        layer = next(part for part in name.split(".") if part.isdigit())
        tensors[f"{name}.qkv"] = tensors[f"{name}.z"] = tensors.pop(name)
        names[f"{name}.qkv"] = f"blk.{layer}.attn_qkv.weight"
        names[f"{name}.z"] = f"blk.{layer}.attn_gate.weight"


def sizes(config):
    return (config["linear_num_key_heads"], config["linear_key_head_dim"],
            config["linear_num_value_heads"], config["linear_value_head_dim"])


def in_turn(values, config, width, axis=0):
    """Heads of values: those of one key, which are neighbours, become as far apart as there are
    keys."""
    n_keys, _, n_values, _ = sizes(config)
    shape = values.shape
    heads = values.reshape(*shape[:axis], n_keys, n_values // n_keys, width, *shape[axis + 1:])
    return heads.swapaxes(axis, axis + 1).reshape(shape)


def change(arch, name, values, config):
    n_keys, key, n_values, value = sizes(config)
    all_keys = 2 * n_keys * key
    if name.endswith("norm.weight"):
        return values + np.float32(layouts.gain_offset(config, name))
    if name.endswith(".A_log"):
        values = -np.exp(values.astype(np.float64)).astype(np.float32)
    if name.endswith((".qkv", ".z")):
        groups = values.reshape(n_keys, -1, values.shape[1])
        cuts = np.cumsum([key, key, n_values // n_keys * value])
        parts = [part.reshape(-1, values.shape[1]) for part in np.split(groups, cuts, axis=1)]
        return parts[3] if name.endswith(".z") else np.concatenate(parts[:3])
    if arch == "qwen3next":
        return values
    if name.endswith((".in_proj_qkv.weight", ".conv1d.weight")):
        return np.concatenate((values[:all_keys], in_turn(values[all_keys:], config, value)))
    if name.endswith(".in_proj_z.weight"):
        return in_turn(values, config, value)
    if name.endswith((".in_proj_a.weight", ".in_proj_b.weight", ".A_log", ".dt_bias")):
        return in_turn(values, config, 1)
    if name.endswith(".linear_attn.out_proj.weight"):
        return in_turn(values, config, value, axis=1)
    return values


def add_keys(writer, arch, config):
    n_keys, key, n_values, value = sizes(config)
    writer.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
    writer.add_ssm_state_size(key)
    writer.add_ssm_group_count(n_keys)
    writer.add_ssm_time_step_rank(n_values)
    writer.add_ssm_inner_size(n_values * value)
    writer.add_full_attention_interval(config["full_attention_interval"])
    attending = layouts.attention_layers(config)
    if "layer_types" in config:
        writer.add_array(f"{arch}.attention.recurrent_layers",
                         [layer not in attending for layer in range(layouts.count_layers(config))])
    if arch != "qwen3next":
        writer.add_rope_dimension_sections([1, 1, 0, 0])
