# SPDX-License-Identifier: MIT
"""Planted faults of single families: what an engine built for their relatives gets wrong."""

import torch

import golden_patches as patches
from golden_edits import (Fault, blocks_as_fused, edited, exchanged, fused_as_blocks,
                          swapped_halves, swapped_views, with_keys)
from golden_gemma3n import gemma3n_faults
from golden_gemma4 import gemma4_faults
from golden_gpt_oss import gpt_oss_faults
from golden_layouts import has_experts, head_shape, is_norm_gain, rotates
from golden_position_faults import alibi_faults
from golden_state_faults import lfm2_faults, mamba2_faults


def _dropped(config, state, *parts):
    for part in parts:
        yield Fault(f"{part} dropped", config, state, patches.without(part))


def _phi_faults(config, state):
    yield Fault("parallel layer made sequential", config, state, patches.sequential)


def _phi3_faults(config, state):
    n_heads, n_kv, _ = head_shape(config)
    yield Fault("k and v exchanged in qkv", config, swapped_views(config, state, "k", "v"))
    if n_heads == n_kv:
        yield Fault("q and k exchanged in qkv", config, swapped_views(config, state, "q", "k"))
        yield Fault("q and v exchanged in qkv", config, swapped_views(config, state, "q", "v"))
    yield Fault("gate and up exchanged", config, swapped_halves(state, ".gate_up_proj."))


def head_norm_faults(config, state):
    yield from _dropped(config, state, "q_norm", "k_norm")
    yield Fault("q and k norms after rope", config, state, patches.norms_after_rope)


def _opt_faults(config, state):
    swapped = {}
    for name, tensor in state.items():
        if ".layers." in name and "layer_norm" in name:
            other = name.replace("self_attn_layer_norm", "?").replace(
                "final_layer_norm", "self_attn_layer_norm").replace("?", "final_layer_norm")
            swapped[other] = tensor
    yield Fault("norms of a layer exchanged", config, {**state, **swapped})


def _bloom_faults(config, state):
    yield Fault("heads of qkv read as blocks", config, fused_as_blocks(config, state))
    yield Fault("embedding norm dropped", config, state,
                patches.without("word_embeddings_layernorm"))
    yield from alibi_faults(config, state)


def _gemma_faults(config, state):
    minus = edited(state, lambda name, t: t.sub_(1) if is_norm_gain(name) else None)
    yield Fault("norm gains without + 1", config, minus)
    yield Fault("embedding scale 1", config, state, patches.embedding_scale_one)


def _gemma2_faults(config, state):
    yield from _gemma_faults(config, state)
    yield Fault("score cap dropped", with_keys(config, attn_logit_softcapping=None), state)
    yield Fault("logit cap dropped", with_keys(config, final_logit_softcapping=None), state)
    yield from _gemma_norm_faults(config, state)


def _gemma_norm_faults(config, state):
    yield from _dropped(config, state, "post_attention_layernorm", "post_feedforward_layernorm")
    width = head_shape(config)[2]
    default = with_keys(config, query_pre_attn_scalar=width)
    yield Fault("scores scaled by the width of a head", default, state)


def _gemma3_faults(config, state):
    yield from _gemma_faults(config, state)
    minus = edited(state, lambda name, t: t.sub_(1) if name.endswith(
        ("q_norm.weight", "k_norm.weight")) else None)
    yield Fault("gains of q and k norms without + 1", config, minus)
    yield from _gemma_norm_faults(config, state)
    yield from _dropped(config, state, "input_layernorm", "pre_feedforward_layernorm")
    yield from head_norm_faults(config, state)


def _stablelm_faults(config, state):
    if config["use_parallel_residual"]:
        yield Fault("parallel layer made sequential", config, state, patches.sequential)


def _post_norm_faults(config, state):
    """Families with norms behind the sublayers and none in front."""
    yield from _dropped(config, state, "post_attention_layernorm", "post_feedforward_layernorm")
    yield Fault("norms in front of the sublayers", config, state, patches.norms_in_front(False))
    yield Fault("norms in front as well", config, state, patches.norms_in_front(True))


def _olmo2_faults(config, state):
    yield from _post_norm_faults(config, state)
    yield from _dropped(config, state, "q_norm", "k_norm")
    for part in ("q_norm", "k_norm"):
        yield Fault(f"{part} of each head by itself", config, state,
                    patches.norm_of_each_head(part))


def _exaone4_faults(config, state):
    yield from _post_norm_faults(config, state)
    yield from head_norm_faults(config, state)


