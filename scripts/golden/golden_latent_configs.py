# SPDX-License-Identifier: MIT
"""Golden models with latent attention: DeepSeek-V2 and V3, GLM-4.7-Flash.

As in golden_configs.py, whose MODELS they join: see there. Sizes differ wherever a reader could
take one for another.
"""

from golden_configs import experts_config, without
from golden_expert_configs import FURTHER_TOKENS


def latent_config(vocab, model_type, **changes):
    return without(experts_config(vocab, model_type, **{
        "first_k_dense_replace": 1, "hidden_size": 40, "intermediate_size": 44,
        "kv_lora_rank": 32, "moe_intermediate_size": 12, "moe_layer_freq": 1,
        "n_routed_experts": 6, "n_shared_experts": 2, "num_attention_heads": 4,
        "num_experts_per_tok": 3, "num_hidden_layers": 3, "num_key_value_heads": 4,
        "q_lora_rank": 24, "qk_nope_head_dim": 20, "qk_rope_head_dim": 16, "rope_scaling": None,
        "v_head_dim": 16, "torch_dtype": "bfloat16", **changes}), "num_experts")


def deepseek_v2_config(vocab, **changes):
    return latent_config(vocab, "deepseek_v2", **{
        "ep_size": 1, "n_group": 1, "norm_topk_prob": False, "routed_scaling_factor": 1.0,
        "scoring_func": "softmax", "seq_aux": True, "topk_group": 1, "topk_method": "greedy",
        **changes})


def deepseek_v3_config(vocab, **changes):
    return latent_config(vocab, "deepseek_v3", **{
        "n_group": 4, "n_routed_experts": 8, "n_shared_experts": 1, "norm_topk_prob": True,
        "num_nextn_predict_layers": 0, "rope_interleave": True, "routed_scaling_factor": 2.5,
        "scoring_func": "sigmoid", "topk_group": 2, "topk_method": "noaux_tc", **changes})


def glm4_moe_lite_config(vocab, **changes):
    return without(latent_config(vocab, "glm4_moe_lite", **{
        "n_group": 1, "n_shared_experts": 1, "norm_topk_prob": True,
        "num_nextn_predict_layers": 1, "partial_rotary_factor": 1.0, "qk_nope_head_dim": 12,
        "rope_theta": 1000000, "routed_scaling_factor": 1.8, "topk_group": 1,
        "topk_method": "noaux_tc", "v_head_dim": 32, **changes}), "moe_layer_freq")


YARN = {"beta_fast": 4.0, "beta_slow": 0.5, "factor": 4.0,
        "original_max_position_embeddings": 136, "type": "yarn"}

LATENT_MODELS = {
    # Lite: queries without a row of their own.
    "deepseek_v2_lite": (
        deepseek_v2_config(59, q_lora_rank=None, rope_theta=100.0, rope_scaling={
            **YARN, "mscale": 0.707, "mscale_all_dim": 0.707}), {"seed": 1101}),
    "deepseek_v2": (
        deepseek_v2_config(58, n_group=4, n_routed_experts=12, routed_scaling_factor=1.6,
                           topk_group=2, topk_method="group_limited_greedy", kv_lora_rank=48,
                           torch_dtype="float16", rope_theta=100.0, rope_scaling={
                               **YARN, "mscale": 1.5, "mscale_all_dim": 0.7}),
        {"seed": 1102, "stacked": True}),
    "deepseek_v3": (
        deepseek_v3_config(57, rope_theta=100.0,
                           rope_scaling={**YARN, "mscale": 1.0, "mscale_all_dim": 1.0}),
        {"seed": 1103}),
    "glm4_moe_lite": (
        glm4_moe_lite_config(56), {"seed": 1104, "ignored": FURTHER_TOKENS}),
}
