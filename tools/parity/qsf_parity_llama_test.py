#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""qsf-parity against a real llama.cpp or bitnet.cpp: builds the child, converts a model, compares, verifies,
and compares the traces of both engines.

LLAMA_CPP_DIR or BITNET_CPP_DIR names the tree (LLAMA_CPP_BUILD its build folder), CROSSVAL_GGUF the model. Without
CROSSVAL_GGUF, bitnet.cpp gets a random model of scripts/models/make_random.py bitnet. CROSSVAL_TRACE_TOL is the share of its
RMS by which a point of the two traces may differ.

Usage: qsf_parity_llama_test.py BIN_DIR SOURCE_DIR
Exit status 77 and a reason in the last line when it was not run.
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile

BIN_DIR, SOURCE_DIR = sys.argv[1:3]
PROMPT = "Once upon a time there was a little girl named Lily. She had a red ball and a big dog."
SKIPPED = 77


def run(*command, expected=(0,)):
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    if done.returncode not in expected:
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def can_trace(child, model):
    """Returns what the child says of itself in its hello."""
    done = subprocess.run([child, model, "--context", "64", "--threads", "1", "--kv-type", "f16"], capture_output=True,
                          stdin=subprocess.DEVNULL, timeout=1200, check=True)
    n_bytes = int.from_bytes(done.stdout[8:16], "little")
    return json.loads(done.stdout[16:16 + n_bytes])["trace"]


def main():
    if not (os.environ.get("LLAMA_CPP_DIR") or os.environ.get("BITNET_CPP_DIR")):
        print("not run: neither LLAMA_CPP_DIR nor BITNET_CPP_DIR is set")
        return SKIPPED
    model = os.environ.get("CROSSVAL_GGUF", "")
    makes_model = not model and "BITNET_CPP_DIR" in os.environ and importlib.util.find_spec("numpy") is not None
    if not model and not makes_model:
        print("not run: CROSSVAL_GGUF is not set, and no bitnet.cpp or no numpy to make a model for it")
        return SKIPPED
    # I2_S in the layout of 256 codes is held to more.
    cosine = os.environ.get("CROSSVAL_COS_TOL", "0.999" if makes_model else "0.99")
    # Codes of 8 bits that turn to the other side of a border: a few hundredths of a point.
    tolerance = os.environ.get("CROSSVAL_TRACE_TOL", "0.05")
    with tempfile.TemporaryDirectory() as folder:
        child = os.path.join(folder, "qsf-parity-llama")
        ours = os.path.join(folder, "model.qsf")
        receipt = os.path.join(folder, "receipt.json")
        traces = [os.path.join(folder, name) for name in ("ours.trace", "theirs.trace")]
        run(os.path.join(SOURCE_DIR, "scripts", "measure", "build_parity_shim"), "-o", child)
        if makes_model:
            model = os.path.join(folder, "model.gguf")
            run(sys.executable, os.path.join(SOURCE_DIR, "scripts", "models", "make_random.py"), "bitnet", model)
        run(os.path.join(BIN_DIR, "qsf-convert"), "--quiet", model, ours)
        traces = traces if can_trace(child, model) else []
        options = [word for pair in zip(("--trace", "--trace-reference"), traces) for word in pair]
        print(run(os.path.join(BIN_DIR, "qsf-parity"), ours, "--exact", "--kv-type", "f32", "--prompt", PROMPT,
                  "--reference", "llama", "--reference-model", model, "--child", child, "--cos-tol", cosine,
                  "--receipt", receipt, *options))
        print(run(os.path.join(BIN_DIR, "qsf-parity"), "verify", receipt))
        if not traces:
            print("not traced: this library fuses what it names")
            return 0
        compared = run(os.path.join(BIN_DIR, "qsf-parity"), "diff", *traces, "--tol", tolerance, "--list")
        print(compared)
        for point in ("attn_norm", "attention", "attn_out", "ffn_norm", "ffn_out"):
            if f"pass 0, layer 0, {point}\n" not in compared:
                sys.exit(f"the engines share no point {point}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
