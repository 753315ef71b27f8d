#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the golden models: tiny random Hugging Face checkpoints with the logits they must give.

    make_golden_models.py OUT_DIR                writes OUT_DIR/<model>/, faults.json, greedy.json
    make_golden_models.py --only MODEL OUT_DIR   makes one model, leaves the others' entries
    make_golden_models.py --check OUT_DIR        recomputes the logits of the checkpoints there

Each model folder holds config.json, model.safetensors (or shards with an index) and expected.bin.
The logits come from Hugging Face transformers in float32 with eager attention, loaded from the
written files, so config.json is read the way a published checkpoint is read. All rows are those of
one pass over the whole sequence.

Every parameter is random, norm gains and biases included, and attention scores are scaled to a
standard deviation near 2.5, so that no part of the network is idle. That this suffices is
checked: faults.json holds, for each planted fault, the largest change of a logit over all rows
divided by the largest logit, and the script fails if a fault moves them by less than 1e-2, a
hundred times the tolerance of the comparison it serves.

greedy.json holds for each model 20 tokens, each the most likely one after those before it, behind
a prompt of 64: tokens[first .. first + 64) with the `first` below 64 whose 20 tokens vary most among
those where the best logit leads the second by more than 20 tolerances every time.

expected.bin, little-endian

  size            field            meaning
  8               magic            "QSFGOLD1"
  4               vocab            u32, columns of every row
  4               n_tokens         u32
  4               n_cases          u32
  4 * n_tokens    tokens           u32 each, one sequence of the model's maximum length
  then n_cases times
  4               prompt_length    u32
  4               n_rows           u32
  4 * n_rows * vocab  logits       f32; row 0 after the prompt tokens[0 .. prompt_length), row i
                                   after feeding tokens[prompt_length + i - 1] as well
