# SPDX-License-Identifier: MIT
"""Configurations and planted faults of the golden models that embed texts."""

import copy

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
    "nomic_bert": ({  # as published
        "activation_function": "swiglu", "architectures": ["NomicBertModel"], "attn_pdrop": 0.0,
        "bos_token_id": None, "causal": False, "dense_seq_output": True, "embd_pdrop": 0.0,
        "eos_token_id": None, "fused_bias_fc": True, "fused_dropout_add_ln": True,
        "layer_norm_epsilon": 0.03, "max_trained_positions": MAX_TOKENS, "mlp_fc1_bias": False,
        "mlp_fc2_bias": False, "model_type": "nomic_bert", "n_embd": 48, "n_head": 4,
        "n_inner": 68, "n_layer": 3, "n_positions": 4 * MAX_TOKENS, "pad_vocab_size_multiple": 64,
        "parallel_block": False, "parallel_block_tied_norm": False, "prenorm": False,
        "qkv_proj_bias": False, "reorder_and_upcast_attn": False, "resid_pdrop": 0.0,
        "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False,
        "rotary_emb_scale_base": None, "rotary_scaling_factor": None,
        "scale_attn_by_inverse_layer_idx": False, "scale_attn_weights": True,
        "summary_type": "cls_index", "torch_dtype": "bfloat16", "type_vocab_size": 2,
        "use_cache": True, "use_flash_attn": True, "use_rms_norm": False, "vocab_size": 97},
        {"pooling": "mean"}),
    "nomic_bert_saved": ({  # as transformers saves it
        "architectures": ["NomicBertModel"], "attention_probs_dropout_prob": 0.0,
        "bos_token_id": None, "classifier_dropout": None, "eos_token_id": None, "head_dim": 14,
        "hidden_act": "silu", "hidden_dropout_prob": 0.0, "hidden_size": 48,
        "intermediate_size": 68, "layer_norm_eps": 0.03, "max_position_embeddings": MAX_TOKENS,
        "model_type": "nomic_bert", "num_attention_heads": 4, "num_hidden_layers": 2,
        "pad_token_id": 0, "rope_parameters": {"rope_theta": 1000.0, "rope_type": "default"},
        "torch_dtype": "bfloat16", "type_vocab_size": 3, "vocab_size": 99}, {"pooling": "mean"}),
}

PUBLISHED_KEYS = {
    "n_embd": "hidden_size", "n_head": "num_attention_heads", "n_inner": "intermediate_size",
    "n_layer": "num_hidden_layers", "max_trained_positions": "max_position_embeddings",
    "layer_norm_epsilon": "layer_norm_eps"}


def class_config(config):
    """The keys that the class of transformers reads."""
    known = {PUBLISHED_KEYS.get(key, key): copy.deepcopy(value) for key, value in config.items()}
    if "rotary_emb_base" in config:
        known["rope_parameters"] = {"rope_theta": config["rotary_emb_base"], "rope_type": "default"}
    return known


NOMIC_NAMES = (
    ("embeddings.LayerNorm", "emb_ln"), ("layers.", "encoder.layers."),
    ("self_attn.o_proj", "attn.out_proj"), ("up_proj", "fc11"), ("gate_proj", "fc12"),
    ("down_proj", "fc2"), ("post_attention_layernorm", "norm1"), ("post_mlp_layernorm", "norm2"))


def stored_state(state, config):
    """The tensors under the names of a folder."""
    if config["model_type"] != "nomic_bert":
        return dict(state)
    stored = {}
    for name, tensor in state.items():
        if ".q_proj." in name:
            parts = [state[name.replace("q_proj", part)] for part in ("q_proj", "k_proj", "v_proj")]
            name, tensor = name.replace("self_attn.q_proj", "attn.Wqkv"), torch.cat(parts)
        if ".self_attn.k_proj." in name or ".self_attn.v_proj." in name:
            continue
        for ours, theirs in NOMIC_NAMES:
            name = name.replace(ours, theirs)
        stored[name] = tensor
    return stored


def final_norm(model):
    if hasattr(model, "layers") and hasattr(model.layers[-1], "post_mlp_layernorm"):
        return model.layers[-1].post_mlp_layernorm
    return model.final_norm if hasattr(model, "final_norm") else model.norm


def is_gain(name):
    return name.lower().endswith("norm.weight")


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
        elif config["model_type"] == "nomic_bert" and ".self_attn." in name:
            if "q_proj" in name or "k_proj" in name:
                tensor *= factors[layer] ** 0.5
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


