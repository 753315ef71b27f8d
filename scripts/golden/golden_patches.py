# SPDX-License-Identifier: MIT
"""Mistakes of computation: functions that make a transformers model compute something wrong.

Each takes a model and changes it in place. They serve golden_faults.py, for mistakes that no
configuration and no weights express.
"""

from unittest import mock

import torch
from transformers.models.bloom import modeling_bloom as bloom
from transformers.models.qwen3 import modeling_qwen3 as qwen3


def without(part):
    """Returns a patch that turns every module called `part` into one that does nothing."""

    def patch(model):
        owners = [m for m in model.modules() if hasattr(m, part)]
        assert owners, part
        for owner in owners:
            setattr(owner, part, torch.nn.Identity())

    return patch


def embedding_scale_one(model):
    model.get_input_embeddings().embed_scale.fill_(1.0)


def plain_slopes(slopes):
    """Returns 2^(-8 i / n) for i = 1 .. n, which holds for a power of two alone."""
    n = slopes.shape[0]
    return torch.tensor([2.0 ** (-8.0 * (i + 1) / n) for i in range(n)])


def bloom_slopes(change):
    """Returns a patch that replaces the ALiBi slopes of the heads by change(slopes)."""

    def patch(model):
        right, forward = bloom._get_alibi_slopes, model.transformer.forward

        def wrong(*args, **kwargs):
            with mock.patch.object(bloom, "_get_alibi_slopes",
                                   lambda n_heads, device: change(right(n_heads, device))):
                return forward(*args, **kwargs)

        model.transformer.forward = wrong

    return patch


def sequential(model):
    """Makes a layer add its attention before the MLP reads the sum; right is side by side."""
    for layer in model.model.layers:
        def forward(hidden_states, layer=layer, **kwargs):
            attended, _ = layer.self_attn(
                hidden_states=layer.input_layernorm(hidden_states), **kwargs)
            hidden_states = hidden_states + attended
            return hidden_states + layer.mlp(layer.input_layernorm(hidden_states))

        layer.forward = forward


def qwen3_norms_after_rope(model):
    for layer in model.model.layers:
        attn = layer.self_attn

        def forward(hidden_states, position_embeddings, attention_mask, attn=attn, **kwargs):
            shape = (*hidden_states.shape[:-1], -1, attn.head_dim)
            q, k, v = (projection(hidden_states).view(shape).transpose(1, 2)
                       for projection in (attn.q_proj, attn.k_proj, attn.v_proj))
            q, k = qwen3.apply_rotary_pos_emb(q, k, *position_embeddings)
            out, weights = qwen3.eager_attention_forward(
                attn, attn.q_norm(q), attn.k_norm(k), v, attention_mask, scaling=attn.scaling)
            return attn.o_proj(out.reshape(*hidden_states.shape[:-1], -1)), weights

        attn.forward = forward
