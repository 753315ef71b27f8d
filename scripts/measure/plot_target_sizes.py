#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares qsf-convert --target-size with uniform types at equal file sizes.

    plot_target_sizes.py MODEL_DIR TEXT RESULTS.json --calibration FILE [--bin build/release/bin] [--bytes 120000]
                         [--calibration-bytes 500000] [--context 512] [--threads 2] [--png FILE] [--page FILE]
                         [--no-runs]

Every uniform type is converted with the calibration, and then a file with --target-size of the same size. qsf-perplexity
--reference --exact scores all files against the model in f32, so only the weights differ: perplexity and mean
Kullback-Leibler divergence on TEXT, which must not overlap with the text of --calibration. The calibration runs once and
is saved as RESULTS.json.calibration. The script names each --target-size file whose divergence is larger than that of a
smaller one, or than that of the uniform file of its size, and exits with 1 if there is any. RESULTS.json keeps the
measurements; --no-runs only draws and checks them. --png draws the divergence by size (needs matplotlib). The table is printed; behind a line
target-sizes, render_results.py --import takes it into docs/results and the pages. --page puts it between
<!-- begin target-sizes --> and <!-- end target-sizes --> of a page of your own.
"""

import os
import re
import sys
import tempfile

import measuring_script
from markdown_tables import percent, replace_tables, table
from quantiser_figures import increase, perplexity
from results_file import Results, about_of
from scored_models import Failed, Scorer, run, write_head

# Names, and columns of a block where --block-size says them.
UNIFORM = [("2bit-table", None), ("2bit-super", 32), ("q2_k", None), ("3bit-table", None), ("3bit-super", 32),
           ("4bit-table", None), ("4bit-super", 32), ("q5_k", None), ("q6_k", None), ("8bit", 64)]


def find_faults(rows):
    """Returns what is not as it should be, a line each. Rows are dicts of name, size, uniform and target, of which the
    last two are dicts of bytes and kld."""
    faults = []
    rows = sorted(rows, key=lambda row: row["size"])
    for row in rows:
        if row["target"]["bytes"] > row["size"]:
            faults.append(f"{row['name']}: the file has {row['target']['bytes']} bytes, at most {row['size']} were asked for")
        if not row["target"]["kld"] < row["uniform"]["kld"]:
            faults.append(f"{row['name']}: divergence {row['target']['kld']:.6f} is not below {row['uniform']['kld']:.6f}, "
                          "that of the uniform file of its size")
    for smaller, larger in zip(rows, rows[1:]):
        if not larger["target"]["kld"] < smaller["target"]["kld"]:
            faults.append(f"{larger['name']}: divergence {larger['target']['kld']:.6f} is not below "
                          f"{smaller['target']['kld']:.6f} of the smaller file for {smaller['name']}")
    return faults


def size_table(rows):
    """Returns a Markdown table, a line a size."""
    head = ["size of", "bytes", "over f32", "KLD", "--target-size: bytes", "over f32", "KLD", "expected", "less KLD"]
    lines = []
    for row in sorted(rows, key=lambda r: r["size"]):
        uniform, target = row["uniform"], row["target"]
        lines.append([row["name"], f"{uniform['bytes']:,}", percent(uniform["over"]), f"{uniform['kld']:.6f}",
                      f"{target['bytes']:,}", percent(target["over"]), f"{target['kld']:.6f}", f"{target['expected']:.6f}",
                      f"{100 * (1 - target['kld'] / uniform['kld']):.0f} %"])
    return table(head, lines)


class Runs:
    def __init__(self, args, folder, results):
        self.args, self.folder, self.results = args, folder, results
        self.reference = self.path("reference.qsf")
        # Beside the results, so that a further run does not gather again.
        self.calibration = args.results + ".calibration"
        self.scorer = Scorer(results, args, folder, self.path("scored.txt"), self.reference, "--exact")

    def path(self, name):
        return os.path.join(self.folder, name)

    def convert(self, output, *how):
        return run(os.path.join(self.args.bin, "qsf-convert"), "--threads", str(self.args.threads), *how,
                   self.args.model, output)

    def prepare(self):
        write_head(self.args.text, self.args.bytes, self.path("scored.txt"))
        self.convert(self.reference, "--quiet", "--quant-type", "f32")
        self.results.get("base", lambda: self.scorer.measure(self.reference)["losses"])
        # What lies there from results that were removed may be of another text.
        if not os.path.exists(self.calibration) or "calibration" not in self.results.values:
            text = write_head(self.args.calibration, self.args.calibration_bytes, self.path("calibration.txt"))
            self.convert(self.path("first.qsf"), "--quiet", "--calibration", text, "--calibration-out", self.calibration,
                         "--target-size", "1G")
            self.results.put("calibration", os.path.basename(self.calibration))

    def measure(self, name, *how):
        def compute():
            if self.args.no_runs:
                raise Failed(f"{self.args.results}: {name} was not measured yet: run without --no-runs")
            output = self.path("model.qsf")
            said = self.convert(output, "--calibration", self.calibration, *how)
            score = self.scorer.measure(output)
            expected = re.search(r"expected divergence (\S+) nats", said)
            n_bytes = os.path.getsize(output)
            print(f"{name}: {n_bytes} bytes, KLD {score['kld']}", file=sys.stderr, flush=True)
            return {"bytes": n_bytes, "ppl": perplexity(score["losses"]), "kld": score["kld"],
                    "over": increase(score["losses"], self.results.values["base"]),
                    "expected": float(expected.group(1)) if expected else None}
        return self.results.get(name, compute)

    def rows(self):
        rows = []
        for kind, block in UNIFORM:
            name = f"{kind}/{block}" if block else kind
            how = ["--quant-type", kind] + (["--block-size", str(block)] if block else [])
            uniform = self.measure(name, *how)
            target = self.measure(f"at {name}", "--target-size", f"{uniform['bytes'] / 1e6:.6f}M")
            rows.append({"name": name, "size": uniform["bytes"], "uniform": uniform, "target": target})
        return rows


def draw(rows, path):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    rows = sorted(rows, key=lambda r: r["size"])
    figure, axes = pyplot.subplots(figsize=(8, 5))
    axes.plot([r["target"]["bytes"] / 1e6 for r in rows], [r["target"]["kld"] for r in rows], "o-",
              label="--target-size, measured", color="tab:blue")
    axes.plot([r["target"]["bytes"] / 1e6 for r in rows], [r["target"]["expected"] for r in rows], "x:",
              label="--target-size, expected", color="tab:gray")
    axes.plot([r["uniform"]["bytes"] / 1e6 for r in rows], [r["uniform"]["kld"] for r in rows], "s",
              label="one type for all layers", color="tab:orange")
    for row in rows:
        axes.annotate(row["name"], (row["uniform"]["bytes"] / 1e6, row["uniform"]["kld"]), fontsize=7,
                      textcoords="offset points", xytext=(4, 4))
    axes.set(xlabel="file, MB", ylabel="KLD against f32, nats a token", yscale="log")
    axes.grid(True, which="both", alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def parse_arguments():
    parser = measuring_script.make_parser(__doc__, "MODEL_DIR")
    parser.set_defaults(threads=2)
    parser.add_argument("--png", metavar="FILE", help="draw the plot")
    parser.add_argument("--page", metavar="FILE", help="replace the table of this page")
    return parser.parse_args()


def measure_and_check(args):
    """Returns 1 where a file is not as it should be."""
    measuring_script.require(measuring_script.missing_packages("matplotlib") if args.png else [])
    if not args.no_runs:
        measuring_script.require(measuring_script.missing_inputs(args, "qsf-convert", "qsf-perplexity"))
    results = Results(args.results, None if args.no_runs else about_of(args))
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(args, folder, results)
        if not args.no_runs:
            runs.prepare()
        rows = runs.rows()
    content = size_table(rows)
    print(content)
    if args.page:
        replace_tables(args.page, {"target-sizes": content})
    if args.png:
        draw(rows, args.png)
    faults = find_faults(rows)
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


def main():
    args = parse_arguments()
    return measuring_script.exit_status("plot_target_sizes.py", lambda: measure_and_check(args))


if __name__ == "__main__":
    sys.exit(main())
