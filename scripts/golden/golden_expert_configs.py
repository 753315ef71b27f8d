# SPDX-License-Identifier: MIT
"""Golden models of mixtures of experts with dense layers or shared experts.

As in golden_configs.py, whose MODELS they join: see there.
"""

from golden_configs import experts_config, without


def qwen2_moe_config(vocab, **changes):
    return without(experts_config(vocab, "qwen2_moe", **{
        "moe_intermediate_size": 12, "shared_expert_intermediate_size": 22,
        "intermediate_size": 52, "norm_topk_prob": False, "decoder_sparse_step": 1,
        "mlp_only_layers": [], "use_sliding_window": False, "sliding_window": 32,
        "max_window_layers": 2, "torch_dtype": "bfloat16", **changes}), "attention_bias")


def glm4_moe_config(vocab, **changes):
    return without(experts_config(vocab, "glm4_moe", **{
        "first_k_dense_replace": 1, "head_dim": 16, "intermediate_size": 44,
        "moe_intermediate_size": 12, "n_group": 1, "n_routed_experts": 6, "n_shared_experts": 1,
        "norm_topk_prob": True, "num_experts_per_tok": 3, "num_hidden_layers": 3,
        "num_nextn_predict_layers": 1, "partial_rotary_factor": 0.5, "rope_scaling": None,
        "rope_theta": 1000000, "routed_scaling_factor": 2.5, "topk_group": 1,
        "use_qk_norm": True, "attention_bias": True, "torch_dtype": "bfloat16", **changes}),
        "num_experts")


def phimoe_config(vocab, original, rope, **changes):
    return experts_config(vocab, "phimoe", **{
        "attention_bias": True, "head_dim": 12, "input_jitter_noise": 0.01, "lm_head_bias": True,
        "num_hidden_layers": 3, "original_max_position_embeddings": original,
        "rope_scaling": {"original_max_position_embeddings": original, "type": "longrope", **rope},
        "router_jitter_noise": 0.01, "sliding_window": None, "torch_dtype": "bfloat16",
        **changes})


LONGROPE_FACTORS = [1.0, 1.2, 1.9, 3.0, 5.5, 9.0]

# Tensors of the block behind the layers, which a reader has to leave out.
FURTHER_TOKENS = {f"model.layers.3.{name}.weight": (shape, "bfloat16")
                  for name, shape in (("eh_proj", (8, 16)), ("enorm", (8,)), ("hnorm", (8,)),
                                      ("input_layernorm", (8,)), ("shared_head.norm", (8,)))}

EXPERT_MODELS = {
    "qwen2_moe": (
        qwen2_moe_config(59, num_experts=6, num_experts_per_tok=3, sliding_window=None),
        {"seed": 1001}),
    # Layers 0 and 2 are dense for the step, layer 1 is in the list; 0 and 2 have the window.
    "qwen2_moe_dense": (
        qwen2_moe_config(58, num_hidden_layers=4, decoder_sparse_step=2, mlp_only_layers=[1],
                         norm_topk_prob=True, use_sliding_window=True, max_window_layers=3,
                         tie_word_embeddings=True, torch_dtype="float16"),
        {"seed": 1002, "stacked": True}),
    "qwen3_moe_dense": (
        experts_config(57, "qwen3_moe", head_dim=14, moe_intermediate_size=12,
                       intermediate_size=36, norm_topk_prob=True, num_hidden_layers=3,
                       decoder_sparse_step=1, mlp_only_layers=[1], torch_dtype="bfloat16"),
        {"seed": 1003}),
    # transformers 5.23 turns by the short factors whatever the length; the model does not. So the
    # lists of the first are equal, and the second is short.
    "phimoe": (
        phimoe_config(53, 48, {
            "long_factor": LONGROPE_FACTORS, "long_mscale": 1.243163121016122,
            "short_factor": LONGROPE_FACTORS, "short_mscale": 1.243163121016122},
            num_local_experts=4),
        {"seed": 1007}),
    "phimoe_long_scale": (
        phimoe_config(52, 48, {
            "long_factor": LONGROPE_FACTORS, "long_mscale": 1.4,
            "short_factor": LONGROPE_FACTORS, "short_mscale": 0.8},
            lm_head_bias=False, attention_bias=False),
        {"seed": 1008}),
    "phimoe_short": (
        phimoe_config(51, 1024, {
            "long_factor": LONGROPE_FACTORS[::-1], "long_mscale": 0.8,
            "factor": 32.0, "short_factor": LONGROPE_FACTORS, "short_mscale": 1.4},
            num_local_experts=4, tie_word_embeddings=True),
        {"seed": 1009}),
    "glm4_moe": (glm4_moe_config(56), {"seed": 1004, "ignored": FURTHER_TOKENS}),
    "glm4_moe_groups": (
        glm4_moe_config(55, n_group=4, topk_group=2, n_routed_experts=12, n_shared_experts=2,
                        norm_topk_prob=False, num_hidden_layers=2, num_nextn_predict_layers=0,
                        use_qk_norm=False, attention_bias=False, routed_scaling_factor=1.5,
                        head_dim=12, torch_dtype="float16"),
        {"seed": 1005, "stacked": True}),
    "granitemoeshared": (
        experts_config(54, "granitemoeshared", attention_multiplier=0.2, embedding_multiplier=6.0,
                       residual_multiplier=0.6, logits_scaling=4.0, shared_intermediate_size=22,
                       tie_word_embeddings=True, torch_dtype="bfloat16"), {"seed": 1006}),
}
