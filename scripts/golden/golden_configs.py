# SPDX-License-Identifier: MIT
"""The golden models: which architectures, in which variants, stored how.

Every configuration has the form of a published config.json of its family. Sizes are small. Head
counts and widths are chosen so that a swapped dimension cannot fit, epsilons so large that they
change the logits, windows and caps so tight that they take effect. make_golden_models.py draws the
weights.
"""

MAX_TOKENS = 544  # 512 prompt tokens, 20 more, and a rest to show the last position

ARCHITECTURES = {
    "bloom": "BloomForCausalLM", "gemma": "GemmaForCausalLM", "gemma2": "Gemma2ForCausalLM",
    "llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "opt": "OPTForCausalLM",
    "phi": "PhiForCausalLM", "phi3": "Phi3ForCausalLM", "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM", "stablelm": "StableLmForCausalLM",
}


def gpt2_config(vocab, **changes):
    return {
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2",
        "vocab_size": vocab, "n_positions": MAX_TOKENS, "n_ctx": MAX_TOKENS,
        "n_embd": 48, "n_layer": 2, "n_head": 4, "n_inner": 68,
        "activation_function": "gelu_new", "layer_norm_epsilon": 0.03,
        "bos_token_id": vocab - 1, "eos_token_id": vocab - 1,
        "tie_word_embeddings": True, "torch_dtype": "float32", **changes,
    }


def llama_config(vocab, model_type="llama", **changes):
    return {
        "architectures": [ARCHITECTURES[model_type]], "model_type": model_type,
        "vocab_size": vocab, "max_position_embeddings": MAX_TOKENS,
        "hidden_size": 48, "intermediate_size": 68, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_act": "silu",
        "rms_norm_eps": 0.03, "rope_theta": 10000.0,
        "bos_token_id": 1, "eos_token_id": 2,
        "tie_word_embeddings": False, "torch_dtype": "float16", **changes,
    }


def small_config(vocab, model_type, **changes):
    """What the families added later share, smaller than llama_config."""
    return {
        "architectures": [ARCHITECTURES[model_type]], "model_type": model_type,
        "vocab_size": vocab, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None,
        "tie_word_embeddings": False, "torch_dtype": "float16", **changes,
    }


def decoder_config(vocab, model_type, **changes):
    return small_config(vocab, model_type, **{
        "max_position_embeddings": MAX_TOKENS, "hidden_size": 40, "intermediate_size": 52,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
        "rope_theta": 10000.0, **changes})


def phi_config(vocab, **changes):
    return decoder_config(vocab, "phi", **{
        "hidden_act": "gelu_new", "layer_norm_eps": 0.03, "hidden_size": 48,
        "partial_rotary_factor": 0.5, "qk_layernorm": False, "rope_scaling": None, **changes})


def phi3_config(vocab, **changes):
    return decoder_config(vocab, "phi3", **{
        "hidden_act": "silu", "rms_norm_eps": 0.03, "rope_scaling": None,
        "original_max_position_embeddings": MAX_TOKENS, "sliding_window": None, **changes})


def qwen3_config(vocab, **changes):
    return decoder_config(vocab, "qwen3", **{
        "hidden_act": "silu", "rms_norm_eps": 0.03, "head_dim": 14, "num_key_value_heads": 2,
        "rope_theta": 1000000.0, "attention_bias": False, "use_sliding_window": False,
        "sliding_window": None, "max_window_layers": 2, **changes})


def opt_config(vocab, **changes):
    return small_config(vocab, "opt", **{
        "max_position_embeddings": MAX_TOKENS, "hidden_size": 32, "ffn_dim": 52,
        "num_hidden_layers": 2, "num_attention_heads": 4, "activation_function": "relu",
        "do_layer_norm_before": True, "word_embed_proj_dim": 32, "bos_token_id": 2,
        "pad_token_id": 1, "tie_word_embeddings": True, **changes})


