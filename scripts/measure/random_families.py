# SPDX-License-Identifier: MIT
"""Folders of random weights with the shapes of published small models, for comparisons with llama.cpp.

Configurations have the keys of the published files, weights their names. Matrices keep the length of what they
multiply; gains, biases and the parameters of states are random too. The vocabulary is made of a text.
"""

import json
import os

try:
    import torch
except ImportError:  # said by who needs it
    torch = None

VOCABULARY = 3000  # tokens of the text; ids beyond have rows of weights alone
SEED = 31
LOGIT_STD = 2
FINAL_NORMS = ("model.norm.weight", "model.embedding_norm.weight")
GAINS_LESS_ONE = ("gemma3_text", "qwen3_5_text")  # as they are stored


def _layers(n, attends, attention, other):
    return [attention if attends(layer) else other for layer in range(n)]


FAMILIES = {
    "gemma3-270m": {
        "architectures": ["Gemma3ForCausalLM"], "attention_bias": False, "attn_logit_softcapping": None,
        "bos_token_id": 2, "eos_token_id": 1, "final_logit_softcapping": None, "head_dim": 256,
        "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 640, "intermediate_size": 2048,
        "layer_types": _layers(18, lambda i: i % 6 == 5, "full_attention", "sliding_attention"),
        "max_position_embeddings": 32768, "model_type": "gemma3_text", "num_attention_heads": 4,
        "num_hidden_layers": 18, "num_key_value_heads": 1, "pad_token_id": 0, "query_pre_attn_scalar": 256,
        "rms_norm_eps": 1e-6, "rope_local_base_freq": 10000.0, "rope_scaling": None, "rope_theta": 1e6,
        "sliding_window": 512, "torch_dtype": "bfloat16", "vocab_size": 262144},
    "qwen3.5-0.8b": {
        "architectures": ["Qwen3_5ForCausalLM"], "attention_bias": False, "attn_output_gate": True,
        "dtype": "bfloat16", "eos_token_id": 1, "full_attention_interval": 4, "head_dim": 256,
        "hidden_act": "silu", "hidden_size": 1024, "intermediate_size": 3584,
        "layer_types": _layers(24, lambda i: i % 4 == 3, "full_attention", "linear_attention"),
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
        "linear_num_value_heads": 16, "linear_value_head_dim": 128, "mamba_ssm_dtype": "float32",
        "max_position_embeddings": 262144, "model_type": "qwen3_5_text", "num_attention_heads": 8,
        "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-6,
        "rope_parameters": {"mrope_interleaved": True, "mrope_section": [11, 11, 10],
                            "partial_rotary_factor": 0.25, "rope_theta": 1e7, "rope_type": "default"},
        "tie_word_embeddings": True, "vocab_size": 248320},
    "lfm2-350m": {
        "architectures": ["Lfm2ForCausalLM"], "block_auto_adjust_ff_dim": True, "block_ff_dim": 6656,
        "block_ffn_dim_multiplier": 1.0, "block_multiple_of": 256, "bos_token_id": 1, "conv_L_cache": 3,
        "conv_bias": False, "eos_token_id": 1, "full_attn_idxs": [2, 5, 8, 10, 12, 14], "hidden_size": 1024,
        "layer_types": _layers(16, lambda i: i in (2, 5, 8, 10, 12, 14), "full_attention", "conv"),
        "max_position_embeddings": 128000, "model_type": "lfm2", "norm_eps": 1e-5,
        "num_attention_heads": 16, "num_hidden_layers": 16, "num_key_value_heads": 8, "pad_token_id": 0,
        "rope_theta": 1e6, "torch_dtype": "bfloat16", "vocab_size": 65536},
    "granite4-h-350m": {
        "architectures": ["GraniteMoeHybridForCausalLM"], "attention_bias": False,
        "attention_multiplier": 0.015625, "bos_token_id": 1, "embedding_multiplier": 12, "eos_token_id": 1,
        "hidden_act": "silu", "hidden_size": 768, "intermediate_size": 2048,
        "layer_types": _layers(32, lambda i: i in (10, 13, 17, 27), "attention", "mamba"),
        "logits_scaling": 3, "mamba_chunk_size": 256, "mamba_conv_bias": True, "mamba_d_conv": 4,
        "mamba_d_head": 32, "mamba_d_state": 128, "mamba_expand": 2, "mamba_n_groups": 1,
        "mamba_n_heads": 48, "mamba_proj_bias": False, "max_position_embeddings": 32768,
        "model_type": "granitemoehybrid", "normalization_function": "rmsnorm", "num_attention_heads": 12,
        "num_experts_per_tok": 0, "num_hidden_layers": 32, "num_key_value_heads": 4, "num_local_experts": 0,
        "position_embedding_type": "nope", "residual_multiplier": 0.246, "rms_norm_eps": 1e-5,
        "rope_scaling": None, "rope_theta": 10000, "shared_intermediate_size": 2048,
        "tie_word_embeddings": True, "torch_dtype": "bfloat16", "vocab_size": 100352},
    # transformers has no code of this one, so that its graph is compared with llama.cpp alone.
    "internlm2-tiny": {
        "architectures": ["InternLM2ForCausalLM"], "bias": False, "bos_token_id": 1, "eos_token_id": 2,
        "hidden_act": "silu", "hidden_size": 128, "intermediate_size": 352, "max_position_embeddings": 32768,
        "model_type": "internlm2", "num_attention_heads": 8, "num_hidden_layers": 6,
        "num_key_value_heads": 2, "pad_token_id": 2, "rms_norm_eps": 1e-5,
        "rope_scaling": {"factor": 2.0, "type": "dynamic"}, "rope_theta": 1e6,
        "tie_word_embeddings": False, "torch_dtype": "bfloat16", "vocab_size": VOCABULARY},
}
SENTENCEPIECE = ("gemma3-270m", "internlm2-tiny")


