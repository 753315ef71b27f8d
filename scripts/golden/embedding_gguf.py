# SPDX-License-Identifier: MIT
"""Writes a golden model that embeds texts as a GGUF file, as llama.cpp's converter does."""

import gguf
import numpy as np
import torch

from embedding_configs import class_config

ARCHITECTURES = {"qwen3": "qwen3", "modernbert": "modern-bert", "gemma3_text": "gemma-embedding",
                 "nomic_bert": "nomic-bert"}
POOLINGS = {"mean": gguf.PoolingType.MEAN, "cls": gguf.PoolingType.CLS,
            "lasttoken": gguf.PoolingType.LAST}


def add_keys(writer, config, settings):
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config.get("num_key_value_heads", config["num_attention_heads"]))
    if "head_dim" in config:
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
    if config["model_type"] == "nomic_bert":
        writer.add_causal_attention(False)
        writer.add_layer_norm_eps(config["layer_norm_eps"])
        writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_pooling_type(POOLINGS[settings["pooling"]])
    if config["model_type"] == "qwen3":
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
        writer.add_rope_freq_base(config["rope_theta"])
    if config["model_type"] == "gemma3_text":
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
        writer.add_rope_freq_base(config["rope_theta"])
        writer.add_sliding_window(config["sliding_window"])
        writer.add_sliding_window_pattern([kind == "sliding_attention"
                                           for kind in config["layer_types"]])
        for number, weight in enumerate(settings["dense"], 2):
            writer.add_dense_features_dims(f"dense_{number}", weight.shape[1], weight.shape[0])
    if config["model_type"] == "modernbert":
        writer.add_causal_attention(False)
        writer.add_layer_norm_eps(config["norm_eps"])
        writer.add_rope_freq_base(config["global_rope_theta"])
        writer.add_rope_freq_base_swa(config["local_rope_theta"])
        writer.add_rope_scaling_type(gguf.RopeScalingType.NONE)
        writer.add_sliding_window(config["local_attention"])
        writer.add_sliding_window_pattern(config["global_attn_every_n_layers"])
        writer.add_string("modern-bert.hidden_activation", config["hidden_activation"])


def add_tokenizer(writer, n_vocab):
    writer.add_tokenizer_model("llama")
    writer.add_token_list(["<unk>", "<s>", "</s>"] + [f"t{i}" for i in range(3, n_vocab)])
    writer.add_token_scores([-float(i) for i in range(n_vocab)])
    writer.add_token_types([2, 3, 3] + [1] * (n_vocab - 3))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def stored(values, name, config):
    """Returns a tensor as converters store it."""
    gain = config["model_type"] == "gemma3_text" and name.endswith("norm.weight")
    return values + 1 if gain else values


def write(path, state, config, settings):
    config = class_config(config)
    arch = ARCHITECTURES[config["model_type"]]
    known = next(known for known, name in gguf.MODEL_ARCH_NAMES.items() if name == arch)
    table = gguf.get_tensor_name_map(known, config["num_hidden_layers"])
    writer = gguf.GGUFWriter(str(path), arch)
    add_keys(writer, config, settings)
    add_tokenizer(writer, config["vocab_size"])
    tensors = {name: tensor.detach().float() for name, tensor in state.items()}
    for name, tensor in tensors.items():
        known_name = table.get_name(name, try_suffixes=(".weight", ".bias"))
        known_name = known_name or table.get_name("model." + name, try_suffixes=(".weight", ".bias"))
        assert known_name, f"{name}: the gguf package has no name for it"
        values = stored(tensor, name, config)
        is_type = known_name.startswith("token_types")  # which converters leave in f32
        if values.dim() > 1 and not is_type and torch.equal(values.bfloat16().float(), values):
            bits = (values.contiguous().numpy().view(np.uint32) >> 16).astype(np.uint16)
            writer.add_tensor(known_name, bits.view(np.uint8),
                              raw_dtype=gguf.GGMLQuantizationType.BF16)
        else:
            writer.add_tensor(known_name, values.contiguous().numpy())
    for number, weight in enumerate(settings.get("dense", []), 2):
        writer.add_tensor(f"dense_{number}.weight", weight.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
