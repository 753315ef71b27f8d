# SPDX-License-Identifier: MIT
"""Mistakes of computation: functions that make a transformers model compute something wrong.

Each takes a model and changes it in place. They serve golden_faults.py, for mistakes that no
configuration and no weights express.
"""

import sys
from unittest import mock

import torch
from transformers.models.bloom import modeling_bloom as bloom
from transformers.models.falcon import modeling_falcon as falcon
from transformers.models.ministral3 import modeling_ministral3 as ministral3

from golden_layouts import rotating_layers


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


def falcon_biases(change=lambda slopes: slopes, rounded=True, scaled=True):
    """Returns a patch that replaces what Falcon's ALiBi adds to the scores."""

    def patch(model):
        config, forward = model.config, model.transformer.forward
        right = falcon.build_alibi_tensor

        def wrong(mask, n_heads, dtype):
            slopes = change(right(mask[:, :2], n_heads, dtype)[:, 0, 1])
            biases = slopes[:, None, None] * torch.arange(mask.shape[-1])
            if rounded:
                biases = slopes.bfloat16()[:, None, None] * torch.arange(mask.shape[-1])
            return biases.to(dtype) * (1 if scaled else config.head_dim ** 0.5)

        def patched(*args, **kwargs):
            with mock.patch.object(falcon, "build_alibi_tensor", wrong):
                return forward(*args, **kwargs)

        model.transformer.forward = patched

    return patch


def alibi_slopes(change):
    """Returns a patch that replaces the ALiBi slopes of the heads by change(slopes)."""

    def patch(model):
        if model.config.model_type == "falcon":
            return falcon_biases(change)(model)
        if model.config.model_type == "mpt":
            right = model.transformer.build_mpt_alibi_tensor
            model.transformer.build_mpt_alibi_tensor = \
                lambda *args, **kwargs: with_slopes(right(*args, **kwargs), change)
            return
        right, forward = bloom._get_alibi_slopes, model.transformer.forward

        def wrong(*args, **kwargs):
            with mock.patch.object(bloom, "_get_alibi_slopes",
                                   lambda n_heads, device: change(right(n_heads, device))):
                return forward(*args, **kwargs)

        model.transformer.forward = wrong

    return patch


def with_slopes(alibi, change):
    """Changes what MPT adds to the scores, [heads, 1, positions], 0 for the last position."""
    slopes = change(-alibi[:, 0, -2])
    return slopes[:, None, None] * torch.arange(1 - alibi.shape[-1], 1)


def sequential(model):
    """Makes a layer add its attention before the MLP reads the sum; right is side by side."""
    for layer in model.model.layers:
        def forward(hidden_states, layer=layer, **kwargs):
            attended, _ = layer.self_attn(
                hidden_states=layer.input_layernorm(hidden_states), **kwargs)
            hidden_states = hidden_states + attended
            return hidden_states + layer.mlp(layer.input_layernorm(hidden_states))

        layer.forward = forward


def falcon_sequential(model):
    for layer in model.transformer.h:
        norms = [getattr(layer, name) for name in ("ln_attn", "ln_mlp", "input_layernorm")
                 if hasattr(layer, name)]

        def forward(hidden_states, layer=layer, norms=norms, **kwargs):
            attended, weights = layer.self_attention(norms[0](hidden_states), **kwargs)
            hidden_states = hidden_states + attended
            return hidden_states + layer.mlp(norms[-1](hidden_states)), weights

        layer.forward = forward


def norms_after_rope(model):
    """Applies the norms of q and k behind RoPE, in layers where RoPE turns them."""
    for layer, turns in zip(model.model.layers, rotating_layers(model.config.to_dict())):
        if not turns:
            continue
        attn = layer.self_attn
        module = sys.modules[type(attn).__module__]

        def forward(*args, norms=(attn.q_norm, attn.k_norm), plain=attn.forward, module=module,
                    right=module.apply_rotary_pos_emb, **kwargs):
            def wrong(*args, **kwargs):
                q, k = right(*args, **kwargs)
                return norms[0](q), norms[1](k)

            with mock.patch.object(module, "apply_rotary_pos_emb", wrong):
                return plain(*args, **kwargs)

        attn.q_norm = attn.k_norm = torch.nn.Identity()
        attn.forward = forward


