#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the golden models: tiny random Hugging Face checkpoints with the logits they must give.

    make_golden_models.py OUT_DIR                writes OUT_DIR/<model>/ and OUT_DIR/faults.json
    make_golden_models.py --only MODEL OUT_DIR   makes one model, leaves the others' entries
    make_golden_models.py --check OUT_DIR        recomputes the logits of the checkpoints there

Each model folder holds config.json, model.safetensors (or shards with an index) and expected.bin.
The logits come from Hugging Face transformers in float32 with eager attention, loaded from the
written files, so config.json is read the way a published checkpoint is read.

Every parameter is random, norm gains and biases included, and attention scores are scaled to a
standard deviation near 2.5, so that no part of the network is idle. That this suffices is
checked: faults.json holds, for each planted fault, the largest change of a logit over all rows
divided by the largest logit, and the script fails if a fault moves them by less than 1e-2, a
hundred times the tolerance of the comparison it serves.

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
import pathlib
import struct
import sys

import numpy as np
import safetensors.torch
import torch
import transformers
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from golden_faults import exemption, is_norm_gain, planted_faults

MAX_TOKENS = 544  # 512 prompt tokens, 20 more, and a rest to show the last position
CASES = [(1, 21), (2, 21), (63, 21), (64, 21), (65, 21), (200, 21), (512, 21), (MAX_TOKENS, 1)]
MIN_FAULT = 1e-2
SCORE_STD = (2.0, 3.0)
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


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
    architecture = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2"}[model_type]
    return {
        "architectures": [architecture + "ForCausalLM"], "model_type": model_type,
        "vocab_size": vocab, "max_position_embeddings": MAX_TOKENS,
        "hidden_size": 48, "intermediate_size": 68, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_act": "silu",
        "rms_norm_eps": 0.03, "rope_theta": 10000.0,
        "bos_token_id": 1, "eos_token_id": 2,
        "tie_word_embeddings": False, "torch_dtype": "float16", **changes,
    }


LLAMA3_SCALING = {
    "factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
    "original_max_position_embeddings": 64, "rope_type": "llama3",
}

# name: (config, how the file is laid out)
#   prefix   "transformer." stands before GPT-2's names (written by save_pretrained) or does not
#            (the published gpt2 files, which also carry causal-mask buffers)
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
}


def new_model(config):
    parsed = CONFIG_MAPPING[config["model_type"]].from_dict(copy.deepcopy(config))
    model = AutoModelForCausalLM.from_config(parsed, attn_implementation="eager")
    return model.float().eval()


def load(folder):
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager")
    return model.eval()


def draw(name, shape, hidden, rng):
    """Returns random f32 values for the parameter `name`, at a scale that keeps it audible."""
    values = rng.standard_normal(shape, dtype=np.float32)
    if is_norm_gain(name):
        values = 1.0 + 0.3 * values
    elif name.endswith(".bias"):
        values *= 0.3
    elif "wpe" in name:
        values *= 0.15
    elif "wte" in name or "embed_tokens" in name:
        values *= 0.25
    elif "lm_head" in name:
        values *= 1.5 / hidden ** 0.5
    else:  # GPT-2 stores projections as [in, out], the others as [out, in]
        values *= (shape[0] if ".c_" in name else shape[1]) ** -0.5
    return torch.from_numpy(values)


@contextlib.contextmanager
def recorded_scores(into):
    """Appends to `into`, one entry a layer, the deviation of each score from its row's mean."""
    plain = torch.nn.functional.softmax

    def softmax(scores, *args, **kwargs):
        seen = scores > -1e20  # the mask adds the lowest float
        count = seen.sum(-1, keepdim=True)
        kept = torch.where(seen, scores, 0.0)
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


def score_std(model, tokens):
    per_layer = []
    with recorded_scores(per_layer):
        all_logits(model, tokens)
    return per_layer


