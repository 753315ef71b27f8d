#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the golden models that embed texts: tiny random checkpoints with their embeddings.

    make_embedding_golden.py OUT_DIR                writes OUT_DIR/<model>/ and OUT_DIR/<model>.gguf
    make_embedding_golden.py --only MODEL OUT_DIR   makes one model
    make_embedding_golden.py --check OUT_DIR        recomputes the embeddings of the folders there

Each folder is one of sentence-transformers: config.json, model.safetensors, modules.json, the
folders that it names, and expected.bin. The rows come from transformers in float32 with eager
attention; pooling and division by the length are written out here. Every parameter is random, and
attention scores have a standard deviation near 2.5.

faults.json holds, for each planted fault, the largest change of an embedding over all lengths
divided by its largest value; the script fails if a fault moves them by less than 1e-2, a hundred
times the tolerance of the comparison.

expected.bin, little-endian: "QSFEMBD1", u32 columns, u32 n_tokens, u32 n_cases, u32 tokens, then of
each case u32 length, u32 n_rows (the length, or 0), f32 embedding [columns] and
f32 rows [n_rows, columns]: the residual stream in front of the final norm.
"""

import argparse
import copy
import json
import pathlib
import struct
import sys

import numpy as np
import safetensors.torch
import torch
import transformers
from transformers import AutoModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import embedding_configs
import embedding_gguf
from embedding_configs import LENGTHS, MODELS, ROWS_UP_TO, stored_state
from make_golden_models import recorded_scores, relative_change

MIN_FAULT = 1e-2
SCORE_STD = 2.5


def class_config(config):
    keys = embedding_configs.class_config(config)
    return CONFIG_MAPPING[config["model_type"]].from_dict(keys)


def new_model(config):
    parsed = class_config(config)
    return AutoModel.from_config(parsed, attn_implementation="eager").float().eval()


def load(folder):
    config = class_config(json.loads((folder / "config.json").read_text()))
    return AutoModel.from_pretrained(folder, config=config, dtype=torch.float32,
                                     attn_implementation="eager").float().eval()


def run(model, tokens):
    """Returns (rows in front of the final norm, rows behind it) of one text."""
    before = []
    norm = embedding_configs.final_norm(model)
    handle = norm.register_forward_pre_hook(lambda _, args: before.append(args[0][0].float()))
    with torch.no_grad():
        out = model(input_ids=torch.from_numpy(tokens.astype(np.int64))[None])
    handle.remove()
    return before[-1], out.last_hidden_state[0].float()


def pooled(rows, settings):
    if settings["pooling"] == "mean":
        row = rows.double().mean(0)
    else:
        row = rows[0 if settings["pooling"] == "cls" else -1].double()
    for weight in settings.get("dense", []):
        row = weight.double() @ row
    return (row / row.norm()).float()


def embeddings(model, tokens, settings):
    return torch.stack([pooled(run(model, tokens[:n])[1], settings) for n in LENGTHS])


def random_model(config, dtype, tokens, rng):
    """Returns a model with random weights, each exactly representable in `dtype`."""
    model = new_model(config)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            values = rng.standard_normal(tuple(tensor.shape), dtype=np.float32)
            tensor.copy_(torch.from_numpy(embedding_configs.drawn(name, values, config)))
        for _ in range(8):
            scores = []
            with recorded_scores(scores, None):
                run(model, tokens)
            embedding_configs.scale_scores(model, config, [SCORE_STD / s for s in scores])
        for tensor in model.state_dict().values():
            tensor.copy_(tensor.to(dtype))
    return model


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1) + "\n")


def save(model, config, settings, folder):
    write_json(folder / "config.json", config)
    dtype = getattr(torch, config["torch_dtype"])
    state = {name: tensor.detach().to(dtype).contiguous()
             for name, tensor in stored_state(model.state_dict(), config).items()}
    safetensors.torch.save_file(state, folder / "model.safetensors", {"format": "pt"})
    modules = [("Transformer", ""), ("Pooling", "1_Pooling")]
    width = model.config.hidden_size
    write_json(folder / "1_Pooling/config.json", {
        "word_embedding_dimension": width, "pooling_mode_cls_token": settings["pooling"] == "cls",
        "pooling_mode_mean_tokens": settings["pooling"] == "mean",
        "pooling_mode_max_tokens": False, "pooling_mode_mean_sqrt_len_tokens": False,
        "pooling_mode_weightedmean_tokens": False,
        "pooling_mode_lasttoken": settings["pooling"] == "lasttoken", "include_prompt": True})
    for number, weight in enumerate(settings.get("dense", []), 2):
        modules.append(("Dense", f"{number}_Dense"))
        write_json(folder / f"{number}_Dense/config.json", {
            "in_features": weight.shape[1], "out_features": weight.shape[0], "bias": False,
            "activation_function": "torch.nn.modules.linear.Identity"})
        safetensors.torch.save_file({"linear.weight": weight.to(dtype).contiguous()},
                                    folder / f"{number}_Dense/model.safetensors", {"format": "pt"})
    modules.append(("Normalize", f"{len(modules)}_Normalize"))
    write_json(folder / "modules.json",
               [{"idx": i, "name": str(i), "path": path,
                 "type": f"sentence_transformers.models.{kind}"}
                for i, (kind, path) in enumerate(modules)])


def write_expected(path, tokens, model, settings):
    with open(path, "wb") as out:
        out.write(b"QSFEMBD1" + struct.pack("<III", model.config.hidden_size, len(tokens),
                                            len(LENGTHS)))
        out.write(tokens.astype("<u4").tobytes())
        for length in LENGTHS:
            before, behind = run(model, tokens[:length])
            n_rows = length if length <= ROWS_UP_TO else 0
            out.write(struct.pack("<II", length, n_rows))
            out.write(pooled(behind, settings).numpy().astype("<f4").tobytes())
            out.write(before[:n_rows].numpy().astype("<f4").tobytes())


def read_expected(path):
    """Returns (tokens, embeddings) of an expected.bin."""
    data = path.read_bytes()
    assert data[:8] == b"QSFEMBD1", path
    width, n_tokens, n_cases = struct.unpack_from("<III", data, 8)
    tokens = np.frombuffer(data, "<u4", n_tokens, 20)
    at = 20 + 4 * n_tokens
    found = []
    for _ in range(n_cases):
        _, n_rows = struct.unpack_from("<II", data, at)
        found.append(np.frombuffer(data, "<f4", width, at + 8))
        at += 8 + 4 * width * (1 + n_rows)
    assert at == len(data), path
    return tokens, torch.from_numpy(np.stack(found))


def run_faults(name, model, config, settings, tokens, right):
    """Returns the relative change of the embeddings under every planted fault."""
    state = {n: t.detach().clone() for n, t in model.state_dict().items()}
    changes = {}
    for fault, change in embedding_configs.faults(name, config, state):
        wrong_config, wrong_settings = copy.deepcopy(config), dict(settings)
        weights = {n: t.clone() for n, t in state.items()}
        patch = change(wrong_config, wrong_settings, weights)
        wrong = new_model(wrong_config)
        wrong.load_state_dict(weights, strict=False)
        if patch is not None:
            patch(wrong)
        changes[fault] = relative_change(embeddings(wrong, tokens, wrong_settings), right)
    return changes


def make(name, seed, out_dir):
    """Writes one model; returns its entry in faults.json."""
    config, settings = MODELS[name]
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, config["vocab_size"], max(LENGTHS))
    dtype = getattr(torch, config["torch_dtype"])
    drawn = random_model(config, dtype, tokens, rng)
    settings = dict(settings)
    if "dense" in settings:
        settings["dense"] = [
            torch.from_numpy(rng.standard_normal(shape, dtype=np.float32)
                             / shape[1] ** 0.5).to(dtype).float() for shape in settings["dense"]]
    folder = out_dir / name
    save(drawn, config, settings, folder)
    model = load(folder)
    for parameter, tensor in drawn.state_dict().items():
        assert torch.equal(tensor, model.state_dict()[parameter]), (name, parameter)
    write_expected(folder / "expected.bin", tokens, model, settings)
    embedding_gguf.write(out_dir / f"{name}.gguf", stored_state(drawn.state_dict(), config), config,
                         settings)
    changes = run_faults(name, drawn, config, settings, tokens,
                         embeddings(model, tokens, settings))
    weakest = min(changes, key=changes.get)
    print(f"{name}: {len(changes)} faults, smallest {changes[weakest]:.4f} ({weakest})")
    assert changes[weakest] > MIN_FAULT, f"{name}: {weakest} moves embeddings too little"
    return {fault: float(f"{change:.3e}") for fault, change in changes.items()}


def check(out_dir):
    """Recomputes every model's embeddings; returns the exit status."""
    worst = 0.0
    for name, (config, settings) in MODELS.items():
        folder = out_dir / name
        settings = dict(settings)
        if "dense" in settings:
            settings["dense"] = [
                safetensors.torch.load_file(folder / f"{i}_Dense/model.safetensors")
                ["linear.weight"].float() for i in range(2, 2 + len(settings["dense"]))]
        tokens, expected = read_expected(folder / "expected.bin")
        change = relative_change(embeddings(load(folder), tokens, settings), expected)
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
    if args.check:
        return check(args.out_dir)
    path = args.out_dir / "faults.json"
    faults = json.loads(path.read_text()) if args.only and path.exists() else {}
    for seed, name in enumerate(MODELS, 500):
        if args.only in (None, name):
            faults[name] = make(name, seed, args.out_dir)
    write_json(path, {name: faults[name] for name in MODELS if name in faults})
    return 0


if __name__ == "__main__":
    sys.exit(main())
