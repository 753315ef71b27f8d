# SPDX-License-Identifier: MIT
"""What the configuration of a golden model means: shapes, positions, windows, places of tensors.

The published rules are written out here a second time; make_golden_models.py compares them with
what transformers does. All functions take the configuration of the language model itself: of a
model with a vision tower, the part under `text_config` (text_config).
"""

import math

WITHOUT_ROTATION = ("gpt2", "opt", "bloom", "mpt", "nemotron_h")  # see rotates()
SCALES_EMBEDDINGS = ("gemma", "gemma2", "gemma3_text")
WITH_DELTA_RULES = ("qwen3_5_text", "qwen3_5_moe_text", "qwen3_next")
ADDS_ONE_TO_GAINS = (*SCALES_EMBEDDINGS, *WITH_DELTA_RULES)
# Families whose published files say nothing about the head, or nothing about the base of RoPE.
TIED_BY_DEFAULT = ("cohere", "cohere2", "falcon", "gemma3_text", "gemma3n_text", "lfm2", "lfm2_moe", "mpt",
                   "smollm3", "starcoder2")
DEFAULT_THETA = {"gemma3_text": 1e6, "olmo3": 5e5}
# Every how many layers one sees everything, where the file does not say.
DEFAULT_PATTERN = {"gemma3_text": 6, "olmo3": 4, "cohere2": 4, "gpt_oss": 2}
ROPE_KEYS = ("rope_theta", "rope_local_base_freq", "rope_scaling", "rope_parameters",
             "partial_rotary_factor", "rotary_emb_base", "rotary_pct")
EPSILON_KEYS = ("norm_epsilon", "layer_norm_epsilon", "layer_norm_eps", "rms_norm_eps", "norm_eps")
ACTIVATION_KEYS = ("hidden_act", "hidden_activation", "activation_function")


def text_config(config):
    return config.get("text_config", config)


def first_key(config, keys):
    """Returns the first of `keys` that the configuration has, or None."""
    return next((key for key in keys if key in config), None)


def is_tied(config):
    by_default = config.get("tie_embedding", config["model_type"] in TIED_BY_DEFAULT)
    return config.get("tie_word_embeddings", by_default)


def sublayers(config):
    """Returns what each layer of a Nemotron-H is, as newer versions of transformers name it."""
    letters = {"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe"}
    pattern = config.get("hybrid_override_pattern", "")
    return config.get("layers_block_type") or [letters[letter] for letter in pattern]


def count_layers(config):
    if config["model_type"] == "nemotron_h":
        return len(sublayers(config))
    return config[first_key(config, ("num_hidden_layers", "n_layers", "n_layer"))]


def attention_layers(config):
    """Returns the layers with attention; the others have a state."""
    if config["model_type"] in ("lfm2", "lfm2_moe"):
        kinds = config.get("layer_types")
        return [layer for layer in range(count_layers(config))
                if (kinds[layer] == "full_attention" if kinds
                    else layer in config["full_attn_idxs"])]
    if config["model_type"] == "granitemoehybrid":
        return [layer for layer, kind in enumerate(config["layer_types"])
                if kind in ("attention", "full_attention")]
    if config["model_type"] == "nemotron_h":
        return [layer for layer, kind in enumerate(sublayers(config)) if kind == "full_attention"]
    if config["model_type"] in WITH_DELTA_RULES:
        every = config["full_attention_interval"]
        kinds = config.get("layer_types") or [
            "linear_attention" if (layer + 1) % every else "full_attention"
            for layer in range(count_layers(config))]
        return [layer for layer, kind in enumerate(kinds) if kind == "full_attention"]
    return list(range(count_layers(config)))


def rotates(config):
    """Says whether the model has RoPE."""
    if config["model_type"] == "granitemoehybrid":
        return config["position_embedding_type"] == "rope"
    return config["model_type"] not in WITHOUT_ROTATION and not config.get("alibi")


def is_norm_gain(name):
    return "norm.weight" in name or name.endswith(
        (".ln_1.weight", ".ln_2.weight", "ln_f.weight", ".ln_attn.weight", ".ln_mlp.weight",
         ".norm_1.weight", ".norm_2.weight", ".norm_f.weight", "layernorm_1.weight",
         "layernorm_2.weight"))


def is_head_norm_gain(name):
    return name.endswith(("q_norm.weight", "k_norm.weight", "q_layernorm.weight",
                          "k_layernorm.weight"))


