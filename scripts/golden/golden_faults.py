# SPDX-License-Identifier: MIT
"""Planted faults for the golden models: variants of a model that are wrong in one known way.

A golden model proves something about an engine only if every mistake the engine could make moves
its logits by far more than the tolerance of the comparison. This module lists such mistakes as
variants of the configuration, the weights or (golden_patches.py) the computation;
make_golden_models.py runs each one and records how far the logits move. This module depends on the
layouts of the families, not on the engine.
"""

import copy
import typing

import golden_patches as patches

WITHOUT_ROTATION = ("gpt2", "opt", "bloom")


class Fault(typing.NamedTuple):
    name: str
    config: dict
    weights: dict  # names of the model's own state dict to f32 tensors
    patch: typing.Callable | None = None  # is given the model and changes how it computes


def exemption(config, name):
    """Returns why the fault `name` need not move the logits of this model, or None if it must."""
    if {"gelu", "gelu_new"} == set(name.removeprefix("activation ").split(" -> ")):
        # No choice of weights makes the difference large.
        return "the two functions differ by less than 5e-4 everywhere"
    if config["model_type"] in WITHOUT_ROTATION and name.endswith(("k_bias", "k_proj.bias")):
        # The logits cannot move at all.
        return "adds the same q.b_k to every score of a query, which softmax ignores"
    return None


def is_norm_gain(name):
    return "norm.weight" in name or ".ln_1.weight" in name or ".ln_2.weight" in name \
        or "ln_f.weight" in name


def is_embedding(name):
    return name.endswith(("wte.weight", "embed_tokens.weight", "word_embeddings.weight"))


def gain_offset(config):
    """Returns what the family adds to a stored norm gain before it multiplies."""
    return 1.0 if config["model_type"] in ("gemma", "gemma2") else 0.0


def head_shape(config):
    """Returns (query heads, key-value heads, head width)."""
    n_heads = config["num_attention_heads"]
    hidden = config.get("hidden_size") or config["n_embed"]
    n_kv = config.get("num_key_value_heads") or n_heads
    return n_heads, n_kv, config.get("head_dim") or hidden // n_heads


def rotated_columns(config):
    """Returns how many leading columns of a head RoPE turns."""
    return int(head_shape(config)[2] * config.get("partial_rotary_factor", 1.0))


def head_views(config, name, tensor):
    """Returns the rows of queries, keys and values that `tensor` holds, as {"q": view ...} of
    [heads, width, ...]. Writing to a view changes the tensor."""
    n_heads, n_kv, width = head_shape(config)
    rest = tensor.shape[1:]
    if ".query_key_value." in name:
        fused = tensor.view(n_heads, 3, width, *rest)
        return {letter: fused[:, i] for i, letter in enumerate("qkv")}
    if ".qkv_proj." in name:
        parts = tensor.split([n_heads * width, n_kv * width, n_kv * width])
        counts = (n_heads, n_kv, n_kv)
        return {letter: part.view(count, width, *rest)
                for letter, part, count in zip("qkv", parts, counts)}
    for letter, count in zip("qkv", (n_heads, n_kv, n_kv)):
        if f".{letter}_proj." in name:
            return {letter: tensor.view(count, width, *rest)}
    return {}


def _with(config, **changes):
    return {**copy.deepcopy(config), **changes}


def _edited(state, edit):
    """Returns a copy of the weights in which edit(name, tensor) has changed tensors in place."""
    out = {name: tensor.clone() for name, tensor in state.items()}
    for name, tensor in out.items():
        edit(name, tensor)
    return out