def bloom_config(vocab, **changes):
    return small_config(vocab, "bloom", **{
        "n_embed": 32, "n_layer": 2, "num_attention_heads": 4, "layer_norm_epsilon": 0.03,
        "seq_length": MAX_TOKENS, "pad_token_id": 3, "tie_word_embeddings": True,
        "apply_residual_connection_post_layernorm": False, "torch_dtype": "bfloat16", **changes})


def gemma_config(vocab, **changes):
    return decoder_config(vocab, "gemma", **{
        "hidden_act": "gelu", "rms_norm_eps": 0.03, "head_dim": 14, "num_key_value_heads": 1,
        "attention_bias": False, "pad_token_id": 0, "tie_word_embeddings": True,
        "torch_dtype": "bfloat16", **changes})


def gemma2_config(vocab, **changes):
    return decoder_config(vocab, "gemma2", **{
        "hidden_activation": "gelu_pytorch_tanh", "rms_norm_eps": 0.03, "head_dim": 14,
        "num_key_value_heads": 2, "num_hidden_layers": 3, "attention_bias": False,
        "query_pre_attn_scalar": 6, "attn_logit_softcapping": 6.0, "final_logit_softcapping": 0.5,
        "sliding_window": 32, "pad_token_id": 0, "tie_word_embeddings": True,
        "torch_dtype": "bfloat16", **changes})


def stablelm_config(vocab, **changes):
    return decoder_config(vocab, "stablelm", **{
        "hidden_act": "silu", "layer_norm_eps": 0.03, "hidden_size": 64,
        "partial_rotary_factor": 0.25, "use_qkv_bias": False, "qk_layernorm": False,
        "use_parallel_residual": False, **changes})


LLAMA3_SCALING = {
    "factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
    "original_max_position_embeddings": 64, "rope_type": "llama3",
}
# Two factors a pair of columns; the long ones grow as those of published models do.
SHORT_FACTORS = [1.0, 1.1, 1.3, 1.5, 1.9]
LONG_FACTORS = [1.2, 2.5, 6.0, 14.0, 30.0]

