# SPDX-License-Identifier: MIT
"""Tools for planted faults: changed copies of configurations and weights."""

import copy
import typing

from golden_layouts import (head_shape, head_views, is_head_norm_gain, rotated_columns,
                            turns_neighbours)


class Fault(typing.NamedTuple):
    name: str
    config: dict
    weights: dict  # names of the model's own state dict to f32 tensors
    patch: typing.Callable | None = None  # is given the model and changes how it computes


def with_keys(config, **changes):
    return {**copy.deepcopy(config), **changes}


def edited(state, edit):
    """Returns a copy of the weights in which edit(name, tensor) has changed tensors in place."""
    out = {name: tensor.clone() for name, tensor in state.items()}
    for name, tensor in out.items():
        edit(name, tensor)
    return out


def zeroed(state, name, part=slice(None)):
    out = dict(state)
    out[name] = state[name].clone()
    out[name][..., part] = 0
    return out


def exchanged(state, first, second):
    """Exchanges every tensor with `first` in its name for its counterpart with `second`."""
    out = dict(state)
    for name in state:
        if first in name:
            other = name.replace(first, second)
            out[name], out[other] = state[other], state[name]
    assert out.keys() == state.keys()
    return out


def swapped_views(config, state, first, second):
    def edit(name, tensor):
        views = head_views(config, name, tensor)
        if first in views and second in views:
            kept = views[first].clone()
            views[first][:] = views[second]
            views[second][:] = kept

    return edited(state, edit)


def swapped_halves(state, part):
    def edit(name, tensor):
        if part in name:
            tensor[:] = tensor.roll(tensor.shape[0] // 2, dims=0)

    return edited(state, edit)


def fused_as_blocks(config, state):
    """Makes rows that hold q, k and v of head 0 (or group 0), of the next ... read as all q,
    all k, all v."""
    n_heads, n_kv, width = head_shape(config)

    def edit(name, tensor):
        if ".query_key_value." in name:
            blocks = tensor.clone().split([n_heads * width, n_kv * width, n_kv * width])
            for view, block in zip(head_views(config, name, tensor).values(), blocks):
                view[:] = block.view_as(view)

    return edited(state, edit)


def blocks_as_fused(config, state):
    """Makes rows that hold all q, all k, all v read as q, k and v of head 0, of head 1 ..."""
    n_heads, _, width = head_shape(config)

    def edit(name, tensor):
        if ".Wqkv." in name:
            fused = tensor.clone().view(n_heads, 3, width, *tensor.shape[1:])
            for i, view in enumerate(head_views(config, name, tensor).values()):
                view[:] = fused[:, i]

    return edited(state, edit)


def interleaved_kv_map(config, state):
    """Makes query head h read key-value head h % n_kv; the right one is h // (n_heads / n_kv)."""
    n_heads, n_kv, width = head_shape(config)
    group = n_heads // n_kv
    slot_of = [(h % n_kv) * group + h // n_kv for h in range(n_heads)]
    head_in = [slot_of.index(slot) for slot in range(n_heads)]

    def edit(name, tensor):
        if "q" in (views := head_views(config, name, tensor)):
            heads = views["q"].reshape(n_heads, width, *tensor.shape[1:])
            views["q"][:] = heads[head_in].view(views["q"].shape)
        elif name.endswith((".o_proj.weight", ".self_attn.out_proj.weight", ".self_attn.dense.weight",
                            ".self_attention.dense.weight")):
            columns = tensor.view(tensor.shape[0], n_heads, width)
            columns[:] = columns[:, head_in].clone()
        elif name.endswith("q_norm.weight") and tensor.numel() == n_heads * width:
            tensor[:] = tensor.view(n_heads, width)[head_in].reshape(tensor.shape)

    return edited(state, edit)


def reordered_columns(config, state, order, parts=("weight", "bias")):
    """Puts column order[i] of every query and key head at i, in weights, biases or both."""
    def edit(name, tensor):
        views = head_views(config, name, tensor)
        for letter in "qk":
            if letter in views and name.endswith(parts):
                axis = views[letter].dim() - tensor.dim()
                views[letter][:] = views[letter].clone().movedim(axis, 0)[order].movedim(0, axis)
        if "weight" in parts and is_head_norm_gain(name):
            tensor[:] = tensor.view(-1, len(order))[:, order].reshape(tensor.shape)

    return edited(state, edit)


def other_pairs(config):
    """Returns an order of columns for which RoPE turns neighbours where the right pairs are
    (i, i + rotated / 2), or the reverse in families that turn neighbours."""
    width, rotated = head_shape(config)[2], rotated_columns(config)
    if turns_neighbours(config):
        halves = zip(range(rotated // 2), range(rotated // 2, rotated))
        return [*(column for pair in halves for column in pair), *range(rotated, width)]
    return [*range(0, rotated, 2), *range(1, rotated, 2), *range(rotated, width)]


def pairs_of_whole_head(config):
    """Returns an order for which the pairs are those of an engine that sorts a whole head into
    even and odd columns, though RoPE turns only the first `rotated` ones."""
    width, rotated = head_shape(config)[2], rotated_columns(config)
    sorted_head = [*range(0, width, 2), *range(1, width, 2)]
    halves = zip(sorted_head[:rotated // 2], sorted_head[rotated // 2:rotated])
    return [*(column for pair in halves for column in pair), *sorted_head[rotated:]]


def unsorted_biases(config):
    """Returns an order of biases: those of an engine that sorts the rotating rows of weights into
    even and odd ones, and the biases not."""
    width, rotated = head_shape(config)[2], rotated_columns(config)
    sorted_rows = [*range(0, rotated, 2), *range(1, rotated, 2), *range(rotated, width)]
    return [sorted_rows.index(row) for row in range(width)]
