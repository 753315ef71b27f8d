# SPDX-License-Identifier: MIT
"""gpt-oss: its golden models, their weights, MXFP4 files, and the mistakes that it invites."""

import numpy as np
import torch

from golden_edits import Fault, edited, with_keys
from golden_layouts import head_shape

MAX_TOKENS = 544
FP4 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
BLOCK = 32


def gpt_oss_config(vocab, **changes):
    return {
        "architectures": ["GptOssForCausalLM"], "attention_bias": True, "attention_dropout": 0.0,
        "bos_token_id": 1, "eos_token_id": 2, "experts_per_token": 2, "head_dim": 16,
        "hidden_act": "silu", "hidden_size": 32, "initial_context_length": MAX_TOKENS // 8,
        "intermediate_size": 64, "layer_types": ["sliding_attention", "full_attention"],
        "max_position_embeddings": MAX_TOKENS, "model_type": "gpt_oss", "num_attention_heads": 4,
        "num_experts_per_tok": 2, "num_hidden_layers": 2, "num_key_value_heads": 2,
        "num_local_experts": 5, "output_router_logits": False, "pad_token_id": None,
        "rms_norm_eps": 0.03, "rope_scaling": {
            "beta_fast": 8.0, "beta_slow": 1.0, "factor": 8.0,
            "original_max_position_embeddings": MAX_TOKENS // 8, "rope_type": "yarn",
            "truncate": False},
        "rope_theta": 1000.0, "sliding_window": 32, "swiglu_limit": 7.0,
        "tie_word_embeddings": False, "torch_dtype": "bfloat16", "vocab_size": vocab, **changes,
    }


# As published, with experts of MXFP4; and as older files of the floats, with stacked matrices
# [inputs, outputs].
GPT_OSS_MODELS = {
    "gpt_oss": (
        gpt_oss_config(58, quantization_config={
            "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                       "model.embed_tokens", "lm_head"],
            "quant_method": "mxfp4"}), {"mxfp4": True, "seed": 301}),
    "gpt_oss_floats": (
        gpt_oss_config(57, num_local_experts=4, num_experts_per_tok=3, experts_per_token=3,
                       num_key_value_heads=4, hidden_size=40, intermediate_size=24, head_dim=14,
                       tie_word_embeddings=True), {"seed": 302}),
}


def drawn(name, values):
    """Returns random values of a parameter that other families lack at a scale where it counts, or
    None: gates and ups beyond the clamps, and small products behind them."""
    if name.endswith(".sinks"):
        return values + np.float32(2)
    if name.endswith("_proj_bias") or name.endswith(".router.bias"):
        return values * np.float32(0.5)
    if name.endswith(".experts.gate_up_proj"):
        return values * np.float32(5 * values.shape[1] ** -0.5)
    if name.endswith(".experts.down_proj"):
        return values * np.float32(0.15 * values.shape[1] ** -0.5)
    return None


def exponents(blocks):
    """Returns the powers of two with which the largest of each block fits FP4."""
    largest = blocks.abs().amax(-1, keepdim=True).clamp(min=2.0 ** -100)
    return largest.log2().floor() - 2


def rounded(tensor):
    """Rounds matrices [experts, inputs, outputs] to MXFP4."""
    blocks = tensor.transpose(1, 2).unflatten(-1, (-1, BLOCK))
    scaled = blocks / exponents(blocks).exp2()
    nearest = FP4[(scaled.abs()[..., None] - FP4).abs().argmin(-1)]
    values = nearest * scaled.sign() * exponents(blocks).exp2()
    return values.flatten(-2).transpose(1, 2).contiguous()


def packed(tensor):
    """Returns (blocks, scales) of matrices that MXFP4 holds: byte b of a block has element 2b below
    and 2b + 1 above."""
    blocks = tensor.float().transpose(1, 2).unflatten(-1, (-1, BLOCK))
    power = exponents(blocks)
    scaled = blocks / power.exp2()
    codes = (scaled.abs()[..., None] == FP4).float().argmax(-1) + 8 * (scaled < 0)
    assert torch.equal(FP4[codes % 8] * scaled.sign(), scaled)
    codes = codes.to(torch.uint8)
    return ((codes[..., 0::2] | codes[..., 1::2] << 4).contiguous(),
            (power.squeeze(-1) + 127).to(torch.uint8).contiguous())


