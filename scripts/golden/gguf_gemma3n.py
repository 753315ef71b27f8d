# SPDX-License-Identifier: MIT
"""What llama.cpp's converter does to Gemma 3n: stacked products of streams, and keys of its own."""

import math
import statistics

import numpy as np

ENDS = ("altup_projections", "altup_unembed_projections")


def stack_streams(tensors):
    """Puts the products into streams in one tensor, and those out of them, and names the scales."""
    for end in ENDS:
        names = sorted(name for name in tensors if f".{end}." in name)
        tensors[f"model.{end}.weight"] = np.stack([tensors.pop(name) for name in names])
    for name in [name for name in tensors if name.endswith(".correct_output_scale")]:
        tensors[f"{name}.weight"] = tensors.pop(name)


def add_keys(writer, config):
    writer.add_altup_active_idx(config["altup_active_idx"])
    writer.add_altup_num_inputs(config["altup_num_inputs"])
    writer.add_embedding_length_per_layer_input(config["hidden_size_per_layer_input"])
    writer.add_shared_kv_layers(config["num_kv_shared_layers"])
    writer.add_activation_sparsity_scale([deviations(share)
                                          for share in config["activation_sparsity_pattern"]])


def deviations(share):
    """Returns how many of them that share of normal numbers lies below."""
    share = float(np.float32(share))
    return statistics.NormalDist().inv_cdf(share) if share > 0 else -math.inf