"""

import argparse
import contextlib
import copy
import json
import math
import pathlib
import struct
import sys

import numpy as np
import safetensors.torch
import torch
import transformers
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.falcon import modeling_falcon as falcon

import golden_configs
import golden_gemma3n
import golden_gemma4
import golden_gpt_oss
from golden_configs import MAX_TOKENS
from golden_delta_configs import DELTA_MODELS
from golden_expert_configs import EXPERT_MODELS
from golden_faults import exemption, planted_faults
from golden_hybrid_configs import HYBRID_MODELS
from golden_latent_configs import LATENT_MODELS
from golden_layouts import (SCALES_EMBEDDINGS, attention_layers, gain_offset, has_experts,
                            has_latent, head_views, is_embedding, is_head_norm_gain, is_norm_gain,
                            is_router, is_tied, layer_kinds, published_experts, rope_by_kind,
                            rope_frequencies, rotates, rotating_layers, text_config)
from golden_llama4 import LLAMA4_MODELS
from golden_state_configs import drawn_state

MODELS = {**golden_configs.MODELS, **EXPERT_MODELS, **LATENT_MODELS, **LLAMA4_MODELS,
          **golden_gpt_oss.GPT_OSS_MODELS, **golden_configs.SEEDED_MODELS, **DELTA_MODELS,
          **golden_gemma3n.gemma3n_models(MAX_TOKENS), **golden_gemma4.gemma4_models(MAX_TOKENS),
          **HYBRID_MODELS}
CASES = [(1, 21), (2, 21), (63, 21), (64, 21), (65, 21), (200, 21), (512, 21), (MAX_TOKENS, 1)]
MIN_FAULT = 1e-2
SCORE_STD = (2.0, 3.0)
GREEDY_PROMPTS, GREEDY_PROMPT, GREEDY_TOKENS = 64, 64, 20
GREEDY_MARGIN = 2e-3
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def new_model(config):
    parsed = CONFIG_MAPPING[config["model_type"]].from_dict(copy.deepcopy(config))
    model = AutoModelForCausalLM.from_config(parsed, attn_implementation="eager")
    return with_biases_once(model.float().eval())


def with_biases_once(model):
    """Leaves ALiBi's biases to the mask, which has them: Falcon's eager attention adds them again."""
    if not getattr(model.config, "alibi", False):
        return model

    def hook(module, args, kwargs):
        return args, {**kwargs, "alibi": torch.zeros_like(kwargs["alibi"])}

    for layer in model.transformer.h:
        layer.self_attention.register_forward_pre_hook(hook, with_kwargs=True)
    return model


def load(folder):
    more = {}
    if "quantization_config" in json.loads((pathlib.Path(folder) / "config.json").read_text()):
        more = {"quantization_config": transformers.Mxfp4Config(dequantize=True)}
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", **more).float()
    return with_biases_once(model.eval())


def language_model(model):
    """Returns the part with the layers and RoPE; models that see have it inside another."""
    base = getattr(model.base_model, "language_model", model.base_model)
    return getattr(base, "model", base)


def language_weights(model):
    """Returns the state dict under the names of a model that does not see."""
    return {name.replace("model.language_model.", "model."): tensor
            for name, tensor in model.state_dict().items()}


def draw(name, shape, config, rng):
    """Returns random f32 values for the parameter `name`, at a scale that keeps it audible."""
    values = rng.standard_normal(shape, dtype=np.float32)
    if config["model_type"] == "gpt_oss":
        own = golden_gpt_oss.drawn(name, values)
        if own is not None:
            return torch.from_numpy(own)
    own = drawn_state(name, values)
    if own is not None:
        return torch.from_numpy(own)
    if config["model_type"] in ("gemma3n_text", "gemma4_text"):
        family = golden_gemma4 if config["model_type"] == "gemma4_text" else golden_gemma3n
        own = family.drawn(name, values)
        if own is not None:
            return torch.from_numpy(own.astype(np.float32))
    if is_norm_gain(name):
        if "embeddings_layernorm" in name:
            values *= 0.5  # signs included, or a tied head would say every token again
        else:
            values = (1.0 - gain_offset(config, name)) + 0.3 * values
    elif name.endswith(".e_score_correction_bias"):  # most sums of a score and one are negative
        # With groups of experts a large one leaves some without a row.
        values = (0.15 if has_latent(config) else 0.4) * values - 0.8
    elif name.endswith(".expert_bias"):  # the same, and every expert is chosen
        values = 0.15 * values - 0.8
    elif name.endswith(".bias"):
        values *= 0.15 if config["model_type"] == "bloom" else 0.3
    elif "wpe" in name or "embed_positions" in name:
        values *= 0.15
    elif is_embedding(name):  # Gemma multiplies by the root of the width, Granite by a number
        scaled = config["model_type"] in SCALES_EMBEDDINGS
        values *= 0.25 * (shape[1] ** -0.5 if scaled else 1.0)
        values /= config.get("embedding_multiplier", 1.0)
    elif "lm_head" in name:
        values *= 1.5 / shape[1] ** 0.5
    elif is_router(name):  # experts differ, and few rows have two that are nearly equal
        values *= 2.0 / shape[1] ** 0.5
    elif name.endswith((".q_a_proj.weight", ".kv_a_proj_with_mqa.weight")):
        values *= shape[1] ** -0.5  # what is normed is small, so that its epsilon shows
        values[:config["kv_lora_rank"] if ".kv_a_" in name else None] *= 0.3
    elif len(shape) == 3:  # of all experts; Llama 4 stores [in, out]
        values *= shape[1 if config["model_type"] == "llama4_text" else 2] ** -0.5
    else:  # GPT-2 stores projections as [in, out], the others as [out, in]
        values *= shape[0 if config["model_type"] == "gpt2" else 1] ** -0.5
    return torch.from_numpy(values)


@contextlib.contextmanager
def recorded_scores(into, biases):
    """Appends to `into`, one entry a layer, the deviation of each score from its row's mean.

    What ALiBi adds to the scores, [heads, positions], is left out.
    """
    plain = torch.nn.functional.softmax

    def softmax(scores, *args, **kwargs):
        if scores.dim() < 4:  # of experts
            return plain(scores, *args, **kwargs)
        seen = scores > -1e20  # the mask adds the lowest float
        count = seen.sum(-1, keepdim=True)
        kept = torch.where(seen, scores, 0.0)
        if biases is not None:
            kept = kept - seen * biases[:, None]
        centred = (kept - kept.sum(-1, keepdim=True) / count) * seen
        long_rows = (count >= 16).expand_as(seen) & seen
        into.append(centred[long_rows].pow(2).mean().sqrt().item())
        return plain(scores, *args, **kwargs)

    torch.nn.functional.softmax = softmax
    try:
        yield
    finally:
        torch.nn.functional.softmax = plain


def all_logits(model, tokens):
    with torch.no_grad():
        return model(torch.from_numpy(tokens.astype(np.int64))[None]).logits[0].float()


def alibi_biases(model, n_positions):
    """Returns what a key's position adds to the scores of each head, or None where there is no ALiBi."""
    config, body = model.config, getattr(model, "transformer", None)
    if config.model_type == "mpt":
        return body.build_mpt_alibi_tensor(config.n_heads, n_positions)[:, 0]
    ones = torch.ones(1, n_positions)
    if config.model_type == "bloom":
        return body.build_alibi_tensor(ones, config.n_head, torch.float32)[:, 0]
    if not getattr(config, "alibi", False):
        return None
    return falcon.build_alibi_tensor(ones, config.num_attention_heads, torch.float32)[:, 0] * \
        config.head_dim ** -0.5


