# SPDX-License-Identifier: MIT
"""The golden models of which some layers have a state in place of attention."""


def drawn_state(name, values):
    """Returns values of a scan's parameter, or None for others: heads that forget within a few
    positions and heads that remember dozens, by steps of a tenth or two."""
    if name.endswith(".A_log"):
        return 0.7 * values
    if name.endswith(".dt_bias"):
        return values - 2.0
    if name.endswith((".mamba.D", ".mixer.D")):
        return 1.0 + 0.3 * values
    return None


def lfm2_config(small_config, vocab, max_tokens, **changes):
    """LFM2 as first published: layers that attend are listed, the FFN's width is before rounding."""
    return {**small_config(vocab, "lfm2"), **{
        "max_position_embeddings": max_tokens, "hidden_size": 40, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_heads": 4, "num_key_value_heads": 2,
        "block_auto_adjust_ff_dim": True, "block_dim": 40, "block_ff_dim": 76,
        "block_ffn_dim_multiplier": 1.0, "block_multiple_of": 4, "block_norm_eps": 0.03,
        "block_use_swiglu": True, "conv_L_cache": 3, "conv_bias": False, "conv_dim": 40,
        "conv_dim_out": 40, "full_attn_idxs": [2], "norm_eps": 0.03, "pad_token_id": 0,
        "rope_theta": 1000000.0, "torch_dtype": "bfloat16", "use_pos_enc": True, **changes}}


def lfm2_moe_config(small_config, vocab, max_tokens, layer_types, **changes):
    config = {**small_config(vocab, "lfm2_moe"), **{
        "max_position_embeddings": max_tokens, "hidden_size": 40,
        "num_hidden_layers": len(layer_types), "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 52, "moe_intermediate_size": 12, "layer_types": layer_types,
        "conv_L_cache": 3, "conv_bias": False, "norm_eps": 0.03, "norm_topk_prob": True,
        "num_dense_layers": 1, "num_experts": 6, "num_experts_per_tok": 3,
        "routed_scaling_factor": 1.0, "rope_theta": 1000000.0, "torch_dtype": "bfloat16",
        "use_expert_bias": True, **changes}}
    del config["tie_word_embeddings"]  # published files do not have it
    if "rope_parameters" in config:
        del config["rope_theta"]
    return config


def state_models(small_config, max_tokens):
    """Returns what golden_configs.MODELS takes of these; `small_config` makes what all share."""
    lfm2 = lfm2_config(small_config, 46, max_tokens)
    del lfm2["tie_word_embeddings"]  # published files do not have it
    types = lfm2_config(
        small_config, 45, max_tokens, hidden_size=48, num_attention_heads=6,
        num_key_value_heads=3, conv_L_cache=4, conv_bias=True, conv_dim=48, conv_dim_out=48,
        intermediate_size=52, block_auto_adjust_ff_dim=False, tie_embedding=False,
        layer_types=["full_attention", "conv", "conv", "full_attention", "conv"],
        num_hidden_layers=5, rope_parameters={"rope_theta": 20000.0, "rope_type": "default"},
        torch_dtype="float16")
    for key in ("rope_theta", "full_attn_idxs", "block_ff_dim", "tie_word_embeddings"):
        del types[key]
    return {
        "lfm2": (lfm2, {"seed": 201}), "lfm2_types": (types, {"seed": 202}),
        "lfm2_moe": (
            lfm2_moe_config(small_config, 43, max_tokens,
                            ["conv", "full_attention", "conv", "full_attention", "conv"]),
            {"seed": 205}),
        "lfm2_moe_free": (
            lfm2_moe_config(small_config, 42, max_tokens, ["conv", "full_attention", "conv"],
                            conv_L_cache=4, conv_bias=True, norm_topk_prob=False,
                            num_dense_layers=0, routed_scaling_factor=1.5, tie_embedding=False,
                            rope_parameters={"rope_theta": 20000.0, "rope_type": "default"},
                            torch_dtype="float16", use_expert_bias=False),
            {"seed": 206, "stacked": True})}
