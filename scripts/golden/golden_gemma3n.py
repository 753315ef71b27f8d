# SPDX-License-Identifier: MIT
"""The golden models of Gemma 3n, and what an engine may get wrong of their residual streams."""

import types
from unittest import mock

import torch
import torch.nn.functional as F
from transformers.models.gemma3n import modeling_gemma3n

import golden_gemma4
import golden_patches as patches
from golden_edits import Fault, edited, exchanged, with_keys
from golden_layouts import is_norm_gain

LOCAL, GLOBAL = "sliding_attention", "full_attention"


def gemma3n_config(vocab, max_tokens, **changes):
    return {
        "architectures": ["Gemma3nForCausalLM"], "model_type": "gemma3n_text",
        "vocab_size": vocab, "activation_sparsity_pattern": [0.6, 0.0, 0.6, 0.0, 0.0],
        "altup_active_idx": 0, "altup_coef_clip": 120.0, "altup_correct_scale": True,
        "altup_lr_multiplier": 1.0, "altup_num_inputs": 4, "attention_bias": False,
        "bos_token_id": 2, "eos_token_id": 1, "final_logit_softcapping": 1.5, "head_dim": 8,
        "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 32,
        "hidden_size_per_layer_input": 6, "intermediate_size": [24] * 5, "laurel_rank": 6,
        "layer_types": [LOCAL, LOCAL, GLOBAL, LOCAL, GLOBAL],
        "max_position_embeddings": max_tokens, "num_attention_heads": 4, "num_hidden_layers": 5,
        "num_key_value_heads": 2, "num_kv_shared_layers": 2, "pad_token_id": 0,
        "rms_norm_eps": 0.03, "rope_local_base_freq": 10000.0,
        "rope_scaling": None, "rope_theta": 1000.0, "sliding_window": 32,
        "torch_dtype": "bfloat16", "vocab_size_per_layer_input": vocab, **changes}


def gemma3n_models(max_tokens):
    """Returns what make_golden_models.MODELS takes of these."""
    short = gemma3n_config(
        43, max_tokens, activation_sparsity_pattern=None, altup_num_inputs=3,
        intermediate_size=28, laurel_rank=5, layer_types=[LOCAL, GLOBAL, GLOBAL],
        num_hidden_layers=3, num_kv_shared_layers=0, torch_dtype="float16",
        vocab_size_per_layer_input=38)
    return {"gemma3n": (gemma3n_config(44, max_tokens), {"seed": 333, "ignored": {
                "model.layers.3.self_attn.v_proj.weight": ((16, 32), "bfloat16"),
                "model.layers.3.self_attn.k_norm.weight": ((8,), "bfloat16"),
                "model.layers.4.self_attn.k_proj.weight": ((16, 32), "bfloat16")}}),
            "gemma3n_rows": (short, {"seed": 332})}


def drawn(name, values):
    """Returns the values of a parameter that differs from other families', or None."""
    if name.endswith("embed_tokens.weight"):  # multiplied by the root of the width
        return values * 0.25 * values.shape[1] ** -0.5
    if name.endswith("embed_tokens_per_layer.weight"):  # multiplied by the root of its part
        return 0.4 * values
    if name.endswith("per_layer_model_projection.weight"):  # divided by the root of the width
        return values
    if name.endswith("modality_router.weight"):  # divided by the width
        return 4.0 * values
    if name.endswith(("prediction_coefs.weight", "correction_coefs.weight")):
        return 0.2 * values
    if name.endswith("correct_output_scale"):
        return 1.0 + 0.3 * values
    if ".altup_projections." in name or ".altup_unembed_projections." in name:
        return 2.0 * values * values.shape[1] ** -0.5  # products are longer than what they get
    return None


def gemma3n_faults(config, state):
    yield from _norm_faults(config, state)
    yield Fault("scores scaled by the width of a head", config, state, golden_gemma4.scaled_scores)
    yield from golden_gemma4.windows_of_other_lengths(config, state)
    yield Fault("embedding scale 1", config, state, patches.embedding_scale_one)
    yield Fault("logit cap dropped", with_keys(config, final_logit_softcapping=1e3), state)
    yield from _router_faults(config, state)
    yield from _prediction_faults(config, state)
    yield from _correction_faults(config, state)
    yield from _laurel_faults(config, state)
    yield from _end_faults(config, state)
    yield from _table_faults(config, state)
    if config["activation_sparsity_pattern"]:
        yield from _sparsity_faults(config, state)
    if config["num_kv_shared_layers"]:
        yield from golden_gemma4.sharing_faults(config, state)


