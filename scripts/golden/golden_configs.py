# SPDX-License-Identifier: MIT
"""The golden models: which architectures, in which variants, stored how.

Every configuration has the form of a published config.json of its family. Sizes are small. Head
counts and widths are chosen so that a swapped dimension cannot fit, epsilons so large that they
change the logits, windows and caps so tight that they take effect. make_golden_models.py draws the
weights.
"""

from golden_state_configs import state_models

MAX_TOKENS = 544  # 512 prompt tokens, 20 more, and a rest to show the last position

ARCHITECTURES = {
    "bloom": "BloomForCausalLM", "cohere": "CohereForCausalLM", "cohere2": "Cohere2ForCausalLM",
    "exaone4": "Exaone4ForCausalLM", "falcon": "FalconForCausalLM", "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM", "gemma3_text": "Gemma3ForCausalLM", "glm4": "Glm4ForCausalLM",
    "gpt_neox": "GPTNeoXForCausalLM", "granite": "GraniteForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM", "deepseek_v3": "DeepseekV3ForCausalLM",
    "glm4_moe_lite": "Glm4MoeLiteForCausalLM", "llama4_text": "Llama4ForCausalLM",
    "glm4_moe": "Glm4MoeForCausalLM", "granitemoeshared": "GraniteMoeSharedForCausalLM",
    "granitemoe": "GraniteMoeForCausalLM", "mixtral": "MixtralForCausalLM",
    "olmoe": "OlmoeForCausalLM", "qwen2_moe": "Qwen2MoeForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "lfm2": "Lfm2ForCausalLM", "lfm2_moe": "Lfm2MoeForCausalLM", "llama": "LlamaForCausalLM", "ministral3": "Ministral3ForCausalLM",
    "mistral": "MistralForCausalLM", "mpt": "MPTForCausalLM", "olmo2": "Olmo2ForCausalLM",
    "olmo3": "Olmo3ForCausalLM", "opt": "OPTForCausalLM", "phi": "PhiForCausalLM",
    "phi3": "Phi3ForCausalLM", "phimoe": "PhiMoEForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM",
    "smollm3": "SmolLM3ForCausalLM", "stablelm": "StableLmForCausalLM",
    "starcoder2": "Starcoder2ForCausalLM",
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


def rms_config(vocab, model_type, **changes):
    """Families of LLaMA's parts: RMSNorm and a gated FFN of SiLU."""
    return decoder_config(vocab, model_type, **{
        "hidden_act": "silu", "rms_norm_eps": 0.03, "attention_bias": False, **changes})


def without(config, *keys):
    """Returns a configuration that is silent about some keys, as published ones are."""
    return {key: value for key, value in config.items() if key not in keys}


def gemma3_config(vocab, **changes):
    return without(decoder_config(vocab, "gemma3_text", **{
        "hidden_activation": "gelu_pytorch_tanh", "rms_norm_eps": 0.03, "head_dim": 14,
        "num_key_value_heads": 2, "num_hidden_layers": 3, "attention_bias": False,
        "query_pre_attn_scalar": 6, "attn_logit_softcapping": None,
        "final_logit_softcapping": None, "sliding_window": 32, "pad_token_id": 0,
        "torch_dtype": "bfloat16", **changes}),
        *(() if "tie_word_embeddings" in changes else ("tie_word_embeddings",)))


def gemma3_vision_config(vocab):
    """A model that sees: its text part is silent about everything that the class knows."""
    text = without(gemma3_config(vocab, num_hidden_layers=6, hidden_size=32, head_dim=10,
                                 intermediate_size=44, sliding_window=24,
                                 rope_scaling={"factor": 4.0, "rope_type": "linear"}),
                   "architectures", "torch_dtype", "rope_theta", "query_pre_attn_scalar",
                   "attn_logit_softcapping", "final_logit_softcapping", "hidden_activation")
    return {
        "architectures": ["Gemma3ForConditionalGeneration"], "boi_token_index": 255999,
        "eoi_token_index": 256000, "eos_token_id": [1, 2], "image_token_index": 262144,
        "initializer_range": 0.02, "mm_tokens_per_image": 4, "model_type": "gemma3",
        "text_config": text, "torch_dtype": "bfloat16",
        "vision_config": {
            "hidden_size": 8, "image_size": 28, "intermediate_size": 12,
            "model_type": "siglip_vision_model", "num_attention_heads": 2,
            "num_hidden_layers": 1, "patch_size": 14, "vision_use_head": False},
    }


def smollm3_config(vocab, **changes):
    return rms_config(vocab, "smollm3", **{
        "num_key_value_heads": 2, "rope_theta": 5000000.0, "rope_scaling": None,
        "mlp_bias": False, "max_window_layers": 28, "use_sliding_window": False,
        "sliding_window": None, "torch_dtype": "bfloat16", **changes})


def granite_config(vocab, **changes):
    return rms_config(vocab, "granite", **{
        "attention_multiplier": 0.1, "embedding_multiplier": 12.0, "residual_multiplier": 0.22,
        "logits_scaling": 8.0, "mlp_bias": False, "rope_scaling": None, **changes})


def granite4_config(vocab, n_layers, **changes):
    config = granite_config(vocab, **{
        "layer_types": ["attention"] * n_layers, "num_hidden_layers": n_layers,
        "hidden_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 40, "shared_intermediate_size": 52, "num_local_experts": 0,
        "num_experts_per_tok": 0, "position_embedding_type": "rope", "mamba_n_heads": 12,
        "mamba_expand": 2, "rope_theta": 10000000, "tie_word_embeddings": True,
        "attention_multiplier": 0.2, "embedding_multiplier": 6.0, "residual_multiplier": 0.6,
        "logits_scaling": 4.0, **changes})
    named = {"architectures": ["GraniteMoeHybridForCausalLM"], "model_type": "granitemoehybrid"}
    return without({**config, **named}, "mlp_bias")


def granite4h_config(vocab, layer_types, **changes):
    return granite4_config(vocab, len(layer_types), **{
        "layer_types": layer_types, "hidden_size": 40, "mamba_chunk_size": 256,
        "mamba_conv_bias": True, "mamba_d_conv": 4, "mamba_d_head": 8, "mamba_d_state": 16,
        "mamba_n_groups": 1, "mamba_n_heads": 10, "mamba_proj_bias": False, **changes})


def experts_config(vocab, model_type, **changes):
    """Mixtures of experts. Narrow ones, so that a folder stays small."""
    local = model_type in ("mixtral", "granitemoe", "granitemoeshared", "phimoe")
    counts = {"num_local_experts" if local else "num_experts": 5}
    return rms_config(vocab, model_type, **{
        "intermediate_size": 16, "num_experts_per_tok": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, **counts, **changes})


def ministral3_config(vocab, **changes):
    config = without(rms_config(vocab, "ministral3", **{
        "num_key_value_heads": 2, "head_dim": 14, "sliding_window": None,
        "rope_parameters": {
            "beta_fast": 32.0, "beta_slow": 1.0, "factor": 8.0, "llama_4_scaling_beta": 0.3,
            "mscale": 1.0, "mscale_all_dim": 1.0,
            "original_max_position_embeddings": MAX_TOKENS // 8, "rope_theta": 1000000.0,
            "rope_type": "yarn", "type": "yarn"},
        "torch_dtype": "bfloat16", **changes}), "rope_theta", "attention_bias")
    return config


def exaone4_config(vocab, **changes):
    return without(rms_config(vocab, "exaone4", **{
        "num_key_value_heads": 2, "head_dim": 14, "rope_theta": 1000000.0,
        "rope_scaling": {**LLAMA3_SCALING, "factor": 16.0}, "torch_dtype": "bfloat16",
        **changes}), "attention_bias")


def cohere_config(vocab, model_type="cohere", **changes):
    return without(decoder_config(vocab, model_type, **{
        "hidden_act": "silu", "layer_norm_eps": 0.03, "hidden_size": 48, "logit_scale": 0.0625,
        "attention_bias": False, "pad_token_id": 0, "bos_token_id": 5, "eos_token_id": 6,
        "rope_theta": 8000000.0, **changes}), "tie_word_embeddings")


def gpt_neox_config(vocab, **changes):
    return without(decoder_config(vocab, "gpt_neox", **{
        "hidden_act": "gelu", "layer_norm_eps": 0.03, "hidden_size": 64, "bos_token_id": 0,
        "eos_token_id": 0, "rotary_emb_base": 10000, "rotary_pct": 0.25,
        "use_parallel_residual": True, **changes}), "rope_theta", "num_key_value_heads",
        "pad_token_id")


def falcon_config(vocab, **changes):
    return without(small_config(vocab, "falcon", **{
        "alibi": False, "apply_residual_connection_post_layernorm": False, "bias": False,
        "max_position_embeddings": MAX_TOKENS, "layer_norm_epsilon": 0.03, "multi_query": True,
        "new_decoder_architecture": False, "num_hidden_layers": 2, "parallel_attn": True,
        "bos_token_id": 11, "eos_token_id": 11, "torch_dtype": "bfloat16", **changes}),
        "pad_token_id", "tie_word_embeddings")


def mpt_config(vocab, softmax_scale=None, clip_qkv=None, **changes):
    return without(small_config(vocab, "mpt", **{
        "attn_config": {
            "alibi": True, "alibi_bias_max": 8, "attn_impl": "torch", "attn_pdrop": 0,
            "attn_type": "multihead_attention", "attn_uses_sequence_id": False,
            "clip_qkv": clip_qkv, "prefix_lm": False, "qk_ln": False,
            "softmax_scale": softmax_scale},
        "d_model": 32, "emb_pdrop": 0, "embedding_fraction": 1.0, "expansion_ratio": 4,
        "init_device": "cpu", "layer_norm_epsilon": 0.03, "learned_pos_emb": True,
        "logit_scale": None, "max_seq_len": MAX_TOKENS, "n_heads": 4, "n_layers": 2,
        "no_bias": True, "norm_type": "low_precision_layernorm", "resid_pdrop": 0,
        "use_cache": False, "torch_dtype": "bfloat16", **changes}),
        "bos_token_id", "eos_token_id", "pad_token_id", "tie_word_embeddings")


LOCAL_LOCAL_GLOBAL = ["sliding_attention", "sliding_attention", "full_attention"]

# name: (config, how the file is laid out)
#   prefix   "transformer." stands before the names of GPT-2 and BLOOM (written by save_pretrained)
#            or does not (the published files; those of gpt2 also carry causal-mask buffers)
#   shards   number of weight files
#   renamed  beginnings of names in the model's own state dict to those of published files
#   ignored  tensors that a reader has to ignore: names to shapes and types
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
    "gemma3": (
        gemma3_config(76, rope_theta=1000000, rope_local_base_freq=10000,
                      rope_scaling={"factor": 4.0, "rope_type": "linear"},
                      sliding_window_pattern=3), {}),
    "gemma3_types": (
        without(gemma3_config(
            75, num_attention_heads=6, hidden_size=48, head_dim=10, num_hidden_layers=2,
            query_pre_attn_scalar=24, sliding_window=24, tie_word_embeddings=False,
            layer_types=["sliding_attention", "full_attention"], _sliding_window_pattern=6,
            use_bidirectional_attention=False, torch_dtype="float16",
            rope_parameters={
                "full_attention": {"factor": 4.0, "rope_theta": 1000000.0, "rope_type": "linear"},
                "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"}}),
            "rope_theta"), {}),
    "gemma3_vision": (
        gemma3_vision_config(74),
        {"renamed": {"model.": "language_model.model."},
         "ignored": {"vision_tower.vision_model.post_layernorm.weight": ((8,), "bfloat16"),
                     "multi_modal_projector.mm_soft_emb_norm.weight": ((8,), "bfloat16")}}),
    "smollm3": (
        smollm3_config(73, num_hidden_layers=4, no_rope_layer_interval=4,
                       no_rope_layers=[1, 1, 1, 0], layer_types=["full_attention"] * 4,
                       tie_word_embeddings=True), {}),
    "smollm3_list": (
        smollm3_config(72, num_attention_heads=6, num_key_value_heads=3, hidden_size=48,
                       no_rope_layer_interval=4, no_rope_layers=[0, 1],
                       torch_dtype="float16"), {}),
    "olmo2": (rms_config(71, "olmo2", rope_theta=500000.0, rope_scaling=None), {}),
    "olmo2_gqa": (
        rms_config(70, "olmo2", rope_theta=500000.0, num_attention_heads=6,
                   num_key_value_heads=2, hidden_size=48, num_hidden_layers=3,
                   torch_dtype="bfloat16"), {}),
    "olmo3": (
        rms_config(69, "olmo3", rope_theta=500000.0, num_attention_heads=4, hidden_size=48,
                   num_hidden_layers=3, layer_types=LOCAL_LOCAL_GLOBAL, sliding_window=32,
                   rope_scaling={
                       "attention_factor": 1.1, "beta_fast": 32.0, "beta_slow": 1.0,
                       "factor": 8.0, "original_max_position_embeddings": MAX_TOKENS // 8,
                       "rope_type": "yarn"}), {}),
    "granite": (
        granite_config(68, num_attention_heads=6, num_key_value_heads=2, hidden_size=48,
                       attention_bias=True, mlp_bias=True), {}),
    "granite_tied": (
        granite_config(67, attention_multiplier=0.2, embedding_multiplier=6.0,
                       residual_multiplier=0.6, logits_scaling=4.0, rope_theta=10000000.0,
                       tie_word_embeddings=True, torch_dtype="bfloat16"), {}),
    "mixtral": (
        without(experts_config(64, "mixtral", sliding_window=None), "attention_bias"), {}),
    "qwen3_moe": (
        experts_config(63, "qwen3_moe", num_experts=7, num_experts_per_tok=3, head_dim=14,
                       moe_intermediate_size=16, intermediate_size=52, norm_topk_prob=True,
                       decoder_sparse_step=1, mlp_only_layers=[], use_sliding_window=False,
                       sliding_window=None, max_window_layers=2, torch_dtype="bfloat16"), {}),
    "qwen3_moe_stacked": (
        experts_config(62, "qwen3_moe", head_dim=14, moe_intermediate_size=16,
                       intermediate_size=52, norm_topk_prob=False, attention_bias=True,
                       tie_word_embeddings=True), {"stacked": True}),
    "olmoe": (
        experts_config(61, "olmoe", clip_qkv=None, norm_topk_prob=False, num_experts=6,
                       num_experts_per_tok=3), {}),
    "granitemoe": (
        experts_config(60, "granitemoe", attention_multiplier=0.2, embedding_multiplier=6.0,
                       residual_multiplier=0.6, logits_scaling=4.0, tie_word_embeddings=True,
                       torch_dtype="bfloat16"), {}),
    "ministral3": (ministral3_config(66), {}),
    "llama_yarn": (
        llama_config(65, rope_scaling={
            "beta_fast": 4, "beta_slow": 1, "factor": 4.0, "mscale": 0.7,
            "mscale_all_dim": 1.4, "original_max_position_embeddings": MAX_TOKENS // 4,
            "type": "yarn"}), {}),
    "qwen3_yarn": (
        qwen3_config(64, rope_scaling={
            "factor": 4.0, "original_max_position_embeddings": MAX_TOKENS // 4,
            "rope_type": "yarn", "truncate": False}), {}),
    "glm4": (
        rms_config(63, "glm4", head_dim=16, num_key_value_heads=2, attention_bias=True,
                   partial_rotary_factor=0.5, eos_token_id=[2, 3, 4], pad_token_id=2,
                   torch_dtype="bfloat16"), {}),
    "glm4_unbiased": (
        without(rms_config(
            62, "glm4", head_dim=12, num_attention_heads=6, num_key_value_heads=3,
            tie_word_embeddings=True, rope_parameters={
                "partial_rotary_factor": 0.5, "rope_theta": 10000.0, "rope_type": "default"}),
            "rope_theta"), {}),
    "exaone4": (
        exaone4_config(61, num_hidden_layers=3, layer_types=LOCAL_LOCAL_GLOBAL,
                       sliding_window=32, sliding_window_pattern="LLG"), {}),
    "exaone4_full": (
        exaone4_config(60, layer_types=["full_attention"] * 2, sliding_window=None,
                       sliding_window_pattern=None, tie_word_embeddings=True), {}),
    "cohere": (cohere_config(59), {}),
    "cohere_biased": (
        cohere_config(58, num_attention_heads=6, num_key_value_heads=2, attention_bias=True,
                      rope_theta=4000000.0, num_hidden_layers=3, torch_dtype="bfloat16"), {}),
    "cohere2": (
        cohere_config(57, "cohere2", num_key_value_heads=2, num_hidden_layers=3, head_dim=12,
                      logit_scale=0.25, rope_theta=50000, rotary_pct=1.0, sliding_window=32,
                      sliding_window_pattern=3, cache_implementation="hybrid", layer_switch=3,
                      order_of_interleaved_layers="local_attn_first",
                      position_embedding_type="rope_gptj", rope_scaling=None,
                      use_embedding_sharing=True, use_gated_activation=True,
                      use_parallel_block=True, use_parallel_embedding=True), {}),
    "gpt_neox": (
        gpt_neox_config(56),
        {"renamed": {"lm_head.": "embed_out."},
         "ignored": {f"gpt_neox.layers.{layer}.attention.{buffer}": about
                     for layer in range(2)
                     for buffer, about in (("bias", ((1, 1, 32, 32), "bool")),
                                           ("masked_bias", ((), "float16")),
                                           ("rotary_emb.inv_freq", ((2,), "float16")))}}),
    "gpt_neox_sequential": (
        gpt_neox_config(55, num_attention_heads=6, hidden_size=48, rotary_pct=1.0,
                        use_parallel_residual=False, num_hidden_layers=3),
        {"renamed": {"lm_head.": "embed_out."}}),
    "starcoder2": (
        without(decoder_config(
            54, "starcoder2", num_attention_heads=6, num_key_value_heads=2, hidden_size=48,
            activation_function="gelu", hidden_act="gelu_pytorch_tanh", layer_norm_epsilon=1e-5,
            mlp_type="default", norm_epsilon=0.03, norm_type="layer_norm",
            rope_theta=999999.4420358813, sliding_window=32, use_bias=True),
            "tie_word_embeddings", "pad_token_id"), {}),
    "falcon": (falcon_config(53, hidden_size=50, num_attention_heads=5), {}),
    "falcon_groups": (
        falcon_config(52, hidden_size=48, num_attention_heads=6, num_kv_heads=2,
                      new_decoder_architecture=True), {}),
    "falcon_one_norm": (
        falcon_config(51, hidden_size=48, num_attention_heads=6, num_kv_heads=3,
                      new_decoder_architecture=True, num_ln_in_parallel_attn=1,
                      ffn_hidden_size=100, rope_theta=500042, rope_scaling=None), {}),
    "mpt": (mpt_config(50), {}),
    "mpt_heads": (
        mpt_config(49, softmax_scale=0.2, d_model=36, n_heads=6, n_layers=3,
                   torch_dtype="float16"), {}),
    **state_models(small_config, MAX_TOKENS),
}

