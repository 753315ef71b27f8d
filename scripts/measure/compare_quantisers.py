#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares the quantiser of qsf-convert with llama.cpp's: the same model, the same text, the same engine.

    compare_quantisers.py MODEL_DIR TEXT RESULTS.json --calibration FILE [--llama-cpp FOLDER]
                          [--llama-cpp-source FOLDER] [--bin build/release/bin] [--bytes 120000]
                          [--calibration-bytes 500000] [--context 512] [--threads 1] [--scopes layers whole]
                          [--made FOLDER] [--page FILE] [--no-runs] [--no-cross-check]

llama.cpp makes a GGUF file of MODEL_DIR in f32, an importance matrix from the calibration set, and of both a file for
each of its types, all matrices to the same type (--pure). qsf-convert makes files of its types of MODEL_DIR: with the
nearest codes, with scale search, with the column importance of the calibration set, and with GPTQ. qsf-perplexity
--exact then scores every file: it decodes GGUF's types bit for bit and multiplies by 32-bit floats, so only the weights
differ. llama.cpp's own perplexity of its files is shown beside as a cross-check.

    layers  matrices of the layers are quantised, embedding and head stay f16
    whole   embedding and head too, to the same type

--llama-cpp names the folder of llama-quantize, llama-imatrix and llama-perplexity (or QSF_LLAMA_CPP does), and
--llama-cpp-source its source tree with convert_hf_to_gguf.py (or QSF_LLAMA_CPP_SOURCE), which needs the packages torch,
transformers, sentencepiece and gguf. RESULTS.json keeps scores by the checksum of the file: an
unchanged file is not scored again. --made keeps llama.cpp's f32 GGUF and importance matrix for the next run. The tables are
printed; render_results.py --import takes them into docs/results and the pages. --page puts them between <!-- begin NAME -->
and <!-- end NAME --> of a page of your own.
"""

import hashlib
import os
import re
import sys
import tempfile

import measuring_script
from markdown_tables import percent, replace_tables, table
from quantiser_figures import (best_within, bits_per_weight, difference, gguf_matrices, increase, jackknife,
                               perplexity, qsf_matrices, quantised)
from results_file import Results, about_of
from scored_models import CALIBRATION_TOKENS, Failed, Scorer, hash_of, name_of, run, write_head

SCOPES = ("layers", "whole")
PROGRAMS = ("llama-quantize", "llama-imatrix", "llama-perplexity")

# llama.cpp: width, what llama-quantize calls the type, what the tensors then have.
THEIRS = [(4, "Q4_0", "Q4_0"), (4, "Q4_K_S", "Q4_K"), (4, "IQ4_NL", "IQ4_NL"), (4, "IQ4_XS", "IQ4_XS"),
          (3, "Q3_K_S", "Q3_K"), (3, "IQ3_S", "IQ3_S"), (3, "IQ3_XXS", "IQ3_XXS"),
          (2, "Q2_K", "Q2_K"), (2, "IQ2_M", "IQ2_S"), (2, "IQ2_XS", "IQ2_XS")]
KEPT = ("Q4_0", "Q4_K", "IQ4_XS", "Q3_K", "Q2_K", "F32")  # types that we read and hold; others are widened to f32 by llama.cpp
TARGETS = {4: "Q4_K", 3: "Q3_K", 2: "Q2_K"}  # what each width is held to
AGAINST = {"plain": ["search"], "imatrix": ["search", "calibrated", "gptq"]}

# qsf-convert: width, type, block; at each width the best types with and without tables of levels.
OURS = [(4, "4bit-super", 32), (4, "4bit-table", 64), (3, "3bit-super", 64), (3, "3bit-table", 64), (2, "q2_k", 64),
        (2, "2bit-table", 64)]

# Of whole models those that need no importance of the embedding.
THEIRS_OF_WHOLE = [t for t in THEIRS if t[2] in ("Q4_0", "Q4_K", "IQ4_XS", "Q3_K", "IQ3_S", "Q2_K")]


def parse_arguments():
    parser = measuring_script.make_parser(__doc__, "MODEL_DIR")
    add = parser.add_argument
    add("--llama-cpp", metavar="FOLDER", default=os.environ.get("QSF_LLAMA_CPP", ""))
    add("--llama-cpp-source", metavar="FOLDER", default=os.environ.get("QSF_LLAMA_CPP_SOURCE", ""))
    add("--scopes", nargs="+", choices=SCOPES, default=SCOPES)
    add("--made", metavar="FOLDER", help="where llama.cpp's f32 GGUF and importance matrix stay, and are taken from")
    add("--page", metavar="FILE", help="replace the tables of this page")
    add("--no-cross-check", action="store_true", help="do not run llama-perplexity")
    return parser.parse_args()


def find_missing(args):
    """Returns what has to be there and is not, a line each."""
    wanted = []
    for folder, names, option in ((args.llama_cpp, PROGRAMS, "--llama-cpp or QSF_LLAMA_CPP"),
                                  (args.llama_cpp_source, ("convert_hf_to_gguf.py",),
                                   "--llama-cpp-source or QSF_LLAMA_CPP_SOURCE")):
        wanted += [(os.path.join(folder, name) if folder else name, option) for name in names]
    return measuring_script.missing_inputs(args, "qsf-convert", "qsf-perplexity") + measuring_script.missing_files(wanted)


class Comparison:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        about = about_of(args)
        self.results = Results(args.results, about)
        self.text = write_head(args.text, args.bytes, self.path("scored.txt"))
        self.calibration = write_head(args.calibration, args.calibration_bytes, self.path("calibration.txt"))
        # Another model or text makes other files beside them.
        of_model = hashlib.sha256(about["model"].encode()).hexdigest()[:12]
        of_text = hashlib.sha256(repr(about).encode()).hexdigest()[:12]
        self.gguf, self.imatrix, self.seen = (os.path.join(args.made or folder, n) for n in (
            f"f32-{of_model}.gguf", f"imatrix-{of_text}.gguf", f"seen-{of_text}"))
        self.reference = self.path("f32.qsf")
        self.scorer = Scorer(self.results, args, folder, self.text, self.reference, "--exact")
        tokens = ["--calibration-tokens", str(CALIBRATION_TOKENS)]
        self.variants = [("nearest", ["--scale-search", "off"]), ("search", []),
                         ("calibrated", ["--calibration", self.seen]),
                         ("gptq", ["--calibration", self.calibration, *tokens, "--gptq"])]

    def path(self, name):
        return os.path.join(self.folder, name)

    def ours(self, name):
        return os.path.join(self.args.bin, name)

    def theirs(self, name):
        return os.path.join(self.args.llama_cpp, name)

    def prepare(self):
        if not os.path.exists(self.gguf):
            run(sys.executable, os.path.join(self.args.llama_cpp_source, "convert_hf_to_gguf.py"), self.args.model,
                "--outtype", "f32", "--outfile", self.gguf)
        if not os.path.exists(self.imatrix):
            run(self.theirs("llama-imatrix"), "-m", self.gguf, "-f", self.calibration, "-c", str(self.args.context),
                "-o", self.imatrix, "-t", str(self.args.threads))
        if not os.path.exists(self.seen):
            run(self.ours("qsf-convert"), "--quiet", "--calibration", self.calibration, "--calibration-out", self.seen,
                "--calibration-tokens", str(CALIBRATION_TOKENS), self.args.model, self.path("model.qsf"))
        run(self.ours("qsf-convert"), "--quiet", "--quant-type", "f32", self.gguf, self.reference)
        own = self.path("own.qsf")
        run(self.ours("qsf-convert"), "--quiet", "--quant-type", "f32", self.args.model, own)
        bases = [self.scorer.score(path)["losses"] for path in (self.reference, own)]
        if bases[0] != bases[1]:
            raise Failed(f"f32 of the GGUF file scores {perplexity(bases[0])}, of the folder {perplexity(bases[1])}: "
                         "not the same weights")
        self.results.put("base", {"losses": bases[0], "cross_check": self.cross_check(self.gguf)})

    def cross_check(self, gguf):
        """Returns llama.cpp's own perplexity of a file; the tool may end before it has written all that it logged."""
        def measure():
            for _ in range(3):
                found = last_perplexity(run(self.theirs("llama-perplexity"), "-m", gguf, "-f", self.text, "-c",
                                            str(self.args.context), "-t", str(self.args.threads)))
                if found is not None:
                    return found
            return None

        return None if self.args.no_cross_check else self.results.get(hash_of(gguf), measure)

    def row(self, by, scope, width, kind, way, model, matrices):
        part = [m for m in matrices if m.in_layer()] if scope == "layers" else matrices
        return {"by": by, "width": width, "type": kind, "way": way, "bits": bits_per_weight(part),
                "bits_of_all": bits_per_weight(matrices), **self.scorer.score(model)}

    def measure_theirs(self, scope, width, asked, kind, weighted):
        small, wide, model = (self.path(n) for n in ("small.gguf", "wide.gguf", "model.qsf"))
        options = ["--imatrix", self.imatrix] if weighted else []
        options += ["--token-embedding-type", "f16", "--output-tensor-type", "f16"] if scope == "layers" else []
        run(self.theirs("llama-quantize"), "--pure", *options, self.gguf, small, asked, str(self.args.threads))
        matrices = gguf_matrices(small)
        others = [m for m in quantised(matrices) if m.kind != kind]
        if others:
            raise Failed(f"{asked}: {others[0].name} got {others[0].kind}, expected {kind}")
        source = small
        if kind not in KEPT:
            run(self.theirs("llama-quantize"), "--allow-requantize", small, wide, "F32", str(self.args.threads))
            source = wide
        run(self.ours("qsf-convert"), "--quiet", "--quant-type", "keep" if kind in KEPT else "f32", source, model)
        row = self.row("llama.cpp", scope, width, kind, "imatrix" if weighted else "plain", model, matrices)
        return {**row, "cross_check": self.cross_check(small) if kind in TARGETS.values() else None}

    def measure_ours(self, scope, width, kind, block, way, options):
        model = self.path("model.qsf")
        head = "f16" if scope == "layers" else kind
        run(self.ours("qsf-convert"), "--quiet", "--quant-type", kind, "--head-type", head, "--block-size", str(block),
            *options, self.args.model, model)
        return self.row("qsf-convert", scope, width, name_of(kind, block), way, model, qsf_matrices(model))

    def measure_all(self):
        self.prepare()
        for scope in self.args.scopes:
            rows = []
            for width, asked, kind in THEIRS if scope == "layers" else THEIRS_OF_WHOLE:
                for weighted in (False, True):
                    rows += self.attempt(f"{asked}, {scope}", self.measure_theirs, scope, width, asked, kind, weighted)
            for width, kind, block in OURS:
                for way, options in self.variants:
                    rows += self.attempt(f"{kind}, {scope}", self.measure_ours, scope, width, kind, block, way, options)
            self.results.put(f"rows {scope}", rows)

    @staticmethod
    def attempt(what, measure, *how):
        """Returns a list of the row, or says why there is none: types that need an importance matrix have no plain
        file, and llama.cpp gathers none for a tied head."""
        try:
            row = measure(*how)
        except Failed as failure:
            print(f"{what}: left out: {failure}", file=sys.stderr, flush=True)
            return []
        print(f"{what}: {row['type']} {row['way']} {row['bits']:.3f} bits, {perplexity(row['losses']):.3f}",
              file=sys.stderr, flush=True)
        return [row]


