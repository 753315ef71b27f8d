# SPDX-License-Identifier: MIT
"""What converters do to Nemotron-H and Falcon-H1: names, keys that are lists by layer, multipliers
in the weights."""

import numpy as np

import golden_layouts as layouts

ARCHITECTURES = ("nemotron_h", "nemotron_h_moe")


def take_layers(tensors):
    """Leaves out what predicts further tokens."""
    for name in [name for name in tensors if name.startswith("mtp.")]:
        del tensors[name]


def add_scan_keys(writer, config, n_taps):
    n_heads, inner, n_groups, n_state = layouts.scan_sizes(config)
    writer.add_ssm_conv_kernel(n_taps)
    writer.add_ssm_state_size(n_state)
    writer.add_ssm_group_count(n_groups)
    writer.add_ssm_inner_size(inner)
    writer.add_ssm_time_step_rank(n_heads)


def multiplied(name, values, config):
    """Returns a tensor of Falcon-H1 times its multipliers, each product rounded to f32."""
    factors = {".down_proj.": (config["mlp_multipliers"][1],),
               ".gate_proj.": (config["mlp_multipliers"][0],),
               ".k_proj.": (config["key_multiplier"], config["attention_in_multiplier"]),
               ".q_proj.": (config["attention_in_multiplier"],),
               ".v_proj.": (config["attention_in_multiplier"],),
               ".o_proj.": (config["attention_out_multiplier"],),
               ".out_proj.": (config["ssm_out_multiplier"],),
               ".in_proj.": (config["ssm_in_multiplier"],),
               "lm_head.": (config["lm_head_multiplier"],),
               ".embed_tokens.": (config["embedding_multiplier"],)}
    for part, of_part in factors.items():
        if part in name:
            for factor in of_part:
                values = values * np.float32(factor)
    if ".in_proj." in name:
        n_heads, inner, n_groups, n_state = layouts.scan_sizes(config)
        sizes = (inner, inner, n_groups * n_state, n_groups * n_state, n_heads)
        values = values * np.repeat(np.array(config["ssm_multipliers"], np.float32),
                                    sizes)[:, None]
    return values


def add_keys(writer, config):
    kinds = layouts.sublayers(config)
    sparse = layouts.has_experts(config)
    n_kv = config["num_key_value_heads"]
    writer.add_head_count_kv([n_kv if kind == "full_attention" else 0 for kind in kinds])
    width = config["moe_intermediate_size" if sparse else "intermediate_size"]
    writer.add_feed_forward_length([width if kind in ("mlp", "moe") else 0 for kind in kinds])
    writer.add_rope_scaling_finetuned(False)
    add_scan_keys(writer, config, config["conv_kernel"])
    if not sparse:
        return
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    writer.add_expert_shared_feed_forward_length(config["moe_shared_expert_intermediate_size"])
    writer.add_expert_shared_count(config["n_shared_experts"])
    writer.add_expert_weights_norm(config["norm_topk_prob"])
    writer.add_expert_weights_scale(config["routed_scaling_factor"])
    writer.add_expert_group_count(config["n_group"])
