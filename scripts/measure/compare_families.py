#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares model families with llama.cpp, on random weights in the shapes of published small models.

    compare_families.py TEXT RESULTS.json --llama-cpp-source TREE --llama-cpp FOLDER --child PROGRAM
                        [--families NAME...] [--bin build/release/bin] [--work FOLDER]

One model at a time: a folder with the keys and names of the published files (random_families.py), its GGUF by
llama.cpp's convert_hf_to_gguf.py, both converted by qsf convert, all in f32. Then, with f32 products and f32 keys and
values on both sides:

- qsf parity: logits of 600 positions and 20 greedy tokens, of the folder and of the GGUF file;
- perplexity of the first bytes of TEXT beside llama-perplexity's;

and of the folder:

- the change of perplexity by other types of keys and values;
- 20 tokens within a budget of a third of the file: the log probabilities of the resident model, digit by digit.

The vocabularies are made up, so the converter is told the name of their pre-tokeniser, which it knows by a digest of
published ones. PROGRAM is what build_parity_shim makes. RESULTS.json has the form of docs/results; rows of families
that are not asked for stay. Needs torch, transformers, safetensors, tokenizers, sentencepiece and protobuf.
Exit status: 0; 1 when a family failed or differs by more than the bounds; 2 where something is missing.
"""

import argparse
import datetime
import json
import os
import re
import runpy
import shutil
import sys
import tempfile

import measuring_script
import random_families
from compare_quantisers import last_perplexity
from scored_models import ROOT, Failed, run

POSITIONS, STEPS, CONTEXT = 600, 20, 512
TEXT_BYTES = 5000  # two windows
PROMPT_BYTES = 1000
LEAST_BUDGET = 100_000_000  # bytes of a file; a smaller one does not fit a third of itself with its buffers
MOST_ERROR = 2e-2  # of a logit, whose deviation is 2: llama.cpp looks GELU up in a table of f16
MOST_CHANGE = 0.3  # per cent of perplexity
KV_TYPES = ("f32", "f16", "8", "4", "2")
COLUMNS = ["family", "of", "parameters, M", "error", "greedy", "llama.cpp", "QSF", "f16", "8", "4", "2", "a third"]
CONVERTER = "--run-converter"


def convert_as_llama_cpp(tree, arguments):
    """Runs the converter of the tree in this process."""
    sys.path[:0] = [tree, os.path.join(tree, "gguf-py")]
    from conversion import base
    base.TextModel.get_vocab_base_pre = lambda self, tokenizer: "gpt-2"
    sys.argv = [os.path.join(tree, "convert_hf_to_gguf.py"), *arguments]
    runpy.run_path(sys.argv[0], run_name="__main__")


def own_perplexity(printed):
    """Returns what qsf perplexity says of all windows; of single ones it tells in the course of its work."""
    return float(re.search(r"^PPL = (\d+\.\d+) ", printed, re.MULTILINE).group(1))


class Comparison:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.text = self.path("text.txt")
        with open(args.text, "rb") as file, open(self.text, "wb") as head:
            head.write(file.read(TEXT_BYTES))

    def path(self, name):
        return os.path.join(self.folder, name)

    def qsf(self, command, *arguments):
        return run(os.path.join(self.args.bin, "qsf"), command, *arguments)

    def parity(self, model, gguf):
        receipt = self.path("receipt.json")
        self.qsf("parity", model, "--exact", "--kv-type", "f32", "--file", self.text, "--positions", str(POSITIONS),
                 "--steps", str(STEPS), "--context", "1024", "--reference", "llama", "--reference-model", gguf,
                 "--child", self.args.child, "--timeout", "600", "--max-error", str(MOST_ERROR),
                 "--receipt", receipt)
        with open(receipt, encoding="utf-8") as file:
            return json.load(file)

    def perplexity(self, model, kv_type):
        printed = self.qsf("perplexity", model, "--exact", "--kv-type", kv_type, "--file", self.text,
                           "--context", str(CONTEXT))
        return own_perplexity(printed)

    def perplexity_of_llama_cpp(self, gguf):
        """Returns what llama-perplexity says, which may end before it has written all that it logged."""
        for _ in range(3):
            found = last_perplexity(run(os.path.join(self.args.llama_cpp, "llama-perplexity"), "-m", gguf, "-f",
                                        self.text, "-c", str(CONTEXT), "-b", str(CONTEXT), "-ctk", "f32", "-ctv", "f32",
                                        "-fa", "off"))
            if found is not None:
                return found
        raise Failed(f"{gguf}: llama-perplexity prints no perplexity")

    def is_the_same_within_a_third(self, model):
        prompt, log, found = self.path("prompt.txt"), self.path("log.txt"), []
        with open(self.text, "rb") as file, open(prompt, "wb") as head:
            head.write(file.read(PROMPT_BYTES))
        for budget in ([], ["--ram-budget", str(os.path.getsize(model) // 3_000_000)]):
            self.qsf("run", model, "--prompt-file", prompt, "--temperature", "0", "-n", str(STEPS), "--quiet",
                     "--max-seq-len", "1024", "--logprobs", log, *budget)
            with open(log, encoding="utf-8") as file:
                found.append(file.read())
        return found[0] == found[1] and found[0].count("\n") >= STEPS // 2

    def rows(self, name):
        source, gguf = self.path(name), self.path("model.gguf")
        n_parameters = random_families.write_folder(name, source, self.args.text)
        further = ["--no-mtp"] if name.startswith("qwen3.5") else []  # blocks for further tokens, which these have not
        run(sys.executable, os.path.abspath(__file__), CONVERTER, self.args.llama_cpp_source, source, "--outtype", "f32",
            "--outfile", gguf, *further)
        theirs = self.perplexity_of_llama_cpp(gguf)
        for of, read in (("folder", source), ("GGUF", gguf)):
            model = self.path("model.qsf")
            self.qsf("convert", "--quiet", "--quant-type", "f32", read, model)
            receipt = self.parity(model, gguf)
            kv_types = KV_TYPES if of == "folder" else KV_TYPES[:1]
            changes = [100 * (self.perplexity(model, kv_type) / theirs - 1) for kv_type in kv_types]
            if abs(changes[0]) > MOST_CHANGE:
                raise Failed(f"{name}, {of}: perplexity differs by {changes[0]:.3f} %")
            streamed = of == "folder" and os.path.getsize(model) >= LEAST_BUDGET
            if streamed and not self.is_the_same_within_a_third(model):
                raise Failed(f"{name}, {of}: another text within a budget of a third of the file")
            yield [name, of, f"{n_parameters / 1e6:.1f}", f"{receipt['summary']['max_abs_error']:.1e}",
                   str(receipt["greedy"]["matches"]), f"{theirs:.4g}",
                   *(f"{change:+.3f}" for change in changes), *[""] * (len(KV_TYPES) - len(changes)),
                   "same" if streamed else ""]
            os.remove(model)
        os.remove(gguf)
        shutil.rmtree(source)


def write_results(path, added, machine):
    kept = []
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            stored = json.load(file)
        machine = machine or stored["machine"]
        kept = [row for row in stored["rows"] if row[0] not in {new[0] for new in added}]
    about = {
        "title": "Families beside llama.cpp, random weights in published shapes",
        "machine": machine, "date": datetime.date.today().isoformat(),
        "command": "scripts/measure/compare_families.py TEXT docs/results/families-llama-cpp.json --llama-cpp-source TREE "
                   "--llama-cpp FOLDER --child PROGRAM",
        "notes": [f"Both in f32: weights, products, keys and values. error: the largest of a logit in {POSITIONS} positions, "
                  f"whose deviation is {random_families.LOGIT_STD}; greedy: equal tokens of {STEPS}; llama.cpp: its perplexity of "
                  f"{TEXT_BYTES} bytes in windows of {CONTEXT}, which random weights make large; QSF to 2: how much ours is above "
                  "it, in percent, by type of keys and values; a third: log probabilities within a budget of a third of the "
                  "file."],
        "columns": COLUMNS}
    rows = ",\n".join("    " + json.dumps(row) for row in [*kept, *added])
    with open(path, "w", encoding="utf-8") as file:
        file.write(json.dumps(about, indent=2)[:-2] + f',\n  "rows": [\n{rows}\n  ]\n}}\n')


def compare(args):
    failed = 0
    for name in args.families:
        with tempfile.TemporaryDirectory(dir=args.work) as folder:
            try:
                rows = list(Comparison(args, folder).rows(name))
            except Failed as failure:
                print(f"compare_families.py: {name}: {failure}", file=sys.stderr)
                failed = 1
                continue
        write_results(args.results, rows, args.machine)
    return failed


def main():
    if sys.argv[1:2] == [CONVERTER]:
        return convert_as_llama_cpp(sys.argv[2], sys.argv[3:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("text", metavar="TEXT")
    add("results", metavar="RESULTS.json")
    add("--llama-cpp-source", metavar="TREE", required=True)
    add("--llama-cpp", metavar="FOLDER", required=True)
    add("--child", metavar="PROGRAM", required=True)
    add("--families", nargs="+", choices=random_families.FAMILIES, default=list(random_families.FAMILIES))
    add("--bin", metavar="FOLDER", default=os.path.join(ROOT, "build", "release", "bin"))
    add("--work", metavar="FOLDER", default=tempfile.gettempdir())
    add("--machine", default="", help="what the results say of the machine")
    args = parser.parse_args()
    args.llama_cpp_source = os.path.abspath(args.llama_cpp_source)

    def work():
        programs = [(os.path.join(args.bin, "qsf"), "--bin"), (args.child, "--child"), (args.text, "TEXT"),
                    (os.path.join(args.llama_cpp, "llama-perplexity"), "--llama-cpp"),
                    (os.path.join(args.llama_cpp_source, "convert_hf_to_gguf.py"), "--llama-cpp-source")]
        measuring_script.require(measuring_script.missing_files(programs) + measuring_script.missing_packages(
            "torch", "transformers", "safetensors", "tokenizers", "sentencepiece"))
        return compare(args)

    return measuring_script.exit_status("compare_families.py", work)


if __name__ == "__main__":
    sys.exit(main())
