# SPDX-License-Identifier: MIT
"""Planted faults of gated delta rules and of the attention beside them."""

import sys
from unittest import mock

import torch

from golden_edits import Fault, edited
from golden_expert_faults import linear_gate, swapped_shared, ungated
from golden_family_faults import expert_faults
from golden_layouts import gain_offset, has_experts, is_norm_gain
from golden_state_faults import conv_faults, reordered


def delta_faults(config, state):
    yield from _attention_faults(config, state)
    yield from _input_faults(config, state)
    yield from _head_faults(config, state)
    yield from conv_faults(config, state, ".linear_attn.conv1d.weight")
    yield Fault("no activation behind the convolution", config, state, _replaced(
        "causal_conv1d_fn",
        lambda right, *args, **kwargs: right(*args, **{**kwargs, "activation": None})))
    yield Fault("keys and queries of any length", config, state,
                _replaced("l2norm", lambda right, x, *args, **kwargs: x))
    yield Fault("keys and queries a tenth too long", config, state, _replaced(
        "l2norm", lambda right, x, *args, **kwargs: right(x, *args, **kwargs) * 1.1))
    yield Fault("queries not divided", config, state, _rule(
        lambda run, q, k, v, g, beta: run(q, k, v, g, beta) * q.shape[-1] ** 0.5))
    yield Fault("rates 1", config, state, _rule(
        lambda run, q, k, v, g, beta: run(q, k, v, g, torch.ones_like(beta))))
    yield Fault("no decay", config, state, _rule(
        lambda run, q, k, v, g, beta: run(q, k, v, torch.zeros_like(g), beta)))
    yield Fault("sums in place of the delta rule", config, state,
                _rule(lambda run, *parts: _stepped(*parts, asks=False)))
    yield Fault("a key asks before the decay", config, state,
                _rule(lambda run, *parts: _stepped(*parts, late_decay=True)))
    yield Fault("a query asks before the update", config, state,
                _rule(lambda run, *parts: _stepped(*parts, early_query=True)))
    yield Fault("state forgotten every 16 rows", config, state, _rule(_forgetful))
    yield Fault("norm behind the gate", config, state, _with_norm(
        lambda right, norm, o, z: right(o * torch.nn.functional.silu(z), 1e4 + 0 * z) / 1e4))
    yield Fault("gate without activation", config, state, _with_norm(
        lambda right, norm, o, z: right(o, 1e4 + 0 * z) / 1e4 * z))
    yield Fault("gate of sigmoids", config, state, _with_norm(
        lambda right, norm, o, z: right(o, 1e4 + 0 * z) / 1e4 * z.sigmoid()))
    yield Fault("norm of all heads together", config, state, _with_norm(_one_norm))
    if has_experts(config):
        yield from expert_faults(config, state)
        yield swapped_shared(config, state)
        yield Fault("shared expert's gate 1", config, state, ungated)
        yield Fault("shared expert's gate without sigmoid", config, state, linear_gate)


def _attention_faults(config, state):
    width = config["head_dim"]
    for part in ("q_norm", "k_norm"):
        yield Fault(f"{part} dropped", config, state, _without_head_norm(part))
    yield Fault("q and k norms after rope", config, state, _norms_after_rope)

    def blocks(name, tensor):
        if name.endswith(".q_proj.weight"):
            parts = tensor.clone().view(2, -1, width, tensor.shape[1])
            tensor.view(-1, 2, width, tensor.shape[1])[:] = parts.transpose(0, 1)

    def exchanged(name, tensor):
        if name.endswith(".q_proj.weight"):
            heads = tensor.view(-1, 2, width, tensor.shape[1])
            heads[:] = heads.flip(1).clone()

    yield Fault("all queries before all gates", config, edited(state, blocks))
    yield Fault("gates before queries", config, edited(state, exchanged))
    yield Fault("gate of attention 1", config, state, _sigmoids(torch.ones_like))
    yield Fault("gate of attention without sigmoid", config, state, _sigmoids(lambda x: x))
    yield Fault("norm gains without + 1", config, edited(
        state, lambda name, t: t.sub_(gain_offset(config, name)) if is_norm_gain(name) else None))
    yield Fault("norm gains of delta rules with + 1", config, edited(
        state, lambda name, t: t.add_(1) if name.endswith(".linear_attn.norm.weight") else None))


def _input_faults(config, state):
    """Where the parts of the inputs stand."""
    n_keys, key = config["linear_num_key_heads"], config["linear_key_head_dim"]
    n_values, value = config["linear_num_value_heads"], config["linear_value_head_dim"]
    sizes = [n_keys * key, n_keys * key, n_values * value]
    conv = ".linear_attn.conv1d."
    if not any("in_proj_qkvz" in name for name in state):
        for what, order in (("queries and keys exchanged", (1, 0, 2)),
                            ("values before keys", (2, 0, 1))):
            yield Fault(what, config, reordered(
                state, sizes, order, (".linear_attn.in_proj_qkv.", conv)))
        yield Fault("rates and time steps exchanged", config, {
            name: state[name.replace("in_proj_a", "?").replace("in_proj_b", "in_proj_a")
                        .replace("?", "in_proj_b")] for name in state})
        return

    each = n_values // n_keys

    def read_as_blocks(name, tensor):
        if ".in_proj_qkvz." in name:
            parts = tensor.clone().split([*sizes, sizes[2]])
            by_group = [part.view(n_keys, -1, tensor.shape[1]) for part in parts]
            tensor[:] = torch.cat(by_group, dim=1).reshape(tensor.shape)

    def rates_as_blocks(name, tensor):
        if ".in_proj_ba." in name:
            tensor[:] = tensor.clone().view(2, n_keys, each, -1).transpose(0, 1) \
                .reshape(tensor.shape)

    def by_group(part, order):
        def edit(name, tensor):
            if part in name:
                groups = tensor.view(n_keys, -1, tensor.shape[1])
                cuts = [key, key, each * value, each * value] if "qkvz" in part else [each, each]
                pieces = groups.clone().split(cuts, dim=1)
                groups[:] = torch.cat([pieces[i] for i in order], dim=1)

        return edited(state, edit)

    yield Fault("groups of q, k, v, z read as blocks", config, edited(state, read_as_blocks))
    yield Fault("groups of b, a read as blocks", config, edited(state, rates_as_blocks))
    yield Fault("queries and keys exchanged", config, by_group(".in_proj_qkvz.", (1, 0, 2, 3)))
    yield Fault("values and gates exchanged", config, by_group(".in_proj_qkvz.", (0, 1, 3, 2)))
    yield Fault("rates and time steps exchanged", config, by_group(".in_proj_ba.", (1, 0)))