def is_embedding(name):
    return name.endswith(("wte.weight", "embed_tokens.weight", "word_embeddings.weight",
                          "embed_in.weight", ".embeddings.weight"))


def gain_offset(config, name=""):
    """Returns what the family adds to a stored norm gain, `name`, before it multiplies."""
    if name.endswith(".linear_attn.norm.weight"):
        return 0.0
    return 1.0 if config["model_type"] in ADDS_ONE_TO_GAINS else 0.0


def has_latent(config):
    """Says whether a row of the cache stands for the keys and values of all heads."""
    return config["model_type"] in ("deepseek_v2", "deepseek_v3", "glm4_moe_lite")


def head_shape(config):
    """Returns (query heads, key-value heads, head width)."""
    n_heads = config[first_key(config, ("num_attention_heads", "n_heads"))]
    hidden = config[first_key(config, ("hidden_size", "n_embed", "d_model"))]
    n_kv = config.get("num_key_value_heads") or n_heads
    if has_latent(config):  # of what rotates
        return n_heads, n_kv, config["qk_rope_head_dim"]
    if config["model_type"] == "falcon":
        n_kv = config["num_kv_heads"] if config["new_decoder_architecture"] else \
            1 if config["multi_query"] else n_heads
    return n_heads, n_kv, config.get("head_dim") or hidden // n_heads