# name: (config, how the file is laid out)
#   prefix   "transformer." stands before the names of GPT-2 and BLOOM (written by save_pretrained)
#            or does not (the published files; those of gpt2 also carry causal-mask buffers)
#   shards   number of weight files
MODELS = {
    "gpt2": (gpt2_config(113), {"prefix": True}),
    "gpt2_untied": (
        gpt2_config(101, n_head=6, n_layer=3, tie_word_embeddings=False, torch_dtype="float16"),
        {"prefix": False}),
    "llama_mha": (llama_config(128, num_key_value_heads=4), {}),
    "llama_gqa_tied": (
        llama_config(112, num_attention_heads=6, num_hidden_layers=3, tie_word_embeddings=True,
                     torch_dtype="bfloat16"), {}),
    "llama_biased": (
        llama_config(96, num_attention_heads=6, head_dim=12, attention_bias=True, mlp_bias=True),
        {}),
    "llama3": (
        llama_config(120, num_attention_heads=6, head_dim=16, num_hidden_layers=3,
                     rope_theta=500000.0, rope_scaling=LLAMA3_SCALING),
        {"shards": 2}),
    "llama_linear": (llama_config(100, rope_scaling={"type": "linear", "factor": 4.0}), {}),
    "mistral": (
        llama_config(127, "mistral", num_hidden_layers=3, num_attention_heads=6,
                     sliding_window=32), {}),
    "qwen2": (
        llama_config(104, "qwen2", rope_theta=1000000.0, tie_word_embeddings=True,
                     sliding_window=32, max_window_layers=2, use_sliding_window=False,
                     torch_dtype="bfloat16"), {}),
    "gpt2_erf": (gpt2_config(109, n_inner=100, activation_function="gelu"), {"prefix": True}),
    "gpt2_relu": (
        gpt2_config(97, n_inner=72, activation_function="relu", torch_dtype="float16"),
        {"prefix": True}),
    "qwen2_windows": (
        llama_config(106, "qwen2", rope_theta=1000000.0, num_hidden_layers=3,
                     sliding_window=32, max_window_layers=1, use_sliding_window=True,
                     torch_dtype="bfloat16"), {}),
    "smollm2": (
        decoder_config(93, "llama", hidden_size=48, num_attention_heads=6, num_key_value_heads=2,
                       hidden_act="silu", rms_norm_eps=0.03, rope_theta=100000.0,
                       tie_word_embeddings=True, torch_dtype="bfloat16"), {}),
    "qwen25": (
        decoder_config(95, "qwen2", hidden_size=56, num_attention_heads=7, num_key_value_heads=1,
                       hidden_act="silu", rms_norm_eps=0.03, rope_theta=1000000.0,
                       sliding_window=MAX_TOKENS, max_window_layers=2, use_sliding_window=False,
                       torch_dtype="bfloat16"), {}),
    "phi2": (phi_config(91), {}),
    "phi2_gqa_tied": (
        phi_config(89, num_attention_heads=6, num_key_value_heads=2, num_hidden_layers=3,
                   hidden_size=60, partial_rotary_factor=0.6, tie_word_embeddings=True), {}),
    "phi3": (phi3_config(94, sliding_window=32, torch_dtype="bfloat16"), {}),
    "phi3_gqa": (
        phi3_config(88, num_attention_heads=6, num_key_value_heads=2, hidden_size=48,
                    partial_rotary_factor=0.75, tie_word_embeddings=True), {}),
    "phi3_long": (
        phi3_config(90, original_max_position_embeddings=48,
                    rope_scaling={"type": "longrope", "short_factor": SHORT_FACTORS,
                                  "long_factor": LONG_FACTORS}), {}),
    "phi3_short": (
        phi3_config(92, num_key_value_heads=2, original_max_position_embeddings=1024,
                    rope_scaling={"type": "su", "short_factor": LONG_FACTORS,
                                  "long_factor": SHORT_FACTORS, "factor": 32.0,
                                  "original_max_position_embeddings": 1024}), {}),
    "qwen3": (qwen3_config(87, tie_word_embeddings=True, torch_dtype="bfloat16"), {}),
    "qwen3_windows": (
        qwen3_config(86, num_attention_heads=6, num_key_value_heads=3, head_dim=10,
                     num_hidden_layers=3, attention_bias=True, use_sliding_window=True,
                     sliding_window=32, max_window_layers=1), {}),
    "opt": (opt_config(99), {}),
    "opt_unbiased": (
        opt_config(98, enable_bias=False, activation_function="gelu", hidden_size=36,
                   word_embed_proj_dim=36, num_attention_heads=6, tie_word_embeddings=False), {}),
    "bloom": (bloom_config(85), {"prefix": False}),
    "bloom_heads": (
        bloom_config(84, num_attention_heads=6, n_embed=36, n_layer=3, torch_dtype="float16"),
        {"prefix": True}),
    "gemma": (gemma_config(83), {}),
    "gemma_biased": (
        gemma_config(82, hidden_act="gelu_pytorch_tanh", num_attention_heads=6,
                     num_key_value_heads=3, hidden_size=48, head_dim=10, attention_bias=True,
                     torch_dtype="float16"), {}),
    "gemma2": (gemma2_config(81), {}),
    "gemma2_untied": (
        gemma2_config(80, num_attention_heads=6, num_key_value_heads=2, hidden_size=48,
                      head_dim=10, num_hidden_layers=2, query_pre_attn_scalar=24,
                      layer_types=["full_attention", "sliding_attention"], sliding_window=24,
                      attn_logit_softcapping=5.0, final_logit_softcapping=3.0,
                      tie_word_embeddings=False, torch_dtype="float16"), {}),
    "stablelm": (stablelm_config(79, use_qkv_bias=True), {}),
    "stablelm_gqa": (
        stablelm_config(78, num_attention_heads=6, num_key_value_heads=2, hidden_size=48,
                        partial_rotary_factor=0.5), {}),
    "stablelm_parallel": (
        stablelm_config(77, use_parallel_residual=True, hidden_size=48, partial_rotary_factor=0.5,
                        torch_dtype="bfloat16"), {}),
}
