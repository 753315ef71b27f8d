#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Records which experts a trained mixture chooses on a text, as Hugging Face's transformers computes it.

The text is run in windows; every token is written as a generated row, with the experts that each layer's
router chooses in order of their scores, and their weights. The file is one that expert_policies.py and
`qsf bench --routing` read. `qsf bench --record-routing` writes the same of the engine's own passes.

Example: record_routings.py FOLDER TEXT routings.txt --tokens 2048
Needs torch, transformers and sentencepiece.
"""

import argparse
import sys


def windows(ids, bos, length, n_tokens):
    """Yields lists of at most `length` tokens that begin with `bos`, n_tokens in all."""
    for start in range(0, min(len(ids), n_tokens), length):
        yield [bos] + ids[start:min(start + length, n_tokens)]


def choices(logits, n_used):
    """Returns (experts, weights) of every row, the first expert first.

    The weights are a softmax over the chosen scores, as of Mixtral.
    """
    import torch
    scores, experts = torch.topk(logits.float(), n_used, dim=-1)
    return experts.tolist(), torch.softmax(scores, dim=-1).tolist()


def write(file, layers):
    """Writes the rows of one window: layers [layer] of (experts, weights) by row; the first is the bos."""
    for row in range(1, len(layers[0][0])):
        for layer, (experts, weights) in enumerate(layers):
            words = " ".join(f"{e}:{w:.4f}" for e, w in zip(experts[row], weights[row]))
            file.write(f"g {layer} {words}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("folder", help="Mixtral-shaped model, as scripts/models/train_model.py --experts writes")
    parser.add_argument("text")
    parser.add_argument("out")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--window", type=int, default=512)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    import sentencepiece
    import torch
    import transformers
    torch.set_num_threads(args.threads)
    model = transformers.AutoModelForCausalLM.from_pretrained(args.folder, dtype=torch.float32).eval()
    pieces = sentencepiece.SentencePieceProcessor(model_file=f"{args.folder}/tokenizer.model")
    with open(args.text, encoding="utf-8") as file:
        ids = pieces.encode(file.read(8 * args.tokens))
    n_used = model.config.num_experts_per_tok
    with open(args.out, "w", encoding="ascii") as file, torch.no_grad():
        file.write("qsf-routing 1\n")
        for window in windows(ids, pieces.bos_id(), args.window, args.tokens):
            out = model(torch.tensor([window]), output_router_logits=True)
            write(file, [choices(logits, n_used) for logits in out.router_logits])
    return 0


if __name__ == "__main__":
    sys.exit(main())
