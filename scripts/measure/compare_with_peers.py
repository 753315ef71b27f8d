#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares files of qsf-convert with those of llama.cpp and ik_llama.cpp: one model, its texts, one engine.

    compare_with_peers.py MODEL.gguf RESULTS.json --calibration FILE --texts FILE[:BYTES] ... [--tables sizes ffn_down]
                          [--llama-cpp FOLDER] [--ik FOLDER] [--target-sizes MB ...] [--tune] [--only PATTERN]
                          [--bin build/release/bin] [--made FOLDER] [--calibration-bytes 500000]
                          [--calibration-tokens 65536] [--context 512] [--threads 1] [--no-runs]

    sizes     the whole model by size of the file: ours by --target-size, theirs by the names of their mixes
    ffn_down  these matrices alone, all else f16: each of our types by each step, types and mixes of theirs

All files are made of MODEL.gguf as f16, which is also what divergences are from. The peers get an importance matrix from
the same calibration set. Files of theirs are widened to f32 by their own llama-quantize, so that qsf-perplexity --exact
scores all: only weights differ. --llama-cpp and --ik name folders with llama-quantize (or QSF_LLAMA_CPP and QSF_IK do),
the former with llama-imatrix too; without one its rows are left out, and the script says so.

--only takes the rows in whose name the regular expression is found. RESULTS.json keeps rows: a run goes on where the last
one ended. --made keeps the files. The tables are printed; render_results.py --import takes them into docs/results.
"""

import argparse
import math
import os
import re
import sys
import tempfile

import measuring_script
import peer_types
from markdown_tables import table
from peer_types import IK, LLAMA_CPP
from quantiser_figures import gguf_matrices, jackknife, perplexity
from results_file import Results, fingerprint, head_of_text
from scored_models import Failed, Scorer, run, write_head

TABLES = ("sizes", "ffn_down")
TARGET_SIZES = ["45", "55", "70", "88.2"]
OURS = ["2bit-trellis", "2bit-table", "2bit-trellis + 3bit-trellis", "3bit-trellis", "3bit-table", "3bit-trellis + 4bit-table",
        "4bit-table", "4bit-super/32"]
MORE_BITS = 0.1  # that a type of theirs may have and still be of equal size
MORE_BYTES = 0.005  # the same of a file, as a share


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("model", metavar="MODEL.gguf")
    add("results", metavar="RESULTS.json")
    add("--calibration", metavar="FILE", required=True)
    add("--texts", metavar="FILE[:BYTES]", nargs="+", required=True, help="other texts than the calibration set")
    add("--tables", nargs="+", choices=TABLES, default=TABLES)
    add("--llama-cpp", metavar="FOLDER", default=os.environ.get("QSF_LLAMA_CPP", ""))
    add("--ik", metavar="FOLDER", default=os.environ.get("QSF_IK", ""))
    add("--target-sizes", metavar="MB", nargs="+", default=TARGET_SIZES)
    add("--tune", action="store_true", help="the best of ours with --tune too, which takes long")
    add("--only", metavar="PATTERN", type=re.compile, default=re.compile(""))
    add("--made", metavar="FOLDER", help="where the files stay, and are taken from")
    add("--calibration-tokens", type=int, default=65536, metavar="N")
    add("--no-runs", action="store_true", help="tables of what RESULTS.json holds")
    measuring_script.add_options(parser)
    args = parser.parse_args()
    args.texts = [parse_text(word) for word in args.texts]
    return args


def parse_text(word):
    """Returns (file, bytes) of FILE[:BYTES]; 0: all."""
    name, colon, n_bytes = word.rpartition(":")
    return (name, int(n_bytes)) if colon and n_bytes.isdigit() else (word, 0)


class Row:
    """A file to make: in which table, by which program, of what type and how."""

    def __init__(self, of, by, name, way, options, last=""):
        self.of, self.by, self.name, self.way, self.options, self.last = of, by, name, way, options, last

    def key(self):
        return f"{self.of}: {self.by} {self.name}, {self.way}"

    def file_name(self):
        return re.sub(r"[^\w.,+-]+", "_", self.key()) + (".qsf" if self.by == "QSF" else ".gguf")


def their_rows(of, by, n_layers):
    if of == "sizes":
        named = [(kind + (f", {embedding} embedding" if embedding else ""), peer_types.whole_options(kind, embedding))
                 for kind, embedding in peer_types.WHOLE[by]]
    else:
        named = [(kinds, peer_types.ffn_down_options(by, kinds, n_layers)) for kinds in peer_types.FFN_DOWN[by]]
    return [Row(of, by, name, "imatrix", options, last) for name, (options, last) in named]


def our_rows(of, args, text, seen, n_layers):
    """Ways are steps, each beside those before it."""
    gptq = ["--calibration", text, "--calibration-tokens", str(args.calibration_tokens), "--gptq"]
    ways = [("gptq", gptq)] + ([("tune", [*gptq, "--tune"])] if args.tune else [])
    if of == "sizes":
        return [Row(of, "QSF", f"--target-size {size}", way, ["--target-size", size, *options])
                for size in args.target_sizes for way, options in ways]
    ways = [("search", []), ("calibrated", ["--calibration", seen]), *ways]
    return [Row(of, "QSF", kinds, way, ["--quant-type", "f16", *our_type_options(kinds, n_layers), *options])
            for kinds in OURS for way, options in ways]


def our_type_options(kinds, n_layers):
    kinds, _, block = kinds.partition("/")
    rules = peer_types.ffn_down_rules(kinds, n_layers, str)
    return [word for pattern, kind in rules for word in ("--tensor-type", f"{pattern}={kind}")] + (
        ["--block-size", block] if block else [])


class Comparison:
    def __init__(self, args, folder):
        self.args, self.folder, self.made = args, folder, args.made or folder
        about = {"model": fingerprint(args.model), "calibration": fingerprint(args.calibration),
                 "calibration bytes": args.calibration_bytes, "context": args.context}
        self.results = Results(args.results, about)
        self.text = write_head(args.calibration, args.calibration_bytes, os.path.join(folder, "calibration.txt"))
        self.f16, self.reference, self.imatrix, self.seen = (
            os.path.join(self.made, name) for name in ("f16.gguf", "f16.qsf", "imatrix.dat", "seen.calibration"))
        self.peers = {LLAMA_CPP: args.llama_cpp, IK: args.ik}
        self.scorers = {}
        for number, (path, n_bytes) in enumerate(args.texts):
            head = os.path.join(folder, f"scored-{number}.txt")
            with open(head, "wb") as file:
                file.write(head_of_text(path, n_bytes))
            self.scorers[name_of_text(path, n_bytes)] = Scorer(None, args, folder, head, self.reference, "--exact")

    def convert(self, *options):
        run(os.path.join(self.args.bin, "qsf-convert"), "--quiet", "--threads", str(self.args.threads), *options)

    def quantise(self, by, *options):
        run(os.path.join(self.peers[by], "llama-quantize"), *options, str(self.args.threads))

    def prepare(self):
        if not os.path.exists(self.f16):
            self.quantise(LLAMA_CPP, "--allow-requantize", self.args.model, self.f16, "F16")
        if not os.path.exists(self.reference):
            self.convert("--quant-type", "f16", self.f16, self.reference)
        if not os.path.exists(self.imatrix):
            run(os.path.join(self.args.llama_cpp, "llama-imatrix"), "-m", self.f16, "-f", self.text, "-c",
                str(self.args.context), "--chunks", str(self.args.calibration_tokens // self.args.context), "--no-ppl",
                "--output-format", "dat", "-o", self.imatrix, "-t", str(self.args.threads))
        down = [m.n_weights for m in gguf_matrices(self.f16) if "ffn_down" in m.name]
        self.n_layers, self.n_down = len(down), sum(down)

    def rows(self, of):
        """Rows to measure; those of a peer that is not there are left out."""
        rows = our_rows(of, self.args, self.text, self.seen, self.n_layers)
        for by, folder in self.peers.items():
            if folder:
                rows += their_rows(of, by, self.n_layers)
        return [row for row in rows if self.args.only.search(row.key())]

    def make(self, row):
        path = os.path.join(self.made, row.file_name())
        if os.path.exists(path):
            return path
        part = path + ".part"
        if row.by == "QSF":
            if self.seen in row.options and not os.path.exists(self.seen):
                self.convert("--quant-type", "f16", "--calibration", self.text, "--calibration-tokens",
                             str(self.args.calibration_tokens), "--calibration-out", self.seen, self.args.model, part)
            self.convert(*row.options, self.args.model, part)
        else:
            self.quantise(row.by, "--imatrix", self.imatrix, *row.options, self.f16, part, row.last)
        os.replace(part, path)
        return path

    def scored(self, row, path):
        """Returns a .qsf file of a file, and whether it was made here."""
        if row.by == "QSF":
            return path
        wide, model = (os.path.join(self.folder, name) for name in ("wide.gguf", "wide.qsf"))
        self.quantise(row.by, "--allow-requantize", path, wide, "F32")
        self.convert("--quant-type", "f32", wide, model)
        return model

    def measure(self, row):
        stored = self.results.values.get(row.key(), {"scores": {}})
        if not set(self.scorers) - set(stored["scores"]):
            return
        path = self.make(row)
        n_bytes = os.path.getsize(path)
        rest = os.path.getsize(self.reference if row.by == "QSF" else self.f16) - 2 * self.n_down
        facts = {"of": row.of, "by": row.by, "name": row.name, "way": row.way, "bytes": n_bytes,
                 "bits": 8 * (n_bytes - rest) / self.n_down if row.of == "ffn_down" else None}
        model = self.scored(row, path)
        for text, scorer in self.scorers.items():
            if text not in stored["scores"]:
                stored["scores"][text] = scorer.measure(model)
                self.results.put(row.key(), {**facts, "scores": stored["scores"]})
        said = "; ".join(f"{text}: PPL {perplexity(s['losses']):.3f}, KLD {s['kld']:.4f}" for text, s in stored["scores"].items())
        print(f"{row.key()}: {n_bytes} bytes; {said}", file=sys.stderr, flush=True)

    def measure_all(self):
        self.prepare()
        for of in self.args.tables:
            for row in self.rows(of):
                try:
                    self.measure(row)
                except Failed as failure:  # such as a type that this model's rows do not take
                    print(f"{row.key()}: left out: {failure}", file=sys.stderr, flush=True)
        if "f16" not in self.results.values:
            self.results.put("f16", {text: scorer.measure(self.reference) for text, scorer in self.scorers.items()})


def name_of_text(path, n_bytes):
    return os.path.basename(path) + (f":{n_bytes}" if n_bytes else "")


def find_missing(args):
    """Returns what has to be there and is not, a line each."""
    wanted = [(args.model, "MODEL.gguf"), (args.calibration, "--calibration"), *((path, "--texts") for path, _ in args.texts),
              *((os.path.join(args.bin, name), "--bin") for name in ("qsf-convert", "qsf-perplexity")),
              (os.path.join(args.llama_cpp, "llama-quantize"), "--llama-cpp or QSF_LLAMA_CPP"),
              (os.path.join(args.llama_cpp, "llama-imatrix"), "--llama-cpp or QSF_LLAMA_CPP")]
    if args.ik:
        wanted.append((os.path.join(args.ik, "llama-quantize"), "--ik or QSF_IK"))
    return measuring_script.missing_files(wanted)


def divergence_ratio(ours, theirs):
    """Of the mean divergences, with the standard error of windows in pairs."""
    return jackknife(lambda a, b: math.fsum(a) / math.fsum(b), ours["klds"], theirs["klds"])


def best_peer(row, rows, text):
    """Returns the row of theirs with the least divergence of those of the size of `row`, or None."""
    size = "bytes" if row["of"] == "sizes" else "bits"
    most = row[size] * (1 + MORE_BYTES) if size == "bytes" else row[size] + MORE_BITS
    near = [r for r in rows if r["of"] == row["of"] and r["by"] != "QSF" and r[size] <= most and text in r["scores"]]
    return min(near, key=lambda r: r["scores"][text]["kld"], default=None)


def measured_table(rows, texts):
    lines = []
    for row in rows:
        size = f"{row['bytes']:,}" if row["of"] == "sizes" else f"{row['bits']:.3f}"
        cells = [row["by"], row["name"], row["way"], size]
        for text in texts:
            score = row["scores"].get(text)
            cells += [f"{perplexity(score['losses']):.2f}", f"{score['kld']:.4f} +/- {score['kld_error']:.4f}",
                      f"{100 * score['top']:.1f} %"] if score else ["", "", ""]
        lines.append(cells)
    return table(["by", "type", "how", "bytes" if rows[0]["of"] == "sizes" else "bits",
                  *(f"{text}: {what}" for text in texts for what in ("perplexity", "KLD", "top-1"))], lines)


def verdict_table(rows, texts):
    lines = []
    for row in (r for r in rows if r["by"] == "QSF"):
        for text in (t for t in texts if t in row["scores"]):
            peer, own = best_peer(row, rows, text), row["scores"][text]
            if peer is None:
                lines.append([row["name"], row["way"], size_of(row), text, f"{own['kld']:.4f}", "none so small", "", "", "", ""])
                continue
            other = peer["scores"][text]
            ratio, error = divergence_ratio(own, other)
            lines.append([row["name"], row["way"], size_of(row), text, f"{own['kld']:.4f}", peer["name"], size_of(peer),
                          f"{other['kld']:.4f}", f"{ratio:.3f} +/- {error:.3f}", perplexity_ratio(own, other)])
    return table(["QSF", "how", "size", "text", "KLD", "best peer", "its size", "its KLD", "ratio", "perplexity"], lines)


def size_of(row):
    return f"{row['bytes'] / 1e6:.2f} MB" if row["of"] == "sizes" else f"{row['bits']:.3f}"


def perplexity_ratio(ours, theirs):
    ratio, error = jackknife(lambda a, b: perplexity(a) / perplexity(b), ours["losses"], theirs["losses"])
    return f"{ratio:.3f} +/- {error:.3f}"


def measure_and_show(args):
    if not args.no_runs:
        measuring_script.require(find_missing(args))
        if not args.ik:
            print("--ik or QSF_IK: not given: rows of ik_llama.cpp are left out", file=sys.stderr)
        if args.made:
            os.makedirs(args.made, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            Comparison(args, folder).measure_all()
    kept = Results(args.results).values
    texts = [name_of_text(*text) for text in args.texts]
    for text in texts:
        score = kept.get("f16", {}).get(text)
        print(f"f16, {text}: " + (f"perplexity {perplexity(score['losses']):.4f}" if score else "not measured"))
    for of in args.tables:
        rows = [row for row in kept.values() if row.get("of") == of]
        size = "bytes" if of == "sizes" else "bits"
        rows.sort(key=lambda r: (r[size], r["by"], r["name"]))
        if not rows:
            raise Failed(f"{args.results}: holds no rows of {of}")
        print(f"\npeers-{of}\n\n{measured_table(rows, texts)}\n\npeers-{of}-verdict\n\n{verdict_table(rows, texts)}")


def main():
    args = parse_arguments()
    return measuring_script.exit_status("compare_with_peers.py", lambda: measure_and_show(args))


if __name__ == "__main__":
    sys.exit(main())
