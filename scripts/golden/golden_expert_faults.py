# SPDX-License-Identifier: MIT
"""Planted faults of mixtures of experts with dense layers or shared experts."""

import torch

import golden_patches as patches
from golden_edits import Fault, edited, swapped_halves, with_keys
from golden_family_faults import expert_faults, granitemoe_faults, head_norm_faults
from golden_state_faults import lfm2_faults


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


def sum_of_two_best(sums):
    return sums.topk(2, dim=-1)[0].sum(dim=-1)


def routers(scoring=torch.sigmoid, group_rank=sum_of_two_best, masked=float("-inf"),
            weighed_with_bias=False):
    """Returns a patch in which GLM's routers compute as given; the defaults are right."""

    def route(router, hidden_states):
        logits = hidden_states.view(-1, router.hidden_dim).float() @ router.weight.float().T
        scores = scoring(logits)
        sums = scores + router.e_score_correction_bias
        in_groups = sums.view(len(sums), router.num_group, -1)
        kept = group_rank(in_groups).topk(router.topk_group, dim=-1)[1]
        mask = torch.ones(in_groups.shape[:2], dtype=torch.bool).scatter_(1, kept, False)
        in_groups = in_groups.masked_fill(mask[:, :, None], masked)
        chosen = in_groups.reshape(sums.shape).topk(router.top_k, dim=-1)[1]
        weights = (sums if weighed_with_bias else scores).gather(1, chosen)
        if router.norm_topk_prob:
            weights = weights / (weights.sum(dim=-1, keepdim=True) + 1e-20)
        return logits, weights * router.routed_scaling_factor, chosen

    def patch(model):
        for module in model.modules():
            if hasattr(module, "e_score_correction_bias"):
                module.forward = lambda x, router=module: route(router, x)

    return patch


def swapped_shared(config, state):
    def edit(name, tensor):
        if ".shared_expert" in name and name.endswith(".gate_proj.weight"):
            other = name.replace(".gate_proj.", ".up_proj.")
            tensor[:] = state[other]
        elif ".shared_expert" in name and name.endswith(".up_proj.weight"):
            tensor[:] = state[name.replace(".up_proj.", ".gate_proj.")]

    return Fault("gate and up of the shared expert exchanged", config, edited(state, edit))


def _qwen2_moe_faults(config, state):
    yield from expert_faults(config, state)
    yield swapped_shared(config, state)
    yield Fault("shared expert's gate 1", config, state, ungated)
    yield Fault("shared expert's gate without sigmoid", config, state, linear_gate)
    if config["use_sliding_window"]:
        yield Fault("window in the first layer alone", with_keys(config, max_window_layers=1), state)
        for what, kinds in (("every layer", ["sliding_attention"]),
                            ("other layers", ["full_attention", "sliding_attention"])):
            listed = (kinds * config["num_hidden_layers"])[:config["num_hidden_layers"]]
            yield Fault(f"window in {what}", with_keys(config, layer_types=listed), state)


def _glm4_moe_faults(config, state):
    if config["use_qk_norm"]:
        yield from head_norm_faults(config, state)
    yield from expert_faults(config, state)
    yield swapped_shared(config, state)
    yield Fault("routed_scaling_factor 1", with_keys(config, routed_scaling_factor=1.0), state)
    yield Fault("softmax of scores", config, state, routers(scoring=lambda x: x.softmax(-1)))
    yield Fault("correction in the weights", config, state, routers(weighed_with_bias=True))
    if config["n_group"] > 1:
        yield Fault("no groups", with_keys(config, n_group=1, topk_group=1), state)
        for wrong in (1, config["topk_group"] + 1):
            yield Fault(f"{wrong} groups", with_keys(config, topk_group=wrong), state)
        yield Fault("groups by their best", config, state,
                    routers(group_rank=lambda sums: sums.amax(-1)))
        yield Fault("0 outside the groups", config, state, routers(masked=0.0))


def _granitemoeshared_faults(config, state):
    yield from granitemoe_faults(config, state)
    yield Fault("gate and up of the shared expert exchanged", config,
                swapped_halves(state, ".shared_mlp.input_linear."))


def renormalised_softmax(model):
    """Routes as Mixtral does, and as llama.cpp does here."""
    for module in model.modules():
        if hasattr(module, "router_jitter_noise"):
            def route(x, router=module):
                scores = x.float() @ router.weight.float().T
                weights, chosen = scores.softmax(-1).topk(2, dim=-1)
                return scores, weights / weights.sum(-1, keepdim=True), chosen

            module.forward = route


def _phimoe_faults(config, state):
    for name, tensor in state.items():
        if name.endswith(".experts.gate_up_proj"):
            rolled = {**state, name: tensor.roll(1, dims=0)}
            yield Fault(f"experts exchanged: {name}", config, rolled)
    yield Fault("softmax of the two", config, state, renormalised_softmax)
    yield Fault("LayerNorm without the mean", config, state, patches.norms_without_mean)
    noise = config["router_jitter_noise"]
    for wrong in (0.0, noise / 2, noise * 2):
        yield Fault(f"router_jitter_noise {noise} -> {wrong}",
                    with_keys(config, router_jitter_noise=wrong), state)
    rope = config["rope_scaling"]
    if rope["short_mscale"] != rope["long_mscale"]:
        swapped = {**rope, "short_mscale": rope["long_mscale"],
                   "long_mscale": rope["short_mscale"]}
        yield Fault("short_mscale and long_mscale exchanged",
                    with_keys(config, rope_scaling=swapped), state)
    plain = {**rope, "short_mscale": 1.0, "long_mscale": 1.0}
    yield Fault("short_mscale and long_mscale 1", with_keys(config, rope_scaling=plain), state)


def _lfm2_routers(scoring=torch.sigmoid, weighed_with_bias=False):
    """Returns a patch in which LFM2's routers compute as given; the defaults are right."""

    def route(router, hidden_states, expert_bias=None):
        logits = hidden_states @ router.weight.T
        scores = scoring(logits)
        sums = scores if expert_bias is None else scores + expert_bias
        chosen = sums.topk(router.top_k, dim=-1)[1]
        weights = (sums if weighed_with_bias else scores).gather(1, chosen)
        if router.norm_topk_prob:
            weights = weights / (weights.sum(dim=-1, keepdim=True) + 1e-6)
        return logits, weights * router.routed_scaling_factor, chosen

    def patch(model):
        for module in model.modules():
            if hasattr(module, "routed_scaling_factor"):
                module.forward = lambda x, bias=None, router=module: route(router, x, bias)

    return patch


def _lfm2_moe_faults(config, state):
    yield from lfm2_faults(config, state)
    yield from expert_faults(config, state)
    yield Fault("softmax of scores", config, state,
                _lfm2_routers(scoring=lambda x: x.softmax(-1)))
    if config["use_expert_bias"]:
        yield Fault("correction in the weights", config, state,
                    _lfm2_routers(weighed_with_bias=True))
    if config["routed_scaling_factor"] != 1.0:
        yield Fault("routed_scaling_factor 1", with_keys(config, routed_scaling_factor=1.0), state)


EXPERT_FAMILIES = {"lfm2_moe": _lfm2_moe_faults,
                   "phimoe": _phimoe_faults,
                   "glm4_moe": _glm4_moe_faults, "granitemoeshared": _granitemoeshared_faults,
                   "qwen2_moe": _qwen2_moe_faults}
