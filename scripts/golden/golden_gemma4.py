# SPDX-License-Identifier: MIT
"""The golden models of Gemma 4, and what an engine built for Gemma 3 gets wrong of them.

Layers that see everything have heads of their own width and number.
"""

import sys
from unittest import mock

import torch

import golden_patches as patches
from golden_edits import Fault, edited, exchanged, with_keys
from golden_layouts import is_norm_gain, layer_kinds

LOCAL, GLOBAL = "sliding_attention", "full_attention"


def gemma4_config(vocab, max_tokens, **changes):
    return {
        "architectures": ["Gemma4ForCausalLM"], "model_type": "gemma4_text", "vocab_size": vocab,
        "attention_bias": False, "attention_k_eq_v": True, "bos_token_id": 2, "eos_token_id": 1,
        "final_logit_softcapping": 1.5, "global_head_dim": 16, "head_dim": 10,
        "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 32,
        "hidden_size_per_layer_input": 0, "intermediate_size": 44,
        "layer_types": [LOCAL, LOCAL, GLOBAL, LOCAL, GLOBAL],
        "max_position_embeddings": max_tokens, "num_attention_heads": 4,
        "num_global_key_value_heads": 1, "num_hidden_layers": 5, "num_key_value_heads": 2,
        "num_kv_shared_layers": 0, "pad_token_id": 0, "rms_norm_eps": 0.03,
        "rope_parameters": {
            GLOBAL: {"partial_rotary_factor": 0.25, "rope_theta": 1000.0,
                     "rope_type": "proportional"},
            LOCAL: {"rope_theta": 10000.0, "rope_type": "default"}},
        "sliding_window": 32, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
        "use_bidirectional_attention": None, "use_double_wide_mlp": False,
        "vocab_size_per_layer_input": vocab, **changes}


def gemma4_models(max_tokens):
    """Returns what make_golden_models.MODELS takes of these."""
    experts = gemma4_config(
        43, max_tokens, enable_moe_block=True, moe_intermediate_size=12, num_experts=6,
        top_k_experts=3, layer_types=[LOCAL, GLOBAL, GLOBAL], num_hidden_layers=3,
        num_global_key_value_heads=2, num_key_value_heads=4, intermediate_size=36,
        torch_dtype="float16")
    smaller = gemma4_config(
        41, max_tokens, attention_k_eq_v=False, hidden_size_per_layer_input=6,
        layer_types=[LOCAL, LOCAL, GLOBAL, LOCAL, GLOBAL], num_global_key_value_heads=None,
        num_key_value_heads=2, num_kv_shared_layers=2,
        use_double_wide_mlp=True, intermediate_size=24, head_dim=8)
    return {"gemma4": (gemma4_config(44, max_tokens), {"seed": 301}),
            "gemma4_e": (smaller, {"seed": 322, "ignored": {
                "model.layers.3.self_attn.v_proj.weight": ((16, 32), "bfloat16"),
                "model.layers.3.self_attn.k_norm.weight": ((8,), "bfloat16"),
                "model.layers.4.self_attn.k_proj.weight": ((32, 32), "bfloat16")}}),
            "gemma4_a4b": (experts, {"seed": 303})}


def drawn(name, values):
    """Returns the values of a parameter that differs from other families', or None."""
    if name.endswith("embed_tokens.weight"):  # multiplied by the root of the width
        return values * 0.25 * values.shape[1] ** -0.5
    if name.endswith((".router.scale", ".per_expert_scale")):
        return 1.0 + 0.3 * values
    if name.endswith(".router.proj.weight"):  # multiplies rows of the root mean square 1 / sqrt(H)
        return 2.0 * values
    if name.endswith("embed_tokens_per_layer.weight"):  # multiplied by the root of its part
        return 0.4 * values
    if name.endswith("per_layer_model_projection.weight"):  # divided by the root of the width
        return values
    if name.endswith("layer_scalar"):
        return 0.9 + 0.1 * values
    return None


def gemma4_faults(config, state):
    yield from _norm_faults(config, state)
    yield from _attention_faults(config, state)
    yield from _rope_faults(config, state)
    yield from windows_of_other_lengths(config, state)
    yield Fault("embedding scale 1", config, state, patches.embedding_scale_one)
    yield Fault("logit cap dropped", with_keys(config, final_logit_softcapping=None), state)
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}.layer_scalar"
        yield Fault(f"layer {layer} not scaled", config,
                    {**state, name: torch.ones_like(state[name])})
    yield Fault("layers scale what they add alone", config, state, _scaled_additions)
    if config.get("enable_moe_block"):
        yield from _expert_faults(config, state)
    if config["num_kv_shared_layers"]:
        yield from sharing_faults(config, state)
    if config["hidden_size_per_layer_input"]:
        yield from _layer_input_faults(config, state)