def score_std(model, tokens):
    per_layer = []
    with recorded_scores(per_layer, alibi_biases(model, len(tokens))):
        all_logits(model, tokens)
    return per_layer


def scale_scores(model, config, tokens, factors):
    """Multiplies the queries and keys of each layer by the square root of its factor."""
    state = model.state_dict()
    normed = any(is_head_norm_gain(name) for name in state)
    factors = dict(zip(attention_layers(config), factors))
    if config.get("use_qk_norm") and config["model_type"] == "llama4_text":
        factors = {layer: factor if not turns else 1.0  # norms without a gain undo it
                   for (layer, factor), turns in zip(factors.items(), rotating_layers(config))}
    offset = gain_offset(config)
    for name, tensor in state.items():
        numbers = [int(p) for p in name.split(".") if p.isdigit()]
        if ".c_attn.weight" in name:
            tensor[:, : 2 * tensor.shape[1] // 3] *= factors[numbers[0]] ** 0.5
        elif is_head_norm_gain(name):
            tensor.add_(offset).mul_(factors[numbers[0]] ** 0.5).sub_(offset)
        elif has_latent(config):  # of which scores depend on queries throughout
            if name.endswith((".q_proj.weight", ".q_b_proj.weight")):
                tensor *= factors[numbers[0]] ** 0.5
        elif name.endswith(".weight") and config["model_type"] != "gpt2" and not normed:
            views = head_views(config, name, tensor)  # a norm would undo what is scaled before it
            for letter in "qk":
                if letter in views:
                    views[letter].mul_(factors[numbers[0]] ** 0.5)


def random_model(config, layout, dtype, tokens, rng):
    """Returns a model with random weights, each exactly representable in `dtype`."""
    model = new_model(config)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if not (is_tied(config) and name == "lm_head.weight"):
                tensor.copy_(draw(name, tuple(tensor.shape), config, rng))
        for _ in range(8):
            scale_scores(model, config, tokens,
                         [2.5 / s for s in score_std(model, tokens)])
        for name, tensor in model.state_dict().items():
            if layout.get("mxfp4") and name.endswith((".gate_up_proj", ".down_proj")):
                tensor.copy_(golden_gpt_oss.rounded(tensor))
            tensor.copy_(tensor.to(dtype))
    return model


def save(model, config, layout, folder):
    """Writes config.json and the weights, named and split as published checkpoints are."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    dtype = DTYPES[config["torch_dtype"]]
    state = {n: t.detach().to(dtype).contiguous() for n, t in model.state_dict().items()}
    if is_tied(text_config(config)):
        del state["lm_head.weight"]
    for first, published in layout.get("renamed", {}).items():
        state = {published + n.removeprefix(first) if n.startswith(first) else n: t
                 for n, t in state.items()}
    for ignored, (shape, kind) in layout.get("ignored", {}).items():
        state[ignored] = torch.full(shape, 0.25).to(getattr(torch, kind))
    if has_experts(config) and not layout.get("stacked"):
        state = published_experts(config, state)
    if layout.get("mxfp4"):
        state = golden_gpt_oss.published(state)
    if layout.get("prefix") is False:
        state = {n.removeprefix("transformer."): t for n, t in state.items()}
    if layout.get("prefix") is False and config["model_type"] == "gpt2":
        for layer in range(config["n_layer"]):  # buffers that a reader has to ignore
            mask = torch.ones(1, 1, 32, 32).tril().to(dtype)
            state[f"h.{layer}.attn.bias"] = mask
            state[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4, dtype=dtype)
    metadata = {"format": "pt"}
    n_shards = layout.get("shards", 1)
    if n_shards == 1:
        safetensors.torch.save_file(state, folder / "model.safetensors", metadata)
        return
    names = sorted(state)
    weight_map = {}
    for shard in range(n_shards):
        file = f"model-{shard + 1:05d}-of-{n_shards:05d}.safetensors"
        part = names[shard * len(names) // n_shards:(shard + 1) * len(names) // n_shards]
        safetensors.torch.save_file({n: state[n] for n in part}, folder / file, metadata)
        weight_map.update({n: file for n in part})
    total = sum(t.numel() * t.element_size() for t in state.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def case_rows():
    return [p - 1 + i for p, n_rows in CASES for i in range(n_rows)]


def write_expected(path, tokens, logits):
    with open(path, "wb") as out:
        out.write(b"QSFGOLD1" + struct.pack("<III", logits.shape[1], len(tokens), len(CASES)))
        out.write(tokens.astype("<u4").tobytes())
        for prompt, n_rows in CASES:
            out.write(struct.pack("<II", prompt, n_rows))
            out.write(logits[prompt - 1:prompt - 1 + n_rows].numpy().astype("<f4").tobytes())


def read_expected(path):
    """Returns (tokens, logits of all rows in order) of an expected.bin."""
    data = path.read_bytes()
    assert data[:8] == b"QSFGOLD1", path
    vocab, n_tokens, n_cases = struct.unpack_from("<III", data, 8)
    tokens = np.frombuffer(data, "<u4", n_tokens, 20)
    at = 20 + 4 * n_tokens
    rows = []
    for _ in range(n_cases):
        _, n_rows = struct.unpack_from("<II", data, at)
        rows.append(np.frombuffer(data, "<f4", n_rows * vocab, at + 8).reshape(n_rows, vocab))
        at += 8 + 4 * n_rows * vocab
    assert at == len(data), path
    return tokens, torch.from_numpy(np.concatenate(rows))


def check_rope(model, config):
    """Compares the frequencies in use with the published formulas, written out here again.

    Requires that the model has computed a sequence of MAX_TOKENS.
    """
    if not rotates(config):
        return
    inner = language_model(model)
    rotary = inner.rotary_emb if hasattr(inner, "rotary_emb") else inner.pos_emb
    for kind in rope_by_kind(config):
        prefix = "" if hasattr(rotary, "inv_freq") else kind + "_"
        expected, factor = rope_frequencies(config, kind, MAX_TOKENS)
        np.testing.assert_allclose(getattr(rotary, prefix + "inv_freq").numpy(),
                                   np.array(expected), rtol=1e-5)
        np.testing.assert_allclose(getattr(rotary, prefix + "attention_scaling"), factor,
                                   rtol=1e-6)


def attention_reach(model, tokens):
    """Returns for each layer the most positions that any query attends to."""
    with torch.no_grad():
        attentions = model(torch.from_numpy(tokens.astype(np.int64))[None],
                           output_attentions=True).attentions
    return [int((a > 0).sum(-1).max()) for a in attentions]


def check_windows(model, config, tokens):
    """Compares what each layer sees with the published rules, written out here again."""
    if config["model_type"] in ("bloom", "mpt"):
        return  # no windows, and far positions weigh exactly nothing
    reaches = {"sliding_attention": config.get("sliding_window"), "full_attention": len(tokens),
               "chunked_attention": config.get("attention_chunk_size")}
    expected = [reaches[kind] for kind in layer_kinds(config)]
    reach = attention_reach(model, tokens)
    assert reach == expected, (reach, expected)


# Of logits that a fault leaves without a number: JSON has none for them.
NOT_FINITE = 1e9


def relative_change(a, b):
    change = ((a - b).abs().max() / b.abs().max()).item()
    return change if math.isfinite(change) else NOT_FINITE


def run_faults(config, model, tokens, logits):
    """Returns the relative change of the logits under every planted fault."""
    state = {n: t.detach().clone() for n, t in model.state_dict().items()}
    if is_tied(config):
        del state["lm_head.weight"]
    rows = case_rows()
    changes = {}
    for fault in planted_faults(config, state):
        wrong = new_model(fault.config)
        missing = wrong.load_state_dict(fault.weights, strict=False)
        assert missing.missing_keys in ([], ["lm_head.weight"]) and not missing.unexpected_keys
        wrong.tie_weights()
        if fault.patch is not None:
            fault.patch(wrong)
        changes[fault.name] = relative_change(all_logits(wrong, tokens)[rows], logits[rows])
    return changes


def most_likely(model, prompts):
    """Returns (tokens [n, 20], smallest leads of a best logit over the second) of greedy decoding."""
    tokens = torch.from_numpy(np.array(prompts).astype(np.int64))
    leads = torch.full((len(prompts),), float("inf"))
    for _ in range(GREEDY_TOKENS):
        with torch.no_grad():
            best = model(tokens).logits[:, -1].float().topk(2)
        leads = torch.minimum(leads, best.values[:, 0] - best.values[:, 1])
        tokens = torch.cat([tokens, best.indices[:, :1]], dim=1)
    return tokens[:, -GREEDY_TOKENS:], leads


def greedy(model, tokens, largest):
    """Returns a model's entry in greedy.json."""
    prompts = [tokens[first:first + GREEDY_PROMPT] for first in range(GREEDY_PROMPTS)]
    chosen, leads = most_likely(model, prompts)
    kinds = [len(set(row.tolist())) if lead > GREEDY_MARGIN * largest else 0
             for row, lead in zip(chosen, leads)]
    first = kinds.index(max(kinds))
    assert kinds[first] > 1, "no prompt has 20 clear tokens behind it: choose another seed"
    return {"first": first, "tokens": chosen[first].tolist(),
            "smallest_lead": float(f"{leads[first].item() / largest:.3e}")}


def rounding_noise(model, config, tokens, logits):
    """Returns how far a prompt alone and inside the whole sequence differ: by rounding only.

    A longrope model turns short sequences by other factors, so prompts up to the length where
    they change are left out: what is stored for them is what the whole sequence gives.
    """
    scaling = config.get("rope_scaling") or {}
    original = config.get("original_max_position_embeddings", 0)
    shortest = original + 1 if "long_factor" in scaling and original < MAX_TOKENS else 0
    return max(relative_change(all_logits(model, tokens[:p])[-1], logits[p - 1])
               for p, _ in CASES if p >= shortest)


def make(name, folder, seed):
    """Writes one model; returns its entries in faults.json and greedy.json."""
    whole, layout = MODELS[name]
    config = text_config(whole)
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, config["vocab_size"], MAX_TOKENS)
    drawn = random_model(config, layout, DTYPES[whole["torch_dtype"]], tokens, rng)
    save(drawn, whole, layout, folder)

    model = load(folder)
    loaded = language_weights(model)
    for parameter, tensor in drawn.state_dict().items():
        assert torch.equal(tensor, loaded[parameter]), (name, parameter)
    logits = all_logits(model, tokens)
    check_rope(model, config)
    check_windows(model, config, tokens)
    scores = score_std(model, tokens)
    least = 0.7 if config["model_type"] == "llama4_text" else SCORE_STD[0]  # of unit heads
    assert all(least <= s <= SCORE_STD[1] for s in scores), (name, scores)
    write_expected(folder / "expected.bin", tokens, logits)
    noise = rounding_noise(model, config, tokens, logits)
    assert noise < 1e-5, (name, noise)

    changes = run_faults(config, drawn, tokens, logits)
    reasons = {n: exemption(config, n) for n in changes}
    asserted = {n: c for n, c in changes.items() if reasons[n] is None}
    weakest = min(asserted, key=asserted.get)
    print(f"{name}: scores {', '.join(f'{s:.2f}' for s in scores)}; noise {noise:.1e}; "
          f"{len(changes)} faults, smallest {asserted[weakest]:.4f} ({weakest})")
    for fault, change in changes.items():
        if reasons[fault]:
            print(f"  not asserted: {fault}: {change:.1e}: {reasons[fault]}")
    assert asserted[weakest] > MIN_FAULT, f"{name}: {weakest} moves logits too little"
    largest = logits[case_rows()].abs().max().item()
    entry = {
        "score_std_per_layer": [round(s, 3) for s in scores],
        "largest_logit": round(largest, 4),
        "rounding_noise": float(f"{noise:.2e}"),
        "not_asserted": {f: r for f, r in reasons.items() if r},
        "relative_change": {f: float(f"{c:.3e}") for f, c in changes.items()},
    }
    return entry, greedy(model, tokens, largest)