def head_views(config, name, tensor):
    """Returns the rows of queries, keys and values that `tensor` holds, as {"q": view ...} of
    [..., width, ...], the heads in front. Writing to a view changes the tensor."""
    n_heads, n_kv, width = head_shape(config)
    rest = tensor.shape[1:]
    if has_latent(config):  # the rows that rotate
        if ".q_proj." in name or ".q_b_proj." in name:
            return {"q": tensor.view(n_heads, -1, *rest)[:, -width:]}
        if ".kv_a_proj_with_mqa." in name:
            return {"k": tensor[None, -width:]}
        return {}
    if ".query_key_value." in name and config["model_type"] == "falcon":
        groups = tensor.view(n_kv, n_heads // n_kv + 2, width, *rest)
        return {"q": groups[:, :-2], "k": groups[:, -2], "v": groups[:, -1]}
    if ".query_key_value." in name:
        fused = tensor.view(n_heads, 3, width, *rest)
        return {letter: fused[:, i] for i, letter in enumerate("qkv")}
    if ".qkv_proj." in name or ".Wqkv." in name:
        parts = tensor.split([n_heads * width, n_kv * width, n_kv * width])
        counts = (n_heads, n_kv, n_kv)
        return {letter: part.view(count, width, *rest)
                for letter, part, count in zip("qkv", parts, counts)}
    if ".q_proj." in name and config["model_type"] in WITH_DELTA_RULES:
        return {"q": tensor.view(n_heads, 2, width, *rest)[:, 0]}  # beside their gates
    for letter, count in zip("qkv", (n_heads, n_kv, n_kv)):
        if f".{letter}_proj." in name:
            return {letter: tensor.view(count, width, *rest)}
    return {}


def scan_sizes(config):
    """Returns (heads, columns of all, groups, values that a column remembers)."""
    if config["model_type"] == "nemotron_h":
        n_heads = config["mamba_num_heads"]
        return (n_heads, n_heads * config["mamba_head_dim"], config["n_groups"],
                config["ssm_state_size"])
    inner = config.get("mamba_d_ssm") or config["mamba_expand"] * config["hidden_size"]
    return (config["mamba_n_heads"], inner,
            config["mamba_n_groups"], config["mamba_d_state"])


def has_experts(config):
    if config["model_type"] == "granitemoehybrid":
        return config["num_local_experts"] > 0
    if config["model_type"] == "nemotron_h":
        return "moe" in sublayers(config)
    return has_latent(config) or config["model_type"] in (
        "mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "glm4_moe", "granitemoe", "granitemoeshared",
        "lfm2_moe", "phimoe", "qwen3_5_moe_text", "qwen3_next")


def is_router(name):
    return name.endswith((".mixer.gate.weight", ".mlp.gate.weight", ".mlp.router.weight",
                          ".block_sparse_moe.router.weight", ".feed_forward.gate.weight",
                          ".feed_forward.router.weight"))


def published_experts(config, state):
    """Returns the weights under the names of published files: Granite stacks the matrices of all
    experts, the others have a matrix an expert."""
    renamed = {}
    for name, tensor in state.items():
        if config["model_type"].startswith("granitemoe"):
            for own, published in ((".router.weight", ".router.layer.weight"),
                                   (".experts.gate_up_proj", ".input_linear.weight"),
                                   (".experts.down_proj", ".output_linear.weight")):
                name = name.replace(own, published)
            renamed[name] = tensor
            continue
        gate, up, down = "gate_proj", "up_proj", "down_proj"
        if config["model_type"] in ("lfm2_moe", "mixtral", "phimoe"):
            gate, up, down = "w1", "w3", "w2"
            name = name.replace(".mlp.", ".block_sparse_moe.").replace(".router.", ".gate.")
        if name.endswith(".experts.gate_up_proj"):
            at = name.removesuffix("gate_up_proj")
            for expert, both in enumerate(tensor):
                half = both.shape[0] // 2
                renamed[f"{at}{expert}.{gate}.weight"] = both[:half].contiguous()
                renamed[f"{at}{expert}.{up}.weight"] = both[half:].contiguous()
        elif name.endswith(".experts.up_proj"):
            for expert, matrix in enumerate(tensor):
                at = name.removesuffix("up_proj")
                renamed[f"{at}{expert}.{up}.weight"] = matrix.contiguous()
        elif name.endswith(".experts.down_proj"):
            at = name.removesuffix("down_proj")
            for expert, matrix in enumerate(tensor):
                renamed[f"{at}{expert}.{down}.weight"] = matrix.contiguous()
        else:
            renamed[name] = tensor
    return renamed


def rotary_share(config):
    """Returns which share of a head's columns RoPE turns."""
    inside = (config.get("rope_parameters") or {}).get("partial_rotary_factor")
    return inside or config.get("partial_rotary_factor") or config.get("rotary_pct") or 1.0


def rotated_columns(config):
    """Returns how many leading columns of a head RoPE turns."""
    return int(head_shape(config)[2] * rotary_share(config))


def turns_neighbours(config):
    """Says whether RoPE turns columns (2i, 2i + 1), not (i, i + rotated / 2)."""
    return has_latent(config) or config["model_type"] in ("cohere", "cohere2", "glm4", "llama4_text")


def rope_by_kind(config):
    """Returns {kind of layer: parameters of its RoPE}, in the spelling of `rope_parameters`.

    One kind stands for all layers in families that turn all layers alike.
    """
    stored = config.get("rope_parameters") or {}
    if "full_attention" in stored:
        return stored
    family = config["model_type"]
    theta = config.get("rotary_emb_base") or config.get("rope_theta") or \
        DEFAULT_THETA.get(family, 10000.0)
    full = {"rope_theta": theta, **(config.get("rope_scaling") or {}), **stored}
    spelled = full.pop("type", "default")
    full.setdefault("rope_type", "longrope" if "long_factor" in full else spelled)
    if family in ("gemma3_text", "gemma3n_text"):
        theta = config.get("rope_local_base_freq", 10000.0)
    elif family != "olmo3":
        return {"full_attention": full}
    return {"full_attention": full,
            "sliding_attention": {"rope_type": "default", "rope_theta": theta}}


def with_rope(config, kind, scaled=True, **changes):
    """Returns a configuration in which layers of `kind` have other parameters of RoPE.

    Without `scaled`, their scaling is left out.
    """
    ropes = {k: dict(rope) for k, rope in rope_by_kind(config).items()}
    if not scaled:
        kept = ["rope_theta"]
        if "llama_4_scaling_beta" in ropes[kind]:  # the scale of queries stays
            kept += ["llama_4_scaling_beta", "original_max_position_embeddings"]
        ropes[kind] = {"rope_type": "default", **{key: ropes[kind][key] for key in kept}}
    ropes[kind].update(changes)
    share = rotary_share(config)
    if share != 1:
        ropes[kind].setdefault("partial_rotary_factor", share)
    rest = {key: value for key, value in config.items() if key not in ROPE_KEYS}
    return {**rest, "rope_parameters": ropes if len(ropes) > 1 else ropes[kind]}


def layer_kinds(config):
    """Returns "sliding_attention", "chunked_attention" or "full_attention" for each layer with
    attention."""
    if len(attention_layers(config)) < count_layers(config):
        return ["full_attention"] * len(attention_layers(config))
    n_layers, family = count_layers(config), config["model_type"]
    if family == "llama4_text":
        return config.get("layer_types") or [
            "chunked_attention" if (layer + 1) % 4 else "full_attention"
            for layer in range(n_layers)]
    windowed = [bool(config.get("sliding_window"))] * n_layers
    if family in ("qwen2", "qwen3"):
        first = config["max_window_layers"] if config["use_sliding_window"] else n_layers
        windowed = [layer >= first for layer in range(n_layers)]
    elif family == "qwen2_moe":
        first = config["max_window_layers"] if config["use_sliding_window"] else 0
        windowed = [layer < first and layer % 2 == 0 for layer in range(n_layers)]
    elif family == "gemma2":
        windowed = [layer % 2 == 0 for layer in range(n_layers)]
    elif family in DEFAULT_PATTERN:
        pattern = config.get("sliding_window_pattern", DEFAULT_PATTERN[family])
        windowed = [(layer + 1) % pattern != 0 for layer in range(n_layers)]
    kinds = ["sliding_attention" if here else "full_attention" for here in windowed]
    return (config.get("layer_types") or kinds)[:n_layers]


def rotating_layers(config):
    """Says for each layer whether RoPE turns its queries and keys."""
    kinds = layer_kinds(config)
    if config["model_type"] in ("smollm3", "llama4_text"):
        interval = config.get("no_rope_layer_interval", 4)
        listed = config.get("no_rope_layers") or [
            (layer + 1) % interval != 0 for layer in range(len(kinds))]
        return [bool(here) for here in listed]
    local_alone = config["model_type"] == "cohere2" or (
        config["model_type"] == "exaone4" and config["sliding_window"])
    return [kind == "sliding_attention" or not local_alone for kind in kinds]


def rope_frequencies(config, kind, context):
    """Returns (frequencies, factor of cos and sin) of layers of `kind`, by the published
    formulas, in a context of that many tokens."""
    rope, width = rope_by_kind(config)[kind], rotated_columns(config)
    if rope["rope_type"] == "proportional":  # of a head's pairs, the first ones
        width = config["global_head_dim"]
        turning = int(rope["partial_rotary_factor"] * width) // 2
        turned = [rope["rope_theta"] ** (-2 * i / width) for i in range(turning)]
        return turned + [0.0] * (width // 2 - turning), 1.0
    plain = [rope["rope_theta"] ** (-2 * i / width) for i in range(width // 2)]
    if rope["rope_type"] == "linear":
        return [f / rope["factor"] for f in plain], 1.0
    if rope["rope_type"] == "longrope":
        original = config["original_max_position_embeddings"]
        factors = rope["long_factor" if context > original else "short_factor"]
        stretch = rope.get("factor") or config["max_position_embeddings"] / original
        return ([f / x for f, x in zip(plain, factors)],
                (1 + math.log(stretch) / math.log(original)) ** 0.5)
    if rope["rope_type"] == "yarn":
        return yarn_frequencies(rope, plain, width), yarn_attention_factor(rope)
    if rope["rope_type"] == "llama3":
        return llama3_frequencies(rope, plain), 1.0
    return plain, 1.0


def llama3_frequencies(rope, plain):
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    scaled = []
    for f in plain:
        turns = rope["original_max_position_embeddings"] * f / (2 * math.pi)
        keep = min(max((turns - low) / ((high - low) or 1e-9), 0.0), 1.0)
        scaled.append(keep * f + (1 - keep) * f / rope["factor"])
    return scaled


def yarn_frequencies(rope, plain, width):
    """Pairs up to `low` keep their frequency, pairs from `high` on are interpolated."""
    def pair_that_turns(times):
        wavelength = rope["original_max_position_embeddings"] / times
        return width * math.log(wavelength / (2 * math.pi)) / (2 * math.log(rope["rope_theta"]))

    low = pair_that_turns(rope.get("beta_fast") or 32)
    high = pair_that_turns(rope.get("beta_slow") or 1)
    if rope.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, width - 1)
    scaled = []
    for i, f in enumerate(plain):
        share = min(max((i - low) / ((high - low) or 0.001), 0.0), 1.0)
        scaled.append(share * f / rope["factor"] + (1 - share) * f)
    return scaled


def yarn_attention_factor(rope):
    def scale(weight):
        return 0.1 * weight * math.log(rope["factor"]) + 1

    if rope.get("attention_factor") is not None:
        return rope["attention_factor"]
    if rope.get("mscale") and rope.get("mscale_all_dim"):
        return scale(rope["mscale"]) / scale(rope["mscale_all_dim"])
    return scale(1.0)
