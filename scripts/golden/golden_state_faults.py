# SPDX-License-Identifier: MIT
"""Planted faults of layers with a state: convolutions over gated inputs, selective scans."""

import sys
from unittest import mock

import torch

import golden_patches as patches
from golden_edits import Fault, edited, exchanged
from golden_layouts import scan_sizes


def lfm2_faults(config, state):
    for part in ("q_layernorm", "k_layernorm", "embedding_norm"):
        yield Fault(f"{part} dropped", config, state, patches.without(part))
    yield Fault("q and k norms after rope", config, state, _norms_after_rope)
    yield Fault("norms of a layer exchanged", config,
                exchanged(state, ".operator_norm.", ".ffn_norm."))
    if any(".w1." in name for name in state):
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


def mamba2_faults(config, state):
    """Faults of selective scans: where things stand in the input, what a head and a group are."""
    at = next(name for name in state if name.endswith(".A_log")).split(".")[-2]
    n_heads, inner, n_groups, n_state = scan_sizes(config)
    shared = n_groups * n_state
    sizes = [inner, inner, shared, shared, n_heads]  # z, x, B, C, time steps
    for what, order in (("z and x exchanged", (1, 0, 2, 3, 4)),
                        ("time steps first", (4, 0, 1, 2, 3)),
                        ("x behind B and C", (0, 2, 3, 1, 4))):
        yield Fault(what, config, reordered(state, sizes, order, (f".{at}.in_proj.",)))
    both = reordered(state, sizes, (0, 1, 3, 2, 4), (f".{at}.in_proj.",))
    yield Fault("B and C exchanged", config,
                reordered(both, sizes[1:4], (0, 2, 1), (f".{at}.conv1d.",)))
    for what, suffix in (("decays", ".A_log"), ("skips", ".D"), ("time step biases", ".dt_bias")):
        yield Fault(f"{what} of the next head", config, edited(
            state, lambda name, t, suffix=suffix: t.copy_(t.roll(1))
            if name.endswith(suffix) else None))
    yield Fault("decays that are no logarithms", config, edited(
        state, lambda name, t: t.copy_(t.abs().log()) if name.endswith(".A_log") else None))
    yield from conv_faults(config, state, f".{at}.conv1d.weight")
    yield Fault("no activation behind the convolution", config, state, _plain_convolution)
    normed = any(f".{at}.norm." in name for name in state)
    if normed:
        yield Fault("norm in front of the gate", config, state, _norm_before_gate)
        yield Fault("gate without activation", config, state, _plain_gate)
    yield Fault("input not scaled by the time step", config, state, _unscaled_input)
    yield Fault("state forgotten every 16 rows", config, state, _forgetful)
    if n_groups > 1 and normed:
        yield Fault("norm over all groups together", config, state, _one_norm)
    if n_groups > 1:
        yield Fault("heads take groups in turn", config, state, _groups_in_turn)


def reordered(state, sizes, order, parts):
    """Puts part order[i] of the rows of those tensors at i."""
    def edit(name, tensor):
        if any(part in name for part in parts):
            pieces = tensor.clone().split(sizes)
            tensor[:] = torch.cat([pieces[i] for i in order])

    return edited(state, edit)


def _scans(model):
    return [module for module in model.modules() if hasattr(module, "A_log")]


def _replaced(name, wrong):
    """Returns a patch that calls wrong(right, ...) in place of a function of the scan's module."""
    def patch(model):
        for layer in _scans(model):
            module = sys.modules[type(layer).__module__]
            right = getattr(module, name)

            def forward(*args, plain=layer.forward, module=module, right=right, **kwargs):
                with mock.patch.object(module, name,
                                       lambda *a, **k: wrong(right, *a, **k)):
                    return plain(*args, **kwargs)

            layer.forward = forward

    return patch


_plain_convolution = _replaced(
    "causal_conv1d_fn",
    lambda right, *args, **kwargs: right(*args, **{**kwargs, "activation": None}))


def _scan_of_unscaled(right, x, dt, *args, **kwargs):
    skip = kwargs.pop("D")
    steps = torch.nn.functional.softplus(dt + kwargs["dt_bias"])
    out = right(x / steps[..., None], dt, *args, D=None, **kwargs)
    skipped = skip[:, None] * x
    return (out[0] + skipped, *out[1:]) if isinstance(out, tuple) else out + skipped


_unscaled_input = _replaced("mamba2_chunk_scan", _scan_of_unscaled)


def _scan_in_turn(right, x, dt, a, b, c, **kwargs):
    by_head = [part.repeat(1, 1, x.shape[2] // part.shape[2], 1) for part in (b, c)]
    return right(x, dt, a, *by_head, **kwargs)


_groups_in_turn = _replaced("mamba2_chunk_scan", _scan_in_turn)


def _scan_of_pieces(right, x, dt, a, b, c, **kwargs):
    pieces = [right(x[:, at:at + 16], dt[:, at:at + 16], a, b[:, at:at + 16], c[:, at:at + 16],
                    **kwargs) for at in range(0, x.shape[1], 16)]
    if not isinstance(pieces[0], tuple):
        return torch.cat(pieces, dim=1)
    return torch.cat([out for out, _ in pieces], dim=1), pieces[-1][1]


_forgetful = _replaced("mamba2_chunk_scan", _scan_of_pieces)


def _with_norm(compute):
    def patch(model):
        for layer in _scans(model):
            right = layer.norm.forward
            layer.norm.forward = lambda y, gate=None, right=right: compute(right, y, gate)

    return patch


_norm_before_gate = _with_norm(
    lambda right, y, gate: right(y) * torch.nn.functional.silu(gate))


_plain_gate = _with_norm(lambda right, y, gate: right(y * gate))


def _one_norm(model):
    for layer in _scans(model):
        layer.norm.group_size, layer.norm.n_groups = layer.intermediate_size, 1