def exchanged(first, second):
    def change(config, settings, weights):
        del config, settings
        weights[first], weights[second] = weights[second], weights[first]
    return change


def second_type(config, settings, weights):
    del config, settings
    name = "embeddings.token_type_embeddings.weight"
    weights[name] = weights[name].roll(1, 0)


def neighbours_rotate(config, settings, weights):
    """Columns 2i and 2i + 1 rotate together."""
    del settings
    known = class_config(config)
    dims = known.get("head_dim", known["hidden_size"] // known["num_attention_heads"])
    order = torch.arange(dims).view(-1, 2).T.reshape(-1)
    for name, tensor in weights.items():
        if "q_proj" in name or "k_proj" in name:
            heads = tensor.view(-1, dims, tensor.shape[1])
            weights[name] = heads[:, order].reshape(tensor.shape)


def norms_in_front(config, settings, weights):
    """Norms of what the sublayers take, not of the sums."""
    del config, settings, weights

    def patch(model):
        for layer in model.layers:
            def forward(x, *args, layer=layer, **kwargs):
                x = x + layer.self_attn(layer.post_attention_layernorm(x), *args, **kwargs)[0]
                return x + layer.mlp(layer.post_mlp_layernorm(x))
            layer.forward = forward
    return patch


def norms_of_outputs(config, settings, weights):
    """Norms of what the sublayers give."""
    del config, settings, weights

    def patch(model):
        for layer in model.layers:
            def forward(x, *args, layer=layer, **kwargs):
                x = x + layer.post_attention_layernorm(layer.self_attn(x, *args, **kwargs)[0])
                return x + layer.post_mlp_layernorm(layer.mlp(x))
            layer.forward = forward
    return patch


def residual_of_sums(config, settings, weights):
    """The residual stream is the sum, not its norm."""
    del config, settings, weights

    def patch(model):
        for number, layer in enumerate(model.layers):
            last = number + 1 == len(model.layers)
            before = None if number == 0 else model.layers[number - 1].post_mlp_layernorm

            def forward(x, *args, layer=layer, before=before, last=last, **kwargs):
                taken = x if before is None else before(x)
                x = x + layer.self_attn(taken, *args, **kwargs)[0]
                x = x + layer.mlp(layer.post_attention_layernorm(x))
                return layer.post_mlp_layernorm(x) if last else x
            layer.forward = forward
    return patch


def nomic_faults(config):
    yield "token type 1", second_type
    yield "neighbours rotate", neighbours_rotate
    yield "norms in front of the sublayers", norms_in_front
    yield "norms of what sublayers give", norms_of_outputs
    yield "residual stream of sums", residual_of_sums
    layer = "layers.1."
    yield "gate and up swapped", exchanged(layer + "mlp.gate_proj.weight", layer + "mlp.up_proj.weight")
    yield "q and k swapped", exchanged(layer + "self_attn.q_proj.weight",
                                       layer + "self_attn.k_proj.weight")
    yield "k and v swapped", exchanged(layer + "self_attn.k_proj.weight",
                                       layer + "self_attn.v_proj.weight")
    for part in ("weight", "bias"):
        yield f"norms of a layer swapped, {part}", exchanged(
            f"{layer}post_attention_layernorm.{part}", f"{layer}post_mlp_layernorm.{part}")
        yield f"norm of the layer before, {part}", exchanged(
            f"layers.0.post_mlp_layernorm.{part}", f"layers.1.post_mlp_layernorm.{part}")
    if "rotary_emb_base" in config:
        yield "rotary_emb_base=10000", changed("rotary_emb_base", 10000)
    else:
        yield "rope_theta=10000", changed("rope_parameters",
                                          {"rope_theta": 10000.0, "rope_type": "default"})
        yield "hidden_act=gelu", changed("hidden_act", "gelu")


def attention_faults(config):
    """Yields faults of what rows attend to."""
    yield "causal", causal
    if config["model_type"] == "nomic_bert":
        yield from nomic_faults(config)
        return
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
    for key in ("rms_norm_eps", "norm_eps", "layer_norm_eps", "layer_norm_epsilon"):
        if key in config:
            yield f"{key}/10", changed(key, config[key] / 10)


MODELS_POOLING = {config["model_type"]: settings["pooling"]
                  for config, settings in MODELS.values()}