def _interleave_kv_map(config, state):
    """Makes query head h read key-value head h % n_kv; the right one is h // (n_heads / n_kv)."""
    n_heads, n_kv, width = head_shape(config)
    group = n_heads // n_kv
    slot_of = [(h % n_kv) * group + h // n_kv for h in range(n_heads)]
    head_in = [slot_of.index(slot) for slot in range(n_heads)]

    def edit(name, tensor):
        if "q" in (views := head_views(config, name, tensor)):
            views["q"][:] = views["q"][head_in].clone()
        elif name.endswith((".o_proj.weight", ".self_attn.dense.weight")):
            columns = tensor.view(tensor.shape[0], n_heads, width)
            columns[:] = columns[:, head_in].clone()

    return _edited(state, edit)


def _rotate_neighbours(config, state):
    """Makes RoPE turn pairs (2i, 2i + 1); the right ones are (i, i + rotated / 2)."""
    width, rotated = head_shape(config)[2], rotated_columns(config)
    order = [*range(0, rotated, 2), *range(1, rotated, 2), *range(rotated, width)]

    def edit(name, tensor):
        views = head_views(config, name, tensor)
        for letter in "qk":
            if letter in views:
                views[letter][:] = views[letter][:, order].clone()
        if name.endswith(("q_norm.weight", "k_norm.weight")):
            tensor[:] = tensor[order].clone()

    return _edited(state, edit)


def _swapped_views(config, state, first, second):
    def edit(name, tensor):
        views = head_views(config, name, tensor)
        if first in views and second in views:
            kept = views[first].clone()
            views[first][:] = views[second]
            views[second][:] = kept

    return _edited(state, edit)


def _swapped_halves(state, part):
    def edit(name, tensor):
        if part in name:
            tensor[:] = tensor.roll(tensor.shape[0] // 2, dims=0)

    return _edited(state, edit)


def _interleaved_as_blocks(config, state):
    """Makes BLOOM's rows, which are q, k and v of head 0, of head 1 ..., read as all q, all k."""
    n_heads, _, width = head_shape(config)

    def edit(name, tensor):
        if ".query_key_value." in name:
            blocks = tensor.clone().view(3, n_heads, width, *tensor.shape[1:])
            for view, block in zip(head_views(config, name, tensor).values(), blocks):
                view[:] = block

    return _edited(state, edit)


def _zeroed(state, name, part=slice(None)):
    out = dict(state)
    out[name] = state[name].clone()
    out[name][..., part] = 0
    return out


def _part_faults(config, state, name):
    """Zeroes each part of a fused tensor."""
    tensor = state[name]
    kind = "bias" if name.endswith("bias") else "weight"
    if ".c_attn." in name:
        third = tensor.shape[-1] // 3
        for i, letter in enumerate("qkv"):
            part = slice(i * third, (i + 1) * third)
            label = name.replace("c_attn." + kind, f"{letter}_{kind}")
            yield Fault(f"{kind} zeroed: {label}", config, _zeroed(state, name, part))
    fused = ".qkv_proj." in name or ".query_key_value." in name
    for letter in head_views(config, name, tensor) if fused else ():
        changed = {**state, name: tensor.clone()}
        head_views(config, name, changed[name])[letter][:] = 0
        label = name.replace("qkv_proj", "query_key_value").replace(
            "query_key_value." + kind, f"{letter}_{kind}")
        yield Fault(f"{kind} zeroed: {label}", config, changed)
    if ".gate_up_proj." in name:
        for i, part in enumerate(("gate", "up")):
            changed = {**state, name: tensor.clone()}
            changed[name].view(2, -1, tensor.shape[1])[i] = 0
            label = name.replace("gate_up_proj", part + "_proj")
            yield Fault(f"{kind} zeroed: {label}", config, changed)


def _tensor_faults(config, state):
    for name, tensor in state.items():
        what = "bias zeroed" if name.endswith(".bias") else "tensor zeroed"
        yield Fault(f"{what}: {name}", config, _zeroed(state, name))
        if is_norm_gain(name):
            one = tensor * 0 + (1 - gain_offset(config))
            yield Fault(f"norm gain set to 1: {name}", config, {**state, name: one})
        yield from _part_faults(config, state, name)


def _common_faults(config, state):
    """What can go wrong in any family: epsilon, the activation, the head."""
    for key in ("layer_norm_epsilon", "layer_norm_eps", "rms_norm_eps"):
        if key in config:
            yield Fault("epsilon halved", _with(config, **{key: config[key] / 2}), state)
    others = {"gelu_new": ["gelu"], "gelu": ["gelu_new"], "relu": ["gelu_new", "gelu"],
              "gelu_pytorch_tanh": ["silu"], "silu": ["gelu_new"]}
    for key in ("activation_function", "hidden_act", "hidden_activation"):
        activation = config.get(key)
        if activation == "gelu" and config["model_type"] == "gemma":
            others["gelu"] = ["silu"]  # the published spelling of the tanh form
        for wrong in others.get(activation, ()):
            changed = _with(config, **{key: wrong})
            yield Fault(f"activation {activation} -> {wrong}", changed, state)
    if not config["tie_word_embeddings"]:
        table = next(name for name in state if is_embedding(name))
        yield Fault("head tied", config, {**state, "lm_head.weight": state[table]})


def _position_faults(config, state):
    name = next((n for n in state if n.endswith(("wpe.weight", "embed_positions.weight"))), None)
    if name is not None:
        off = {**state, name: state[name].roll(1, dims=0)}
        yield Fault("position off by one", config, off)
    if config["model_type"] == "opt":
        # An engine that looks up row p where the table means row p + 2.
        yield Fault("position offset 0", config, {**state, name: state[name].roll(2, dims=0)})


def _rope_faults(config, state):
    yield Fault("theta +10 %", _with(config, rope_theta=config["rope_theta"] * 1.1), state)
    yield Fault("theta -10 %", _with(config, rope_theta=config["rope_theta"] * 0.9), state)
    yield Fault("rope turns neighbours", config, _rotate_neighbours(config, state))
    scaling = config.get("rope_scaling")
    if scaling:
        yield Fault("rope scaling dropped", _with(config, rope_scaling=None), state)
    if scaling and "long_factor" in scaling:
        swapped = {**scaling, "short_factor": scaling["long_factor"],
                   "long_factor": scaling["short_factor"]}
        yield Fault("short and long factors exchanged", _with(config, rope_scaling=swapped), state)
        plain = {**scaling, "attention_factor": 1.0}
        yield Fault("attention factor 1", _with(config, rope_scaling=plain), state)
    partial = config.get("partial_rotary_factor")
    if partial:
        yield Fault(f"partial rotary {partial} -> 1", _with(config, partial_rotary_factor=1.0),
                    state)
        fewer = (rotated_columns(config) // 4 * 2 + 0.5) / head_shape(config)[2]
        yield Fault("half of the rotated columns", _with(config, partial_rotary_factor=fewer),
                    state)


def _group_faults(config, state):
    n_heads, n_kv, _ = head_shape(config)
    if 1 < n_kv < n_heads:
        yield Fault("kv heads interleaved", config, _interleave_kv_map(config, state))


def _window_faults(config, state):
    window = config.get("sliding_window")
    kind = config["model_type"]
    if kind in ("qwen2", "qwen3") and not config["use_sliding_window"]:
        on = _with(config, use_sliding_window=True, max_window_layers=0, sliding_window=32)
        yield Fault("unused window switched on", on, state)
        return
    if not window:
        return
    # Gemma 2 refuses to go without a window, so one that reaches everything stands for none.
    off = {"qwen2": {"use_sliding_window": False}, "qwen3": {"use_sliding_window": False},
           "gemma2": {"sliding_window": 4096}}.get(kind, {"sliding_window": None})
    yield Fault(f"window {window} -> None", _with(config, **off), state)
    for wrong in (window // 2, window - 1, window + 1):
        yield Fault(f"window {window} -> {wrong}", _with(config, sliding_window=wrong), state)
    yield from _window_layer_faults(config, state)


def _window_layer_faults(config, state):
    n_layers = config["num_hidden_layers"]
    if config["model_type"] in ("qwen2", "qwen3"):
        first = config["max_window_layers"]
        for wrong in (first - 1, first + 1):
            changed = _with(config, max_window_layers=wrong)
            yield Fault(f"first windowed layer {first} -> {wrong}", changed, state)
        windowed = [layer >= first for layer in range(n_layers)]
    elif config["model_type"] == "gemma2":
        types = config.get("layer_types")
        windowed = [types[layer] == "sliding_attention" if types else layer % 2 == 0
                    for layer in range(n_layers)]
        for wrong in (True, False):
            kind = "sliding_attention" if wrong else "full_attention"
            yield Fault(f"{kind} in every layer", _with(config, layer_types=[kind] * n_layers),
                        state)
    else:
        return
    types = ["full_attention" if w else "sliding_attention" for w in windowed]
    yield Fault("windowed layers exchanged for full ones", _with(config, layer_types=types), state)


def _phi_faults(config, state):
    yield Fault("parallel layer made sequential", config, state, patches.sequential)


def _phi3_faults(config, state):
    n_heads, n_kv, _ = head_shape(config)
    yield Fault("k and v exchanged in qkv", config, _swapped_views(config, state, "k", "v"))
    if n_heads == n_kv:
        yield Fault("q and k exchanged in qkv", config, _swapped_views(config, state, "q", "k"))
        yield Fault("q and v exchanged in qkv", config, _swapped_views(config, state, "q", "v"))
    yield Fault("gate and up exchanged", config, _swapped_halves(state, ".gate_up_proj."))


def _qwen3_faults(config, state):
    for part in ("q_norm", "k_norm"):
        yield Fault(f"{part} dropped", config, state, patches.without(part))
    yield Fault("q and k norms after rope", config, state, patches.qwen3_norms_after_rope)


def _opt_faults(config, state):
    swapped = {}
    for name, tensor in state.items():
        if ".layers." in name and "layer_norm" in name:
            other = name.replace("self_attn_layer_norm", "?").replace(
                "final_layer_norm", "self_attn_layer_norm").replace("?", "final_layer_norm")
            swapped[other] = tensor
    yield Fault("norms of a layer exchanged", config, {**state, **swapped})


def _bloom_faults(config, state):
    yield Fault("heads of qkv read as blocks", config, _interleaved_as_blocks(config, state))
    yield Fault("embedding norm dropped", config, state,
                patches.without("word_embeddings_layernorm"))
    yield Fault("slopes reversed", config, state, patches.bloom_slopes(lambda s: s.flip(0)))
    yield Fault("slopes unused", config, state, patches.bloom_slopes(lambda s: s * 0))
    yield Fault("slopes negated", config, state, patches.bloom_slopes(lambda s: -s))
    n_heads = config["num_attention_heads"]
    if n_heads & (n_heads - 1):
        yield Fault("slopes as if heads were a power of two", config, state,
                    patches.bloom_slopes(patches.plain_slopes))


def _gemma_faults(config, state):
    minus = _edited(state, lambda name, t: t.sub_(1) if is_norm_gain(name) else None)
    yield Fault("norm gains without + 1", config, minus)
    yield Fault("embedding scale 1", config, state, patches.embedding_scale_one)


def _gemma2_faults(config, state):
    yield from _gemma_faults(config, state)
    yield Fault("score cap dropped", _with(config, attn_logit_softcapping=None), state)
    yield Fault("logit cap dropped", _with(config, final_logit_softcapping=None), state)
    for part in ("post_attention_layernorm", "post_feedforward_layernorm"):
        yield Fault(f"{part} dropped", config, state, patches.without(part))
    width = head_shape(config)[2]
    default = _with(config, query_pre_attn_scalar=width)
    yield Fault("scores scaled by the width of a head", default, state)


def _stablelm_faults(config, state):
    if config["use_parallel_residual"]:
        yield Fault("parallel layer made sequential", config, state, patches.sequential)


FAMILIES = {
    "phi": _phi_faults, "phi3": _phi3_faults, "qwen3": _qwen3_faults, "opt": _opt_faults,
    "bloom": _bloom_faults, "gemma": _gemma_faults, "gemma2": _gemma2_faults,
    "stablelm": _stablelm_faults,
}


def planted_faults(config, state):
    """Yields a Fault for every one that applies to this model.

    `state` maps the names of the model's own state dict to f32 tensors. The input is not changed.
    """
    yield from _common_faults(config, state)
    yield from _position_faults(config, state)
    if config["model_type"] not in WITHOUT_ROTATION:
        yield from _rope_faults(config, state)
    if config["model_type"] != "gpt2":
        yield from _group_faults(config, state)
        yield from _window_faults(config, state)
    if config["model_type"] in FAMILIES:
        yield from FAMILIES[config["model_type"]](config, state)
    yield from _tensor_faults(config, state)
