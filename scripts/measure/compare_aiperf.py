#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures `qsf serve` with aiperf and with serve_load.py, in turns, and compares their figures.

    compare_aiperf.py MODEL.qsf --aiperf PROGRAM [--bin build/release/bin] [--clients 1]
                      [--requests 6] [--rounds 2] [--prompt 256] [--generate 128] [--threads 1]

PROGRAM is aiperf of NVIDIA (PyPI: aiperf). Both send the same texts, streamed, at temperature 0.
aiperf's processes want a core of their own: leave one free with --threads.

Exit status: 0, 1 when a request failed, 2 when something is missing.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import urllib.request

import serve_load
from markdown_tables import table
from measuring_script import exit_status, missing_files, require
from scored_models import ROOT, Failed
from server_process import Server

# aiperf wants a tokenizer to count with; the server's own counts are taken instead.
TOKENIZER = {
    "tokenizer.json": {
        "version": "1.0",
        "added_tokens": [{"id": 0, "content": "[UNK]", "single_word": False, "lstrip": False,
                          "rstrip": False, "normalized": False, "special": True}],
        "normalizer": None, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "a": 1}, "unk_token": "[UNK]"}},
    "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]",
                              "bos_token": "[UNK]", "eos_token": "[UNK]"},
}


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("model", metavar="MODEL.qsf")
    add("--aiperf", metavar="PROGRAM", required=True)
    add("--bin", metavar="FOLDER", default=os.path.join(ROOT, "build", "release", "bin"))
    add("--clients", type=int, default=1)
    add("--requests", type=int, default=6)
    add("--rounds", type=int, default=2)
    add("--prompt", type=int, default=256, metavar="TOKENS")
    add("--generate", type=int, default=128, metavar="TOKENS")
    add("--vocabulary", type=int, default=32000)
    add("--threads", type=int, default=1)
    return parser.parse_args()


def detokenized(url, tokens):
    request = urllib.request.Request(url + "/detokenize", json.dumps({"tokens": tokens}).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["content"].replace("\ufffd", "")


def run_aiperf(args, url, texts, folder):
    """Returns aiperf's figures: tokens/s, and medians in seconds."""
    for name, content in TOKENIZER.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            json.dump(content, file)
    inputs = os.path.join(folder, "inputs.jsonl")
    with open(inputs, "w", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in texts)
    model = os.path.splitext(os.path.basename(args.model))[0]
    extra = [f"max_tokens:{args.generate}", "ignore_eos:true", "temperature:0"]
    done = subprocess.run(
        [args.aiperf, "profile", "-m", model, "-u", url, "--endpoint-type",
         "completions", "--streaming", "--tokenizer", folder, "--use-server-token-count",
         "--concurrency", str(args.clients), "--request-count", str(len(texts)), "--input-file",
         inputs, "--custom-dataset-type", "single_turn",
         *(word for item in extra for word in ("--extra-inputs", item)), "--ui", "none",
         "--artifact-dir", os.path.join(folder, "artifacts")],
        capture_output=True, text=True, check=False)
    for at, _, files in os.walk(os.path.join(folder, "artifacts")):
        if "profile_export_aiperf.json" in files:
            with open(os.path.join(at, "profile_export_aiperf.json"), encoding="utf-8") as file:
                report = json.load(file)
            return {"tokens/s": report["output_token_throughput"]["avg"],
                    "request, s": report["request_latency"]["p50"] / 1000,
                    "first text, s": report["time_to_first_token"]["p50"] / 1000,
                    "gap, ms": report["inter_token_latency"]["p50"]}
    raise Failed(f"aiperf: exit status {done.returncode}\n{done.stdout[-500:]}{done.stderr[-500:]}")


def run_load(args, url, texts):
    bodies = [serve_load.make_body(text, args.generate) for text in texts]
    measured = serve_load.load(url + "/v1/completions", bodies, n_clients=args.clients)
    if measured["failed"]:
        raise Failed(f"{measured['failed']} requests failed: {measured['errors']}")
    return {"tokens/s": measured["tokens_per_second"],
            "request, s": measured["seconds"] * args.clients / len(texts),
            "first text, s": measured["time_to_first_text"]["p50"],
            "gap, ms": 1000 * measured["gap"]["p50"]}


def main():
    args = parse()
    program = os.path.join(args.bin, "qsf-serve")
    require(missing_files([(args.model, "MODEL.qsf"), (args.aiperf, "--aiperf"), (program, "--bin")]))
    runs = {"serve_load.py": [], "aiperf": []}
    with Server([program, args.model, "-t", str(args.threads), "-c",
                 str(2 * (args.prompt + args.generate)), "--no-prefix-cache", "--quiet"]) as server:
        prompts = serve_load.make_prompts(random.Random(5), args.requests, args.prompt,
                                          args.vocabulary)
        texts = [detokenized(server.url, prompt) for prompt in prompts]
        run_load(args, server.url, texts[:2])  # to warm up
        for _ in range(args.rounds):
            runs["serve_load.py"].append(run_load(args, server.url, texts))
            with tempfile.TemporaryDirectory() as folder:
                runs["aiperf"].append(run_aiperf(args, server.url, texts, folder))
    names = list(runs["aiperf"][0])
    medians = {by: {name: statistics.median(run[name] for run in each) for name in names}
               for by, each in runs.items()}
    rows = [[by, *(f"{values[name]:.3g}" for name in names)] for by, values in medians.items()]
    ratios = [medians["aiperf"][name] / medians["serve_load.py"][name] for name in names]
    print(table(["measured by", *names], [*rows, ["ratio", *(f"{r:.3f}" for r in ratios)]]))
    return 0


if __name__ == "__main__":
    sys.exit(exit_status("compare_aiperf", main))
