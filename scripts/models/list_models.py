#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the tables of docs/models.md: the families that are read, and how each is tested.

    list_models.py [--check] [ROOT]

The tables follow from the code and the tests alone: the tables of the importers, the rows of
src/model/architecture.cc, the golden models and the tests that list them. What has been published
of a family is in PUBLISHED below, and a class without an entry there is an error.
--check writes nothing: it prints what differs and exits 1 if something does.
"""

import argparse
import glob
import json
import os
import re
import sys

PAGE = os.path.join("docs", "models.md")
MARK = re.compile(r"<!-- generated: (\w+) -->\n(.*?)<!-- end -->\n", re.DOTALL)
MAX_LINE = 100

PUBLISHED = {
    "BitNetForCausalLM": "BitNet b1.58 2B4T",
    "BitnetForCausalLM": "bitnet_b1_58 0.7B to 3B",
    "BloomForCausalLM": "BLOOM and BLOOMZ 560M to 176B",
    "Cohere2ForCausalLM": "Command R7B, Command A",
    "CohereForCausalLM": "Command-R 35B, R+ 104B, Aya",
    "DeepseekV2ForCausalLM": "DeepSeek-V2 236B-A21B, Lite 16B-A2.4B",
    "DeepseekV3ForCausalLM": "DeepSeek-V3 and R1 671B-A37B, in 16 bits",
    "Exaone4ForCausalLM": "EXAONE 4 1.2B, 32B",
    "FalconForCausalLM": "Falcon 7B to 180B, Falcon-RW",
    "FalconH1ForCausalLM": "Falcon-H1 0.5B to 34B, Tiny 90M",
    "GPT2LMHeadModel": "GPT-2 124M to 1.5B",
    "GPTNeoXForCausalLM": "Pythia 14M to 12B, GPT-NeoX 20B",
    "Gemma2ForCausalLM": "Gemma 2 2B to 27B",
    "Gemma3ForCausalLM": "Gemma 3 270M, 1B",
    "Gemma3ForConditionalGeneration": "Gemma 3 4B to 27B, text alone",
    "Gemma3TextModel": "EmbeddingGemma 300M",
    "Gemma3nForCausalLM": "Gemma 3n, text part saved alone",
    "Gemma3nForConditionalGeneration": "Gemma 3n E2B, E4B, text alone",
    "Gemma4ForCausalLM": "Gemma 4, text part saved alone",
    "Gemma4ForConditionalGeneration": "Gemma 4 E2B to 31B, 26B-A4B, text alone",
    "GemmaForCausalLM": "Gemma 2B, 7B",
    "Glm4ForCausalLM": "GLM-4 0414 9B, 32B",
    "Glm4MoeForCausalLM": "GLM-4.5 355B-A32B, Air 106B-A12B",
    "Glm4MoeLiteForCausalLM": "GLM-4.7-Flash 30B-A3B",
    "GptOssForCausalLM": "gpt-oss 20B, 120B",
    "GraniteForCausalLM": "Granite 3 2B, 8B",
    "GraniteMoeForCausalLM": "Granite 3 1B-A400M, 3B-A800M",
    "GraniteMoeHybridForCausalLM": "Granite 4 and 4 H",
    "GraniteMoeSharedForCausalLM": "Granite MoE, shared expert",
    "InternLM2ForCausalLM": "InternLM 2 and 2.5 1.8B to 20B",
    "Lfm2ForCausalLM": "LFM2 350M to 2.6B",
    "Lfm2MoeForCausalLM": "LFM2 8B-A1B",
    "Lfm2VlForConditionalGeneration": "LFM2-VL 450M to 3B, text alone",
    "Llama4ForCausalLM": "Llama 4 Scout 109B-A17B, Maverick 400B-A17B",
    "Llama4ForConditionalGeneration": "Llama 4 with a vision tower: its text",
    "LlamaForCausalLM": "LLaMA 1 to 3, SmolLM, Phi-4 as LLaMA",
    "MPTForCausalLM": "MPT 7B, 30B",
    "Ministral3ForCausalLM": "Ministral 3 3B to 14B",
    "Mistral3ForConditionalGeneration": "Mistral Small 3.1 24B, text alone",
    "MistralForCausalLM": "Mistral 7B, Nemo 12B, Small 24B",
    "MixtralForCausalLM": "Mixtral 8x7B, 8x22B",
    "ModernBertForMaskedLM": "ModernBERT 149M, 395M, without its head",
    "ModernBertModel": "embedders of ModernBERT",
    "MptForCausalLM": "the same, as transformers saves it",
    "NemotronHForCausalLM": "Nemotron-H, Nemotron 3 Nano",
    "NomicBertForMaskedLM": "nomic-bert, without its head",
    "NomicBertModel": "nomic-embed-text 1, 1.5",
    "OPTForCausalLM": "OPT 125M to 66B, not 350M",
    "Olmo2ForCausalLM": "OLMo 2 1B to 32B",
    "Olmo3ForCausalLM": "OLMo 3 7B, 32B",
    "OlmoeForCausalLM": "OLMoE 1B-7B",
    "Phi3ForCausalLM": "Phi-3 3.8B, 14B, Phi-4",
    "PhiMoEForCausalLM": "Phi-3.5-MoE, Phi mini MoE",
    "PhiForCausalLM": "Phi 1, 1.5, 2",
    "PhimoeForCausalLM": "Phi-3.5-MoE, as transformers saves it",
    "Qwen2ForCausalLM": "Qwen 1.5 to 2.5 0.5B to 110B",
    "Qwen2MoeForCausalLM": "Qwen 1.5 A2.7B, Qwen 2 57B-A14B",
    "Qwen3ForCausalLM": "Qwen 3 0.6B to 32B, Qwen3-Embedding",
    "Qwen3Model": "Qwen3-Embedding saved without a head",
    "Qwen3MoeForCausalLM": "Qwen 3 30B-A3B, 235B-A22B",
    "Qwen3NextForCausalLM": "Qwen3-Next 80B-A3B",
    "Qwen3_5ForCausalLM": "Qwen 3.5 0.8B to 27B, text part saved alone",
    "Qwen3_5ForConditionalGeneration": "Qwen 3.5 0.8B to 27B",
    "Qwen3_5MoeForCausalLM": "Qwen 3.5 35B-A3B and larger, text part saved alone",
    "Qwen3_5MoeForConditionalGeneration": "Qwen 3.5 35B-A3B and larger",
    "RWForCausalLM": "Falcon 7B, 40B of 2023",
    "SmolLM3ForCausalLM": "SmolLM 3 3B",
    "StableLmForCausalLM": "StableLM 3B, 1.6B, 12B",
    "Starcoder2ForCausalLM": "StarCoder 2 3B to 15B",
}

# Classes whose GGUF name their architecture shares with others.
OWN_GGUF = {"Gemma3TextModel": "gemma-embedding"}

# Flags of a row of src/model/architecture.cc; a flag without words here is shown by its name.
PARTS = {
    ("pre_norms", "false"): "no norms before parts",
    ("first_norm", "false"): "no first norm",
    ("norm_biases", "false"): "norms without biases",
    ("ffn_norm", "true"): "two parallel norms",
    ("head_norms", "true"): "norms of heads",
    ("row_norms", "true"): "norms of all heads",
    ("own_head_gains", "true"): "norms of heads with own gains",
    ("sub_norms", "true"): "norms before output and down",
    ("post_norms", "true"): "norms behind parts",
    ("embedding_norm", "true"): "embedding norm",
    ("head_bias", "true"): "head bias",
    ("attention_gate", "true"): "gate",
    ("shared_weight", "true"): "shared",
    ("single_sublayers", "true"): "one part a layer",
    ("layer_scale", "true"): "scale",
    ("layer_input", "true"): "inputs",
    ("streams", "true"): "streams",
}


class Fault(Exception):
    """Something in the tree that the tables cannot be made of; the message says what."""


def read(root, *path):
    with open(os.path.join(root, *path), encoding="utf-8") as file:
        return file.read()


def table_of(text, name):
    """Returns the text of the array `name`, up to the closing brace at the start of a line."""
    found = re.search(rf"\b{name}\[\] = \{{(.*?)^\}};", text, re.DOTALL | re.MULTILINE)
    if not found:
        raise Fault(f"no table {name}")
    return found.group(1)


def classes(root):
    """Returns {class of config.json: function that reads it}."""
    text = table_of(read(root, "src", "import", "hf", "hf_config.cc"), "kFamilies")
    return dict(re.findall(r'\{"(\w+)", (parse_\w+)', text))


def functions(root):
    """Returns {name: body} of the functions of the readers."""
    bodies = {}
    for path in sorted(glob.glob(os.path.join(root, "src", "import", "hf", "hf_families*.cc"))):
        if path.endswith("_test.cc"):
            continue
        for name, body in re.findall(r"^Status (\w+)\([^;{]*?\) \{\n(.*?)^\}", read(path),
                                     re.DOTALL | re.MULTILINE):
            bodies[name] = body
    return bodies


def architectures_of(function, bodies):
    """Returns the architectures that a function sets, itself or in the functions that it calls."""
    body = bodies.get(function, "")
    found = re.findall(r'\barchitecture = "([^"]+)"', body)
    if not found:
        for called in re.findall(r"\b(parse_\w+)\(", body):
            if called in bodies and called != function:
                found += architectures_of(called, bodies)
    return list(dict.fromkeys(found))


def gguf_names(root):
    """Returns {architecture: names in GGUF}."""
    text = table_of(read(root, "src", "import", "gguf", "gguf_families.cc"), "kGgufArchitectures")
    names = {}
    for name, family in re.findall(r'\.name = "([^"]+)",\s*\.family = "([^"]+)"', text):
        names.setdefault(family, [])
        if name not in names[family]:
            names[family].append(name)
    return names


def parts_of_architectures(root):
    """Returns {architecture: list of what its layers have and most others lack}."""
    text = table_of(read(root, "src", "model", "architecture.cc"), "kArchitectures")
    parts = {}
    for name, rest in re.findall(r'\{\.name = "([^"]+)"(.*?)\}', text, re.DOTALL):
        flags = re.findall(r"\.(\w+) = (\w+)", rest)
        parts[name] = [PARTS.get(flag, flag[0].replace("_", " ")) for flag in flags]
    return parts


def golden_models(root):
    """Returns {class: (model_type, names of golden models)}."""
    models = {}
    paths = [os.path.join(root, "testdata", folder, "*", "config.json")
             for folder in ("golden", "embedding")]
    for path in sorted(path for pattern in paths for path in glob.glob(pattern)):
        config = json.loads(read(path))
        _, names = models.setdefault(config["architectures"][0], (config["model_type"], []))
        names.append(os.path.basename(os.path.dirname(path)))
    return models


def listed(root, *paths):
    """Returns the names of golden models that tests list."""
    return {name for path in paths for name in re.findall(r'"(\w+)"', read(root, *path))}


def row(cells):
    line = "| " + " | ".join(cells) + " |"
    if len(line) > MAX_LINE:
        raise Fault(f"a row of more than {MAX_LINE} characters: {line}")
    return line


def table(heads, rows):
    return "\n".join([row(heads), "|" + "---|" * len(heads)] + [row(cells) for cells in rows]) + "\n"


def families(root):
    """The table of classes."""
    bodies, gguf, golden = functions(root), gguf_names(root), golden_models(root)
    rows = []
    for name, function in sorted(classes(root).items(), key=lambda item: item[0].lower()):
        if name not in PUBLISHED:
            raise Fault(f"{name}: say in PUBLISHED what has been published of it")
        architectures = architectures_of(function, bodies)
        if not architectures:
            raise Fault(f"{name}: {function} sets no architecture")
        in_gguf = sorted({g for a in architectures for g in gguf.get(a, [])}
                         - set(OWN_GGUF.values()))
        if name in OWN_GGUF:
            in_gguf = [OWN_GGUF[name]]
        rows.append([PUBLISHED[name], f"`{name}`", golden.get(name, ("", []))[0],
                     ", ".join(in_gguf)])
    return table(["published", "class", "`model_type`", "GGUF"], rows)


def tests(root):
    """The table of what a class has beside norms, attention and FFN, and of its golden models."""
    bodies, golden, parts = functions(root), golden_models(root), parts_of_architectures(root)
    lists = [listed(root, *paths) for paths in (
        [("tests", "model", "golden_logits_test.cc"), ("src", "engine", "golden_embeddings_test.cc")],
        [("tests", "model", "rotated_logits_test.cc")],
        [("src", "import", "gguf", "gguf_model_test.cc"),
         ("src", "import", "gguf", "gguf_embedding_test.cc")])]
    rows = []
    for name, function in sorted(classes(root).items(), key=lambda item: item[0].lower()):
        architectures = architectures_of(function, bodies)
        for architecture in architectures:
            if architecture not in parts:
                raise Fault(f"{name}: no row {architecture} in src/model/architecture.cc")
        has = dict.fromkeys(part for a in architectures for part in parts[a])
        models = set(golden.get(name, ("", []))[1])
        rows.append([f"`{name}`", ", ".join(has),
                     *(str(len(models & here)) if models & here else "" for here in lists)])
    return table(["class", "beside norms, attention and FFN", "golden", "rotated", "GGUF"], rows)


TABLES = {"families": families, "tests": tests}


def rendered(root, text):
    """Returns the page with the tables that it should have."""
    return MARK.sub(lambda mark: f"<!-- generated: {mark.group(1)} -->\n\n"
                                 f"{TABLES[mark.group(1)](root)}\n<!-- end -->\n", text)


def main():
    parser = argparse.ArgumentParser(description="Write the tables of docs/models.md.")
    parser.add_argument("--check", action="store_true", help="write nothing, say what differs")
    parser.add_argument("root", nargs="?", default=os.path.join(os.path.dirname(__file__), "..", ".."))
    arguments = parser.parse_args()
    page = read(arguments.root, PAGE)
    try:
        wanted = rendered(arguments.root, page)
    except Fault as fault:
        sys.exit(f"{PAGE}: {fault}")
    if wanted == page:
        return 0
    if not arguments.check:
        with open(os.path.join(arguments.root, PAGE), "w", encoding="utf-8") as file:
            file.write(wanted)
        return 0
    for number, (is_there, want) in enumerate(zip(page.split("\n"), wanted.split("\n")), 1):
        if is_there != want:
            print(f"{PAGE}:{number}: stale, expected: {want}")
            break
    else:
        print(f"{PAGE}: stale: its length differs")
    print("run scripts/models/list_models.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