def _norm_faults(config, state):
    yield Fault("norm gains plus 1", config, edited(
        state, lambda name, t: t.add_(1) if is_norm_gain(name) else None))
    for part in ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
                 "post_feedforward_layernorm", "q_norm", "k_norm", "v_norm", "router_norm",
                 "post_laurel_norm", "per_layer_projection_norm", "post_per_layer_input_norm"):
        yield Fault(f"{part} dropped", config, state, patches.without(part))
    yield Fault("q and k norms after rope", config, state, golden_gemma4.norms_after_rope)
    yield Fault("values normalised by the gains of keys", config, state,
                golden_gemma4.value_norms(lambda attn, x: attn.k_norm(x)))


def _streams(model):
    return [layer.altup for layer in model.model.layers]


def _of_streams(change):
    """Returns a patch that applies change(altup) in every layer."""

    def patch(model):
        for altup in _streams(model):
            change(altup)

    return patch


def _router_faults(config, state):
    for what, scale in (("not divided", 1.0), ("divided by the root", config["hidden_size"] ** -0.5)):
        yield Fault(f"router {what}", config, state, _of_streams(
            lambda altup, scale=scale: altup.router_input_scale.fill_(scale)))

    def plain(altup):
        altup.compute_router_modalities = lambda x: altup.modality_router(
            altup.router_norm(x) * altup.router_input_scale)

    yield Fault("router without tanh", config, state, _of_streams(plain))


def _predicted(altup, streams, routed, transposed=False, kept=1.0):
    """Returns what predict() does, or does wrongly."""
    n = len(streams)
    factors = altup.prediction_coefs(altup.compute_router_modalities(routed))
    factors = factors.reshape(*factors.shape[:-1], n, n)
    equation = "btji,jbth->ibth" if transposed else "btij,jbth->ibth"
    return kept * streams + torch.einsum(equation, factors, streams)


def _prediction_faults(config, state):
    for what, changes in (("transposed", {"transposed": True}), ("without the streams", {"kept": 0.0})):
        def wrong(altup, changes=changes):
            altup.predict = lambda x: _predicted(altup, x, x[0], **changes)

        yield Fault(f"predictions {what}", config, state, _of_streams(wrong))

    def of_second(altup):
        altup.predict = lambda x: _predicted(altup, x, x[1])

    yield Fault("prediction routed by the second stream", config, state, _of_streams(of_second))


def _corrected(altup, predicted, routed, innovation, base=1.0):
    """Returns what correct() does, or does wrongly."""
    factors = altup.correction_coefs(altup.compute_router_modalities(routed)) + base
    return predicted + factors.permute(2, 0, 1).unsqueeze(-1) * innovation


def _correction_faults(config, state):
    def wrong(altup, change):
        altup.correct = lambda predicted, y: change(altup, predicted, y)

    for what, change in (
            ("correction without 1",
             lambda altup, p, y: _corrected(altup, p, y, y - p[0], base=0.0)),
            ("correction routed by the prediction",
             lambda altup, p, y: _corrected(altup, p, p[0], y - p[0])),
            ("every stream compared with its own prediction",
             lambda altup, p, y: _corrected(altup, p, y, y - p))):
        yield Fault(what, config, state,
                    _of_streams(lambda altup, change=change: wrong(altup, change)))

    def from_input(altup):
        seen, predict = [], altup.predict

        def recorded(streams):
            seen[:] = [streams[0]]
            return predict(streams)

        altup.predict = recorded
        altup.correct = lambda p, y: _corrected(altup, p, y, y - seen[0])

    yield Fault("correction by what the layer added", config, state, _of_streams(from_input))
    yield Fault("output not scaled", config, edited(
        state, lambda name, t: t.fill_(1) if name.endswith("correct_output_scale") else None))

    def added(model, first, last):
        for layer in model.model.layers:
            seen = []

            def norm(x, seen=seen, plain=layer.post_per_layer_input_norm.forward):
                seen[:] = [plain(x)]
                return torch.zeros_like(seen[0])

            def forward(*args, seen=seen, plain=layer.forward, **kwargs):
                streams = plain(*args, **kwargs)
                streams[first:last] += seen[0]
                return streams

            layer.post_per_layer_input_norm.forward = norm
            layer.forward = forward

    for what, first, last in (("the first stream too", 0, None), ("the second stream alone", 1, 2)):
        yield Fault(f"input of the layer added to {what}", config, state,
                    lambda model, first=first, last=last: added(model, first, last))


def _laurel_faults(config, state):
    def without_input(model):
        for layer in model.model.layers:
            laurel = layer.laurel
            laurel.forward = lambda x, laurel=laurel: laurel.post_laurel_norm(
                laurel.linear_right(laurel.linear_left(x)))

    def of_unnormed(model):
        for layer in model.model.layers:
            seen = []

            def norm(x, seen=seen, plain=layer.input_layernorm.forward):
                seen[:] = [x]
                return plain(x)

            layer.input_layernorm.forward = norm
            layer.laurel.forward = lambda _, seen=seen, plain=layer.laurel.forward: plain(seen[0])

    def undivided(model):
        plain = model.model.forward

        def forward(*args, **kwargs):
            with mock.patch.object(modeling_gemma3n, "math",
                                   types.SimpleNamespace(sqrt=lambda _: 1.0)):
                return plain(*args, **kwargs)

        model.model.forward = forward

    yield Fault("laurel without its input", config, state, without_input)
    yield Fault("laurel of rows that are not normalised", config, state, of_unnormed)
    yield Fault("sums with laurel not divided", config, state, undivided)


