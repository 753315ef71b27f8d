#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Studies what can be left out of a LLaMA: whole layers, attention or FFNs of layers, columns of FFNs, later layers.

    study_left_out_layers.py GGUF TEXT TRAINING_TEXT [--windows 12] [--share 0.2] [--studies layers parts replaced columns exits]

Runs the weights of a GGUF file in f32 with transformers. Everything is chosen on windows of TRAINING_TEXT and scored on
the second halves of those of TEXT: divergence from the whole model, rise of perplexity, equal top tokens. The first two
and the last two layers stay. docs/results/left-out-layers.json has the figures.
"""

import argparse
import lzma
import math
import os
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

CONTEXT = 512
ENDS = 2
EXITS = (0.02, 0.05, 0.1)  # shares of the rows, the surest first


class Model:
    """The layers of a LLaMA one by one. A plan has what takes the place of a layer: a function of the stream."""

    def __init__(self, path):
        folder, name = os.path.split(path)
        self.tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
        whole = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32).eval()
        self.body, self.head = whole.model, whole.lm_head
        self.layers = self.body.layers
        positions = torch.arange(CONTEXT)[None]
        self.rope = self.body.rotary_emb(torch.zeros(1, 1, whole.config.hidden_size), positions)
        self.mask = torch.full((CONTEXT, CONTEXT), float("-inf")).triu(1)[None, None]

    def middle(self):
        return range(ENDS, len(self.layers) - ENDS)

    def windows(self, text, first, n):
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        if len(ids) < (first + n) * CONTEXT:
            sys.exit(f"study_left_out_layers.py: {len(ids)} tokens of a text, expected {(first + n) * CONTEXT}")
        return torch.tensor(ids[first * CONTEXT:(first + n) * CONTEXT]).reshape(n, CONTEXT)

    def attention(self, i, h):
        layer = self.layers[i]
        return h + layer.self_attn(hidden_states=layer.input_layernorm(h), position_embeddings=self.rope,
                                   attention_mask=self.mask)[0]

    def ffn(self, i, h):
        return h + self.layers[i].mlp(self.layers[i].post_attention_layernorm(h))

    def activated(self, i, h):
        """Returns what the down projection of a layer takes; h is behind its attention."""
        mlp, x = self.layers[i].mlp, self.layers[i].post_attention_layernorm(h)
        return mlp.act_fn(mlp.gate_proj(x)) * mlp.up_proj(x)

    def layer(self, i, h, plan):
        return plan[i](h) if i in plan else self.ffn(i, self.attention(i, h))

    def log_probs(self, h):
        return torch.log_softmax(self.head(self.body.norm(h[CONTEXT // 2:-1])), -1)


class Scored:
    """Windows with what the whole model makes of them."""

    def __init__(self, model, tokens):
        self.model, self.tokens = model, tokens
        self.streams = [model.body.embed_tokens(tokens)]  # in front of every layer, and behind the last
        for i in range(len(model.layers)):
            self.streams.append(model.layer(i, self.streams[-1], {}))
        self.whole = [model.log_probs(h) for h in self.streams[-1]]

    def rows(self, stream):
        """Returns divergence, loss over the whole model's, equality of the top token and certainty of every row."""
        columns = []
        for h, whole, tokens in zip(stream, self.whole, self.tokens):
            got, wanted = self.model.log_probs(h), tokens[CONTEXT // 2 + 1:, None]
            columns.append(((whole.exp() * (whole - got)).sum(-1), (whole - got).gather(1, wanted)[:, 0],
                            (got.argmax(-1) == whole.argmax(-1)).float(), got.max(-1).values))
        return [torch.cat(column) for column in zip(*columns)]

    def run(self, plan):
        first = min(plan)
        h = self.streams[first]
        for i in range(first, len(self.model.layers)):
            h = self.model.layer(i, h, plan)
        return [column.mean().item() for column in self.rows(h)]

    def show(self, name, plan):
        divergence, loss, same, _ = self.run(plan)
        print(f"| {name} | {100 * (math.exp(loss) - 1):+.1f} % | {divergence:.4f} | {100 * same:.1f} % |", flush=True)


def skip(h):
    return h


def study_layers(model, chosen, scored, share):
    alone = {i: chosen.run({i: skip}) for i in model.middle()}
    cosine = {i: torch.cosine_similarity(chosen.streams[i][:, 1:], chosen.streams[i + 1][:, 1:], dim=-1).mean().item()
              for i in model.middle()}
    orders = {"loss": sorted(alone, key=lambda i: alone[i][1]), "divergence": sorted(alone, key=lambda i: alone[i][0]),
              "cosine": sorted(alone, key=lambda i: -cosine[i])}
    n_most = max(1, round(share * len(model.layers)))
    greedy, left = [], orders["divergence"]
    for _ in range(n_most):
        tried = {i: chosen.run({j: skip for j in [*greedy, i]})[0] for i in left[:8]}
        left = sorted(tried, key=tried.get) + left[8:]
        greedy.append(left.pop(0))
    orders["greedy"] = greedy
    for name, order in orders.items():
        for n in sorted({1, 2, 3, n_most}):
            scored.show(f"{n} layers by {name}: {sorted(order[:n])}", {i: skip for i in order[:n]})
    return orders["loss"][:n_most]


def study_parts(model, chosen, scored, share):
    def without(i, parts):
        return skip if len(parts) == 2 else (lambda h: model.ffn(i, h)) if "attention" in parts else (lambda h: model.attention(i, h))
    size = {name: sum(p.numel() for p in module.parameters()) / sum(p.numel() for p in model.layers[0].parameters())
            for name, module in (("attention", model.layers[0].self_attn), ("ffn", model.layers[0].mlp))}
    cost = {(i, part): chosen.run({i: without(i, (part,))})[0] / size[part] for i in model.middle() for part in size}
    for kinds in (("attention", "ffn"), ("ffn",), ("attention",)):
        taken, spent = {}, 0.0
        for i, part in sorted((key for key in cost if key[1] in kinds), key=cost.get):
            if spent + size[part] <= share * len(model.layers) + 0.01:
                taken.setdefault(i, []).append(part)
                spent += size[part]
        scored.show(f"{' and '.join(kinds)}, {spent:.2f} layers", {i: without(i, parts) for i, parts in taken.items()})


def study_replaced(model, chosen, scored, left_out):
    """Replaces each layer by what fits its output best, of the stream that the layers before it leave."""
    def fit(kind, x, y):
        weight = x.pow(2).mean(1, keepdim=True).rsqrt()
        if kind == "gain":
            gain = ((x * y * weight ** 2).sum() / (x * weight).pow(2).sum()).item()
            return lambda h: gain * h
        if kind == "scale and bias":
            scale = ((x - x.mean(0)) * (y - y.mean(0))).sum(0) / (x - x.mean(0)).pow(2).sum(0)
            bias = y.mean(0) - scale * x.mean(0)
            return lambda h: scale.float() * h + bias.float()
        wide = torch.cat([x, torch.ones_like(x[:, :1])], 1) * weight
        square = wide.T @ wide
        square += 0.01 * square.diagonal().mean() * torch.eye(len(square), dtype=square.dtype)
        matrix = torch.linalg.solve(square, wide.T @ ((y - x) * weight)).float()
        return lambda h: h + h @ matrix[:-1] + matrix[-1]
    for kind in ("gain", "scale and bias", "matrix"):
        plan, h = {}, chosen.streams[min(left_out)]
        for i in range(min(left_out), max(left_out) + 1):
            if i in left_out:
                plan[i] = fit(kind, h[:, 4:].flatten(0, 1).double(), chosen.streams[i + 1][:, 4:].flatten(0, 1).double())
            h = model.layer(i, h, plan)
        scored.show(f"{len(left_out)} layers replaced by a {kind}", plan)


def study_columns(model, chosen, scored, share):
    def cut(i, part):
        mlp = model.layers[i].mlp
        rows = model.activated(i, model.attention(i, chosen.streams[i]))[:, 4:].flatten(0, 1)
        mean, worth = rows.mean(0), rows.var(0) * mlp.down_proj.weight.pow(2).sum(0)
        lost = worth.argsort()[:int(part * len(worth))]
        return lambda h: model.attention(i, h) + mlp.down_proj(
            model.activated(i, model.attention(i, h)).index_copy(2, lost, mean[lost].expand(*h.shape[:2], -1)))
    n_ffn = sum(p.numel() for p in model.layers[0].mlp.parameters())
    of_ffn = sum(p.numel() for p in model.layers[0].parameters()) / n_ffn
    for part in (share / 4, share / 2, share):
        scored.show(f"FFN columns, {100 * part:.0f} % of the middle layers", {i: cut(i, part * of_ffn) for i in model.middle()})


def study_exits(model, scored):
    for behind in range(len(model.layers) // 2, len(model.layers), 2):
        divergence, _, same, certainty = scored.rows(scored.streams[behind])
        surest = certainty.argsort(descending=True)
        parts = [surest[:max(1, int(part * len(surest)))] for part in EXITS]
        print(f"| head behind {behind} layers | {100 * same.mean():.1f} % | " +
              " | ".join(f"{divergence[rows].mean():.2f}, {100 * same[rows].mean():.1f} %" for rows in parts) + " |", flush=True)


def read(path):
    with (lzma.open if path.endswith(".xz") else open)(path, "rt", encoding="utf-8") as file:
        return file.read(400000)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("gguf", metavar="GGUF")
    parser.add_argument("text", metavar="TEXT")
    parser.add_argument("training", metavar="TRAINING_TEXT")
    parser.add_argument("--windows", type=int, default=12, metavar="N")
    parser.add_argument("--share", type=float, default=0.2, metavar="X", help="of the layers")
    parser.add_argument("--threads", type=int, default=1, metavar="N")
    known = ("layers", "parts", "replaced", "columns", "exits")
    parser.add_argument("--studies", nargs="+", choices=known, default=known, metavar="NAME")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.set_grad_enabled(False)
    model = Model(args.gguf)
    scored = Scored(model, model.windows(read(args.text), 0, args.windows))
    training = read(args.training)
    chosen = Scored(model, model.windows(training, 20, 4))
    print("| left out | over the whole | KLD | top-1 |\n|---|---|---|---|")
    if "layers" in args.studies or "replaced" in args.studies:
        left_out = study_layers(model, chosen, scored, args.share)
    if "parts" in args.studies:
        study_parts(model, chosen, scored, args.share)
    if "replaced" in args.studies:
        study_replaced(model, Scored(model, model.windows(training, 40, args.windows)), scored, left_out)
    if "columns" in args.studies:
        study_columns(model, Scored(model, model.windows(training, 40, args.windows)), scored, args.share)
    if "exits" in args.studies:
        print("\n| exit | all | " + " | ".join(f"surest {100 * part:.0f} %" for part in EXITS) + " |\n|---|---|---|---|---|")
        study_exits(model, scored)


if __name__ == "__main__":
    main()
