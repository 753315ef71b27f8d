#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes a page that compares all weight types on one model: quality, size, speed and memory.

    report_model.py MODEL TEXT OUT_DIR [--calibration FILE] [--gptq] [--types f16 4bit 2bit-super/32 ...]
                    [--budgets MB ...] [--bytes 120000] [--context 512] [--threads 1] [--rounds 5] [--tokens 64]
                    [--reference-type f32] [--keep-models] [--png FILE] [--bin build/release/bin]

MODEL, a Hugging Face folder or a GGUF file, is converted to every type; OUT_DIR receives index.html, which holds its
plots, and results.json; --png writes the plot of size and quality as a picture too. Of each file the page says:

    size         of the file, and bits per weight of the matrices
    quality      perplexity on the head of TEXT, its increase over MODEL in --reference-type with a standard error by
                 windows, the KL divergence from that, and how often both find the same token most likely
    speed        tokens per second of prompts and of generation, medians of --rounds runs that all types take in turns
    memory       peak of qsf-run, and speed and peak within each of --budgets
    conversion   its seconds, and the tensors farthest from the original

An interrupted run continues when it is started again with the same arguments; types, budgets and rounds may be added.
Converted files stay in OUT_DIR/models until everything is measured. Needs matplotlib.
"""

import argparse
import json
import os
import re
import statistics
import sys

import measuring_script
import model_page
from quantiser_figures import increase, jackknife, perplexity
from results_file import Results, fingerprint
from scored_models import Failed, Scorer, chosen_types, convert, hash_of, matrix_bits, name_of, run, write_head

TOOLS = ("qsf-convert", "qsf-perplexity", "qsf-run", "qsf-bench")
PROMPT_BYTES = 400  # of the text, for runs whose memory is measured
N_WORST = 5
MEMORY = re.compile(r"memory ([0-9.]+) MB planned.*?, ([0-9.]+) MB peak; read ([0-9.]+) MB")
RATE = re.compile(r"generated \d+ tokens?, ([0-9.]+) tokens/s")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("model", metavar="MODEL")
    add("text", metavar="TEXT")
    add("out", metavar="OUT_DIR")
    add("--calibration", metavar="FILE", help="text for importance, other than TEXT")
    add("--gptq", action="store_true", help="GPTQ from the calibration set")
    add("--types", nargs="+", default=[], metavar="TYPE")
    add("--budgets", nargs="+", type=int, default=[], metavar="MB", help="of --ram-budget")
    measuring_script.add_options(parser)
    add("--rounds", type=int, default=5, metavar="N", help="runs of every speed")
    add("--tokens", type=int, default=64, metavar="N", help="tokens that a run generates")
    add("--reference-type", default="f32", metavar="TYPE", help="what quality is measured beside; f16 takes half the disk")
    add("--png", metavar="FILE", help="write the plot of size and quality there")
    add("--keep-models", action="store_true", help="leave the files in OUT_DIR/models")
    args = parser.parse_args()
    if args.gptq and not args.calibration:
        parser.error("--gptq needs --calibration: GPTQ takes statistics of columns from a calibration set")
    if args.rounds < 1 or args.tokens < 1:
        parser.error("--rounds and --tokens: expected at least 1")
    return args


def about_of(args):
    """Returns what results are of; types and budgets may be added to them."""
    return {"model": fingerprint(args.model), "text": fingerprint(args.text), "bytes": args.bytes,
            "context": args.context, "calibration": fingerprint(args.calibration) if args.calibration else None,
            "calibration bytes": args.calibration_bytes if args.calibration else 0, "gptq": args.gptq,
            "threads": args.threads, "tokens": args.tokens, "reference": args.reference_type,
            "programs": {tool: fingerprint(os.path.join(args.bin, tool)) for tool in TOOLS}}


class Measurement:
    def __init__(self, args):
        self.args = args
        self.folder = os.path.join(args.out, "models")
        self.results = Results(os.path.join(args.out, "results.json"), about_of(args))
        # What is there without results is of other arguments or not ours at all, and would be removed at the end.
        if os.path.exists(self.folder) and not self.results.values.get("folder"):
            raise Failed(f"{self.folder}: is there, and {self.results.path} does not say that it was made here: give another "
                         "OUT_DIR, or remove the folder")
        os.makedirs(args.out, exist_ok=True)
        self.results.put("folder", "models")
        os.makedirs(self.folder, exist_ok=True)
        self.reference = self.path("reference.qsf")
        self.text = write_head(args.text, args.bytes, self.path("scored.txt"))
        self.calibration = (write_head(args.calibration, args.calibration_bytes, self.path("calibration.txt"))
                            if args.calibration else None)
        self.prompt = write_head(args.text, PROMPT_BYTES, self.path("prompt.txt"))
        self.threads = ["--threads", str(args.threads)]
        self.scorer = Scorer(self.results, args, self.folder, self.text, self.reference)
        self.types = chosen_types(args.types)

    def path(self, name):
        return os.path.join(self.folder, name)

    def file_of(self, kind, block):
        return self.path(name_of(kind, block).replace("/", "-") + ".qsf")

    def tool(self, name):
        return os.path.join(self.args.bin, name)

    def say(self, text):
        print(f"report_model.py: {text}", file=sys.stderr, flush=True)

    def options_of_calibration(self, kind):
        """Returns the options of qsf-convert for the calibration set, which is read once except with GPTQ."""
        if not self.calibration or kind in ("f32", "f16"):
            return []
        seen = self.path("calibration")
        if self.args.gptq:
            return ["--calibration", self.calibration, "--gptq"]
        if not os.path.exists(seen):
            self.say("calibrating")
            convert(self.args.bin, self.args.model, self.path("model.qsf"), "--quant-type", "4bit", *self.threads,
                    "--calibration", self.calibration, "--calibration-out", seen)
            os.remove(self.path("model.qsf"))
        return ["--calibration", seen]

    def convert_all(self, types):
        """Makes the files of these types. Returns the types that could be converted."""
        if not os.path.exists(self.reference):
            convert(self.args.bin, self.args.model, self.reference, "--quant-type", self.args.reference_type,
                    *self.threads)
        made = []
        for kind, block in types:
            name, target = name_of(kind, block), self.file_of(kind, block)
            if not os.path.exists(target) or f"conversion {name}" not in self.results.values:
                self.say(f"converting to {name}")
                try:
                    report = convert(self.args.bin, self.args.model, target, "--quant-type", kind, "--block-size",
                                     str(block), *self.threads, *self.options_of_calibration(kind))
                except Failed as failure:
                    self.say(f"{name}: left out: {failure}")
                    continue
                self.results.put(f"conversion {name}", {**summary_of(report), "file": hash_of(target)})
            made.append((kind, block))
        return made

    def score_all(self, types):
        self.results.put("base", self.scorer.score(self.reference))
        for kind, block in types:
            self.say(f"scoring {name_of(kind, block)}")
            self.scorer.score(self.file_of(kind, block))

    def time_all(self, types):
        """Runs all types in turns, so that other work of the machine slows all of them alike."""
        for turn in range(self.args.rounds):
            for kind, block in types:
                key = f"speed {turn} {name_of(kind, block)}"
                self.results.get(key, lambda k=kind, b=block: self.time_one(self.file_of(k, b)))

    def time_one(self, path):
        out = run(self.tool("qsf-bench"), path, "--json", "--no-probe", "-p", str(self.args.context // 2), "-n",
                  str(self.args.tokens), "-r", "1", *self.threads)
        report = json.loads(out)
        rates = {test["kind"]: test["tokens_per_second"]["median"] for test in report["tests"]}
        machine = report["machine"]
        return {**rates, "machine": f"{machine['cpu']}, {machine['threads']} thread{'s' if machine['threads'] > 1 else ''}, {machine['instruction_set']}"}

    def memory_of_all(self, types):
        for kind, block in types:
            for budget in [None, *self.args.budgets]:
                key = f"memory {budget or 'free'} {name_of(kind, block)}"
                self.results.get(key, lambda k=kind, b=block, m=budget: self.memory_of(self.file_of(k, b), m))

    def memory_of(self, path, budget):
        """Returns MB planned, at the peak and read, and tokens per second; or why the model does not run in it."""
        try:
            out = run(self.tool("qsf-run"), path, "--prompt-file", self.prompt, "--max-tokens", str(self.args.tokens),
                      "--temperature", "0", *self.threads, *(["--ram-budget", str(budget)] if budget else []))
        except Failed as failure:
            if budget is None or "a budget of" not in str(failure):
                raise
            return {"failed": str(failure).rsplit(".qsf: ", maxsplit=1)[-1]}
        found, rate = MEMORY.search(out), RATE.search(out)
        if not found or not rate:
            raise Failed(f"qsf-run {path}: no line of memory and speed in what it said")
        planned, peak, read = (float(number) for number in found.groups())
        return {"planned": planned, "peak": peak, "read": read, "rate": float(rate.group(1))}

    def is_measured(self, kind, block):
        name = name_of(kind, block)
        wanted = [f"conversion {name}", *(f"speed {turn} {name}" for turn in range(self.args.rounds)),
                  *(f"memory {budget or 'free'} {name}" for budget in [None, *self.args.budgets])]
        return all(key in self.results.values for key in wanted)

    def measure(self):
        missing = [(kind, block) for kind, block in self.types if not self.is_measured(kind, block)]
        if missing:
            types = self.convert_all(missing)
            self.score_all(types)
            self.time_all(types)
            self.memory_of_all(types)
        rows = rows_of(self.results.values, [name_of(k, b) for k, b in self.types], self.args.rounds, self.args.budgets)
        if not rows:
            raise Failed("no type could be converted")
        if not self.args.keep_models:
            for name in os.listdir(self.folder):
                os.remove(self.path(name))
            os.rmdir(self.folder)
            self.results.put("folder", None)
        return rows


def summary_of(report):
    """Returns what of a conversion the page shows."""
    rounded = sorted((t for t in report["tensors"] if t["relative_error"] > 0), key=lambda t: t["cosine"])
    return {"bytes": report["file_bytes"], "bits": matrix_bits(report), "seconds": report["seconds"],
            "n_weights": report["weights"], "n_rounded": report["rounded"], "n_below": report["below_low_cosine"],
            "lowest_cosine": report["lowest_cosine"], "n_widened": len(report["widened"]),
            "worst": [{key: t[key] for key in ("section", "tensor", "type", "cosine", "relative_error")}
                      for t in rounded[:N_WORST]]}


def spread_of(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def rows_of(kept, names, rounds, budgets):
    """Returns what the page shows of each type that was measured, by descending bits."""
    base = kept["base"]["losses"]
    rows = []
    for name in names:
        conversion = kept.get(f"conversion {name}")
        if conversion is None or f"memory free {name}" not in kept:
            continue
        score = kept[conversion["file"]]
        runs = [kept[f"speed {turn} {name}"] for turn in range(rounds)]
        grown, error = jackknife(increase, score["losses"], base)
        rows.append({"name": name, **{key: conversion[key] for key in conversion if key != "file"},
                     "perplexity": perplexity(score["losses"]), "increase": grown, "increase_error": error,
                     "kld": score["kld"], "kld_error": score["kld_error"], "top": score["top"],
                     "prompt": spread_of([r["prompt"] for r in runs]),
                     "generate": spread_of([r["generate"] for r in runs]), "machine": runs[0]["machine"],
                     "memory": kept[f"memory free {name}"],
                     "budgets": {str(mb): kept[f"memory {mb} {name}"] for mb in budgets}})
    return sorted(rows, key=lambda row: -row["bits"])


def part_of(path, n_bytes):
    """Returns how much of a text is taken, in words."""
    return f"{'the first ' + format(n_bytes, ',') if n_bytes else 'all'} bytes of {os.path.basename(path)}"


def measure_and_write(args):
    measuring_script.require(measuring_script.missing_inputs(args, *TOOLS) + measuring_script.missing_packages("matplotlib"))
    measurement = Measurement(args)
    rows = measurement.measure()
    how = "GPTQ from " if args.gptq else "scales calibrated by " if args.calibration else "scales searched"
    how += part_of(args.calibration, args.calibration_bytes) if args.calibration else ""
    n_windows = len(measurement.results.values["base"]["losses"])
    page = os.path.join(args.out, "index.html")
    with open(page, "w", encoding="utf-8") as file:
        file.write(model_page.page_of(os.path.basename(os.path.normpath(args.model)), rows, args.budgets, {
            "scales": how, "text": f"{part_of(args.text, args.bytes)}, {n_windows} windows of {args.context} tokens",
            "base": perplexity(measurement.results.values["base"]["losses"]), "reference": args.reference_type,
            "prompt": args.context // 2, "tokens": args.tokens, "rounds": args.rounds}))
    print(page)
    figure = model_page.plot_quality(rows) if args.png else None
    if figure:
        model_page.save_png(figure, args.png)
        print(args.png)


def main():
    args = parse_arguments()
    return measuring_script.exit_status("report_model.py", lambda: measure_and_write(args))


if __name__ == "__main__":
    sys.exit(main())