def last_perplexity(out):
    """Returns what llama-perplexity says of all windows, or None of a log that ends before the last."""
    said = re.search(r"over (\d+) chunks", out)
    found = re.search(rf"\[{said.group(1)}\](\d+\.\d+)", out) if said else None
    return float(found.group(1)) if found else None


def line_of(row, base):
    grown, error = jackknife(increase, row["losses"], base)
    check = f"{row['cross_check']:.3f}" if row.get("cross_check") else ""
    return [row["by"], row["type"], row["way"], f"{row['bits']:.4f}", f"{row['bits_of_all']:.3f}",
            f"{perplexity(row['losses']):.3f}", f"{percent(grown)} +/- {100 * error:.2f}",
            f"{row['kld']:.4f} +/- {row['kld_error']:.4f}", f"{100 * row['top']:.1f} %", check]


def measured_table(rows, base):
    head = ["quantiser", "type", "how", "bits", "bits of all", "perplexity", "over f32", "KLD", "top-1", "llama.cpp says"]
    chosen = sorted(rows, key=lambda r: (-r["width"], r["by"], -r["bits"], r["type"]))
    return table(head, [line_of(row, base) for row in chosen])


def verdict_table(rows, base):
    """Each type of llama.cpp, plain and with its importance matrix, against the best of ours that takes no more bits:
    those that widths are held to against each way of ours, the others against the most that a text is used for."""
    lines = []
    for width in sorted({row["width"] for row in rows}, reverse=True):
        peers = [row for row in rows if row["by"] == "llama.cpp" and row["width"] == width]
        for peer in sorted(peers, key=lambda row: (-row["bits"], row["type"] != TARGETS[width], row["type"],
                                                   row["way"] != "plain")):
            ways = AGAINST[peer["way"]]
            for way in ways if peer["type"] == TARGETS[width] else ways[-1:]:
                own = best_within([r for r in rows if r["by"] == "qsf-convert" and r["way"] == way], peer["bits"])
                if own is None:
                    continue
                apart, error = difference(own["losses"], peer["losses"], base)
                ratio, ratio_error = jackknife(lambda a, b, f: increase(a, f) / increase(b, f), own["losses"],
                                               peer["losses"], base)
                lines.append([*half_of_line(f"{peer['type']}, {peer['way']}", peer, base),
                              *half_of_line(f"{own['type']}, {way}", own, base),
                              f"{percent(apart)} +/- {100 * error:.2f}", f"{ratio:.2f} +/- {ratio_error:.2f}"])
    half = ["bits", "over f32", "KLD"]
    return table(["llama.cpp", *half, "ours", *half, "difference", "ratio"], lines)


def half_of_line(name, row, base):
    return [name, f"{row['bits']:.4f}", percent(increase(row["losses"], base)), f"{row['kld']:.4f}"]


def measure_and_show(args):
    if not args.no_runs:
        measuring_script.require(find_missing(args))
        with tempfile.TemporaryDirectory() as folder:
            Comparison(args, folder).measure_all()
    kept = Results(args.results).values
    finished = [scope for scope in args.scopes if f"rows {scope}" in kept]
    if not finished:
        raise Failed(f"{args.results}: holds no finished comparison")
    base = kept["base"]["losses"]
    tables = {f"{kind}-{scope}": make(kept[f"rows {scope}"], base) for scope in finished
              for kind, make in (("quantisers", measured_table), ("verdict", verdict_table))}
    if args.page:
        replace_tables(args.page, tables)
    check = kept["base"]["cross_check"]
    print(f"f32: {perplexity(base):.4f}" + (f", llama.cpp {check:.4f}" if check else ""))
    print("\n\n".join(f"{name}\n\n{content}" for name, content in tables.items()))


def main():
    args = parse_arguments()
    return measuring_script.exit_status("compare_quantisers.py", lambda: measure_and_show(args))


if __name__ == "__main__":
    sys.exit(main())
