# SPDX-License-Identifier: MIT
"""Planted faults of layers with a state: convolutions over gated inputs."""

import sys
from unittest import mock

import torch

import golden_patches as patches
from golden_edits import Fault, edited, exchanged


def lfm2_faults(config, state):
    for part in ("q_layernorm", "k_layernorm", "embedding_norm"):
        yield Fault(f"{part} dropped", config, state, patches.without(part))
    yield Fault("q and k norms after rope", config, state, _norms_after_rope)
    yield Fault("norms of a layer exchanged", config,
                exchanged(state, ".operator_norm.", ".ffn_norm."))
    yield Fault("gate and up exchanged", config, exchanged(state, ".w1.", ".w3."))
    for what, order in (("B and C exchanged", (1, 0, 2)), ("C and x exchanged", (0, 2, 1)),
                        ("C taken for the first part", (1, 2, 0))):
        yield Fault(what, config, edited(state, lambda name, t, order=order: t.copy_(
            torch.cat([t.chunk(3)[i] for i in order])) if ".conv.in_proj." in name else None))
    yield from conv_faults(config, state, ".conv.conv.weight")
    yield Fault("B behind the convolution", config, state, _gate_behind)
    yield Fault("activation behind the convolution", config, state, _activation_behind)


def conv_faults(config, state, suffix):
    """What an engine gets wrong of taps: their order, their reach, where they stand."""
    for what, edit in (("taps reversed", lambda t: t.copy_(t.flip(-1))),
                       ("taps one position late", lambda t: t.copy_(t.roll(1, dims=-1))),
                       ("oldest tap dropped", lambda t: t[..., 0].zero_()),
                       ("rows before the own one unseen", lambda t: t[..., :-1].zero_()),
                       ("taps of the next channel", lambda t: t.copy_(t.roll(1, dims=0)))):
        yield Fault(what, config, edited(
            state, lambda name, t, edit=edit: edit(t) if name.endswith(suffix) else None))


def _short_convs(model):
    return [layer.conv for layer in model.model.layers if hasattr(layer, "conv")]


def _with_convolution(module, compute):
    def forward(hidden_states, **_):
        parts = module.in_proj(hidden_states).transpose(-1, -2).chunk(3, dim=-2)
        n = hidden_states.shape[1]
        out = compute(*parts, lambda x: module.conv(x)[..., :n])
        return module.out_proj(out.transpose(-1, -2))

    module.forward = forward


def _gate_behind(model):
    for module in _short_convs(model):
        _with_convolution(module, lambda b, c, x, conv: c * b * conv(x))


def _activation_behind(model):
    for module in _short_convs(model):
        _with_convolution(module, lambda b, c, x, conv: c * torch.nn.functional.silu(conv(b * x)))


def _norms_after_rope(model):
    for layer in model.model.layers:
        if not hasattr(layer, "self_attn"):
            continue
        attn = layer.self_attn
        module = sys.modules[type(attn).__module__]

        def forward(*args, norms=(attn.q_layernorm, attn.k_layernorm), plain=attn.forward,
                    module=module, right=module.apply_rotary_pos_emb, **kwargs):
            def wrong(*args, **kwargs):
                q, k = right(*args, **kwargs)
                return norms[0](q), norms[1](k)

            with mock.patch.object(module, "apply_rotary_pos_emb", wrong):
                return plain(*args, **kwargs)

        attn.q_layernorm = attn.k_layernorm = torch.nn.Identity()
        attn.forward = forward
