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
}
