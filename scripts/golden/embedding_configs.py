# SPDX-License-Identifier: MIT
"""Configurations and planted faults of the golden models that embed texts."""

import torch

MAX_TOKENS = 320
LENGTHS = (1, 2, 3, 17, 64, 65, 200, MAX_TOKENS)
ROWS_UP_TO = 65  # lengths of which all rows are kept

MODELS = {
    "qwen3_embedding": ({
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": 91,
        "max_position_embeddings": MAX_TOKENS, "hidden_size": 48, "intermediate_size": 68,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 14,
        "hidden_act": "silu", "rms_norm_eps": 0.03, "rope_theta": 1000000.0,
        "attention_bias": False, "use_sliding_window": False, "sliding_window": None,
        "max_window_layers": 2, "bos_token_id": 1, "eos_token_id": 2,
        "tie_word_embeddings": True, "torch_dtype": "bfloat16"}, {"pooling": "lasttoken"}),
    "modernbert": ({
        "architectures": ["ModernBertModel"], "model_type": "modernbert", "vocab_size": 93,
        "max_position_embeddings": MAX_TOKENS, "hidden_size": 48, "intermediate_size": 68,
        "num_hidden_layers": 5, "num_attention_heads": 4, "hidden_activation": "gelu",
        "norm_eps": 0.03, "norm_bias": False, "attention_bias": False, "mlp_bias": False,
        "global_attn_every_n_layers": 3, "local_attention": 32, "global_rope_theta": 160000.0,
        "local_rope_theta": 10000.0, "position_embedding_type": "absolute",
        "classifier_pooling": "mean", "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
        "cls_token_id": 1, "sep_token_id": 2, "torch_dtype": "bfloat16"}, {"pooling": "cls"}),
    "embedding_gemma": ({
        "architectures": ["Gemma3TextModel"], "model_type": "gemma3_text", "vocab_size": 95,
        "max_position_embeddings": MAX_TOKENS, "hidden_size": 48, "intermediate_size": 68,
        "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 14,
        "hidden_activation": "gelu_pytorch_tanh", "rms_norm_eps": 0.03, "rope_theta": 1000000.0,
        "rope_local_base_freq": 10000.0, "rope_scaling": None, "query_pre_attn_scalar": 14,
        "attention_bias": False, "attn_logit_softcapping": None, "final_logit_softcapping": None,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
        "sliding_window": 32, "use_bidirectional_attention": True, "bos_token_id": 1,
        "eos_token_id": 2, "pad_token_id": 0, "torch_dtype": "bfloat16"},
        {"pooling": "mean", "dense": [(60, 48), (48, 60)]}),
}


def final_norm(model):
    return model.final_norm if hasattr(model, "final_norm") else model.norm


def is_gain(name):
    return name.endswith("norm.weight")


def drawn(name, values, config):
    """Scales random values of the parameter `name`."""
    gemma = config["model_type"] == "gemma3_text"  # whose gains are stored less one
    if is_gain(name):
        return (0 if gemma else 1) + 0.3 * values
    if name.endswith(".bias"):
        return 0.3 * values
    if "embed" in name:
        return 0.25 * values * (config["hidden_size"] ** -0.5 if gemma else 1)
    return values * values.shape[-1] ** -0.5


def scale_scores(model, config, factors):
    """Multiplies queries and keys of each layer by the square root of its factor."""
    for name, tensor in model.state_dict().items():
        layer = next((int(part) for part in name.split(".") if part.isdigit()), None)
        if name.endswith(("q_norm.weight", "k_norm.weight")):
            offset = 1 if config["model_type"] == "gemma3_text" else 0
            tensor.add_(offset).mul_(factors[layer] ** 0.5).sub_(offset)
        elif name.endswith(".Wqkv.weight"):
            tensor[:2 * config["hidden_size"]] *= factors[layer] ** 0.5


def changed(key, value):
    def change(config, settings, weights):
        del settings, weights
        config[key] = value
    return change


def pooled_by(pooling):
    def change(config, settings, weights):
        del config, weights
        settings["pooling"] = pooling
    return change


def plain(name):
    def change(config, settings, weights):
        del config, settings
        weights[name].fill_(1.0 if is_gain(name) else 0.0)
    return change


def causal(config, settings, weights):
    """Rows attend to what is before them alone."""
    del config, settings, weights

    def hook(_, args, kwargs):
        mask = kwargs.get("attention_mask")
        n = (kwargs["hidden_states"] if "hidden_states" in kwargs else args[0]).shape[1]
        later = torch.full((n, n), -1e30).triu(1)[None, None]
        return args, {**kwargs, "attention_mask": later if mask is None else mask + later}

    def patch(model):
        for module in model.modules():
            if type(module).__name__.endswith("Attention"):
                module.register_forward_pre_hook(hook, with_kwargs=True)
    return patch


def without_dense(config, settings, weights):
    del config, weights
    settings["dense"] = []


def swapped(name):
    def change(config, settings, weights):
        del config, settings
        weights[name] = torch.cat(weights[name].chunk(2)[::-1])
    return change


def attention_faults(config):
    """Yields faults of what rows attend to."""
    yield "causal", causal
    if config["model_type"] == "gemma3_text":
        for window in (28, 36):
            yield f"sliding_window={window}", changed("sliding_window", window)
        yield "layer_types", changed("layer_types", ["full_attention"] * 3)
        yield "rope_theta=10000", changed("rope_theta", 10000.0)
        yield "rope_local_base_freq=1e6", changed("rope_local_base_freq", 1000000.0)
        yield "query_pre_attn_scalar=16", changed("query_pre_attn_scalar", 16)
        yield "no dense layers", without_dense
        return
    for window in (30, 34):
        yield f"local_attention={window}", changed("local_attention", window)
    yield "global_attn_every_n_layers=2", changed("global_attn_every_n_layers", 2)
    yield "global_rope_theta=10000", changed("global_rope_theta", 10000.0)
    yield "local_rope_theta=160000", changed("local_rope_theta", 160000.0)
    yield "hidden_activation=silu", changed("hidden_activation", "silu")
    yield "gate and up swapped", swapped("layers.1.mlp.Wi.weight")


def faults(name, config, state):
    """Yields (name, change) of what a reader may get wrong."""
    del name
    if config["model_type"] not in ("qwen3",):
        yield from attention_faults(config)
    for pooling in ("mean", "cls", "lasttoken"):
        if pooling != MODELS_POOLING[config["model_type"]]:
            yield f"pooling={pooling}", pooled_by(pooling)
    for parameter in state:
        yield f"plain {parameter}", plain(parameter)
    for key in ("rms_norm_eps", "norm_eps"):
        if key in config:
            yield f"{key}/10", changed(key, config[key] / 10)


MODELS_POOLING = {config["model_type"]: settings["pooling"]
                  for config, settings in MODELS.values()}