def scale_scores(model, tokens, factors):
    """Multiplies the query and key weights of each layer by the square root of its factor."""
    for name, tensor in model.state_dict().items():
        parts = name.split(".")
        numbers = [int(p) for p in parts if p.isdigit()]
        if ".c_attn.weight" in name:
            tensor[:, : 2 * tensor.shape[1] // 3] *= factors[numbers[0]] ** 0.5
        elif ".q_proj.weight" in name or ".k_proj.weight" in name:
            tensor *= factors[numbers[0]] ** 0.5


def random_model(config, tokens, rng):
    """Returns a model with random weights, each exactly representable in the config's dtype."""
    model = new_model(config)
    hidden = config.get("hidden_size") or config["n_embd"]
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if not (config["tie_word_embeddings"] and name == "lm_head.weight"):
                tensor.copy_(draw(name, tuple(tensor.shape), hidden, rng))
        for _ in range(8):
            scale_scores(model, tokens, [2.5 / s for s in score_std(model, tokens)])
        for tensor in model.state_dict().values():
            tensor.copy_(tensor.to(DTYPES[config["torch_dtype"]]))
    return model


def save(model, config, layout, folder):
    """Writes config.json and the weights, named and split as published checkpoints are."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    dtype = DTYPES[config["torch_dtype"]]
    state = {n: t.detach().to(dtype).contiguous() for n, t in model.state_dict().items()}
    if config["tie_word_embeddings"]:
        del state["lm_head.weight"]
    if layout.get("prefix") is False:
        state = {n.removeprefix("transformer."): t for n, t in state.items()}
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
    """Compares the frequencies in use with the published formulas, written out here again."""
    scaling = config.get("rope_scaling")
    if not scaling:
        return
    width = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    expected = []
    for i in range(width // 2):
        f = config["rope_theta"] ** (-2 * i / width)
        if scaling.get("type") == "linear":
            f /= scaling["factor"]
        else:
            turns = scaling["original_max_position_embeddings"] * f / (2 * np.pi)
            low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
            keep = min(max((turns - low) / (high - low), 0.0), 1.0)
            f = keep * f + (1 - keep) * f / scaling["factor"]
        expected.append(f)
    used = model.model.rotary_emb.inv_freq.numpy()
    np.testing.assert_allclose(used, np.array(expected), rtol=1e-5)


def attention_reach(model, tokens):
    """Returns for each layer the most positions that any query attends to."""
    with torch.no_grad():
        attentions = model(torch.from_numpy(tokens.astype(np.int64))[None],
                           output_attentions=True).attentions
    return [int((a > 0).sum(-1).max()) for a in attentions]


def check_windows(model, config, tokens):
    """Compares what each layer sees with the published rules, written out here again."""
    n_layers = model.config.num_hidden_layers
    window = config.get("sliding_window")
    first = 0
    if config["model_type"] == "qwen2":
        first = config["max_window_layers"] if config["use_sliding_window"] else n_layers
    expected = [window if window and layer >= first else len(tokens) for layer in range(n_layers)]
    reach = attention_reach(model, tokens)
    assert reach == expected, (reach, expected)


def relative_change(a, b):
    return ((a - b).abs().max() / b.abs().max()).item()


def run_faults(config, model, tokens, logits):
    """Returns the relative change of the logits under every planted fault."""
    state = {n: t.detach().clone() for n, t in model.state_dict().items()}
    if config["tie_word_embeddings"]:
        del state["lm_head.weight"]
    rows = case_rows()
    changes = {}
    for name, wrong_config, wrong_state in planted_faults(config, state):
        wrong = new_model(wrong_config)
        missing = wrong.load_state_dict(wrong_state, strict=False)
        assert missing.missing_keys in ([], ["lm_head.weight"]) and not missing.unexpected_keys
        wrong.tie_weights()
        changes[name] = relative_change(all_logits(wrong, tokens)[rows], logits[rows])
    return changes


def make(name, folder, seed):
    """Writes one model; returns its entry in faults.json."""
    config, layout = MODELS[name]
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, config["vocab_size"], MAX_TOKENS)
    drawn = random_model(config, tokens, rng)
    save(drawn, config, layout, folder)

    model = load(folder)
    for parameter, tensor in drawn.state_dict().items():
        assert torch.equal(tensor, model.state_dict()[parameter]), (name, parameter)
    check_rope(model, config)
    check_windows(model, config, tokens)
    scores = score_std(model, tokens)
    assert all(SCORE_STD[0] <= s <= SCORE_STD[1] for s in scores), (name, scores)
    logits = all_logits(model, tokens)
    write_expected(folder / "expected.bin", tokens, logits)

    # A prompt alone and the same prompt inside the whole sequence differ by rounding only.
    noise = max(relative_change(all_logits(model, tokens[:p])[-1], logits[p - 1])
                for p, _ in CASES)
    assert noise < 1e-5, (name, noise)

    changes = run_faults(config, model, tokens, logits)
    asserted = {n: c for n, c in changes.items() if exemption(n) is None}
    weakest = min(asserted, key=asserted.get)
    print(f"{name}: scores {', '.join(f'{s:.2f}' for s in scores)}; noise {noise:.1e}; "
          f"{len(changes)} faults, smallest {asserted[weakest]:.4f} ({weakest})")
    for fault, change in changes.items():
        if reason := exemption(fault):
            print(f"  not asserted: {fault}: {change:.1e}: {reason}")
    assert asserted[weakest] > MIN_FAULT, f"{name}: {weakest} moves logits too little"
    return {
        "score_std_per_layer": [round(s, 3) for s in scores],
        "largest_logit": round(logits[case_rows()].abs().max().item(), 4),
        "rounding_noise": float(f"{noise:.2e}"),
        "not_asserted": {f: exemption(f) for f in changes if exemption(f)},
        "relative_change": {f: float(f"{c:.3e}") for f, c in changes.items()},
    }


def check(out_dir):
    """Recomputes every model's logits with the installed transformers; returns the exit status."""
    worst = 0.0
    for name in MODELS:
        tokens, expected = read_expected(out_dir / name / "expected.bin")
        model = load(out_dir / name)
        check_windows(model, MODELS[name][0], tokens)
        logits = all_logits(model, tokens)[case_rows()]
        change = relative_change(logits, expected)
        worst = max(worst, change)
        print(f"{name}: relative difference {change:.1e}")
    print("agree" if worst < 1e-5 else "DIFFER")
    return 0 if worst < 1e-5 else 1


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
    faults_path = args.out_dir / "faults.json"
    faults = json.loads(faults_path.read_text()) if args.only and faults_path.exists() else {}
    for seed, name in enumerate(MODELS):
        if args.only in (None, name):
            faults[name] = make(name, args.out_dir / name, seed)
    faults = {name: faults[name] for name in MODELS if name in faults}
    faults_path.write_text(json.dumps(faults, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
