# SPDX-License-Identifier: MIT
"""The golden models that have attention and scans beside one another: Nemotron-H, Falcon-H1.

As in golden_configs.py, whose MODELS they join: see there.
"""

from golden_configs import MAX_TOKENS


def nemotron_config(vocab, **changes):
    """Nemotron-H. A scan's time steps stay above the published least, 0.001, but for a few."""
    return {
        "architectures": ["NemotronHForCausalLM"], "attention_bias": False, "bos_token_id": 1,
        "chunk_size": 128, "conv_kernel": 4, "eos_token_id": 2, "expand": 2, "head_dim": 16,
        "hidden_size": 40, "intermediate_size": 52, "layer_norm_epsilon": 0.03,
        "mamba_head_dim": 6, "mamba_hidden_act": "silu", "mamba_num_heads": 8,
        "mamba_proj_bias": False, "mamba_ssm_cache_dtype": "float32",
        "max_position_embeddings": MAX_TOKENS, "mlp_bias": False, "mlp_hidden_act": "relu2",
        "model_type": "nemotron_h", "n_groups": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "num_logits_to_keep": 1, "pad_token_id": 0,
        "rescale_prenorm_residual": True, "residual_in_fp32": False,
        "sliding_window": None, "ssm_state_size": 16, "tie_word_embeddings": False,
        "time_step_floor": 0.0001, "time_step_max": 0.1, "time_step_min": 0.0001,
        "torch_dtype": "bfloat16", "use_bias": False, "use_cache": True, "use_conv_bias": True,
        "use_mamba_kernels": True, "vocab_size": vocab, **changes}


def falcon_h1_config(vocab, **changes):
    return {
        "architectures": ["FalconH1ForCausalLM"], "attention_bias": False,
        "attention_in_multiplier": 1.25, "attention_out_multiplier": 0.75,
        "attn_layer_indices": None, "bos_token_id": 1, "embedding_multiplier": 5.656854249492381,
        "eos_token_id": 2, "head_dim": 16, "hidden_act": "silu", "hidden_size": 40,
        "intermediate_size": 52, "key_multiplier": 0.39062499999999994,
        "lm_head_multiplier": 0.6, "mamba_chunk_size": 128, "mamba_conv_bias": True,
        "mamba_d_conv": 4, "mamba_d_head": 6, "mamba_d_ssm": 48, "mamba_d_state": 16,
        "mamba_expand": 2, "mamba_n_groups": 2, "mamba_n_heads": 8,
        "mamba_norm_before_gate": False, "mamba_proj_bias": False, "mamba_rms_norm": False,
        "mamba_use_mlp": True, "max_position_embeddings": MAX_TOKENS, "mlp_bias": False,
        "mlp_multipliers": [0.8838834764831844, 0.5859375], "model_type": "falcon_h1",
        "num_attention_heads": 4, "num_hidden_layers": 3, "num_key_value_heads": 2,
        "pad_token_id": 0, "projectors_bias": False, "rms_norm_eps": 0.03, "rope_scaling": None,
        "rope_theta": 10000.0, "ssm_in_multiplier": 1.3,
        "ssm_multipliers": [0.7071067811865476, 0.55, 0.8, 1.2, 0.65],
        "ssm_out_multiplier": 0.8, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
        "vocab_size": vocab, **changes}


def of_pattern(pattern, **changes):
    return {"hybrid_override_pattern": pattern, "num_hidden_layers": len(pattern), **changes}


EXPERTS = {
    "moe_intermediate_size": 12, "moe_shared_expert_intermediate_size": 20, "n_group": 1,
    "n_routed_experts": 6, "n_shared_experts": 1, "norm_topk_prob": True,
    "num_experts_per_tok": 2, "routed_scaling_factor": 2.5, "topk_group": 1}
PUBLISHED_NAMES = {"renamed": {"model.": "backbone."}}
HYBRID_MODELS = {
    "nemotron_h": (
        nemotron_config(46, **of_pattern("M-M*-M")), {"seed": 401, **PUBLISHED_NAMES}),
    "nemotron_h_moe": (
        nemotron_config(45, **of_pattern("MEM*E"), hidden_size=32, head_dim=12,
                        **{**EXPERTS, "n_routed_experts": 5, "num_experts_per_tok": 3}),
        {"seed": 412, **PUBLISHED_NAMES,
         "ignored": {"mtp.layers.0.norm.weight": ((8,), "bfloat16")}}),
    # Everything that published files leave out, under the names of newer versions.
    "nemotron_h_mixed": (
        nemotron_config(
            44, conv_kernel=3, hidden_size=32, mamba_head_dim=4,
            mamba_num_heads=9, n_groups=3, torch_dtype="float16", use_bias=True,
            use_conv_bias=False,
            layers_block_type=["linear_attention", "moe", "full_attention", "mlp",
                               "linear_attention", "moe"],
            **{**EXPERTS, "n_group": 3, "norm_topk_prob": False, "num_experts_per_tok": 3,
               "topk_group": 2}),
        {"seed": 403, "stacked": True}),
    "falcon_h1": (falcon_h1_config(43), {"seed": 404}),
    "falcon_h1_normed": (
        falcon_h1_config(42, hidden_size=32, mamba_conv_bias=False, mamba_d_conv=3,
                         mamba_d_head="auto", mamba_d_ssm=None, mamba_d_state=8,
                         mamba_n_groups=4, mamba_rms_norm=True, num_hidden_layers=2,
                         tie_word_embeddings=True, torch_dtype="float16"),
        {"seed": 405}),
}
