# SPDX-License-Identifier: MIT
"""Stands in for qsf-convert, qsf-inspect, qsf-perplexity, qsf-bench and qsf-run in tests of the scripts that run them.

A "model" made here is a line of its options, filled up to 1000 bytes a bit; scores depend on it alone. Every call is noted
in calls.txt beside the tools. The type 3bit cannot be converted.
"""

import contextlib
import io
import os
import stat
import sys
import tempfile
import textwrap
import unittest
from unittest import mock

HEAD = f"#!{sys.executable} -IS\n" + textwrap.dedent('''
    import json, os, sys
    args = sys.argv[1:]
    tool = os.path.basename(sys.argv[0])
    with open(os.path.join(os.path.dirname(sys.argv[0]), "calls.txt"), "a") as file:
        file.write(" ".join([tool, *(os.path.basename(a) for a in args)]) + "\\n")
    def value(option, default=""):
        return args[args.index(option) + 1] if option in args else default
    def cost_of(model):
        """f32 costs nothing, fewer bits more, and each step less than the one before."""
        words = open(model).read().split()
        if words[0] == "size":
            return 2 * 4.0 ** -float(words[1])
        bits = {"f32": 32, "f16": 16, "mixed": 5}.get(words[0]) or int(words[0].strip("q")[0])
        step = 1.5 if "--rotate" in words else 4 if "--scale-search" in words else 2 if "--gptq" in words else 2.5 if "--calibration" in words else 3
        return 0.0 if bits >= 16 else step * 4.0 ** -bits
''')
BODIES = {
    "qsf-convert": '''
        kind, block = value("--quant-type"), value("--block-size", "64")
        if value("--calibration-out"):
            open(value("--calibration-out"), "w").write("seen")
        if value("--target-size"):
            asked = value("--target-size")
            size = 40000 if asked == "1G" else round(1e6 * float(asked.removesuffix("M")))
            print(f"{size} bytes of them; expected divergence 0.125 nats a token")
            open(args[-1], "w").write(f"size {size / 1000}".ljust(size))
            sys.exit(0)
        if kind == "3bit":
            sys.exit("qsf-convert: 3bit: no such thing here")
        how = [o for o in args[:-2] if o in ("--scale-search", "--gptq", "--calibration", "--rotate")]
        if kind in ("8bit", "f32", "f16"):
            how = []
        bits = {"f32": 32.0, "f16": 16.0, "mixed": 5.0}.get(kind) or int(kind.strip("q")[0]) + 32 / int(block)
        open(args[-1], "w").write(" ".join([kind, block, *how]).ljust(int(1000 * bits)))
        tensors = [{"section": "layer 0", "tensor": "attn_q", "rows": 2, "cols": 8, "type": kind, "bits_per_weight": bits,
                    "relative_error": 2 ** -bits, "cosine": 1 - 4 ** -bits},
                   {"section": "layer 0", "tensor": "attn_norm", "rows": 1, "cols": 8, "type": "f32",
                    "bits_per_weight": 32.0, "relative_error": 0.0, "cosine": 1.0}]
        json.dump({"file_bytes": int(1e6 * bits), "weights": 24, "seconds": 0.5, "rounded": 1, "below_low_cosine": 0,
                   "lowest_cosine": tensors[0]["cosine"], "widened": [], "tensors": tensors}, open(value("--report", "/dev/null"), "w"))
        ''',
    "qsf-perplexity": '''
        cost = cost_of(args[0])
        with open(value("--losses", "/dev/null"), "w") as file:
            for window in range(4):
                file.write(json.dumps({"losses": [3 + window / 10 + cost, 3 + cost], "divergences": [cost / 2] * 2}) + "\\n")
        print(f"mean KLD = {cost / 2:.6f} +/- {cost / 100:.6f}")
        print(f"top-1 agreement = {100 - 50 * cost:.3f} % +/- 0.1 %")
        print(f"PPL = {20 * (1 + cost):.4f} +/- 1.0000")
        ''',
    "qsf-inspect": '''
        print(f"weights: 24, {os.path.getsize(args[0]) / 1000} bits each")
        ''',
    "qsf-bench": '''
        size = 1 + cost_of(args[0])
        json.dump({"machine": {"cpu": "fake", "threads": 1, "instruction_set": "none"},
                   "tests": [{"kind": kind, "tokens_per_second": {"median": rate * size}}
                             for kind, rate in (("prompt", 5000.0), ("generate", 900.0))]}, sys.stdout)
        ''',
    "qsf-run": '''
        budget = value("--ram-budget")
        if budget and int(budget) < 10:
            sys.exit("qsf-run: model.qsf: a budget of 5 MB is too small: the model needs 12 MB")
        print("text")
        print("qsf-run: prompt 3 tokens, 387.5 tokens/s; generated 64 tokens, 123.4 tokens/s; first after 0.008 s",
              file=sys.stderr)
        print(f"qsf-run: memory 30.0 MB planned{' of 30.0 MB' if budget else ''}, 17.3 MB peak; read 2.1 MB, prompts in "
              "1 pass of up to 396 rows", file=sys.stderr)
        '''}


def make_tools(folder):
    for name, body in BODIES.items():
        path = os.path.join(folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(HEAD + textwrap.dedent(body))
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)


def take_calls(folder):
    """Returns the calls of tools since the last time, a line each."""
    path = os.path.join(folder, "calls.txt")
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        lines = file.read().splitlines()
    os.remove(path)
    return lines


def make_inputs(folder):
    """Writes a model, a text and a calibration set, and returns their names."""
    paths = [os.path.join(folder, name) for name in ("model.gguf", "text.txt", "training.txt")]
    for path in paths:
        with open(path, "w", encoding="utf-8") as file:
            file.write(os.path.basename(path) * 100)
    return paths


class ScriptTest(unittest.TestCase):
    """A folder with tools and inputs for a script's main()."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = holder.name
        make_tools(self.folder)
        self.inputs = make_inputs(self.folder)

    @staticmethod
    def run_main(script, *argv):
        """Returns exit status, stdout and stderr of a script, which is a module here."""
        out, err = io.StringIO(), io.StringIO()
        with mock.patch.object(sys, "argv", [f"{script.__name__}.py", *argv]), contextlib.redirect_stdout(out), \
                contextlib.redirect_stderr(err):
            status = script.main()
        return status, out.getvalue(), err.getvalue()