def published(state):
    """Returns the weights under the names of published files."""
    renamed = {}
    for name, tensor in state.items():
        if name.endswith((".experts.gate_up_proj", ".experts.down_proj")):
            renamed[name + "_blocks"], renamed[name + "_scales"] = packed(tensor)
        else:
            renamed[name] = tensor
    return renamed


def _gates(change):
    """Returns a patch that replaces what an expert makes of its gates and ups."""
    def patch(model):
        for layer in model.model.layers:
            experts = layer.mlp.experts

            def apply_gate(gate_up, experts=experts):
                return change(gate_up[..., ::2], gate_up[..., 1::2], experts.alpha, experts.limit)

            experts._apply_gate = apply_gate

    return patch


def _swish(gate, up, alpha, limit, low=True, high=True, of_gate=True, one=1.0):
    gate = gate.clamp(max=limit) if of_gate else gate
    up = up.clamp(min=-limit if low else None, max=limit if high else None) if low or high else up
    return (up + one) * gate * torch.sigmoid(gate * alpha)


def _bias_behind_choice(model):
    """Adds the router's bias to the weights of the experts alone, not to their choice."""
    for layer in model.model.layers:
        router = layer.mlp.router

        def forward(hidden, router=router):
            logits = torch.nn.functional.linear(hidden, router.weight)
            chosen = logits.topk(router.top_k, dim=-1).indices
            weights = (logits + router.bias).gather(-1, chosen).softmax(-1)
            return logits, weights, chosen

        router.forward = forward


def _softmax_over_all(model):
    for layer in model.model.layers:
        router = layer.mlp.router
        right = router.forward

        def forward(hidden, right=right):
            logits, _, chosen = right(hidden)
            return logits, logits.softmax(-1).gather(-1, chosen), chosen

        router.forward = forward


def _sink_faults(config, state):
    def sinks(edit):
        return edited(state, lambda name, t: t.copy_(edit(t)) if name.endswith(".sinks") else None)

    yield Fault("sinks dropped", config, sinks(lambda t: t * 0 - 1e4))
    yield Fault("sinks scaled as scores", config,
                sinks(lambda t: t * head_shape(config)[2] ** -0.5))
    yield Fault("sinks of other heads", config, sinks(lambda t: t.roll(1)))
    yield Fault("sinks of other layers", config, {**state, **{
        name: state[name.replace("layers.0", "?").replace("layers.1", "layers.0")
                    .replace("?", "layers.1")] for name in state if name.endswith(".sinks")}})


def gpt_oss_faults(config, state):
    yield from _sink_faults(config, state)
    for what, change in (
            ("gate not clamped", lambda g, u, a, l: _swish(g, u, a, l, of_gate=False)),
            ("up not clamped", lambda g, u, a, l: _swish(g, u, a, l, low=False, high=False)),
            ("up clamped above alone", lambda g, u, a, l: _swish(g, u, a, l, low=False)),
            ("up clamped below alone", lambda g, u, a, l: _swish(g, u, a, l, high=False)),
            ("gate clamped below", lambda g, u, a, l: _swish(g.clamp(min=-0.5), u, a, l)),
            ("up without + 1", lambda g, u, a, l: _swish(g, u, a, l, one=0.0)),
            ("gate and up exchanged", lambda g, u, a, l: _swish(u, g, a, l)),
            ("plain swiglu", lambda g, u, a, l: u * torch.nn.functional.silu(g))):
        yield Fault(what, config, state, _gates(change))
    yield Fault("sigmoid of the gate itself", with_keys(config, swiglu_alpha=1.0), state)
    yield Fault("gate and up as halves", config, edited(
        state, lambda name, t: t.copy_(t.unflatten(-1, (2, -1)).transpose(-1, -2).flatten(-2))
        if ".experts.gate_up_proj" in name else None))
    n_used = config["num_experts_per_tok"]
    for wrong in (n_used - 1, n_used + 1):
        yield Fault(f"{n_used} experts -> {wrong}", with_keys(config, num_experts_per_tok=wrong),
                    state)
    yield Fault("experts exchanged", config, edited(
        state, lambda name, t: t.copy_(t.roll(1, dims=0)) if ".experts." in name else None))
    yield Fault("softmax over all experts", config, state, _softmax_over_all)
    yield Fault("router bias behind the choice", config, state, _bias_behind_choice)
