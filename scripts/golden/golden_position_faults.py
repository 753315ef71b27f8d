# SPDX-License-Identifier: MIT
"""Planted faults of positions and masks: learned tables, RoPE, its scalings, ALiBi, windows."""

import golden_patches as patches
from golden_edits import (Fault, other_pairs, pairs_of_whole_head, reordered_columns,
                          unsorted_biases, with_keys)
from golden_layouts import (head_shape, layer_kinds, rope_by_kind, rotary_share, rotated_columns,
                            rotating_layers, turns_neighbours, with_rope, yarn_attention_factor)

LAYER_TYPED = ("gemma2", "gemma3_text", "olmo3", "exaone4", "cohere2", "gpt_oss")


def table_faults(config, state):
    name = next((n for n in state if n.endswith(("wpe.weight", "embed_positions.weight"))), None)
    if name is not None:
        off = {**state, name: state[name].roll(1, dims=0)}
        yield Fault("position off by one", config, off)
    if config["model_type"] == "opt":
        # An engine that looks up row p where the table means row p + 2.
        yield Fault("position offset 0", config, {**state, name: state[name].roll(2, dims=0)})


def rope_faults(config, state):
    ropes = rope_by_kind(config)
    used = {kind for kind, turns in zip(layer_kinds(config), rotating_layers(config)) if turns}
    for kind, rope in ropes.items():
        if len(ropes) > 1 and kind not in used:
            continue
        where = f" of {kind}" if len(ropes) > 1 else ""
        for sign, factor in (("+", 1.1), ("-", 0.9)):
            changed = with_rope(config, kind, rope_theta=rope["rope_theta"] * factor)
            yield Fault(f"theta{where} {sign}10 %", changed, state)
    yield from _pair_faults(config, state)
    yield from _scaling_faults(config, state)
    if len(ropes) > 1:
        yield from _two_rope_faults(config, state)
    yield from _rotating_layer_faults(config, state)
    share = rotary_share(config)
    if share < 1:
        yield Fault(f"partial rotary {share} -> 1",
                    with_rope(config, "full_attention", partial_rotary_factor=1.0), state)
        fewer = (rotated_columns(config) // 4 * 2 + 0.5) / head_shape(config)[2]
        yield Fault("half of the rotated columns",
                    with_rope(config, "full_attention", partial_rotary_factor=fewer), state)


def _pair_faults(config, state):
    wrong = "rope turns halves" if turns_neighbours(config) else "rope turns neighbours"
    yield Fault(wrong, config, reordered_columns(config, state, other_pairs(config)))
    if not turns_neighbours(config):
        return
    if rotary_share(config) < 1:
        whole = reordered_columns(config, state, pairs_of_whole_head(config))
        yield Fault("pairs taken from the whole head", config, whole)
    if any(name.endswith("q_proj.bias") for name in state):
        order = unsorted_biases(config)
        yield Fault("biases of q and k in the order of the file", config,
                    reordered_columns(config, state, order, parts=("bias",)))


def _scaling_faults(config, state):
    rope = rope_by_kind(config)["full_attention"]
    scaling = rope["rope_type"]
    if scaling == "default":
        return
    if scaling == "dynamic":  # nothing within the context
        linear = with_rope(config, "full_attention", scaled=False, rope_type="linear",
                           factor=rope["factor"])
        yield Fault("dynamic scaling as linear", linear, state)
        return
    yield Fault("rope scaling dropped", with_rope(config, "full_attention", scaled=False), state)
    if scaling == "longrope" and config["model_type"] != "phimoe":
        swapped = with_rope(config, "full_attention", short_factor=rope["long_factor"],
                            long_factor=rope["short_factor"])
        yield Fault("short and long factors exchanged", swapped, state)
        plain = with_rope(config, "full_attention", attention_factor=1.0)
        yield Fault("attention factor 1", plain, state)
    if scaling == "yarn":
        yield from _yarn_faults(config, state, rope)


def _yarn_faults(config, state, rope):
    linear = with_rope(config, "full_attention", scaled=False, rope_type="linear",
                       factor=rope["factor"])
    yield Fault("yarn as linear scaling", linear, state)
    flipped = with_rope(config, "full_attention", truncate=not rope.get("truncate", True))
    # transformers looks for this key beside the kinds of layers, not within one.
    if len(rope_by_kind(config)) > 1:
        flipped["rope_parameters"]["truncate"] = not rope.get("truncate", True)
    yield Fault("yarn truncation flipped", flipped, state)
    right = yarn_attention_factor(rope)
    by_factor = yarn_attention_factor({"factor": rope["factor"]})
    for what, wrong in (("1", 1.0), ("of the factor alone", by_factor)):
        if wrong != right:
            changed = with_rope(config, "full_attention", attention_factor=wrong)
            yield Fault(f"attention factor {what}", changed, state)
    for key, value in (("beta_fast", 32.0), ("beta_slow", 1.0)):
        if rope.get(key, value) != value:
            yield Fault(f"{key} {value}", with_rope(config, "full_attention", **{key: value}),
                        state)
    longer = with_rope(config, "full_attention",
                       original_max_position_embeddings=config["max_position_embeddings"])
    yield Fault("original context is the context", longer, state)


def _two_rope_faults(config, state):
    ropes = rope_by_kind(config)
    kinds = ("full_attention", "sliding_attention")
    for kind, other in (kinds, kinds[::-1]):
        if ropes[kind]["rope_theta"] != ropes[other]["rope_theta"]:
            changed = with_rope(config, kind, rope_theta=ropes[other]["rope_theta"])
            yield Fault(f"theta of {other} in {kind}", changed, state)
    scaling = {key: value for key, value in ropes[kinds[0]].items() if key != "rope_theta"}
    if scaling["rope_type"] != "default":
        yield Fault("rope scaling in every layer", with_rope(config, kinds[1], **scaling), state)


def _rotating_layer_faults(config, state):
    """Layers without RoPE; where every layer rotates because there are no windows, none."""
    right = rotating_layers(config)
    wrongs = {"rope in every layer": [True] * len(right), "rope in no layer": [False] * len(right),
              "layers with and without rope exchanged": [not turns for turns in right]}
    if config["model_type"] == "exaone4" and all(right):
        wrongs = {"global layers without rope": [False] * len(right)}
    elif all(right):
        return
    for what, wrong in wrongs.items():
        yield Fault(what, config, state, patches.rope_in_layers(wrong))


def window_faults(config, state):
    window = config.get("sliding_window")
    kind = config["model_type"]
    if kind in ("qwen2", "qwen3") and not config["use_sliding_window"]:
        on = with_keys(config, use_sliding_window=True, max_window_layers=0, sliding_window=32)
        yield Fault("unused window switched on", on, state)
        return
    if not window:
        return
    # Families with types of layers refuse to go without a window or change RoPE with it, so one
    # that reaches everything stands for none.
    off = {"sliding_window": None}
    if kind in ("qwen2", "qwen2_moe", "qwen3"):
        off = {"use_sliding_window": False}
    elif kind in LAYER_TYPED:
        off = {"sliding_window": 4096}
    yield Fault(f"window {window} -> None", with_keys(config, **off), state)
    for wrong in (window // 2, window - 1, window + 1):
        yield Fault(f"window {window} -> {wrong}", with_keys(config, sliding_window=wrong), state)
    yield from _window_layer_faults(config, state)


def _window_layer_faults(config, state):
    kinds = layer_kinds(config)
    if config["model_type"] in ("qwen2", "qwen3"):
        first = config["max_window_layers"]
        for wrong in (first - 1, first + 1):
            changed = with_keys(config, max_window_layers=wrong)
            yield Fault(f"first windowed layer {first} -> {wrong}", changed, state)
    elif config["model_type"] in LAYER_TYPED:
        for kind in ("sliding_attention", "full_attention"):
            yield Fault(f"{kind} in every layer",
                        with_keys(config, layer_types=[kind] * len(kinds)), state)
    else:
        return
    types = ["full_attention" if kind == "sliding_attention" else "sliding_attention"
             for kind in kinds]
    yield Fault("windowed layers exchanged for full ones", with_keys(config, layer_types=types),
                state)


def alibi_faults(config, state):
    for what, change in (("slopes reversed", lambda s: s.flip(0)),
                         ("slopes unused", lambda s: s * 0), ("slopes negated", lambda s: -s)):
        yield Fault(what, config, state, patches.alibi_slopes(change))
    n_heads = head_shape(config)[0]
    if n_heads & (n_heads - 1):
        yield Fault("slopes as if heads were a power of two", config, state,
                    patches.alibi_slopes(patches.plain_slopes))
