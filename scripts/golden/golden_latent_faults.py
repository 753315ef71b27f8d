# SPDX-License-Identifier: MIT
"""Planted faults of latent attention, and of DeepSeek-V2's routers."""

import math

import torch

import golden_patches as patches
from golden_edits import Fault, edited, with_keys
from golden_expert_faults import routers, swapped_shared
from golden_family_faults import expert_faults
from golden_layouts import rope_by_kind


def _attentions(model):
    return [layer.self_attn for layer in model.model.layers]


def _scores_times(factor):
    def patch(model):
        for attention in _attentions(model):
            attention.scaling *= factor

    return patch


def _latent_epsilon(config):
    """The norms of latent rows have the epsilon of the others."""
    def patch(model):
        for attention in _attentions(model):
            for norm in ("q_a_layernorm", "kv_a_layernorm"):
                if getattr(attention, norm, None) is not None:
                    getattr(attention, norm).variance_epsilon = config["rms_norm_eps"]

    return patch


def _norm_of_shared_row(model):
    """The norm of the latent columns runs over the rotating ones too."""
    for attention in _attentions(model):
        def forward(x, attention=attention, plain=attention.kv_a_proj_with_mqa.forward):
            row = plain(x)
            n = attention.kv_lora_rank
            rest = row[..., n:]
            scale = torch.rsqrt(row.pow(2).mean(-1, keepdim=True) + 1e-6)
            return torch.cat((row[..., :n], rest * scale), dim=-1)

        attention.kv_a_proj_with_mqa.forward = forward


def _scale_faults(config, state):
    width = config["qk_nope_head_dim"] + config["qk_rope_head_dim"]
    for what, wrong in (("without the rotating columns", config["qk_nope_head_dim"]),
                        ("of the shared row",
                         config["kv_lora_rank"] + config["qk_rope_head_dim"])):
        yield Fault(f"scale of scores by the width {what}", config, state,
                    _scores_times((width / wrong) ** 0.5))
    rope = rope_by_kind(config)["full_attention"]
    if rope["rope_type"] == "yarn":
        growth = 0.1 * rope["mscale_all_dim"] * math.log(rope["factor"]) + 1
        yield Fault("scores without mscale", config, state, _scores_times(growth ** -2))
        yield Fault("scores with mscale once", config, state, _scores_times(1 / growth))


def _layout_faults(config, state):
    n_heads, n_key = config["num_attention_heads"], config["qk_nope_head_dim"]
    n_value, n_rope = config["v_head_dim"], config["qk_rope_head_dim"]

    def blocks(name, t):
        if ".kv_b_proj." in name:
            keys, values = t.clone().split([n_heads * n_key, n_heads * n_value])
            heads = t.view(n_heads, n_key + n_value, -1)
            heads[:, :n_key] = keys.view(n_heads, n_key, -1)
            heads[:, n_key:] = values.view(n_heads, n_value, -1)

    yield Fault("all keys, then all values", config, edited(state, blocks))

    def values_first(name, t):
        if ".kv_b_proj." in name:
            heads = t.view(n_heads, n_key + n_value, -1)
            heads.copy_(heads.roll(n_value, dims=1))

    yield Fault("values before keys", config, edited(state, values_first))

    def rotating_first(name, t):
        if ".q_proj." in name or ".q_b_proj." in name:
            heads = t.view(n_heads, n_key + n_rope, -1)
            heads.copy_(heads.roll(n_rope, dims=1))

    yield Fault("rotating columns of queries first", config, edited(state, rotating_first))
    yield Fault("rotating columns of the shared row first", config, edited(
        state, lambda name, t: t.copy_(t.roll(n_rope, dims=0))
        if ".kv_a_proj_with_mqa." in name else None))


def _latent_faults(config, state):
    parts = ("kv_a_layernorm",) + (("q_a_layernorm",) if config["q_lora_rank"] else ())
    for part in parts:
        yield Fault(f"{part} dropped", config, state, patches.without(part))
    yield Fault("latent norms with the others' epsilon", config, state, _latent_epsilon(config))
    yield Fault("rotating columns normed", config, state, _norm_of_shared_row)
    yield from _scale_faults(config, state)
    yield from _layout_faults(config, state)
    yield from expert_faults(config, state)
    yield swapped_shared(config, state)
    if config["routed_scaling_factor"] != 1:
        yield Fault("routed_scaling_factor 1", with_keys(config, routed_scaling_factor=1.0), state)


def softmax_routers(group_rank=lambda scores: scores.amax(-1), renormalised=False):
    """Returns a patch in which DeepSeek-V2's routers compute as given; the defaults are right."""

    def route(router, hidden_states):
        logits = hidden_states.view(-1, router.hidden_dim).float() @ router.weight.float().T
        scores = logits.softmax(-1)
        if router.topk_method != "greedy":
            in_groups = scores.view(len(scores), router.num_group, -1)
            kept = group_rank(in_groups).topk(router.topk_group, dim=-1)[1]
            mask = torch.ones(in_groups.shape[:2], dtype=torch.bool).scatter_(1, kept, False)
            scores = in_groups.masked_fill(mask[:, :, None], 0.0).reshape(scores.shape)
        weights, chosen = scores.topk(router.top_k, dim=-1)
        if renormalised:
            weights = weights / weights.sum(-1, keepdim=True)
        return logits, weights * router.routed_scaling_factor, chosen

    def patch(model):
        for module in model.modules():
            if hasattr(module, "topk_method"):
                module.forward = lambda x, router=module: route(router, x)

    return patch


def _deepseek_v2_faults(config, state):
    yield from _latent_faults(config, state)
    yield Fault("weights of experts renormalised", config, state,
                softmax_routers(renormalised=True))
    if config["topk_method"] == "greedy":
        return
    yield Fault("no groups", with_keys(config, topk_method="greedy"), state)
    for wrong in (1, config["topk_group"] + 1):
        yield Fault(f"{wrong} groups", with_keys(config, topk_group=wrong), state)
    yield Fault("groups by their two best", config, state,
                softmax_routers(group_rank=lambda scores: scores.topk(2, -1)[0].sum(-1)))


def _deepseek_v3_faults(config, state):
    yield from _latent_faults(config, state)
    yield Fault("softmax of scores", config, state, routers(scoring=lambda x: x.softmax(-1)))
    yield Fault("correction in the weights", config, state, routers(weighed_with_bias=True))
    if config["n_group"] > 1:
        yield Fault("no groups", with_keys(config, n_group=1, topk_group=1), state)
        yield Fault("groups by their best", config, state,
                    routers(group_rank=lambda sums: sums.amax(-1)))


LATENT_FAMILIES = {"deepseek_v2": _deepseek_v2_faults, "deepseek_v3": _deepseek_v3_faults,
                   "glm4_moe_lite": _deepseek_v3_faults}
