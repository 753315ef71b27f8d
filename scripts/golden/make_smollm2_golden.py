#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes what llama.cpp computes with SmolLM2-135M-Instruct, for tests/model/smollm2_test.cc.

    make_smollm2_golden.py OUT_DIR --text tales-valid.txt [--bytes 60000] [--threads 1]

answers.json holds ten questions. For each: the token ids of the prompt, as the model's chat template writes it, the
greedy answer of llama.cpp (at most 64 tokens, n_ctx 2048), and for every token of it the lead of the best logit over the
second. Weights are the GGUF file's, decoded to f32, so that llama.cpp rounds no activations.

The lead is what a comparison needs. Two engines that add the same f32 numbers in another order differ by some 1e-4 in a
logit; the same token is then certain where the lead is larger than twice that. `exact_bound` is 0.02. A run that rounds
activations to 8 bits differs by more. llama.cpp does so itself with the Q4_1 file: the script feeds that run the same
tokens and notes `rounding`, the largest change of the lead among all steps. Rounding may change a lead by that much in
another engine too, so it is the bound for a default run.

perplexity.json holds llama.cpp's losses on the beginning of a text, by the protocol of its perplexity tool in windows of
512, with keys and values in f32: the mean of each window for the weights in f16 and for the Q4_1 file, and both
perplexities.

