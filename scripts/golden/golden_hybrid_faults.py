# SPDX-License-Identifier: MIT
"""Planted faults of models with attention and scans: Nemotron-H, Falcon-H1."""

import sys
from unittest import mock

import torch

from golden_edits import Fault, exchanged, with_keys
from golden_expert_faults import routers
from golden_family_faults import expert_faults
from golden_layouts import has_experts
from golden_state_faults import mamba2_faults


def _nemotron_faults(config, state):
    yield from mamba2_faults(config, state)
    yield Fault("activation relu2 -> relu", with_keys(config, mlp_hidden_act="relu"), state)
    yield Fault("activation relu2 -> silu", with_keys(config, mlp_hidden_act="silu"), state)
    yield Fault("queries and keys rotated", config, state, _rotated)
    yield Fault("keys and values exchanged", config, exchanged(state, ".k_proj.", ".v_proj."))
    yield Fault("norm behind each sublayer", config, state, _norm_behind)
    if not has_experts(config):
        return
    yield from expert_faults(config, state)
    yield Fault("routed_scaling_factor 1", with_keys(config, routed_scaling_factor=1.0), state)
    yield Fault("softmax of scores", config, state, routers(scoring=lambda x: x.softmax(-1)))
    yield Fault("correction in the weights", config, state, routers(weighed_with_bias=True))
    yield Fault("shared expert scaled too", config, state, _scaled_shared)
    if config["n_group"] > 1:
        yield Fault("no groups", with_keys(config, n_group=1, topk_group=1), state)
        for wrong in (1, config["topk_group"] + 1):
            yield Fault(f"{wrong} groups", with_keys(config, topk_group=wrong), state)


def _attentions(model):
    return [layer.mixer for layer in model.model.layers if hasattr(layer.mixer, "q_proj")]


def _rotated(model):
    """Rotates queries and keys by their positions, as most models do."""
    for attn in _attentions(model):
        module = sys.modules[type(attn).__module__]
        width = attn.head_dim

        def turned(x):
            turns = torch.arange(x.shape[-2])[:, None] * 10000.0 ** (
                -torch.arange(0, width, 2) / width)
            angles = torch.cat((turns, turns), dim=-1)
            return x * angles.cos() + module.rotate_half(x) * angles.sin()

        def forward(*args, plain=attn.forward, module=module, turned=turned,
                    right=module.eager_attention_forward, **kwargs):
            def wrong(owner, q, k, *more, **others):
                return right(owner, turned(q), turned(k), *more, **others)

            with mock.patch.object(module, "eager_attention_forward", wrong):
                return plain(*args, **kwargs)

        attn.forward = forward


def _norm_behind(model):
    """Norms what a layer gives in place of what it takes."""
    for layer in model.model.layers:
        def forward(hidden_states, layer=layer, plain=layer.forward, norm=layer.norm.forward,
                    **kwargs):
            with mock.patch.object(layer.norm, "forward", lambda x: x):
                given = plain(hidden_states, **kwargs) - hidden_states
            return hidden_states + norm(given)

        layer.forward = forward


def _scaled_shared(model):
    for layer in model.model.layers:
        if hasattr(layer.mixer, "shared_experts"):
            expert, factor = layer.mixer.shared_experts, model.config.routed_scaling_factor
            expert.forward = lambda x, right=expert.forward, factor=factor: factor * right(x)


def _falcon_h1_faults(config, state):
    yield from mamba2_faults(config, state)
    for key in ("attention_in_multiplier", "attention_out_multiplier", "embedding_multiplier",
                "key_multiplier", "lm_head_multiplier", "ssm_in_multiplier",
                "ssm_out_multiplier"):
        yield Fault(f"{key} 1", with_keys(config, **{key: 1.0}), state)
    for key in ("mlp_multipliers", "ssm_multipliers"):
        for i in range(len(config[key])):
            changed = list(config[key])
            changed[i] = 1.0
            yield Fault(f"{key} {i} 1", with_keys(config, **{key: changed}), state)
        turned = config[key][1:] + config[key][:1]
        yield Fault(f"{key} in another order", with_keys(config, **{key: turned}), state)
    squared = config["attention_in_multiplier"] * config["key_multiplier"]
    yield Fault("keys without the input's multiplier",
                with_keys(config, key_multiplier=squared / config["attention_in_multiplier"] ** 2),
                state)
    yield Fault("attention behind the scan", config, state, _attention_behind)
    yield Fault("scan left out", config, state, _without("mamba"))
    yield Fault("attention left out", config, state, _without("self_attn"))
    yield Fault("norms of a layer exchanged", config,
                exchanged(state, ".input_layernorm.", ".pre_ff_layernorm."))
    yield Fault("gate and up exchanged", config, exchanged(state, ".gate_proj.", ".up_proj."))


def _attention_behind(model):
    """Lets attention read the residual stream that the scan was added to."""
    for layer in model.model.layers:
        stream = {}

        def remember(hidden_states, norm=layer.input_layernorm.forward, stream=stream):
            stream["in"] = hidden_states
            return norm(hidden_states)

        def scan(*args, layer=layer, right=layer.mamba.forward, stream=stream, **kwargs):
            given = right(*args, **kwargs)
            stream["behind"] = stream["in"] + given * layer.ssm_out_multiplier
            return given

        def attend(hidden_states, *args, layer=layer, right=layer.self_attn.forward,
                   norm=layer.input_layernorm.forward, stream=stream, **kwargs):
            late = norm(stream["behind"]) * layer.attention_in_multiplier
            return right(late, *args, **kwargs)

        layer.input_layernorm.forward = remember
        layer.mamba.forward = scan
        layer.self_attn.forward = attend


def _without(part):
    def patch(model):
        for layer in model.model.layers:
            module = getattr(layer, part)

            def forward(*args, right=module.forward, **kwargs):
                given = right(*args, **kwargs)
                return (given[0] * 0, *given[1:]) if isinstance(given, tuple) else given * 0

            module.forward = forward

    return patch


HYBRID_FAMILIES = {"falcon_h1": _falcon_h1_faults, "nemotron_h": _nemotron_faults}
