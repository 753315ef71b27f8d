#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures what qsf-convert --rotate gains every coded type, in each way of choosing codes.

    measure_rotation.py MODEL_DIR TEXT RESULTS.json --calibration FILE [--bin build/release/bin] [--bytes 120000]
                        [--calibration-bytes 500000] [--context 512] [--threads 1] [--types 2bit-super/64 q2_k]
                        [--ways search calibrated gptq] [--rotations none values stream all] [--kv-types] [--no-runs]

Matrices of the layers are quantised; embedding and head stay f32, also the head that --rotate makes of the
embedding, so that bits are those of the layers and what differs is the layers alone. Every file is scored by
qsf-perplexity --exact: perplexity, mean KL divergence from f32 and the share of equal top tokens. With --kv-types weights
stay f32 and what is measured are keys and values of few bits, with the values rotated in the weights and without.

RESULTS.json keeps what was measured; what is in it is not run again. docs/quality.md has the tables.
"""

import os
import sys
import tempfile

import measuring_script
from markdown_tables import percent, table
from quantiser_figures import bits_per_weight, increase, jackknife, perplexity, qsf_matrices
from results_file import Results, about_of
from scored_models import Failed, Scorer, run, write_head

TYPES = ("4bit/64", "4bit-super/64", "4bit-super/32", "3bit/64", "3bit-super/64", "3bit-super/32", "q3_k/64", "2bit/64",
         "2bit-sym/64", "2bit-super/64", "2bit-super/32", "q2_k/64", "ternary/64")
WAYS = ("search", "calibrated", "gptq")
ROTATIONS = ("none", "values", "stream", "all")
SHOWN = ("none", "values", "all")
KV_TYPES = (("f32", "8"), ("f32", "4"), ("f32", "2"), ("4", "4"), ("4", "2"), ("2", "2"))


def parse_arguments():
    parser = measuring_script.make_parser(__doc__, "MODEL_DIR")
    add = parser.add_argument
    add("--types", nargs="+", choices=TYPES, default=TYPES, metavar="TYPE/BLOCK")
    add("--ways", nargs="+", choices=WAYS, default=WAYS)
    add("--rotations", nargs="+", choices=ROTATIONS, default=SHOWN)
    add("--kv-types", action="store_true", help="keys and values of few bits, weights in f32")
    return parser.parse_args()


def key_of(kind, way, rotation):
    return f"{kind} | {way} | {rotation}"


def kv_key(kv_types, rotation):
    return f"keys {kv_types[0]} | values {kv_types[1]} | {rotation}"


class Measurement:
    def __init__(self, args, folder, results):
        self.args, self.folder, self.results = args, folder, results
        self.text = write_head(args.text, args.bytes, self.path("scored.txt"))
        self.calibration = write_head(args.calibration, args.calibration_bytes, self.path("calibration.txt"))
        self.reference = self.convert("reference.qsf", "--quant-type", "f32")
        results.get("base", lambda: self.score(self.reference))

    def path(self, name):
        return os.path.join(self.folder, name)

    def convert(self, name, *options):
        run(os.path.join(self.args.bin, "qsf-convert"), "--quiet", *options, self.args.model, self.path(name))
        return self.path(name)

    def score(self, model, *options):
        return Scorer(self.results, self.args, self.folder, self.text, self.reference, "--exact", *options).measure(model)

    def seen(self, rotation):
        """Returns a saved calibration of the model with that rotation: that of another one is refused."""
        saved = self.path(f"seen-{rotation}")
        if not os.path.exists(saved):
            self.convert("seen.qsf", "--rotate", rotation, "--calibration", self.calibration, "--calibration-out", saved,
                         "--quant-type", "4bit")
        return saved

    def measure_type(self, kind, way, rotation):
        name, block = kind.split("/")
        how = {"search": [], "calibrated": ["--calibration", self.seen(rotation)] if way == "calibrated" else [],
               "gptq": ["--calibration", self.calibration, "--gptq"]}[way]
        model = self.convert("model.qsf", "--quant-type", name, "--block-size", block, "--head-type", "f32", "--rotate",
                             rotation, *how)
        layers = [m for m in qsf_matrices(model) if m.in_layer()]
        return {"bits": bits_per_weight(layers), **self.score(model)}

    def measure_all(self):
        for kind in self.args.types:
            for way in self.args.ways:
                for rotation in self.args.rotations:
                    found = self.results.get(key_of(kind, way, rotation),
                                             lambda: self.measure_type(kind, way, rotation))
                    print(f"{key_of(kind, way, rotation)}: {perplexity(found['losses']):.3f}, KLD {found['kld']}",
                          file=sys.stderr, flush=True)

    def measure_kv_types(self):
        for rotation in self.args.rotations:
            model = self.convert("model.qsf", "--quant-type", "f32", "--rotate", rotation)
            for kv_types in KV_TYPES:
                found = self.results.get(kv_key(kv_types, rotation), lambda: self.score(
                    model, "--kv-type-k", kv_types[0], "--kv-type-v", kv_types[1]))
                print(f"{kv_key(kv_types, rotation)}: {perplexity(found['losses']):.3f}", file=sys.stderr, flush=True)


def cells(row, base):
    if row is None:
        return ["", "", ""]
    grown, error = jackknife(increase, row["losses"], base)
    return [f"{percent(grown)} +/- {100 * error:.2f}", f"{row['kld']:.4f}", f"{100 * row['top']:.1f} %"]


def type_table(values, rotations):
    """A line a type and way, with each rotation beside the others."""
    base = values["base"]["losses"]
    head = ["type", "bits", "how"]
    for rotation in rotations:
        head += [{"none": "not rotated, over f32"}.get(rotation, f"{rotation}, over f32"), "KLD", "same top"]
    lines = []
    for kind in TYPES:
        for way in WAYS:
            found = [values.get(key_of(kind, way, rotation)) for rotation in rotations]
            if any(found):
                bits = next(f["bits"] for f in found if f)
                lines.append([kind, f"{bits:.3f}", way, *(cell for f in found for cell in cells(f, base))])
    return table(head, lines)


def kv_table(values, rotations):
    """Perplexities alone: the reference of a divergence would be scored with the same types of keys and values. They are
    over f32 weights with keys and values in f16, as qsf-perplexity has them."""
    base = values["base"]["losses"]
    lines = [[*kv_types, *(cells(values.get(kv_key(kv_types, rotation)), base)[0] for rotation in rotations)]
             for kv_types in KV_TYPES]
    return table(["keys", "values", *(f"{r}, over f32" for r in rotations)], lines)


def measure_and_show(args):
    if not args.no_runs:
        measuring_script.require(measuring_script.missing_inputs(args, "qsf-convert", "qsf-perplexity"))
    results = Results(args.results, None if args.no_runs else about_of(args))
    if not args.no_runs:
        with tempfile.TemporaryDirectory() as folder:
            measurement = Measurement(args, folder, results)
            if args.kv_types:
                measurement.measure_kv_types()
            else:
                measurement.measure_all()
    if "base" not in results.values:
        raise Failed(f"{args.results}: nothing was measured yet")
    print((kv_table if args.kv_types else type_table)(results.values, args.rotations))


def main():
    args = parse_arguments()
    return measuring_script.exit_status("measure_rotation.py", lambda: measure_and_show(args))


if __name__ == "__main__":
    sys.exit(main())