The text is shared/corpus/tales-valid.txt beside the checkout. Needs llama-cpp-python, numpy and the model (scripts/models/get_models).
"""

import argparse
import ctypes
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

CONTEXT, TOKENS, WINDOW = 2048, 64, 512
EXACT_BOUND = 0.02
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
QUESTIONS = [
    "What is the capital of France?",
    "Why is the sky blue?",
    "Write a short poem about the sea.",
    "How many legs does a spider have?",
    "Explain in two sentences what a computer program is.",
    "Name three animals that live in the forest.",
    "What is 12 plus 7?",
    "Translate 'good morning' into Spanish.",
    "Who wrote Romeo and Juliet?",
    "Give me a recipe for pancakes.",
]
ROOT = pathlib.Path(__file__).resolve().parents[2]
F32, F16 = 0, 1  # llama_ftype


def prompt_of(question):
    """Returns a question as the chat template of SmolLM2 writes it."""
    return (f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n"
            "<|im_start|>assistant\n")


class Engine:
    """llama.cpp with one model."""

    def __init__(self, llama_cpp, np, path, context, threads):
        self.lib, self.np = llama_cpp, np
        self.model = llama_cpp.Llama(str(path), n_ctx=context, n_batch=context, n_ubatch=context, logits_all=True,
                                     verbose=False, n_threads=threads, n_threads_batch=threads,
                                     type_k=llama_cpp.GGML_TYPE_F32, type_v=llama_cpp.GGML_TYPE_F32)
        self.end = {self.model.token_eos()}

    def logits(self, row):
        """Returns the logits after a token of the last batch, in f64."""
        pointer = self.lib.llama_get_logits_ith(self.model.ctx, row)
        values = self.np.ctypeslib.as_array(ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float)),
                                            (self.model.n_vocab(),))
        return values.astype(self.np.float64)

    def greedy(self, prompt):
        """Returns the tokens of the answer and the lead of each."""
        tokens, leads = [], []
        self.model.reset()
        self.model.eval(prompt)
        while True:
            row = self.logits(-1)
            second, best = self.np.partition(row, -2)[-2:]
            tokens.append(int(row.argmax()))
            leads.append(round(float(best - second), 4))
            if tokens[-1] in self.end or len(tokens) == TOKENS:
                return tokens, leads
            self.model.eval([tokens[-1]])

    def leads_along(self, prompt, answer, others):
        """Returns by how much each token of an answer leads over `others`, the answer given."""
        leads = []
        self.model.reset()
        self.model.eval(prompt + answer[:-1])
        for step, token in enumerate(answer):
            row = self.logits(len(prompt) - 1 + step)
            leads.append(float(row[token] - row[others[step]]))
        return leads

    def seconds(self, prompt, answer):
        """Returns the token that llama.cpp finds second best at each step of an answer."""
        self.model.reset()
        self.model.eval(prompt + answer[:-1])
        found = []
        for step, token in enumerate(answer):
            row = self.logits(len(prompt) - 1 + step)
            row[token] = -math.inf
            found.append(int(row.argmax()))
        return found

    def losses(self, tokens):
        """Returns the mean loss of the second half of each window."""
        found = []
        for window in range(len(tokens) // WINDOW):
            losses = []
            part = tokens[window * WINDOW:(window + 1) * WINDOW]
            self.model.reset()
            self.model.eval(part)
            for i in range(WINDOW // 2, WINDOW - 1):
                row = self.logits(i)
                top = row.max()
                losses.append(top + math.log(self.np.exp(row - top).sum()) - row[part[i + 1]])
            found.append(round(sum(losses) / len(losses), 6))
        return found


def decoded(llama_cpp, gguf, out, ftype):
    """Writes a GGUF file with its weights as f32 or f16 and returns its path."""
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype, params.allow_requantize, params.nthread = ftype, True, 2
    if llama_cpp.llama_model_quantize(str(gguf).encode(), str(out).encode(), ctypes.byref(params)) != 0:
        sys.exit(f"make_smollm2_golden.py: llama.cpp could not decode {gguf}")
    return out


def answers(exact, rounded):
    """Returns the answers of the exact engine, and how much rounding changes a lead."""
    found, rounding = [], 0.0
    for question in QUESTIONS:
        prompt = exact.model.tokenize(prompt_of(question).encode(), add_bos=False, special=True)
        tokens, leads = exact.greedy(prompt)
        others = exact.seconds(prompt, tokens)
        changes = [abs(a - b) for a, b in zip(exact.leads_along(prompt, tokens, others),
                                              rounded.leads_along(prompt, tokens, others))]
        rounding = max(rounding, *changes)
        text = exact.model.detokenize(tokens, special=True).decode("utf-8", "replace")
        print(f"{question} {text!r}, smallest lead {min(leads):.4f}, rounding {max(changes):.4f}", flush=True)
        found.append({"question": question, "prompt": prompt, "answer": tokens, "leads": leads,
                      "text": text.encode("ascii", "backslashreplace").decode()})
    return found, rounding


def perplexity(losses):
    return round(math.exp(sum(losses) / len(losses)), 4)


def as_lines(content):
    """Returns JSON with one field a line, and one line for each item of a list of objects."""
    fields = []
    for name, value in content.items():
        if isinstance(value, list) and isinstance(value[0], dict):
            text = "[\n  " + ",\n  ".join(json.dumps(item) for item in value) + "\n ]"
        else:
            text = json.dumps(value)
        fields.append(f" {json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(fields) + "\n}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("out", metavar="OUT_DIR", type=pathlib.Path)
    parser.add_argument("--text", metavar="FILE", type=pathlib.Path, required=True)
    parser.add_argument("--bytes", type=int, default=60000, help="how much of the text perplexity is of")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", choices=["answers", "perplexity"])
    args = parser.parse_args()
    try:
        import llama_cpp
        import numpy as np
    except ImportError as error:
        sys.exit(f"make_smollm2_golden.py: {error}; install it with: pip install llama-cpp-python")
    gguf = subprocess.run([ROOT / "scripts" / "models" / "get_models"], stdout=subprocess.PIPE, text=True,
                          check=True).stdout.strip()
    about = {"model": os.path.basename(gguf), "engine": f"llama.cpp, llama-cpp-python {llama_cpp.__version__}"}
    args.out.mkdir(parents=True, exist_ok=True)

    def write(name, content):
        (args.out / name).write_text(as_lines({**about, **content}), encoding="ascii")

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        if args.only != "perplexity":
            f32 = Engine(llama_cpp, np, decoded(llama_cpp, gguf, folder / "f32.gguf", F32), CONTEXT, args.threads)
            found, rounding = answers(f32, Engine(llama_cpp, np, gguf, CONTEXT, args.threads))
            write("answers.json", {"exact_bound": EXACT_BOUND, "rounding": round(rounding, 4),
                                   "answers": found})
        if args.only != "answers":
            f16 = Engine(llama_cpp, np, decoded(llama_cpp, gguf, folder / "f16.gguf", F16), WINDOW, args.threads)
            tokens = f16.model.tokenize(args.text.read_bytes()[:args.bytes], add_bos=False, special=False)
            of_f16 = f16.losses(tokens)
            of_q4_1 = Engine(llama_cpp, np, gguf, WINDOW, args.threads).losses(tokens)
            write("perplexity.json", {"text": args.text.name, "bytes": args.bytes, "context": WINDOW,
                                      "f16": perplexity(of_f16), "q4_1": perplexity(of_q4_1),
                                      "n_tokens": len(tokens), "f16_losses": of_f16, "q4_1_losses": of_q4_1})
    return 0


if __name__ == "__main__":
    sys.exit(main())