def _granite_faults(config, state):
    for key in ("embedding_multiplier", "residual_multiplier", "logits_scaling"):
        yield Fault(f"{key} 1", with_keys(config, **{key: 1.0}), state)
    inverted = with_keys(config, logits_scaling=1 / config["logits_scaling"])
    yield Fault("logits multiplied by logits_scaling", inverted, state)
    default = head_shape(config)[2] ** -0.5
    for what, wrong in (("width^-1/2", default),
                        ("times width^-1/2", default * config["attention_multiplier"])):
        yield Fault(f"attention_multiplier {what}",
                    with_keys(config, attention_multiplier=wrong), state)
    for part in ("self_attn", "shared_mlp" if "layer_types" in config else "mlp"):
        yield Fault(f"residual_multiplier left out behind {part}", config, state,
                    patches.unscaled_residual(part))


def expert_faults(config, state):
    n_used = config["num_experts_per_tok"]
    for wrong in (n_used - 1, n_used + 1):
        yield Fault(f"{n_used} experts -> {wrong}", with_keys(config, num_experts_per_tok=wrong),
                    state)
    yield Fault("experts exchanged", config, edited(
        state, lambda name, t: t.copy_(t.roll(1, dims=0)) if ".experts." in name else None))
    if any(name.endswith(".experts.gate_up_proj") for name in state):
        yield Fault("gate and up of experts exchanged", config, edited(
            state, lambda name, t: t.copy_(t.roll(t.shape[1] // 2, dims=1))
            if name.endswith(".experts.gate_up_proj") else None))
    if "norm_topk_prob" in config:
        flipped = not config["norm_topk_prob"]
        yield Fault(f"norm_topk_prob {flipped}", with_keys(config, norm_topk_prob=flipped), state)
    else:
        yield Fault("softmax over all experts", config, state, patches.softmax_over_all)


def _qwen3_moe_faults(config, state):
    yield from head_norm_faults(config, state)
    yield from expert_faults(config, state)


def _granite4_faults(config, state):
    yield from _granite_faults(config, state)
    yield Fault("gate and up exchanged", config, swapped_halves(state, ".input_linear."))
    if any(".mamba." in name for name in state):
        yield Fault("residual_multiplier left out behind mamba", config, state,
                    patches.unscaled_residual("mamba"))
        other = "nope" if rotates(config) else "rope"
        yield Fault(f"position_embedding_type {other}",
                    with_keys(config, position_embedding_type=other), state)
        yield from mamba2_faults(config, state)
    if has_experts(config):
        yield from expert_faults(config, state)


def _olmoe_faults(config, state):
    if config["clip_qkv"]:
        yield Fault("clip_qkv dropped", with_keys(config, clip_qkv=None), state)
        yield Fault("clip_qkv in front of the norms", config, state, patches.clip_before_norms)
    yield from _dropped(config, state, "q_norm", "k_norm")
    for part in ("q_norm", "k_norm"):
        yield Fault(f"{part} of each head by itself", config, state,
                    patches.norm_of_each_head(part))
    yield from expert_faults(config, state)


def granitemoe_faults(config, state):
    for key in ("embedding_multiplier", "residual_multiplier", "logits_scaling"):
        yield Fault(f"{key} 1", with_keys(config, **{key: 1.0}), state)
    yield from expert_faults(config, state)


def _ministral3_faults(config, state):
    for what, wrong in (("dropped", lambda p, beta, n: 0 * p + 1.0),
                        ("at position + 1", lambda p, beta, n: patches.query_scale(p + 1, beta, n)),
                        ("without floor", lambda p, beta, n: 1 + beta * (1 + p / n).log())):
        yield Fault(f"query scale {what}", config, state, patches.query_scales(wrong))


def _glm4_faults(config, state):
    yield from _dropped(config, state, "post_self_attn_layernorm", "post_mlp_layernorm",
                        "post_attention_layernorm")
    yield Fault("post_attention_layernorm taken for the norm behind attention", config,
                exchanged(state, ".post_attention_layernorm.", ".post_self_attn_layernorm."))
    yield Fault("gate and up exchanged", config, swapped_halves(state, ".gate_up_proj."))


def _cohere_faults(config, state):
    scale = config["logit_scale"]
    yield Fault("logit_scale 1", with_keys(config, logit_scale=1.0), state)
    yield Fault("logits divided by logit_scale", with_keys(config, logit_scale=1 / scale), state)
    yield Fault("parallel layer made sequential", config, state, patches.sequential)
    yield Fault("LayerNorm without the mean", config, state, patches.norms_without_mean)
    if config.get("use_qk_norm"):
        yield from _dropped(config, state, "q_norm", "k_norm")
        for part in ("q_norm", "k_norm"):
            suffix = f".{part}.weight"
            yield Fault(f"{part} with the first head's gains", config, edited(
                state, lambda name, t: t.copy_(t[:1].expand_as(t))
                if name.endswith(suffix) else None))
            yield Fault(f"gains of {part} in halves", config, edited(
                state, lambda name, t: t.copy_(torch.cat((t[:, ::2], t[:, 1::2]), dim=1))
                if name.endswith(suffix) else None))


def _gpt_neox_faults(config, state):
    flipped = not config["use_parallel_residual"]
    what = "sequential layer made parallel" if flipped else "parallel layer made sequential"
    yield Fault(what, with_keys(config, use_parallel_residual=flipped), state)
    yield Fault("heads of qkv read as blocks", config, fused_as_blocks(config, state))
    yield from _two_norm_faults(config, state, ".input_layernorm.", ".post_attention_layernorm.")


def _two_norm_faults(config, state, first, second):
    yield Fault("norms of a layer exchanged", config, exchanged(state, first, second))
    shared = {**state, **{name.replace(first, second): tensor
                          for name, tensor in state.items() if first in name}}
    yield Fault("one norm for attention and FFN", config, shared)


def _falcon_faults(config, state):
    if config["parallel_attn"]:
        yield Fault("parallel layer made sequential", config, state, patches.falcon_sequential)
    else:
        yield from _two_norm_faults(config, state, ".input_layernorm.",
                                    ".post_attention_layernorm.")
    yield Fault("k and v exchanged in qkv", config, swapped_views(config, state, "k", "v"))
    if not config["multi_query"]:
        yield Fault("heads of qkv read as blocks", config, fused_as_blocks(config, state))
    if config["new_decoder_architecture"]:
        yield Fault("groups of qkv read as blocks", config, fused_as_blocks(config, state))
    if config["alibi"]:
        yield from alibi_faults(config, state)
        yield Fault("biases in f32", config, state, patches.falcon_biases(rounded=False))
        yield Fault("biases that are not scaled", config, state,
                    patches.falcon_biases(scaled=False))
    if any(".ln_mlp." in name for name in state):
        yield from _two_norm_faults(config, state, ".ln_attn.", ".ln_mlp.")


def _starcoder2_faults(config, state):
    yield Fault("norms of a layer exchanged", config,
                exchanged(state, ".input_layernorm.", ".post_attention_layernorm."))


def _mpt_faults(config, state):
    for first, second in ("qk", "qv", "kv"):
        yield Fault(f"{first} and {second} exchanged in qkv", config,
                    swapped_views(config, state, first, second))
    yield Fault("blocks of qkv read head by head", config, blocks_as_fused(config, state))
    yield Fault("norms of a layer exchanged", config, exchanged(state, ".norm_1.", ".norm_2."))
    yield Fault("LayerNorm without the mean", config, state, patches.norms_without_mean)
    if config["attn_config"]["clip_qkv"]:
        plain = {**config["attn_config"], "clip_qkv": None}
        yield Fault("clip_qkv dropped", with_keys(config, attn_config=plain), state)
    if config["attn_config"]["softmax_scale"]:
        plain = {**config["attn_config"], "softmax_scale": None}
        yield Fault("softmax_scale dropped", with_keys(config, attn_config=plain), state)
    yield from alibi_faults(config, state)


FAMILIES = {
    "bloom": _bloom_faults, "cohere": _cohere_faults, "cohere2": _cohere_faults,
    "exaone4": _exaone4_faults, "falcon": _falcon_faults, "gemma": _gemma_faults,
    "gemma2": _gemma2_faults, "gemma3_text": _gemma3_faults, "gemma3n_text": gemma3n_faults,
    "gemma4_text": gemma4_faults, "glm4": _glm4_faults,
    "gpt_neox": _gpt_neox_faults, "granite": _granite_faults, "ministral3": _ministral3_faults,
    "mixtral": expert_faults, "qwen3_moe": _qwen3_moe_faults, "olmoe": _olmoe_faults,
    "granitemoe": granitemoe_faults, "granitemoehybrid": _granite4_faults,
    "gpt_oss": gpt_oss_faults, "lfm2": lfm2_faults,
    "mpt": _mpt_faults, "olmo2": _olmo2_faults, "olmo3": _olmo2_faults, "opt": _opt_faults,
    "phi": _phi_faults, "phi3": _phi3_faults, "qwen3": head_norm_faults,
    "stablelm": _stablelm_faults, "starcoder2": _starcoder2_faults,
}
