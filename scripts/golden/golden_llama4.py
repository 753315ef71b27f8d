# SPDX-License-Identifier: MIT
"""Llama 4: its golden models, and the mistakes that it invites.

As in golden_configs.py, whose MODELS they join: see there.
"""

import torch

from golden_configs import rms_config
from golden_edits import Fault, edited, with_keys
from golden_expert_faults import swapped_shared
from golden_layouts import layer_kinds


def llama4_config(vocab, **changes):
    return rms_config(vocab, "llama4_text", **{
        "attention_chunk_size": 48, "attn_scale": 0.9, "attn_temperature_tuning": True,
        "floor_scale": 40, "head_dim": 16, "hidden_size": 40, "intermediate_size": 16,
        "intermediate_size_mlp": 52, "interleave_moe_layer_step": 1, "no_rope_layers": [],
        "num_experts_per_tok": 1, "num_hidden_layers": 4, "num_key_value_heads": 2,
        "num_local_experts": 4, "rope_scaling": None, "rope_theta": 500.0,
        "torch_dtype": "bfloat16", "use_qk_norm": True, **changes})


LLAMA4_MODELS = {
    # Scout: the two factors of the scaling are equal.
    "llama4": (
        llama4_config(57, rope_scaling={
            "factor": 8.0, "high_freq_factor": 1.0, "low_freq_factor": 1.0,
            "original_max_position_embeddings": 100, "rope_type": "llama3"}),
        {"seed": 1201}),
    # Maverick: every other layer is dense.
    "llama4_dense_layers": (
        llama4_config(56, attention_chunk_size=70, attn_scale=0.5, interleave_moe_layer_step=2,
                      num_local_experts=5, rope_theta=10000.0, torch_dtype="float16",
                      use_qk_norm=False),
        {"seed": 1203}),
}


def _routed(weigh):
    """Returns a patch in which the experts of a row give weigh(experts, rows, scores)."""
    def patch(model):
        for layer in model.model.layers:
            moe = layer.feed_forward
            if not hasattr(moe, "router"):
                continue

            def forward(x, moe=moe):
                rows = x.reshape(-1, moe.hidden_dim)
                scores, logits = moe.router(rows)
                return moe.shared_expert(rows) + weigh(moe.experts, rows, scores, logits), logits

            moe.forward = forward

    return patch


def _all_experts(experts, rows, factors):
    """What each expert gives for its own multiple of every row: [experts, rows, hidden]."""
    inputs = rows[None] * factors.T[:, :, None]
    return experts(inputs.reshape(-1, rows.shape[1])).view(inputs.shape)


def _outputs_weighed(experts, rows, scores, logits):
    given = _all_experts(experts, rows, torch.ones_like(scores))
    return (given * scores.T[:, :, None]).sum(0)


def _softmax(experts, rows, scores, logits):
    return _all_experts(experts, rows, logits.softmax(-1) * (scores > 0)).sum(0)


def _unweighed(experts, rows, scores, logits):
    return _all_experts(experts, rows, (scores > 0).float()).sum(0)


def _windows_for_chunks(model):
    """The last positions instead of those since the chunk began."""
    size = model.config.attention_chunk_size

    def hook(module, args, kwargs):
        mask = kwargs["attention_mask"]
        places = torch.arange(mask.shape[-1])
        distance = places[:, None] - places
        seen = (distance >= 0) & (distance < size)
        kwargs["attention_mask"] = torch.where(seen, 0.0, torch.finfo(mask.dtype).min)[None, None]
        return args, kwargs

    for layer, kind in zip(model.model.layers, layer_kinds(model.config.to_dict())):
        if kind == "chunked_attention":
            layer.self_attn.register_forward_pre_hook(hook, with_kwargs=True)


def _query_positions(change):
    """Returns a patch in which a query at p has the scale of change(p)."""
    def patch(model):
        for layer in model.model.layers:
            attn = layer.self_attn
            if attn.use_rope:
                continue
            # The scale depends on the position alone, so the ratio of two can follow the product.
            plain = attn.q_proj.forward

            def forward(x, attn=attn, plain=plain):
                p = torch.arange(x.shape[-2]).float()

                def scale(place):
                    turns = torch.floor((place + 1) / attn.floor_scale)
                    return torch.log1p(turns) * attn.attn_scale + 1

                return plain(x) * (scale(change(p)) / scale(p))[:, None]

            attn.q_proj.forward = forward

    return patch


def _attention_faults(config, state):
    size = config["attention_chunk_size"]
    for wrong in (size // 2, size - 1, size + 1, 4096):
        yield Fault(f"chunk {size} -> {wrong}", with_keys(config, attention_chunk_size=wrong),
                    state)
    yield Fault("windows in place of chunks", config, state, _windows_for_chunks)
    for kind in ("chunked_attention", "full_attention"):
        yield Fault(f"{kind} in every layer",
                    with_keys(config, layer_types=[kind] * len(layer_kinds(config))), state)
    flipped = not config["use_qk_norm"]
    yield Fault(f"use_qk_norm {flipped}", with_keys(config, use_qk_norm=flipped), state)
    yield Fault("queries without temperature", with_keys(config, attn_temperature_tuning=False),
                state)
    for key in ("attn_scale", "floor_scale"):
        yield Fault(f"{key} doubled", with_keys(config, **{key: 2 * config[key]}), state)
    yield Fault("temperature of the position before", config, state,
                _query_positions(lambda p: p - 1))


def llama4_faults(config, state):
    yield from _attention_faults(config, state)
    n_used = config["num_experts_per_tok"]
    for wrong in (n_used - 1, n_used + 1):
        yield Fault(f"{n_used} experts -> {wrong}", with_keys(config, num_experts_per_tok=wrong),
                    state)
    yield Fault("experts exchanged", config, edited(
        state, lambda name, t: t.copy_(t.roll(1, dims=0)) if ".experts." in name else None))
    yield Fault("gate and up of experts exchanged", config, edited(
        state, lambda name, t: t.copy_(t.roll(t.shape[2] // 2, dims=2))
        if name.endswith(".experts.gate_up_proj") else None))
    yield swapped_shared(config, state)
    for what, weigh in (("outputs of experts weighed", _outputs_weighed),
                        ("softmax of scores", _softmax), ("weights 1", _unweighed)):
        yield Fault(what, config, state, _routed(weigh))


LLAMA4_FAMILIES = {"llama4_text": llama4_faults}