def rope_in_layers(turns):
    """Returns a patch that lets RoPE turn queries and keys of the layers for which `turns` is
    true, and of no others. Windows stay: the masks do not depend on what is changed here."""

    def patch(model):
        for layer, here in zip(model.model.layers, turns):
            attn = layer.self_attn
            if model.config.model_type in ("smollm3", "llama4_text"):
                attn.use_rope = here
            elif model.config.model_type == "cohere2":
                attn.sliding_window = 1 if here else None
            else:
                attn.sliding_window, attn.is_sliding = 1, here

    return patch


def norm_of_each_head(part):
    """Returns a patch that makes the norm `part` of a whole row one of each head."""

    def patch(model):
        for layer in model.model.layers:
            norm, width = getattr(layer.self_attn, part), layer.self_attn.head_dim

            def forward(row, norm=norm, width=width):
                heads = row.unflatten(-1, (-1, width))
                mean = heads.pow(2).mean(-1, keepdim=True)
                return norm.weight * (heads * (mean + norm.variance_epsilon).rsqrt()).flatten(-2)

            norm.forward = forward

    return patch


def norms_in_front(behind):
    """Returns a patch for families with norms behind the sublayers that puts them in front, and
    keeps those behind or not."""

    def patch(model):
        for layer in model.model.layers:
            def forward(hidden_states, layer=layer, **kwargs):
                for norm, run in (
                        (layer.post_attention_layernorm,
                         lambda x: layer.self_attn(hidden_states=x, **kwargs)[0]),
                        (layer.post_feedforward_layernorm, layer.mlp)):
                    added = run(norm(hidden_states))
                    hidden_states = hidden_states + (norm(added) if behind else added)
                return hidden_states

            layer.forward = forward

    return patch


def norms_without_mean(model):
    """Makes every LayerNorm scale by the root of the mean square."""
    norms = [m for m in model.modules() if type(m).__name__.endswith("LayerNorm")]
    assert norms
    for norm in norms:
        epsilon = getattr(norm, "variance_epsilon", None) or norm.eps

        def forward(x, norm=norm, epsilon=epsilon):
            return norm.weight * x * (x.pow(2).mean(-1, keepdim=True) + epsilon).rsqrt()

        norm.forward = forward


def clip_before_norms(model):
    """Clamps queries and keys in front of their norms, and values as they should be."""
    most, model.config.clip_qkv = model.config.clip_qkv, None
    for layer in model.model.layers:
        for part in ("q_proj", "k_proj", "v_proj"):
            owner = getattr(layer.self_attn, part)

            def forward(x, plain=owner.forward):
                return plain(x).clamp(min=-most, max=most)

            owner.forward = forward


def unscaled_residual(part):
    """Returns a patch that adds the output of `part` to the residual stream as it is."""

    def patch(model):
        for layer in model.model.layers:
            owner, scale = getattr(layer, part), layer.residual_multiplier
            if owner is None:  # a layer of another kind
                continue

            def forward(*args, plain=owner.forward, scale=scale, **kwargs):
                out = plain(*args, **kwargs)
                return (out[0] / scale, *out[1:]) if isinstance(out, tuple) else out / scale

            owner.forward = forward

    return patch


def query_scale(positions, beta, original):
    return 1 + beta * torch.log(1 + torch.floor(positions / original))


def query_scales(wrong):
    """Returns a patch that scales queries by wrong(positions, beta, original context)."""

    def patch(model):
        plain = model.model.forward

        def forward(*args, **kwargs):
            with mock.patch.object(
                    ministral3, "get_llama_4_attn_scale",
                    lambda p, beta, original: wrong(p, beta, original)[:, None, :, None]):
                return plain(*args, **kwargs)

        model.model.forward = forward

    return patch


def softmax_over_all(model):
    """Makes the weights of a row's experts those of a softmax over all, not over the chosen."""
    for layer in model.model.layers:
        block = getattr(layer, "mlp", None) or layer.block_sparse_moe
        router = getattr(block, "gate", None) or block.router
        right = router.forward

        def forward(hidden_states, right=right):
            scores, _, chosen = right(hidden_states)
            return scores, scores.float().softmax(-1).gather(-1, chosen), chosen

        router.forward = forward
