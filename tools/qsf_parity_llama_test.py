#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""qsf-parity against a real llama.cpp or bitnet.cpp: builds the child, converts a model, compares, verifies.

LLAMA_CPP_DIR or BITNET_CPP_DIR names the tree (LLAMA_CPP_BUILD its build folder), CROSSVAL_GGUF the model.

Usage: qsf_parity_llama_test.py BIN_DIR SOURCE_DIR
Exit status 77 and a reason in the last line when it was not run.
"""

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


def main():
    if not (os.environ.get("LLAMA_CPP_DIR") or os.environ.get("BITNET_CPP_DIR")):
        print("not run: neither LLAMA_CPP_DIR nor BITNET_CPP_DIR is set")
        return SKIPPED
    model = os.environ.get("CROSSVAL_GGUF", "")
    if not model:
        print("not run: CROSSVAL_GGUF is not set")
        return SKIPPED
    # I2_S in the layout of 256 codes is held to more.
    cosine = os.environ.get("CROSSVAL_COS_TOL", "0.99")
    with tempfile.TemporaryDirectory() as folder:
        child = os.path.join(folder, "qsf-parity-llama")
        ours = os.path.join(folder, "model.qsf")
        receipt = os.path.join(folder, "receipt.json")
        run(os.path.join(SOURCE_DIR, "scripts", "build_parity_shim"), "-o", child)
        run(os.path.join(BIN_DIR, "qsf-convert"), "--quiet", model, ours)
        print(run(os.path.join(BIN_DIR, "qsf-parity"), ours, "--exact", "--kv-type", "f32", "--prompt", PROMPT,
                  "--reference", "llama", "--reference-model", model, "--child", child, "--cos-tol", cosine,
                  "--receipt", receipt))
        print(run(os.path.join(BIN_DIR, "qsf-parity"), "verify", receipt))
    return 0


if __name__ == "__main__":
    sys.exit(main())