# These have seeds of their own, so that models may be added before them.
SEEDED_MODELS = {
    "cohere_normed": (
        cohere_config(57, num_key_value_heads=2, head_dim=12, use_qk_norm=True,
                      rope_theta=75000000.0), {"seed": 101}),
    "granite4": (granite4_config(58, 3), {"seed": 102}),
    "llama_dynamic": (
        llama_config(57, rope_scaling={"type": "dynamic", "factor": 2.0}), {"seed": 103}),
    "mpt_clipped": (mpt_config(48, clip_qkv=1.8), {"seed": 104}),
    "olmoe_clipped": (
        experts_config(59, "olmoe", clip_qkv=1.8, norm_topk_prob=False, num_experts=6,
                       num_experts_per_tok=3), {"seed": 105}),
    "granite4h": (
        granite4h_config(47, ["mamba", "mamba", "attention", "mamba"],
                         position_embedding_type="nope", rope_theta=10000), {"seed": 203}),
    "granite4h_experts": (
        granite4h_config(44, ["full_attention", "linear_attention"] * 2, attention_bias=True,
                         hidden_size=32, intermediate_size=16, shared_intermediate_size=20,
                         num_local_experts=5, num_experts_per_tok=2, mamba_conv_bias=False,
                         mamba_d_conv=3, mamba_d_head="auto", mamba_d_state=8, mamba_n_groups=2,
                         mamba_n_heads=8, mamba_proj_bias=True, rope_theta=10000,
                         tie_word_embeddings=False),
        {"seed": 204}),
    # Falcon-RW: neither its slopes nor its heads are powers of two.
    "falcon_alibi": (
        falcon_config(49, alibi=True, bias=True, hidden_size=60, multi_query=False,
                      num_attention_heads=10, num_hidden_layers=2, parallel_attn=False),
        {"seed": 1301}),
}