def _internlm2_shapes(config):
    hidden, ffn = config["hidden_size"], config["intermediate_size"]
    kv = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    shapes = {"model.tok_embeddings.weight": (config["vocab_size"], hidden), "model.norm.weight": (hidden,),
              "output.weight": (config["vocab_size"], hidden)}
    for layer in range(config["num_hidden_layers"]):
        of_layer = {"attention.wqkv": (hidden + 2 * kv, hidden), "attention.wo": (hidden, hidden),
                    "feed_forward.w1": (ffn, hidden), "feed_forward.w2": (hidden, ffn),
                    "feed_forward.w3": (ffn, hidden), "attention_norm": (hidden,), "ffn_norm": (hidden,)}
        shapes.update({f"model.layers.{layer}.{name}.weight": shape for name, shape in of_layer.items()})
    return {name: torch.ones(shape) for name, shape in shapes.items()}


def _initial_state(config):
    """Returns the tensors of a model as its class makes them, of which the tied head is left out."""
    if config["model_type"] == "internlm2":
        return _internlm2_shapes(config)
    import transformers  # which takes seconds
    keys = {name: value for name, value in config.items() if name not in ("torch_dtype", "dtype")}
    made = transformers.AutoConfig.for_model(**keys)
    model = transformers.AutoModelForCausalLM.from_config(made, dtype=torch.float32)
    tied = getattr(made, "tie_word_embeddings", False)
    return {name: tensor for name, tensor in model.state_dict().items() if not (tied and name == "lm_head.weight")}


def embedding_scale(config):
    """What embeddings are multiplied with before the first layer."""
    of_gemma = config["hidden_size"] ** 0.5 if config["model_type"] == "gemma3_text" else 1
    return config.get("embedding_multiplier", of_gemma)


def _drawn(name, tensor, config):
    """Returns random values in place of those of a class. Embeddings are small beside what the layers add, and
    the last norm makes up for it: a tied head would else choose the token that it was given."""
    noise = torch.randn(tensor.shape)
    embedding_std = 0.15 / embedding_scale(config)
    if tensor.dim() == 2 and "embed" in name:
        return noise * embedding_std
    if name in FINAL_NORMS:
        of_head = 1 / config["hidden_size"] ** 0.5 if config["model_type"] == "internlm2" else embedding_std
        gain = LOGIT_STD * config.get("logits_scaling", 1) / (of_head * config["hidden_size"] ** 0.5)
        return gain * (1 + 0.1 * noise) - int(config["model_type"] in GAINS_LESS_ONE)
    if tensor.dim() >= 2:
        return noise / tensor[0].numel() ** 0.5
    return tensor + 0.1 * noise


def _write_sentencepiece(folder, text, config):
    import sentencepiece
    of_gemma = config["model_type"] == "gemma3_text"
    ids = (0, 1, 2, 3) if of_gemma else (-1, 2, 1, 0)
    sentencepiece.SentencePieceTrainer.train(
        input=text, model_prefix=os.path.join(folder, "tokenizer"), vocab_size=VOCABULARY, model_type="bpe",
        byte_fallback=True, normalization_rule_name="identity", add_dummy_prefix=not of_gemma,
        **dict(zip(("pad_id", "eos_id", "bos_id", "unk_id"), ids)), minloglevel=2, max_sentence_length=1 << 20)
    os.remove(os.path.join(folder, "tokenizer.vocab"))


def _write_byte_level(folder, text, _config):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=["<pad>", "<|endoftext|>"],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train([text], trainer)
    tokenizer.save(os.path.join(folder, "tokenizer.json"))
    settings = {"add_bos_token": False, "eos_token": "<|endoftext|>", "pad_token": "<pad>",
                "tokenizer_class": "PreTrainedTokenizerFast"}
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as file:
        json.dump(settings, file)


def write_folder(name, folder, text):
    """Writes the model `name` with a vocabulary of the text file, weights in bf16, and returns its parameters."""
    from safetensors.torch import save_file
    os.makedirs(folder, exist_ok=True)
    config = FAMILIES[name]
    torch.manual_seed(SEED)
    state = {key: _drawn(key, tensor, config).to(torch.bfloat16).contiguous()
             for key, tensor in _initial_state(config).items()}
    save_file(state, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file, indent=1)
    (_write_sentencepiece if name in SENTENCEPIECE else _write_byte_level)(folder, text, config)
    return sum(tensor.numel() for tensor in state.values())