def _norm_faults(config, state):
    yield Fault("norm gains plus 1", config, edited(
        state, lambda name, t: t.add_(1) if is_norm_gain(name) else None))
    for part in ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
                 "post_feedforward_layernorm", "q_norm", "k_norm", "v_norm"):
        yield Fault(f"{part} dropped", config, state, patches.without(part))
    yield Fault("q and k norms after rope", config, state, norms_after_rope)
    yield Fault("values normalised by the gains of keys", config, state, value_norms(
        lambda attn, x: attn.k_norm(x)))


def _attention_faults(config, state):
    yield Fault("scores scaled by the width of a head", config, state, scaled_scores)
    if config["attention_k_eq_v"]:
        yield Fault("values of normalised keys", config, state, value_norms(
            lambda attn, x: attn.right_v_norm(attn.k_norm(x)) if attn.v_proj is None
            else attn.right_v_norm(x)))
    yield Fault("kv heads interleaved", config, _interleaved(config, state))


def _rope_faults(config, state):
    ropes = config["rope_parameters"]

    def with_rope(kind, **changes):
        return with_keys(config, rope_parameters={**ropes, kind: {**ropes[kind], **changes}})

    for kind in (LOCAL, GLOBAL):
        for sign, factor in (("+", 1.1), ("-", 0.9)):
            theta = ropes[kind]["rope_theta"] * factor
            yield Fault(f"theta of {kind} {sign}10 %", with_rope(kind, rope_theta=theta), state)
    for kind, other in ((LOCAL, GLOBAL), (GLOBAL, LOCAL)):
        theta = ropes[other]["rope_theta"]
        yield Fault(f"theta of {other} in {kind}", with_rope(kind, rope_theta=theta), state)
    share = ropes[GLOBAL]["partial_rotary_factor"]
    yield Fault("every pair turns", with_rope(GLOBAL, partial_rotary_factor=1.0), state)
    yield Fault("half of the pairs turn", with_rope(GLOBAL, partial_rotary_factor=share / 2), state)
    theta = ropes[GLOBAL]["rope_theta"] ** (1 / share)
    yield Fault("frequencies of the turning columns alone", with_rope(GLOBAL, rope_theta=theta),
                state)
    yield Fault("share of pairs in every layer", config, state, _shared_pairs(share))
    for kind, width in ((LOCAL, config["head_dim"]), (GLOBAL, config["global_head_dim"])):
        yield Fault(f"rope turns neighbours in {kind}", config, _reordered(
            config, state, kind, [*range(0, width, 2), *range(1, width, 2)]))
    width, turned = config["global_head_dim"], int(config["global_head_dim"] * share)
    halves = [*range(turned // 2), *range(turned, width // 2 + turned // 2),
              *range(turned // 2, turned), *range(width // 2 + turned // 2, width)]
    yield Fault("pairs within the turning columns", config,
                _reordered(config, state, GLOBAL, halves))


def _expert_faults(config, state):
    for part in ("post_feedforward_layernorm_1", "pre_feedforward_layernorm_2",
                 "post_feedforward_layernorm_2"):
        yield Fault(f"{part} dropped", config, state, patches.without(part))
    for first, second in (("post_feedforward_layernorm_1", "post_feedforward_layernorm_2"),
                          ("pre_feedforward_layernorm.", "pre_feedforward_layernorm_2.")):
        yield Fault(f"{first} and {second} exchanged", config, exchanged(state, first, second))
    for what in ("router.scale", "router.per_expert_scale"):
        yield Fault(f"{what} 1", config, edited(
            state, lambda name, t, what=what: t.fill_(1) if name.endswith(what) else None))
    wrong = config["top_k_experts"]
    for used in (wrong - 1, wrong + 1):
        yield Fault(f"{used} experts", with_keys(config, top_k_experts=used), state)
    yield Fault("gate and up exchanged", config, edited(
        state, lambda name, t: t.copy_(t.roll(t.shape[1] // 2, dims=1))
        if name.endswith("experts.gate_up_proj") else None))
    yield Fault("experts of the next number", config, edited(
        state, lambda name, t: t.copy_(t.roll(1, dims=0)) if ".experts." in name else None))
    yield Fault("router of undivided rows", config, state, _undivided)
    yield Fault("weights of a softmax over all", config, state, _unnormalised)
    yield Fault("router reads the normalised rows", config, state, _normed_routing)


def sharing_faults(config, state):
    for kind in (LOCAL, GLOBAL):
        if layer_kinds(config)[:-config["num_kv_shared_layers"]].count(kind) > 1:
            yield Fault(f"keys and values of the first layer of {kind}", config, state,
                        _shared_from_first(kind))
    yield Fault("queries of sharing layers not rotated", config, state, _unturned_queries)


def _shared_from_first(kind):
    """Returns a patch that shares the keys and values of the first layer of a type."""

    def patch(model):
        own = [attn for attn in _attentions(model)
               if attn.layer_type == kind and not attn.is_kv_shared_layer]
        own[0].store_full_length_kv, own[-1].store_full_length_kv = True, False

    return patch


def _unturned_queries(model):
    for attn in _attentions(model):
        if not attn.is_kv_shared_layer:
            continue

        def forward(*args, plain=attn.forward, position_embeddings, **kwargs):
            cos, sin = position_embeddings
            still = torch.ones_like(cos), torch.zeros_like(sin)
            return plain(*args, position_embeddings=still, **kwargs)

        attn.forward = forward


def _layer_input_faults(config, state):
    for part in ("per_layer_projection_norm", "post_per_layer_input_norm"):
        yield Fault(f"{part} dropped", config, state, patches.without(part))
    yield from layer_table_faults(config, state)
    for what, change in (
            ("table rows not multiplied", lambda m: m.embed_tokens_per_layer.embed_scale.fill_(1)),
            ("products not divided", lambda m: setattr(m, "per_layer_model_projection_scale", 1)),
            ("sums not divided", lambda m: setattr(m, "per_layer_input_scale", 1))):
        yield Fault(what, config, state, lambda model, change=change: change(model.model))
    yield Fault("gate of inputs without activation", config, state, plain_gates)
    yield Fault("inputs of the stream, not of the embedded row", config, state, _inputs_of_stream)


def layer_table_faults(config, state):
    """Of rows of the second embedding and of products that go to another layer."""
    width, n_layers = config["hidden_size_per_layer_input"], config["num_hidden_layers"]
    yield Fault("table rows of the next layer", config, edited(
        state, lambda name, t: t.copy_(t.roll(width, dims=1))
        if name.endswith("embed_tokens_per_layer.weight") else None))
    yield Fault("table rows by column, not by layer", config, edited(
        state, lambda name, t: t.copy_(t.view(-1, n_layers, width).mT.reshape(t.shape))
        if name.endswith("embed_tokens_per_layer.weight") else None))
    yield Fault("product of the next layer", config, edited(
        state, lambda name, t: t.copy_(t.roll(width, dims=0))
        if name.endswith("per_layer_model_projection.weight") else None))


def plain_gates(model):
    for layer in model.model.layers:
        layer.act_fn = torch.nn.Identity()


def _inputs_of_stream(model):
    """Multiplies what is the stream in front of a layer in place of the embedded row."""
    inner, tokens = model.model, []
    plain = inner.get_per_layer_inputs

    def table_rows(*args, **kwargs):
        tokens[:] = [plain(*args, **kwargs)]
        return tokens[0]

    inner.get_per_layer_inputs = table_rows
    for number, layer in enumerate(inner.layers):
        def forward(rows, _, *args, number=number, plain=layer.forward, **kwargs):
            return plain(rows, inner.project_per_layer_inputs(rows, tokens[0])[:, :, number],
                         *args, **kwargs)

        layer.forward = forward


def _routers(model):
    return [layer.router for layer in model.model.layers]


def _undivided(model):
    for router in _routers(model):
        router.scalar_root_size = 1.0


def _unnormalised(model):
    for router in _routers(model):
        def forward(rows, router=router, plain=router.forward):
            scores, _, chosen = plain(rows)
            return scores, scores.gather(-1, chosen) * router.per_expert_scale[chosen], chosen

        router.forward = forward


def _normed_routing(model):
    for layer in model.model.layers:
        def forward(rows, layer=layer, plain=layer.router.forward):
            return plain(layer.pre_feedforward_layernorm(rows))

        layer.router.forward = forward


def windows_of_other_lengths(config, state):
    window = config["sliding_window"]
    for wrong in (4096, window // 2, window - 1, window + 1):
        yield Fault(f"window {window} -> {wrong}", with_keys(config, sliding_window=wrong), state)


def _layer_of(name):
    return next((int(part) for part in name.split(".") if part.isdigit()), None)


def _heads_of(config, layer):
    """Returns (key-value heads, width) of a layer."""
    if layer_kinds(config)[layer] == LOCAL:
        return config["num_key_value_heads"], config["head_dim"]
    n_kv = config["num_global_key_value_heads"] if config["attention_k_eq_v"] \
        else config["num_key_value_heads"]
    return n_kv, config["global_head_dim"]


def _reordered(config, state, kind, order):
    """Puts column order[i] of the query and key heads of some layers at i. Values that are keys
    stay: their layers have the columns of the output product reordered as well."""
    def edit(name, tensor):
        layer = _layer_of(name)
        if layer is None or layer_kinds(config)[layer] != kind:
            return
        width = len(order)
        parts = ["q_proj", "k_proj", "q_norm", "k_norm"]
        if any(f".self_attn.{part}.weight" in name for part in parts):
            rows = tensor.view(-1, width, *tensor.shape[1:])
            rows[:] = rows[:, order].clone()
        elif ".self_attn.o_proj." in name and config["attention_k_eq_v"] and kind == GLOBAL:
            columns = tensor.view(tensor.shape[0], -1, width)
            columns[:] = columns[:, :, order].clone()

    return edited(state, edit)


def _interleaved(config, state):
    """Makes query head h read key-value head h % n_kv."""
    n_heads = config["num_attention_heads"]

    def edit(name, tensor):
        layer = _layer_of(name)
        if layer is None:
            return
        n_kv, width = _heads_of(config, layer)
        group = n_heads // n_kv
        slot_of = [(h % n_kv) * group + h // n_kv for h in range(n_heads)]
        head_in = [slot_of.index(slot) for slot in range(n_heads)]
        if ".q_proj." in name:
            rows = tensor.view(n_heads, width, -1)
            rows[:] = rows[head_in].clone()
        elif ".o_proj." in name:
            columns = tensor.view(tensor.shape[0], n_heads, width)
            columns[:] = columns[:, head_in].clone()

    return edited(state, edit)


def _attentions(model):
    return [layer.self_attn for layer in model.model.layers]


def scaled_scores(model):
    for attn in _attentions(model):
        attn.scaling = attn.head_dim ** -0.5


def value_norms(compute):
    """Returns a patch that normalises values by compute(attention, values)."""

    def patch(model):
        for attn in _attentions(model):
            if not hasattr(attn, "v_norm"):
                continue
            attn.right_v_norm = attn.v_norm
            attn.v_norm = _Function(lambda x, attn=attn: compute(attn, x))

    return patch


class _Function(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.forward = function


def norms_after_rope(model):
    for attn in _attentions(model):
        module = sys.modules[type(attn).__module__]
        norms = [norm for norm in (attn.q_norm, getattr(attn, "k_norm", None)) if norm is not None]

        def forward(*args, norms=norms, plain=attn.forward, module=module,
                    right=module.apply_rotary_pos_emb, **kwargs):
            left = iter(norms)
            with mock.patch.object(module, "apply_rotary_pos_emb",
                                   lambda *a, **k: next(left)(right(*a, **k))):
                return plain(*args, **kwargs)

        attn.q_norm = torch.nn.Identity()
        if hasattr(attn, "k_norm"):
            attn.k_norm = torch.nn.Identity()
        attn.forward = forward


def _shared_pairs(share):
    """Returns a patch that leaves the pairs behind the first ones unturned in local layers too."""

    def patch(model):
        frequencies = getattr(model.model.rotary_emb, f"{LOCAL}_inv_freq")
        frequencies[int(share * frequencies.shape[0]):] = 0

    return patch


def _scaled_additions(model):
    for layer in model.model.layers:
        def forward(hidden_states, *args, plain=layer.forward, scale=layer.layer_scalar.clone(),
                    **kwargs):
            return hidden_states + scale * (plain(hidden_states, *args, **kwargs) - hidden_states)

        layer.forward = forward
        layer.layer_scalar = torch.ones_like(layer.layer_scalar)
