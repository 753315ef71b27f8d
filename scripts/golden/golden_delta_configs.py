# SPDX-License-Identifier: MIT
"""The golden models with gated delta rules: Qwen 3.5 and Qwen3-Next.

As in golden_configs.py, whose MODELS they join: see there.
"""

from golden_configs import MAX_TOKENS

IGNORED_OF_QWEN35 = {
    "model.visual.patch_embed.proj.bias": ((8,), "bfloat16"),
    "mtp.fc.weight": ((8, 16), "bfloat16"),
    "mtp.layers.0.input_layernorm.weight": ((8,), "bfloat16"),
}


def delta_config(vocab, **changes):
    return {
        "attention_bias": False, "bos_token_id": 1, "eos_token_id": 2, "head_dim": 16,
        "hidden_act": "silu", "hidden_size": 40, "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
        "linear_value_head_dim": 12, "max_position_embeddings": MAX_TOKENS,
        "num_attention_heads": 4, "num_hidden_layers": 4, "num_key_value_heads": 2,
        "rms_norm_eps": 0.03, "tie_word_embeddings": False, "vocab_size": vocab, **changes}


def qwen35_config(vocab, family, **changes):
    """Qwen 3.5 as published: a model that sees."""
    text = delta_config(vocab, **{
        "attn_output_gate": True, "full_attention_interval": 4,
        "layer_types": ["linear_attention"] * 3 + ["full_attention"], "mlp_only_layers": [],
        "model_type": f"{family}_text", "mtp_num_hidden_layers": 1,
        "rope_parameters": {
            "mrope_interleaved": True, "mrope_section": [1, 1, 0], "partial_rotary_factor": 0.25,
            "rope_theta": 100, "rope_type": "default"},
        **changes})
    named = {"qwen3_5": "Qwen3_5ForConditionalGeneration",
             "qwen3_5_moe": "Qwen3_5MoeForConditionalGeneration"}
    return {
        "architectures": [named[family]], "image_token_id": 30, "model_type": family,
        "text_config": text, "tie_word_embeddings": text["tie_word_embeddings"],
        "torch_dtype": "bfloat16", "video_token_id": 31,
        "vision_config": {"depth": 1, "hidden_size": 8, "intermediate_size": 12,
                          "model_type": family, "num_heads": 2, "out_hidden_size": 40},
        "vision_end_token_id": 33, "vision_start_token_id": 32}


DELTA_MODELS = {
    "qwen3_5": (
        qwen35_config(44, "qwen3_5", intermediate_size=52, tie_word_embeddings=True),
        {"seed": 301, "renamed": {"model.": "model.language_model."},
         "ignored": IGNORED_OF_QWEN35}),
    "qwen3_5_moe": (
        qwen35_config(43, "qwen3_5_moe", hidden_size=32, head_dim=24, linear_conv_kernel_dim=3,
                      linear_key_head_dim=16, linear_num_key_heads=3, linear_num_value_heads=3,
                      linear_value_head_dim=8, layer_types=["full_attention", "linear_attention"] * 2,
                      moe_intermediate_size=12, num_experts=5, num_experts_per_tok=2,
                      shared_expert_intermediate_size=20),
        {"seed": 302, "stacked": True, "renamed": {"model.": "model.language_model."},
         "ignored": IGNORED_OF_QWEN35}),
    "qwen3_next": (
        {"architectures": ["Qwen3NextForCausalLM"], **delta_config(
            42, decoder_sparse_step=1, full_attention_interval=2, hidden_size=32,
            intermediate_size=44, linear_num_value_heads=6, linear_value_head_dim=5,
            mlp_only_layers=[], model_type="qwen3_next", moe_intermediate_size=12,
            norm_topk_prob=True, num_experts=6, num_experts_per_tok=3, partial_rotary_factor=0.25,
            rope_scaling=None, rope_theta=10000, shared_expert_intermediate_size=20,
            torch_dtype="bfloat16", use_sliding_window=False)},
        {"seed": 303, "ignored": {"mtp.fc.weight": ((8, 16), "bfloat16")}}),
}
