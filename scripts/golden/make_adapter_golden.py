#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes golden adapters: random PEFT folders of golden models, with the logits they must give.

    make_adapter_golden.py OUT_DIR            writes OUT_DIR/<adapter>/
    make_adapter_golden.py --check OUT_DIR    recomputes the logits of the adapters there

Needs transformers and peft. Each folder holds adapter_config.json and adapter_model.safetensors as
peft saves them, and expected.bin in the layout of make_golden_models.py, whose models are the
bases. The logits come from peft in float32, with eager attention, loaded from the written files.

A and B are random, so that every pair matters: the script fails if the logits are within 1e-2 of
the largest one of the base's, or of those with another scale, with B's of two modules of one layer
exchanged, or without the last module.
"""

import argparse
import json
import pathlib
import re
import struct
import sys

import peft
import safetensors.torch
import torch
from peft.utils import transformers_weight_conversion

import make_golden_models

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "testdata" / "golden"
CASES = [(1, 5), (65, 5)]
MIN_CHANGE = 1e-2
# Base and configuration: separate projections and the head; a rank and an alpha of their own by
# module; fused and transposed projections.
CHOSEN = {
    "llama_all": ("llama_gqa_tied", {"r": 4, "lora_alpha": 6, "target_modules": [
        "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"]}),
    "llama_patterns": ("llama_gqa_tied", {
        "r": 3, "lora_alpha": 5, "use_rslora": True, "target_modules": ["q_proj", "v_proj"],
        "rank_pattern": {"v_proj": 2}, "alpha_pattern": {"layers.1.self_attn.q_proj": 3}}),
    "phi3_fused": ("phi3_gqa", {"r": 4, "lora_alpha": 4, "target_modules": [
        "qkv_proj", "o_proj", "gate_up_proj", "down_proj"]}),
    "gpt2_transposed": ("gpt2", {"r": 2, "lora_alpha": 3, "fan_in_fan_out": True,
                                 "target_modules": ["c_attn", "c_proj", "c_fc"]}),
}
# One model of each family, and of each layout of its weights. Their adapters change every linear
# module and the head.
WHOLE = [
    "bloom", "cohere", "cohere2", "deepseek_v2", "deepseek_v2_lite", "deepseek_v3", "exaone4",
    "falcon", "falcon_alibi", "falcon_groups", "gemma", "gemma2", "gemma3", "gemma3_vision",
    "gemma3n", "gemma4", "gemma4_a4b", "gemma4_e", "glm4", "glm4_moe", "glm4_moe_lite", "gpt_neox",
    "gpt_oss", "gpt_oss_floats", "granite", "granite4", "granite4h", "granite4h_experts",
    "granitemoe", "granitemoeshared", "lfm2", "lfm2_moe", "llama4", "llama4_dense_layers",
    "ministral3", "mistral", "mixtral", "mpt", "nemotron_h", "nemotron_h_mixed", "olmo2", "olmo3",
    "olmoe", "opt", "phi2", "phimoe", "qwen2", "qwen2_moe", "qwen3", "qwen3_5", "qwen3_5_moe",
    "qwen3_moe", "qwen3_next", "smollm3", "stablelm", "starcoder2",
]
# For models with experts peft takes "gate_proj" for the stacked ones too, which are no modules.
transformers_weight_conversion._MODEL_TO_CONVERSION_PATTERN.clear()
# Linear modules that are left out: QSF has no adapters of them, or peft refuses them (out_proj of
# Nemotron-H) or cannot wrap them (routers that return several tensors).
LEFT_OUT = ("vision_tower", "multi_modal_projector", "embed_vision", "audio_tower", "embed_audio",
            "altup", "laurel", "per_layer", "shared_expert_gate", "kv_b_proj")
ALSO_LEFT_OUT = {"llama4": "router", "llama4_dense_layers": "router", "phimoe": "router",
                 "nemotron_h": "out_proj", "nemotron_h_mixed": "out_proj"}


def whole_options(base):
    """Returns the configuration of an adapter of every linear module of a model."""
    left_out = [*LEFT_OUT, *filter(None, [ALSO_LEFT_OUT.get(base)])]
    pattern = f".*({'|'.join(left_out)}).*"
    linear = {name for name, module in load_base(base).named_modules()
              if isinstance(module, torch.nn.Linear) and not re.fullmatch(pattern, name)}
    return {"r": 2, "lora_alpha": 3, "exclude_modules": pattern,
            "target_modules": sorted({name.rpartition(".")[2] for name in linear})}


def bases_of_adapters():
    bases = {name: base for name, (base, _) in CHOSEN.items()}
    return bases | {f"{base}_whole": base for base in WHOLE}


def load_base(base):
    return make_golden_models.load(GOLDEN / base)


def golden_tokens(base):
    data = (GOLDEN / base / "expected.bin").read_bytes()
    n_tokens = struct.unpack_from("<I", data, 12)[0]
    return list(struct.unpack_from(f"<{n_tokens}I", data, 20))


def all_logits(model, tokens):
    with torch.no_grad():
        return model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]


def adapted_logits(base, folder, tokens):
    return all_logits(peft.PeftModel.from_pretrained(load_base(base), folder).eval(), tokens)


def change(a, b):
    return float((a - b).abs().max() / a.abs().max())


def check_matters(base, folder, tokens, logits):
    """Fails where something of the adapter could be ignored without notice."""
    faults = {"no adapter": all_logits(load_base(base), tokens)}
    model = peft.PeftModel.from_pretrained(load_base(base), folder).eval()
    layers = [m for m in model.modules() if isinstance(m, peft.tuners.lora.LoraLayer)]
    for layer in layers:
        layer.scaling["default"] *= 1.5
    faults["another scale"] = all_logits(model, tokens)
    for layer in layers:
        layer.scaling["default"] /= 1.5
    scale, layers[-1].scaling["default"] = layers[-1].scaling["default"], 0.0
    faults["last module left out"] = all_logits(model, tokens)
    layers[-1].scaling["default"] = scale
    weight = layers[0].lora_B["default"].weight.data
    weight.copy_(weight.flip(0))
    faults["rows of B in another order"] = all_logits(model, tokens)
    for name, wrong in faults.items():
        if change(logits, wrong) < MIN_CHANGE:
            sys.exit(f"{folder.name}: {name}: the logits move by {change(logits, wrong):.2g} alone")


def write_expected(path, tokens, logits):
    with open(path, "wb") as out:
        out.write(b"QSFGOLD1" + struct.pack("<III", logits.shape[1], len(tokens), len(CASES)))
        out.write(struct.pack(f"<{len(tokens)}I", *tokens))
        for prompt, rows in CASES:
            out.write(struct.pack("<II", prompt, rows))
            out.write(logits[prompt - 1:prompt - 1 + rows].float().numpy().tobytes())


def make(name, folder, seed):
    base = bases_of_adapters()[name]
    options = CHOSEN[name][1] if name in CHOSEN else whole_options(base)
    torch.manual_seed(seed)
    config = peft.LoraConfig(task_type="CAUSAL_LM", **options)
    model = peft.get_peft_model(load_base(base), config)
    for layer in model.modules():
        if not isinstance(layer, peft.tuners.lora.LoraLayer):
            continue
        for half in (layer.lora_A["default"], layer.lora_B["default"]):
            half.weight.data.normal_(0.0, 0.3)
    model.save_pretrained(folder, save_embedding_layers=False)
    (folder / "README.md").unlink(missing_ok=True)
    path = folder / "adapter_config.json"
    stored = json.loads(path.read_text())
    stored["base_model_name_or_path"] = base
    stored["target_modules"].sort()
    path.write_text(json.dumps(stored, indent=2, sort_keys=True) + "\n")
    tokens = golden_tokens(base)[:max(prompt + rows for prompt, rows in CASES)]
    logits = adapted_logits(base, folder, tokens)
    check_matters(base, folder, tokens, logits)
    write_expected(folder / "expected.bin", tokens, logits)
    n_tensors = len(safetensors.torch.load_file(folder / "adapter_model.safetensors"))
    print(f"{name}: {n_tensors} tensors, "
          f"{change(logits, all_logits(load_base(base), tokens)):.2g} from the base")


def check(out_dir):
    for name, base in bases_of_adapters().items():
        data = (out_dir / name / "expected.bin").read_bytes()
        vocab, n_tokens, n_cases = struct.unpack_from("<III", data, 8)
        tokens = list(struct.unpack_from(f"<{n_tokens}I", data, 20))
        logits = adapted_logits(base, out_dir / name, tokens)
        at = 20 + 4 * n_tokens
        for _ in range(n_cases):
            prompt, rows = struct.unpack_from("<II", data, at)
            stored = torch.frombuffer(bytearray(data[at + 8:at + 8 + 4 * rows * vocab]),
                                      dtype=torch.float32).view(rows, vocab)
            at += 8 + 4 * rows * vocab
            if change(stored, logits[prompt - 1:prompt - 1 + rows]) > 1e-5:
                sys.exit(f"{name}: other logits than expected.bin")
    print(f"{len(bases_of_adapters())} adapters as they were")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("out_dir", type=pathlib.Path)
    args = parser.parse_args()
    if args.check:
        check(args.out_dir)
        return
    for seed, name in enumerate(bases_of_adapters()):
        (args.out_dir / name).mkdir(parents=True, exist_ok=True)
        make(name, args.out_dir / name, seed)


if __name__ == "__main__":
    main()