def check(out_dir):
    """Recomputes every model's logits with the installed transformers; returns the exit status."""
    worst = 0.0
    chosen = json.loads((out_dir / "greedy.json").read_text())
    for name in MODELS:
        tokens, expected = read_expected(out_dir / name / "expected.bin")
        model = load(out_dir / name)
        logits = all_logits(model, tokens)
        config = text_config(MODELS[name][0])
        check_rope(model, config)
        check_windows(model, config, tokens)
        change = relative_change(logits[case_rows()], expected)
        known = chosen[name]
        prompt = tokens[known["first"]:known["first"] + GREEDY_PROMPT]
        same = most_likely(model, [prompt])[0][0].tolist() == known["tokens"]
        worst = max(worst, change if same else 1.0)
        print(f"{name}: relative difference {change:.1e}{'' if same else ', GREEDY TOKENS DIFFER'}")
    print("agree" if worst < 1e-5 else "DIFFER")
    return 0 if worst < 1e-5 else 1


def read_json(path, wanted):
    return json.loads(path.read_text()) if wanted and path.exists() else {}


def write_by_model(path, entries, **layout):
    """Writes entries in the order of MODELS."""
    ordered = {name: entries[name] for name in MODELS if name in entries}
    path.write_text(json.dumps(ordered, **layout) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("out_dir", type=pathlib.Path, metavar="OUT_DIR")
    parser.add_argument("--check", action="store_true", help="recompute, write nothing")
    parser.add_argument("--only", choices=MODELS, help="make this model only, keep the others")
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, "
          f"numpy {np.__version__}")
    if args.check:
        return check(args.out_dir)
    faults = read_json(args.out_dir / "faults.json", args.only)
    chosen = read_json(args.out_dir / "greedy.json", args.only)
    for number, (name, (_, layout)) in enumerate(MODELS.items()):
        if args.only in (None, name):
            seed = layout.get("seed", number)
            faults[name], chosen[name] = make(name, args.out_dir / name, seed)
    write_by_model(args.out_dir / "faults.json", faults, indent=1)
    write_by_model(args.out_dir / "greedy.json", chosen)
    return 0


if __name__ == "__main__":
    sys.exit(main())