def _head_faults(config, state):
    for what, suffix in (("decays", ".A_log"), ("time step biases", ".dt_bias")):
        yield Fault(f"{what} of the next head", config, edited(
            state, lambda name, t, suffix=suffix: t.copy_(t.roll(1))
            if name.endswith(suffix) else None))
    yield Fault("decays that are no logarithms", config, edited(
        state, lambda name, t: t.copy_(t.abs().log()) if name.endswith(".A_log") else None))
    if 1 < config["linear_num_key_heads"] < config["linear_num_value_heads"]:
        yield Fault("heads take keys in turn", config, state, _rule(_in_turn))


def _delta_nets(model):
    return [layer.linear_attn for layer in model.model.layers if hasattr(layer, "linear_attn")]


def _replaced(name, wrong):
    """Returns a patch that calls wrong(right, ...) in place of a function of the model's module."""
    def patch(model):
        for net in _delta_nets(model):
            module = sys.modules[type(net).__module__]
            right = getattr(module, name)

            def forward(*args, plain=net.forward, module=module, right=right, **kwargs):
                with mock.patch.object(module, name, lambda *a, **k: wrong(right, *a, **k)):
                    return plain(*args, **kwargs)

            net.forward = forward

    return patch


def _rule(compute):
    """Returns a patch in which compute(run, q, k, v, g, beta) gives the output of the rule."""
    def wrong(right, query, key, value, g, beta, **kwargs):
        def run(q, k, v, decay, rate):
            return right(q, k, v, g=decay, beta=rate, **kwargs)[0]

        unused = torch.zeros(*value.shape[:1], value.shape[2], key.shape[-1], value.shape[-1])
        return compute(run, query, key, value, g, beta), unused

    return _replaced("torch_chunk_gated_delta_rule", wrong)


def _in_turn(run, q, k, v, g, beta):
    times = v.shape[2] // k.shape[2]
    return run(q.repeat(1, 1, times, 1), k.repeat(1, 1, times, 1), v, g, beta)


def _forgetful(run, q, k, v, g, beta):
    parts = (q, k, v, g, beta)
    return torch.cat([run(*(part[:, at:at + 16] for part in parts))
                      for at in range(0, q.shape[1], 16)], dim=1)


def _stepped(q, k, v, g, beta, asks=True, late_decay=False, early_query=False):
    """The rule row by row, with a mistake."""
    times = v.shape[2] // k.shape[2]
    unit = [x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6) for x in (q, k)]
    q, k = (x.repeat_interleave(times, dim=2) for x in unit)
    q = q * q.shape[-1] ** -0.5
    state = torch.zeros(*k.shape[:1], *k.shape[2:], v.shape[-1])
    rows = []
    for i in range(q.shape[1]):
        kept = state * g[:, i].exp()[..., None, None]
        known = ((state if late_decay else kept) * k[:, i, ..., None]).sum(-2) if asks else 0
        change = (v[:, i] - known) * beta[:, i, ..., None]
        state = kept + k[:, i, ..., None] * change[..., None, :]
        rows.append(((kept if early_query else state) * q[:, i, ..., None]).sum(-2))
    return torch.stack(rows, dim=1)


def _with_norm(compute):
    def patch(model):
        for net in _delta_nets(model):
            right = net.norm.forward
            net.norm.forward = lambda o, z, right=right, norm=net.norm: compute(right, norm, o, z)
            net.norm.n_heads = net.num_v_heads

    return patch


def _one_norm(right, norm, o, z):
    rows = o.view(-1, norm.n_heads * o.shape[-1])
    scale = torch.rsqrt(rows.pow(2).mean(-1, keepdim=True) + norm.variance_epsilon)
    return norm.weight * (rows * scale).view_as(o) * torch.nn.functional.silu(z)


def _attentions(model):
    return [layer.self_attn for layer in model.model.layers if hasattr(layer, "self_attn")]


def _without_head_norm(part):
    def patch(model):
        for attn in _attentions(model):
            setattr(attn, part, torch.nn.Identity())

    return patch


def _sigmoids(compute):
    """Returns a patch in which attention takes compute(gate) for the gate's sigmoid."""
    def patch(model):
        for attn in _attentions(model):
            def forward(*args, plain=attn.forward, **kwargs):
                with mock.patch.object(torch, "sigmoid", compute):
                    return plain(*args, **kwargs)

            attn.forward = forward

    return patch


def _norms_after_rope(model):
    for attn in _attentions(model):
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


DELTA_FAMILIES = {"qwen3_5_text": delta_faults, "qwen3_5_moe_text": delta_faults,
                  "qwen3_next": delta_faults}
