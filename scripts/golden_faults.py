# SPDX-License-Identifier: MIT
"""Planted faults for the golden models: variants of a model that are wrong in one known way.

A golden model proves something about an engine only if every mistake the engine could make moves
its logits by far more than the tolerance of the comparison. This module lists such mistakes as
(name, config, weights) variants; make_golden_models.py runs each one and records how far the
logits move. It knows the layouts of GPT-2 and of the LLaMA family and nothing about the engine.
"""

import copy

# Recorded but not asserted, with the reason.
#   gelu_erf      The two activations differ by less than 5e-4 everywhere, so no choice of weights
#                 makes the difference large.
#   attn.k_bias   Without rotary positions a key bias adds q.b_k to every score of a query, and
#                 softmax ignores a constant: the logits cannot move.
EXEMPT = {
    "activation gelu_new -> gelu": "the two functions differ by less than 5e-4 everywhere",
    "activation gelu -> gelu_new": "the two functions differ by less than 5e-4 everywhere",
    "attn.k_bias": "adds the same q.b_k to every score of a query, which softmax ignores",
}


def exemption(name):
    """Returns why the fault `name` need not move the logits, or None if it must."""
    for pattern, reason in EXEMPT.items():
        if pattern in name:
            return reason
    return None


def is_norm_gain(name):
    return "norm.weight" in name or ".ln_1.weight" in name or ".ln_2.weight" in name \
        or "ln_f.weight" in name


def head_shape(config):
    """Returns (query heads, key-value heads, head width) of a LLaMA-family config."""
    n_heads = config["num_attention_heads"]
    n_kv = config.get("num_key_value_heads") or n_heads
    return n_heads, n_kv, config.get("head_dim") or config["hidden_size"] // n_heads


def _rows_by_head(tensor, n_heads):
    return tensor.reshape(n_heads, tensor.shape[0] // n_heads, *tensor.shape[1:])


def _interleave_kv_map(config, state):
    """Makes query head h read key-value head h % n_kv; the right one is h // (n_heads / n_kv)."""
    n_heads, n_kv, width = head_shape(config)
    group = n_heads // n_kv
    slot_of = [(h % n_kv) * group + h // n_kv for h in range(n_heads)]
    head_in = [slot_of.index(slot) for slot in range(n_heads)]
    out = dict(state)
    for name, tensor in state.items():
        if ".q_proj." in name:
            out[name] = _rows_by_head(tensor, n_heads)[head_in].reshape(tensor.shape)
        elif ".o_proj.weight" in name:
            columns = tensor.reshape(tensor.shape[0], n_heads, width)
            out[name] = columns[:, head_in].reshape(tensor.shape)
    return out


def _rotate_neighbours(config, state):
    """Makes RoPE turn pairs (2i, 2i + 1); the right ones are (i, i + width / 2)."""
    n_heads, n_kv, width = head_shape(config)
    order = list(range(0, width, 2)) + list(range(1, width, 2))
    out = dict(state)
    for name, tensor in state.items():
        heads = {".q_proj.": n_heads, ".k_proj.": n_kv}
        for part, count in heads.items():
            if part in name:
                out[name] = _rows_by_head(tensor, count)[:, order].reshape(tensor.shape)
    return out


def _with(config, **changes):
    return {**copy.deepcopy(config), **changes}


def _zeroed(state, name, part=slice(None)):
    out = dict(state)
    out[name] = state[name].clone()
    out[name][..., part] = 0
    return out


def _tensor_faults(config, state):
    for name, tensor in state.items():
        what = "bias zeroed" if name.endswith(".bias") else "tensor zeroed"
        yield f"{what}: {name}", config, _zeroed(state, name)
        if is_norm_gain(name):
            yield f"norm gain set to 1: {name}", config, {**state, name: tensor * 0 + 1}
        if ".c_attn." in name:
            third = tensor.shape[-1] // 3
            kind = "bias" if name.endswith("bias") else "weight"
            for i, letter in enumerate("qkv"):
                part = slice(i * third, (i + 1) * third)
                label = name.replace("c_attn." + kind, f"{letter}_{kind}")
                yield f"{kind} zeroed: {label}", config, _zeroed(state, name, part)


def _gpt2_faults(config, state):
    epsilon = config["layer_norm_epsilon"]
    yield "epsilon halved", _with(config, layer_norm_epsilon=epsilon / 2), state
    activation = config["activation_function"]
    others = {"gelu_new": ["gelu"], "gelu": ["gelu_new"], "relu": ["gelu_new", "gelu"]}
    for wrong in others[activation]:
        changed = _with(config, activation_function=wrong)
        yield f"activation {activation} -> {wrong}", changed, state
    name = next(n for n in state if n.endswith("wpe.weight"))
    yield "position off by one", config, {**state, name: state[name].roll(1, dims=0)}
    if not config["tie_word_embeddings"]:
        table = next(n for n in state if n.endswith("wte.weight"))
        yield "head tied", config, {**state, "lm_head.weight": state[table]}


def _llama_faults(config, state):
    epsilon = config["rms_norm_eps"]
    yield "epsilon halved", _with(config, rms_norm_eps=epsilon / 2), state
    yield "theta +10 %", _with(config, rope_theta=config["rope_theta"] * 1.1), state
    yield "theta -10 %", _with(config, rope_theta=config["rope_theta"] * 0.9), state
    yield "rope turns neighbours", config, _rotate_neighbours(config, state)
    if config.get("rope_scaling"):
        yield "rope scaling dropped", _with(config, rope_scaling=None), state
    n_heads, n_kv, _ = head_shape(config)
    if 1 < n_kv < n_heads:
        yield "kv heads interleaved", config, _interleave_kv_map(config, state)
    if config["model_type"] == "mistral":
        window = config["sliding_window"]
        for wrong in (None, window // 2, window - 1, window + 1):
            yield f"window {window} -> {wrong}", _with(config, sliding_window=wrong), state
    if config["model_type"] == "qwen2" and config["use_sliding_window"]:
        window, first = config["sliding_window"], config["max_window_layers"]
        n_layers = config["num_hidden_layers"]
        yield f"window {window} -> None", _with(config, use_sliding_window=False), state
        for wrong in (window // 2, window - 1, window + 1):
            yield f"window {window} -> {wrong}", _with(config, sliding_window=wrong), state
        for wrong in (first - 1, first + 1):
            changed = _with(config, max_window_layers=wrong)
            yield f"first windowed layer {first} -> {wrong}", changed, state
        types = ["sliding_attention" if layer < first else "full_attention"
                 for layer in range(n_layers)]
        yield "windowed layers exchanged for full ones", _with(config, layer_types=types), state
    elif config["model_type"] == "qwen2":
        on = _with(config, use_sliding_window=True, max_window_layers=0)
        yield "unused window switched on", on, state
    if not config["tie_word_embeddings"]:
        table = state["model.embed_tokens.weight"]
        yield "head tied", config, {**state, "lm_head.weight": table}


def planted_faults(config, state):
    """Yields (name, config, weights) for every fault that applies to this model.

    `state` maps the names of the model's own state dict to f32 tensors. The input is not changed.
    """
    family = _gpt2_faults if config["model_type"] == "gpt2" else _llama_faults
    yield from family(config, state)
    yield from _tensor_faults(config, state)
