#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures each step of quantisation for every weight type: perplexity, KL divergence, top-1 agreement.

    measure_steps.py MODEL TEXT RESULTS.json --calibration FILE [--bin build/release/bin] [--bytes 120000]
                     [--calibration-bytes 500000] [--calibration-tokens N] [--context 512] [--threads 1]
                     [--types 4bit 2bit-super/32 ...] [--steps nearest search calibrated gptq rotated] [--keep-old]
                     [--mark NAME] [--page FILE] [--png FILE] [--no-runs]

MODEL is converted to each type by each step, and every file is scored on the head of TEXT beside the model in f32.
The calibration set should not overlap with it; qsf-convert takes 65,536 tokens of it unless told otherwise. Steps:

    nearest     codes nearest to the weights, --scale-search off
    search      scales searched for the smallest error, the default of qsf-convert
    calibrated  scales searched with the column importance of the calibration set
    gptq        GPTQ: errors compensated in the columns still to be rounded, from the same set
    rotated     the same with the values of heads rotated before, --rotate values

RESULTS.json keeps scores by the checksum of the file, and of which qsf-convert each file came: files that another one made
are made again, and scored where they differ; with --keep-old they are taken as they are. What cannot be converted is left
out and named. Prints three tables, NAME-perplexity, NAME-divergence and NAME-top, which render_results.py --import takes into
docs/results and the pages. --page puts them between <!-- begin NAME-perplexity --> and <!-- end NAME-perplexity -->, and so
on, of a page of your own. --png draws size against divergence of searched types (needs matplotlib).
"""

import os
import sys
import tempfile

import measuring_script
import model_page
from markdown_tables import percent, replace_tables, table
from quantiser_figures import increase, jackknife, perplexity
from results_file import Results, about_of, fingerprint
from scored_models import Failed, Scorer, chosen_types, convert, hash_of, matrix_bits, name_of, write_head

# Options of qsf-convert; TEXT and SEEN are the calibration set and the statistics saved from it.
STEPS = {"nearest": ["--scale-search", "off"], "search": [], "calibrated": ["--calibration", "SEEN"],
         "gptq": ["--calibration", "TEXT", "--gptq"],
         "rotated": ["--calibration", "TEXT", "--gptq", "--rotate", "values"]}
UNCODED = ("f32", "f16")  # no step changes them


def parse_arguments():
    parser = measuring_script.make_parser(__doc__)
    add = parser.add_argument
    add("--calibration-tokens", type=int, default=0, metavar="N", help="as qsf-convert has it")
    add("--types", nargs="+", default=[], metavar="TYPE")
    add("--steps", nargs="+", choices=STEPS, default=list(STEPS))
    add("--keep-old", action="store_true", help="take files that another qsf-convert made as they are")
    add("--page", metavar="FILE", help="replace the tables of this page")
    add("--mark", default="steps", metavar="NAME", help="what names of tables there begin with")
    add("--png", metavar="FILE", help="draw size against divergence there")
    return parser.parse_args()


class Measurement:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        # A number of tokens that is left to qsf-convert changes with it alone.
        tokens = {"calibration tokens": args.calibration_tokens} if args.calibration_tokens else {}
        self.results = Results(args.results, {**about_of(args), **tokens})
        self.converter = fingerprint(os.path.join(args.bin, "qsf-convert"))
        self.reference = os.path.join(folder, "f32.qsf")
        self.tokens = ["--calibration-tokens", str(args.calibration_tokens)] if args.calibration_tokens else []
        self.texts = {"TEXT": write_head(args.calibration, args.calibration_bytes, os.path.join(folder, "seen.txt")),
                      "SEEN": os.path.join(folder, "seen")}
        scored = write_head(args.text, args.bytes, os.path.join(folder, "scored.txt"))
        self.scorer = Scorer(self.results, args, folder, scored, self.reference)

    def convert(self, target, kind, block, *options):
        return convert(self.args.bin, self.args.model, target, "--quant-type", kind, "--block-size", str(block),
                       "--threads", str(self.args.threads), *options)

    def prepare(self, steps):
        """Makes what all of them share. The first score is that of f32 beside itself."""
        self.convert(self.reference, "f32", 64)
        self.results.put("base", self.scorer.score(self.reference))
        if any("SEEN" in STEPS[step] for step in steps):
            self.convert(os.path.join(self.folder, "model.qsf"), "f32", 64, "--calibration", self.texts["TEXT"],
                         *self.tokens, "--calibration-out", self.texts["SEEN"])

    def is_measured(self, name, step):
        made = self.results.values.get("rows", {}).get(name, {}).get(step)
        return made is not None and (self.args.keep_old or made["converter"] == self.converter)

    def measure(self, kind, block, step):
        name, model = name_of(kind, block), os.path.join(self.folder, "model.qsf")
        try:
            report = self.convert(model, kind, block, *(self.texts.get(option, option) for option in STEPS[step]),
                                  *(self.tokens if "TEXT" in STEPS[step] else []))
        except Failed as failure:
            print(f"{name}, {step}: left out: {failure}", file=sys.stderr, flush=True)
            return
        score = self.scorer.score(model)
        rows = self.results.values.setdefault("rows", {})
        rows.setdefault(name, {})[step] = {"converter": self.converter, "file": hash_of(model),
                                           "bits": matrix_bits(report), "bytes": report["file_bytes"]}
        self.results.put("rows", rows)
        print(f"{name}, {step}: {report['file_bytes']} bytes, perplexity {perplexity(score['losses']):.3f}, "
              f"KLD {score['kld']:.4f}", file=sys.stderr, flush=True)

    def measure_all(self):
        missing = [(kind, block, step) for step in self.args.steps for kind, block in chosen_types(self.args.types)
                   if kind not in UNCODED and not self.is_measured(name_of(kind, block), step)]
        if not missing:
            return
        self.prepare({step for _, _, step in missing})
        for kind, block, step in missing:
            self.measure(kind, block, step)


def step_tables(values):
    """Returns perplexity over f32, divergence and share of equal top tokens, a line a type, by descending bits; steps are
    columns. A step that made the same bytes as the one before says so: it has nothing to change there."""
    rows = values["rows"]
    steps = [step for step in STEPS if any(step in made for made in rows.values())]
    base = values["base"]["losses"]

    def over(score):
        grown, error = jackknife(increase, score["losses"], base)
        return f"{percent(grown)} +/- {100 * error:.2f}"

    measures = {"perplexity": over, "divergence": lambda s: f"{s['kld']:.4f}", "top": lambda s: f"{100 * s['top']:.1f} %"}
    tables = {}
    for measure, cell in measures.items():
        lines = []
        for name, made in sorted(rows.items(), key=lambda item: (-max(m["bits"] for m in item[1].values()), item[0])):
            files = [made.get(step) for step in steps]
            cells = ["" if file is None else "same" if i > 0 and files[i - 1] and file["file"] == files[i - 1]["file"]
                     else cell(values[file["file"]]) for i, file in enumerate(files)]
            some = next(file for file in files if file)
            lines.append([name, f"{some['bits']:.3f}", f"{some['bytes'] / 1e6:.2f} MB", *cells])
        tables[measure] = table(["type", "bits", "file", *steps], lines)
    return tables


def searched(values):
    """Returns what a plot shows of each type with searched scales."""
    files = {name: made["search"] for name, made in values["rows"].items() if "search" in made}
    return [{"name": name, "bytes": file["bytes"], "kld": values[file["file"]]["kld"],
             "kld_error": values[file["file"]]["kld_error"]} for name, file in files.items()]


def measure_and_show(args):
    measuring_script.require(measuring_script.missing_packages("matplotlib") if args.png else [])
    if not args.no_runs:
        measuring_script.require(measuring_script.missing_inputs(args, "qsf-convert", "qsf-perplexity"))
        with tempfile.TemporaryDirectory() as folder:
            Measurement(args, folder).measure_all()
    values = Results(args.results).values
    if not values.get("rows"):
        raise Failed(f"{args.results}: nothing was measured yet")
    tables = {f"{args.mark}-{measure}": content for measure, content in step_tables(values).items()}
    if args.page:
        replace_tables(args.page, tables)
    figure = model_page.plot_quality(searched(values)) if args.png else None
    if figure:
        model_page.save_png(figure, args.png)
    print(f"f32: {perplexity(values['base']['losses']):.4f}")
    print("\n\n".join(f"{name}\n\n{content}" for name, content in tables.items()))


def main():
    args = parse_arguments()
    return measuring_script.exit_status("measure_steps.py", lambda: measure_and_show(args))


if __name__ == "__main__":
    sys.exit(main())
