# SPDX-License-Identifier: MIT
"""Planted faults for the golden models: variants of a model that are wrong in one known way.

A golden model proves something about an engine only if every mistake the engine could make moves
its logits by far more than the tolerance of the comparison. This module lists such mistakes as
variants of the configuration, the weights or (golden_patches.py) the computation;
make_golden_models.py runs each one and records how far the logits move. Here are those of all
families; golden_position_faults.py and golden_family_faults.py have the others. They depend on the
layouts of the families, not on the engine.
"""

from golden_delta_faults import DELTA_FAMILIES
from golden_edits import Fault, interleaved_kv_map, with_keys, zeroed
from golden_expert_faults import EXPERT_FAMILIES
from golden_family_faults import FAMILIES
from golden_hybrid_faults import HYBRID_FAMILIES
from golden_latent_faults import LATENT_FAMILIES
from golden_llama4 import LLAMA4_FAMILIES
from golden_layouts import (ACTIVATION_KEYS, EPSILON_KEYS, first_key, gain_offset, head_shape,
                            head_views, is_embedding, is_norm_gain, is_tied, rotates)
from golden_position_faults import rope_faults, table_faults, window_faults


def exemption(config, name):
    """Returns why the fault `name` need not move the logits of this model, or None if it must."""
    if {"gelu", "gelu_new"} == set(name.removeprefix("activation ").split(" -> ")):
        # No choice of weights makes the difference large.
        return "the two functions differ by less than 5e-4 everywhere"
    if name == f"layer {config.get('num_hidden_layers', 0) - 1} not scaled":
        return "the final norm divides by that scale, all but its epsilon"
    if config["model_type"] == "gpt_oss" and name.startswith("activation "):
        return "its experts have a gate of their own, whatever the file says"
    if config["model_type"] == "deepseek_v2" and name.startswith("norm_topk_prob "):
        return "the model does not read the key"
    if not rotates(config) and name.endswith(("k_bias", "k_proj.bias")):
        # The logits cannot move at all.
        return "adds the same q.b_k to every score of a query, which softmax ignores"
    return None


def _part_faults(config, state, name):
    """Zeroes each part of a fused tensor."""
    tensor = state[name]
    kind = "bias" if name.endswith("bias") else "weight"
    if ".c_attn." in name:
        third = tensor.shape[-1] // 3
        for i, letter in enumerate("qkv"):
            part = slice(i * third, (i + 1) * third)
            label = name.replace("c_attn." + kind, f"{letter}_{kind}")
            yield Fault(f"{kind} zeroed: {label}", config, zeroed(state, name, part))
    fused = any(part in name for part in (".qkv_proj.", ".query_key_value.", ".Wqkv."))
    for letter in head_views(config, name, tensor) if fused else ():
        changed = {**state, name: tensor.clone()}
        head_views(config, name, changed[name])[letter][:] = 0
        label = name
        for fused_name in ("qkv_proj.", "query_key_value.", "Wqkv."):
            label = label.replace(fused_name + kind, f"{letter}_{kind}")
        yield Fault(f"{kind} zeroed: {label}", config, changed)
    if ".gate_up_proj." in name:
        for i, part in enumerate(("gate", "up")):
            changed = {**state, name: tensor.clone()}
            changed[name].view(2, -1, tensor.shape[1])[i] = 0
            label = name.replace("gate_up_proj", part + "_proj")
            yield Fault(f"{kind} zeroed: {label}", config, changed)


def _tensor_faults(config, state):
    for name, tensor in state.items():
        what = "bias zeroed" if name.endswith(".bias") else "tensor zeroed"
        yield Fault(f"{what}: {name}", config, zeroed(state, name))
        if is_norm_gain(name):
            one = tensor * 0 + (1 - gain_offset(config, name))
            yield Fault(f"norm gain set to 1: {name}", config, {**state, name: one})
        yield from _part_faults(config, state, name)


def _common_faults(config, state):
    """What can go wrong in any family: epsilon, the activation, the head."""
    epsilon = first_key(config, EPSILON_KEYS)
    if epsilon:
        yield Fault("epsilon halved", with_keys(config, **{epsilon: config[epsilon] / 2}), state)
    others = {"gelu_new": ["gelu"], "gelu": ["gelu_new"], "relu": ["gelu_new", "gelu"],
              "gelu_pytorch_tanh": ["silu"], "silu": ["gelu_new"]}
    if config["model_type"] == "gemma":
        others["gelu"] = ["silu"]  # the published spelling of the tanh form
    key = first_key(config, ACTIVATION_KEYS)
    for wrong in others[config[key]] if key else ():
        yield Fault(f"activation {config[key]} -> {wrong}", with_keys(config, **{key: wrong}),
                    state)
    if not is_tied(config):
        table = next(name for name in state if is_embedding(name))
        yield Fault("head tied", config, {**state, "lm_head.weight": state[table]})


def _group_faults(config, state):
    n_heads, n_kv, _ = head_shape(config)
    if 1 < n_kv < n_heads:
        yield Fault("kv heads interleaved", config, interleaved_kv_map(config, state))


def planted_faults(config, state):
    """Yields a Fault for every one that applies to this model.

    `state` maps the names of the model's own state dict to f32 tensors. The input is not changed.
    """
    yield from _common_faults(config, state)
    yield from table_faults(config, state)
    own_heads = config["model_type"] == "gemma4_text"  # by layer: its faults are its own
    if rotates(config) and not own_heads:
        yield from rope_faults(config, state)
    if config["model_type"] != "gpt2" and not own_heads:
        yield from _group_faults(config, state)
    if config["model_type"] not in ("gpt2", "gemma3n_text", "gemma4_text"):
        yield from window_faults(config, state)
    for families in (FAMILIES, EXPERT_FAMILIES, LATENT_FAMILIES, DELTA_FAMILIES, LLAMA4_FAMILIES,
                     HYBRID_FAMILIES):
        if config["model_type"] in families:
            yield from families[config["model_type"]](config, state)
    yield from _tensor_faults(config, state)