def _end_faults(config, state):
    """Products into the streams and out of them."""
    for part in ("altup_projections", "altup_unembed_projections"):
        yield Fault(f"{part} exchanged", config, exchanged(state, f"{part}.0.", f"{part}.1."))

    def unmatched_in(model):
        inner = model.model
        seen = _recorded(inner.altup_projections)
        first, plain = inner.layers[0], inner.layers[0].forward
        first.forward = lambda streams, *args, **kwargs: plain(
            torch.stack([streams[0], *seen]), *args, **kwargs)

    def unmatched_out(model):
        inner, streams = model.model, []
        seen = _recorded(inner.altup_unembed_projections)
        last, plain, norm = inner.layers[-1], inner.layers[-1].forward, inner.norm.forward

        def forward(*args, **kwargs):
            streams[:] = plain(*args, **kwargs)
            return torch.stack(list(streams))

        last.forward = forward
        inner.norm.forward = lambda _: norm((streams[0] + sum(seen)) / len(streams))

    yield Fault("streams not as long as the embedded row", config, state, unmatched_in)
    yield Fault("what leaves streams not as long as the first", config, state, unmatched_out)
    yield Fault("the first stream alone at the end", config, edited(
        state, lambda name, t: t.zero_() if ".altup_unembed_projections." in name else None))


def _recorded(modules):
    """Returns a list that holds what each module gave last."""
    seen = [None] * len(modules)
    for number, module in enumerate(modules):
        def forward(x, number=number, plain=module.forward):
            seen[number] = plain(x)
            return seen[number]

        module.forward = forward
    return seen


def _table_faults(config, state):
    yield from golden_gemma4.layer_table_faults(config, state)
    for what, change in (
            ("table rows not multiplied", lambda m: m.embed_tokens_per_layer.embed_scale.fill_(1)),
            ("products not divided", lambda m: m.per_layer_projection_scale.fill_(1)),
            ("sums not divided", lambda m: m.per_layer_input_scale.fill_(1))):
        yield Fault(what, config, state, lambda model, change=change: change(model.model))
    yield Fault("gate of inputs without activation", config, state, golden_gemma4.plain_gates)
    n_rows = config["vocab_size_per_layer_input"]
    if n_rows < config["vocab_size"]:
        def last_row(model):
            inner = model.model
            plain = inner.get_per_layer_inputs
            inner.get_per_layer_inputs = lambda tokens: plain(tokens.clamp(max=n_rows - 1))

        yield Fault("the last row of the table for tokens behind it", config, state, last_row)


def _sparsity_faults(config, state):
    shares = config["activation_sparsity_pattern"]
    for what, wrong in (("in every layer", [max(shares)] * len(shares)),
                        ("in no layer", [0.0] * len(shares)),
                        ("in the other layers", [max(shares) - share for share in shares]),
                        ("at another share", [share and 0.75 for share in shares])):
        yield Fault(f"gates cut {what}", with_keys(config, activation_sparsity_pattern=wrong), state)

    def wrongly(cut):
        def patch(model):
            for layer in model.model.layers:
                mlp = layer.mlp
                if mlp.activation_sparsity > 0:
                    mlp._gaussian_topk = lambda x, mlp=mlp: cut(x, mlp)

        return patch

    def limit(x, mlp, mean=True, unbiased=False):
        share = torch.tensor(mlp.activation_sparsity)
        deviations = torch.distributions.normal.Normal(0, 1).icdf(share)
        middle = x.mean(-1, keepdim=True) if mean else 0.0
        return middle + deviations * x.std(-1, keepdim=True, unbiased=unbiased)

    for what, cut in (
            ("above 0, not above the mean", lambda x, mlp: F.relu(x - limit(x, mlp, mean=False))),
            ("by the deviation of a sample", lambda x, mlp: F.relu(x - limit(x, mlp, unbiased=True))),
            ("without what is below them", lambda x, mlp: x * (x > limit(x, mlp)))):
        yield Fault(f"gates cut {what}", config, state, wrongly(cut))

    def behind(model):
        for layer in model.model.layers:
            mlp = layer.mlp
            if mlp.activation_sparsity == 0:
                continue
            mlp.forward = lambda x, mlp=mlp: mlp.down_proj(
                F.relu((a := mlp.act_fn(mlp.gate_proj(x))) - limit(a, mlp)) * mlp.up_proj(x))

    yield Fault("gates cut behind the activation", config, state, behind)
