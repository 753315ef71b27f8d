#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Sets qsf-convert --target-size beside uniform types: what files of equal size lose.

    plot_target_sizes.py MODEL_DIR TEXT RESULTS.json --calibration FILE [--bin build/release/bin] [--bytes 120000]
                         [--calibration-bytes 500000] [--context 512] [--threads 2] [--png FILE] [--page docs/quality.md]
                         [--no-runs]

Every uniform type is converted with the calibration, and then a file with --target-size at its size. All are scored by
qsf-perplexity --reference --exact against the model in f32, so that what differs is the weights: perplexity and mean
Kullback-Leibler divergence of TEXT, which is other text than that of --calibration. The calibration runs once and is saved; sizes take it from there. Says which of
the target's files have a larger divergence than a smaller one of them, or than the uniform file of their size, and ends
with 1 if there is any. RESULTS.json keeps what was measured. --png draws the divergence by size (needs matplotlib),
--page puts the table between the marks of that page.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile

from results_file import Results, fingerprint, head_of_text

# Names, and columns of a block where --block-size says them.
UNIFORM = [("2bit-table", None), ("2bit-super", 32), ("q2_k", None), ("3bit-table", None), ("3bit-super", 32),
           ("4bit-table", None), ("4bit-super", 32), ("q5_k", None), ("q6_k", None), ("8bit", 64)]
BEGIN, END = "<!-- begin target-sizes -->", "<!-- end target-sizes -->"


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


def table(rows):
    """Returns the lines of a Markdown table."""
    lines = ["| size of | bytes | over f32 | KLD | --target-size: bytes | over f32 | KLD | expected | less KLD |",
             "|---|---|---|---|---|---|---|---|---|"]
    for row in sorted(rows, key=lambda r: r["size"]):
        uniform, target = row["uniform"], row["target"]
        less = 100 * (1 - target["kld"] / uniform["kld"])
        lines.append(f"| {row['name']} | {uniform['bytes']:,} | {100 * uniform['over']:+.2f} % | {uniform['kld']:.6f} | "
                     f"{target['bytes']:,} | {100 * target['over']:+.2f} % | {target['kld']:.6f} | "
                     f"{target['expected']:.6f} | {less:.0f} % |")
    return lines


def put_into_page(text, lines):
    """Returns the text of a page with `lines` between the marks."""
    begin, end = text.find(BEGIN), text.find(END)
    if begin < 0 or end < begin:
        raise ValueError(f"no place for the table: expected a line {BEGIN} and then {END}")
    return text[:begin + len(BEGIN)] + "\n" + "\n".join(lines) + "\n" + text[end:]


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        sys.exit(f"plot_target_sizes.py: {' '.join(command)}: exit {done.returncode}: {last}")
    return done.stdout


class Runs:
    def __init__(self, args, folder, results):
        self.args, self.folder, self.results = args, folder, results
        self.text = self.head_of(args.text, args.bytes, "scored.txt")
        self.reference = os.path.join(folder, "reference.qsf")
        # Beside the results, so that a further run does not measure again.
        self.calibration = args.results + ".calibration"

    def head_of(self, path, n_bytes, name):
        with open(os.path.join(self.folder, name), "wb") as file:
            file.write(head_of_text(path, n_bytes))
        return file.name

    def convert(self, output, *how):
        return run(os.path.join(self.args.bin, "qsf-convert"), "--threads", str(self.args.threads), *how,
                   self.args.model, output)

    def prepare(self):
        self.convert(self.reference, "--quiet", "--quant-type", "f32")
        if not os.path.exists(self.calibration):
            calibration = self.head_of(self.args.calibration, self.args.calibration_bytes, "calibration.txt")
            self.convert(os.path.join(self.folder, "first.qsf"), "--quiet", "--calibration", calibration,
                         "--calibration-out", self.calibration, "--target-size", "1G")

    def measure(self, name, *how):
        def compute():
            output = os.path.join(self.folder, "model.qsf")
            said = self.convert(output, "--calibration", self.calibration, *how)
            scores = run(os.path.join(self.args.bin, "qsf-perplexity"), output, "--file", self.text, "--context",
                         str(self.args.context), "--reference", self.reference, "--exact", "--threads",
                         str(self.args.threads))
            expected = re.search(r"expected divergence (\S+) nats", said)
            ppl = float(re.findall(r"^PPL = ([0-9.]+)", scores, re.M)[-1])
            base = float(re.search(r"reference PPL = ([0-9.]+)", scores).group(1))
            kld = float(re.search(r"KLD\D*= ([0-9.e-]+)", scores).group(1))
            print(f"{name}: {os.path.getsize(output)} bytes, KLD {kld}", flush=True)
            return {"bytes": os.path.getsize(output), "ppl": ppl, "over": ppl / base - 1, "kld": kld,
                    "expected": float(expected.group(1)) if expected else None}
        return self.results.get(name, compute)

    def rows(self):
        rows = []
        for kind, block in UNIFORM:
            name = f"{kind}/{block}" if block else kind
            how = ["--quant-type", kind] + (["--block-size", str(block)] if block else [])
            uniform = self.measure(name, *how)
            target = self.measure(f"at {name}", "--target-size", str(uniform["bytes"]))
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    add("model", metavar="MODEL_DIR")
    add("text", metavar="TEXT")
    add("results", metavar="RESULTS.json")
    add("--calibration", metavar="FILE", required=True, help="text, other than TEXT")
    add("--bin", metavar="FOLDER", default=os.path.join(root, "build", "release", "bin"))
    add("--bytes", type=int, default=120000, metavar="N", help="score the first N bytes")
    add("--calibration-bytes", type=int, default=500000, metavar="N")
    add("--context", type=int, default=512, metavar="N")
    add("--threads", type=int, default=2, metavar="N")
    add("--png", metavar="FILE", help="draw the plot")
    add("--page", metavar="FILE", help="replace the table of this page")
    add("--no-runs", action="store_true", help="what RESULTS.json holds, drawn and checked")
    return parser.parse_args()


def main():
    args = parse_arguments()
    about = {"model": fingerprint(args.model), "text": fingerprint(args.text), "bytes": args.bytes,
             "calibration": fingerprint(args.calibration), "calibration bytes": args.calibration_bytes,
             "context": args.context}
    results = Results(args.results, about)
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(args, folder, results)
        if not args.no_runs:
            runs.prepare()
        rows = runs.rows()
    lines = table(rows)
    print("\n".join(lines))
    if args.page:
        with open(args.page, encoding="utf-8") as file:
            page = put_into_page(file.read(), lines)
        with open(args.page, "w", encoding="utf-8") as file:
            file.write(page)
    if args.png:
        draw(rows, args.png)
    faults = find_faults(rows)
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
