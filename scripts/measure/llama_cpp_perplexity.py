#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Perplexity by llama.cpp, as a reference for qsf-perplexity.

    llama_cpp_perplexity.py MODEL.gguf --file TEXT [--context 512] [--bytes N]

Needs the package llama-cpp-python. The protocol is that of llama.cpp's perplexity tool: the text is
tokenised once, cut into windows of the context length, the first token of each window is replaced by
the beginning-of-text token where the model has one, and the second half of each window is scored.
Prints the same last line as qsf-perplexity: PPL = x +/- y.
"""

import argparse
import ctypes
import math
import sys


def log_probability(logits, token, np):
    """Natural log of the softmax of one row at one token, in double precision."""
    row = logits.astype(np.float64)
    top = row.max()
    return row[token] - top - math.log(np.exp(row - top).sum())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--file", required=True, help="the text")
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--bytes", type=int, default=0, help="take the first N bytes only")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    try:
        import llama_cpp
        import numpy as np
    except ImportError as error:
        sys.exit(f"llama_cpp_perplexity.py: {error}; install it with: pip install llama-cpp-python")

    with open(args.file, "rb") as file:
        text = file.read(args.bytes or -1)
    model = llama_cpp.Llama(args.model, n_ctx=args.context, n_batch=args.context,
                            n_ubatch=args.context, logits_all=True, verbose=False,
                            n_threads=args.threads, n_threads_batch=args.threads,
                            type_k=llama_cpp.GGML_TYPE_F32, type_v=llama_cpp.GGML_TYPE_F32)
    vocab = llama_cpp.llama_model_get_vocab(model.model)
    add_bos = llama_cpp.llama_vocab_get_add_bos(vocab)
    tokens = model.tokenize(text, add_bos=bool(add_bos), special=False)
    n_windows = len(tokens) // args.context
    if n_windows == 0:
        sys.exit(f"llama_cpp_perplexity.py: {len(tokens)} tokens, expected at least {args.context}")
    first = args.context // 2
    n_vocab = model.n_vocab()
    losses = []
    for window in range(n_windows):
        part = tokens[window * args.context:(window + 1) * args.context]
        if add_bos:
            part[0] = model.token_bos()
        model.reset()
        model.eval(part)
        for i in range(first, args.context - 1):
            pointer = llama_cpp.llama_get_logits_ith(model.ctx, i)
            row = np.ctypeslib.as_array(ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float)), (n_vocab,))
            losses.append(-log_probability(row, part[i + 1], np))
    mean = sum(losses) / len(losses)
    variance = sum(x * x for x in losses) / len(losses) - mean * mean
    ppl = math.exp(mean)
    print(f"{n_windows} windows of {args.context}, {len(losses)} tokens scored")
    print(f"PPL = {ppl:.4f} +/- {ppl * math.sqrt(variance / (len(losses) - 1)):.4f}")


if __name__ == "__main__":
    main()
