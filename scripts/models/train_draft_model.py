#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trains a draft model: a smaller LLaMA that learns the next tokens of a larger one by distillation.

    train_draft_model.py MODEL_DIR TEXT OUT_DIR [--layers 1] [--hidden 128] [--minutes 5]
    qsf convert OUT_DIR draft.qsf
    qsf run MODEL.qsf --draft draft.qsf ...

MODEL_DIR has a model of train_model.py, TEXT a text as that script takes it. The draft model has the tokenizer of
MODEL_DIR, its embedding begins as the principal directions of the model's, and it is trained to the model's
probabilities. OUT_DIR gets the files that train_model.py writes. The defaults are those of the pair in
docs/decisions/055-speculation.md.

Needs torch, numpy, safetensors and sentencepiece.
"""

import argparse
import json
import pathlib
import random
import sys
import time

import numpy as np
import sentencepiece
import torch
from safetensors.torch import load_file
from train_model import LanguageModel, learning_rate, read_books, save, tokenize
from torch.nn.utils import clip_grad_norm_

LOG_EVERY = 50


def read_model(folder):
    """Returns a model of train_model.py in f32."""
    model = LanguageModel(json.loads((folder / "config.json").read_text()))
    model.load_state_dict({name: part.float() for name, part in load_file(folder / "model.safetensors").items()})
    return model.eval()


def make_draft(model, args):
    """Returns an untrained draft model."""
    config = dict(model.config, hidden_size=args.hidden, intermediate_size=3 * args.hidden,
                  num_hidden_layers=args.layers, num_attention_heads=args.hidden // 64, num_key_value_heads=1)
    draft = LanguageModel(config)
    with torch.no_grad():
        embedding = model.model.embed_tokens.weight
        directions = torch.linalg.svd(embedding, full_matrices=False)[2]
        draft.model.embed_tokens.weight.copy_(embedding @ directions[:args.hidden].T)
    return draft


def read_tokens(path, tokenizer, args):
    """Returns the tokens of whole books in random order."""
    books = read_books(path)
    random.Random(args.seed).shuffle(books)
    n_bytes, n_books = 0, 0
    while n_books < len(books) and n_bytes < args.bytes:
        n_bytes += len(books[n_books])
        n_books += 1
    return tokenize(tokenizer, books[:n_books])


def train(draft, model, ids, args):
    """Trains in place. The loss is the cross-entropy to the model's probabilities."""
    matrices = [p for p in draft.parameters() if p.dim() == 2]
    gains = [p for p in draft.parameters() if p.dim() != 2]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.05}, {"params": gains, "weight_decay": 0.0}],
                                  lr=args.rate, betas=(0.9, 0.95))
    starts = np.random.default_rng(args.seed)
    begin, progress, step, divergence, n_same = time.monotonic(), 0.0, 0, 0.0, 0.0
    while progress < 1.0:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, progress, args)
        rows = torch.stack([ids[s:s + args.window] for s in starts.integers(0, len(ids) - args.window, args.rows)]).long()
        with torch.no_grad():
            wanted = model(rows).log_softmax(-1)
        got = draft(rows).log_softmax(-1)
        loss = (wanted.exp() * (wanted - got)).sum(-1).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        clip_grad_norm_(draft.parameters(), 1.0)
        optimizer.step()
        step += 1
        divergence += loss.item() / LOG_EVERY
        n_same += (got.argmax(-1) == wanted.argmax(-1)).float().mean().item() / LOG_EVERY
        progress = (time.monotonic() - begin) / 60 / args.minutes
        if step % LOG_EVERY == 0:
            print(f"step {step}: {100 * progress:.0f} %, divergence {divergence:.3f}, "
                  f"equal top tokens {100 * n_same:.1f} %", flush=True)
            divergence = n_same = 0.0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("model", metavar="MODEL_DIR", type=pathlib.Path)
    add("text", metavar="TEXT", type=pathlib.Path)
    add("out", metavar="OUT_DIR", type=pathlib.Path)
    add("--layers", type=int, default=1, metavar="N")
    add("--hidden", type=int, default=128, metavar="N", help="a multiple of 64, the size of a head")
    add("--minutes", type=float, default=5.0, metavar="N")
    add("--bytes", type=int, default=6_000_000, metavar="N", help="of TEXT that are learned from")
    add("--window", type=int, default=128, metavar="N", help="tokens of a row")
    add("--rows", type=int, default=8, metavar="N", help="of a step")
    add("--rate", type=float, default=3e-3, metavar="R")
    add("--warmup", type=int, default=20, metavar="N")
    add("--final-rate", type=float, default=0.05, metavar="SHARE")
    add("--seed", type=int, default=1, metavar="N")
    args = parser.parse_args()
    if args.hidden < 64 or args.hidden % 64 != 0:
        parser.error(f"--hidden: {args.hidden}, expected a multiple of 64")
    torch.manual_seed(args.seed)
    model = read_model(args.model)
    tokenizer_bytes = (args.model / "tokenizer.model").read_bytes()
    tokenizer = sentencepiece.SentencePieceProcessor(model_proto=tokenizer_bytes)
    draft = make_draft(model, args)
    train(draft, model, read_tokens(args.text, tokenizer, args), args)
    save(draft, tokenizer_bytes, args.out)


if __name__ == "__main__":
    sys.exit(main())
