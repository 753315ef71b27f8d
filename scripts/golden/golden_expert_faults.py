# SPDX-License-Identifier: MIT
"""Planted faults of mixtures of experts with dense layers or shared experts."""

import torch

from golden_edits import Fault, edited, with_keys
from golden_family_faults import expert_faults


def ungated(model):
    """Makes the shared expert's gate 1, whatever the row."""
    for module in model.modules():
        if hasattr(module, "shared_expert_gate"):
            module.shared_expert_gate.forward = lambda x: torch.full((*x.shape[:-1], 1), 1e4)


def linear_gate(model):
    """Leaves the sigmoid out of the shared expert's gate: the product itself, held to 0 to 1."""
    for module in model.modules():
        if hasattr(module, "shared_expert_gate"):
            right = module.shared_expert_gate.forward
            module.shared_expert_gate.forward = \
                lambda x, right=right: torch.logit(right(x).clamp(1e-6, 1 - 1e-6))


def _swapped_shared(config, state):
    def edit(name, tensor):
        if ".shared_expert" in name and name.endswith(".gate_proj.weight"):
            other = name.replace(".gate_proj.", ".up_proj.")
            tensor[:] = state[other]
        elif ".shared_expert" in name and name.endswith(".up_proj.weight"):
            tensor[:] = state[name.replace(".up_proj.", ".gate_proj.")]

    return Fault("gate and up of the shared expert exchanged", config, edited(state, edit))


def _qwen2_moe_faults(config, state):
    yield from expert_faults(config, state)
    yield _swapped_shared(config, state)
    yield Fault("shared expert's gate 1", config, state, ungated)
    yield Fault("shared expert's gate without sigmoid", config, state, linear_gate)
    if config["use_sliding_window"]:
        yield Fault("window in the first layer alone", with_keys(config, max_window_layers=1), state)
        for what, kinds in (("every layer", ["sliding_attention"]),
                            ("other layers", ["full_attention", "sliding_attention"])):
            listed = (kinds * config["num_hidden_layers"])[:config["num_hidden_layers"]]
            yield Fault(f"window in {what}", with_keys(config, layer_types=listed), state)


EXPERT_FAMILIES = {"qwen2_moe": _qwen2_moe_faults}
