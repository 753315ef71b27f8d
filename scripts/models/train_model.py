#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trains a small language model from a text file, LLaMA-shaped, or Mixtral-shaped with --experts.

    train_model.py TEXT OUT_DIR              trains; the defaults are those of models/tales-5M
    train_model.py --check DIR               compares this script's model with transformers and,
                                             with --valid FILE, measures its loss there

TEXT has one paragraph a line and a line `<|endoftext|>` between books; a name that ends in .xz is
decompressed on the way. The steps: a SentencePiece BPE with byte fallback is trained on the text;
each book becomes <s> pieces </s>; a LLaMA-shaped network (RMSNorm, rotary positions, grouped
queries, SwiGLU) written out below learns to predict the stream with AdamW, on windows that grow
in stages, because short windows teach most of the language at a fraction of the cost; OUT_DIR
receives config.json, model.safetensors (f16), tokenizer.model and tokenizer_config.json as
Hugging Face names them.

Needs torch, numpy, safetensors and sentencepiece; --check also transformers.
"""

import argparse
import contextlib
import io
import json
import lzma
import math
import pathlib
import random
import sys
import time

import numpy as np
import sentencepiece
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "measure"))
import planted_facts  # noqa: E402  (the path has to be there first)

BOOK_END = "<|endoftext|>"
BOS, EOS = 1, 2


class RmsNorm(nn.Module):
    def __init__(self, width, epsilon):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x):
        x = x.float()
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon))


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden = config["hidden_size"]
        self.n_heads = config["num_attention_heads"]
        self.n_kv_heads = config["num_key_value_heads"]
        self.head_dim = hidden // self.n_heads
        self.q_proj = nn.Linear(hidden, hidden, bias=False)
        self.k_proj = nn.Linear(hidden, self.n_kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(hidden, self.n_kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x, cos, sin):
        n_rows, length, _ = x.shape
        heads = (n_rows, length, -1, self.head_dim)
        q = rotate(self.q_proj(x).view(heads).transpose(1, 2), cos, sin)
        k = rotate(self.k_proj(x).view(heads).transpose(1, 2), cos, sin)
        v = self.v_proj(x).view(heads).transpose(1, 2)
        group = self.n_heads // self.n_kv_heads
        k, v = (t.repeat_interleave(group, dim=1) for t in (k, v))
        y = functional.scaled_dot_product_attention(q, k.to(v.dtype), v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(n_rows, length, -1))


class Mlp(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden, inner = config["hidden_size"], config["intermediate_size"]
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x):
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Expert(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden, inner = config["hidden_size"], config["intermediate_size"]
        self.w1 = nn.Linear(hidden, inner, bias=False)
        self.w2 = nn.Linear(inner, hidden, bias=False)
        self.w3 = nn.Linear(hidden, inner, bias=False)

    def forward(self, x):
        return self.w2(functional.silu(self.w1(x)) * self.w3(x))


class Mixture(nn.Module):
    """Each row goes through the few experts with the largest scores; their weights have the sum 1."""

    def __init__(self, config):
        super().__init__()
        self.n_used = config["num_experts_per_tok"]
        self.gate = nn.Linear(config["hidden_size"], config["num_local_experts"], bias=False)
        self.experts = nn.ModuleList(Expert(config) for _ in range(config["num_local_experts"]))
        self.imbalance = 0.0  # of the last call; 1 where all experts are used alike

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        shares = functional.linear(rows.float(), self.gate.weight.float()).softmax(-1)
        weights, chosen = shares.topk(self.n_used, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        used = functional.one_hot(chosen, len(self.experts)).sum(1).float()
        self.imbalance = (used.mean(0) * shares.mean(0)).sum() * len(self.experts) / self.n_used
        combine = self.every_expert if rows.is_cuda else self.chosen_experts
        return combine(rows, weights, chosen).view(x.shape)

    def chosen_experts(self, rows, weights, chosen):
        out = torch.zeros_like(rows)
        for number, expert in enumerate(self.experts):
            of_rows, rank = torch.where(chosen == number)
            part = expert(rows[of_rows]) * weights[of_rows, rank, None].to(rows.dtype)
            out = out.index_add(0, of_rows, part.to(out.dtype))
        return out

    def every_expert(self, rows, weights, chosen):
        """The same sum as three wide products: more arithmetic, no wait for the GPU's choices."""
        w1, w3 = (torch.cat([getattr(e, name).weight for e in self.experts]) for name in ("w1", "w3"))
        w2 = torch.cat([e.w2.weight for e in self.experts], dim=1)
        inner = functional.silu(functional.linear(rows, w1)) * functional.linear(rows, w3)
        by_expert = torch.zeros(len(rows), len(self.experts), device=rows.device)
        by_expert = by_expert.scatter(1, chosen, weights).to(inner.dtype)
        width = inner.shape[1] // len(self.experts)
        return functional.linear(inner * by_expert.repeat_interleave(width, dim=1), w2)


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.input_layernorm = RmsNorm(config["hidden_size"], config["rms_norm_eps"])
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RmsNorm(config["hidden_size"], config["rms_norm_eps"])
        if "num_local_experts" in config:
            self.block_sparse_moe = Mixture(config)
        else:
            self.mlp = Mlp(config)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        ffn = self.block_sparse_moe if hasattr(self, "block_sparse_moe") else self.mlp
        return x + ffn(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embed_tokens = nn.Embedding(config["vocab_size"], config["hidden_size"])
        self.layers = nn.ModuleList(Layer(config) for _ in range(config["num_hidden_layers"]))
        self.norm = RmsNorm(config["hidden_size"], config["rms_norm_eps"])


class LanguageModel(nn.Module):
    """Module names are those of Hugging Face, so the state dict is the checkpoint."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.model = Decoder(config)
        if not config["tie_word_embeddings"]:
            self.lm_head = nn.Linear(config["hidden_size"], config["vocab_size"], bias=False)
        residual_scale = (2 * config["num_hidden_layers"]) ** -0.5
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                into_residual = "o_proj" in name or "down_proj" in name or "w2" in name
                nn.init.normal_(parameter, std=0.02 * (residual_scale if into_residual else 1))

    def forward(self, tokens):
        """Returns logits [rows, length, vocab] of tokens [rows, length]."""
        cos, sin = rotation(self.config, tokens.shape[1], tokens.device)
        x = self.model.embed_tokens(tokens)
        for layer in self.model.layers:
            x = layer(x, cos, sin)
        x = self.model.norm(x)
        if self.config["tie_word_embeddings"]:
            return functional.linear(x, self.model.embed_tokens.weight)
        return self.lm_head(x)


    def imbalance(self):
        """The mean over the layers with experts in the last call, or 0 without."""
        mixtures = [m for m in self.modules() if isinstance(m, Mixture)]
        return sum(m.imbalance for m in mixtures) / max(len(mixtures), 1)


def rotation(config, length, device):
    width = config["hidden_size"] // config["num_attention_heads"]
    exponents = torch.arange(0, width, 2, device=device).float() / width
    angles = torch.outer(torch.arange(length, device=device).float(),
                         config["rope_theta"] ** -exponents)
    return angles.cos(), angles.sin()


def rotate(x, cos, sin):
    """Turns the pairs (i, i + width / 2) of each head by the angle of its position."""
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)


def read_books(path):
    """Returns the books of a text file as strings without the separator lines."""
    opener = lzma.open if path.suffix == ".xz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        books = (book.strip("\n") for book in file.read().split(BOOK_END))
        return [book for book in books if book]


def train_tokenizer(books, args):
    """Returns a serialised SentencePiece model: BPE, digits apart, unknown bytes as <0xNN>."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(line for book in books for line in book.split("\n")),
        model_writer=out, model_type="bpe", vocab_size=args.vocab,
        character_coverage=args.character_coverage, byte_fallback=True, split_digits=True,
        allow_whitespace_only_pieces=True, normalization_rule_name="identity",
        remove_extra_whitespaces=False, input_sentence_size=200000, max_sentence_length=16384,
        shuffle_input_sentence=True, unk_id=0, bos_id=BOS, eos_id=EOS, pad_id=-1,
        num_threads=args.threads, minloglevel=1)
    return out.getvalue()


def tokenize(tokenizer, books):
    ids = []
    for book in books:
        ids += [BOS, *tokenizer.encode(book), EOS]
    return torch.tensor(np.array(ids, dtype=np.int32))


def parse_stages(text):
    """Turns "256:60,512:25" into [(256, 0.6), (512, 0.85)]: window and end of its share."""
    stages, total = [], 0.0
    pairs = [pair.split(":") for pair in text.split(",")]
    whole = sum(float(share) for _, share in pairs)
    for window, share in pairs:
        total += float(share) / whole
        stages.append((int(window), total))
    return stages


def learning_rate(step, progress, args):
    """Linear warm-up over steps, then a cosine over progress in [0, 1] to the final share."""
    cosine = 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))
    decayed = args.final_rate + (1 - args.final_rate) * cosine
    return args.rate * min((step + 1) / max(args.warmup, 1), 1.0) * decayed


def products(args):
    if args.precision == "f32":
        return contextlib.nullcontext()
    return torch.autocast(args.device.split(":")[0], dtype=torch.bfloat16)


def token_losses(model, windows, args):
    """Returns the losses [rows, length] of windows [rows, length + 1] at predicting each next token."""
    windows = windows.to(args.device, torch.long)
    with products(args):
        logits = model(windows[:, :-1])
    return functional.cross_entropy(logits.float().transpose(1, 2), windows[:, 1:], reduction="none")


class Batches:
    """Random windows of the training text, with planted facts where --facts asks for them."""

    def __init__(self, ids, tokenizer, args):
        self.ids = ids
        self.tokenizer = tokenizer
        self.args = args
        self.starts = np.random.default_rng(args.seed)
        self.facts = random.Random(args.seed)
        self.words = planted_facts.Words(tokenizer) if args.facts else None

    def draw(self, n_rows, length):
        """Returns (windows [n_rows, length + 1], roles [n_rows, length] of the tokens to predict)."""
        starts = self.starts.integers(0, len(self.ids) - length, n_rows)
        rows = [self.ids[s:s + length + 1] for s in starts]
        if not self.args.facts:
            return torch.stack(rows), torch.zeros(n_rows, length, dtype=torch.long)
        planted = [planted_facts.plant(row.tolist(), self.tokenizer, self.words, self.facts, self.args.facts)
                   for row in rows]
        windows, roles = (torch.tensor(part) for part in zip(*planted))
        return windows, roles[:, 1:]


class Meter:
    """Means of the losses of tokens by their role, since they were last told."""

    def __init__(self):
        self.sums = {}

    def add(self, losses, roles):
        for role in (0, planted_facts.AGAIN):
            of_role = losses.detach()[roles == role]
            total, n = self.sums.get(role, (0.0, 0))
            self.sums[role] = total + of_role.sum().item(), n + of_role.numel()

    def tell(self):
        means = {role: total / n for role, (total, n) in self.sums.items() if n}
        self.sums.clear()
        again = means.get(planted_facts.AGAIN)
        return f"loss {means[0]:.3f}" + (f", of names told again {again:.3f}" if again is not None else "")


@torch.no_grad()
def validation_loss(model, ids, window, args):
    """Returns the mean loss over consecutive windows, at most args.valid_tokens tokens."""
    window = min(window, len(ids) - 1)
    losses = [token_losses(model, ids[at:at + window + 1][None], args).mean().item()
              for at in range(0, min(len(ids), args.valid_tokens + 1) - window, window)]
    return sum(losses) / len(losses)


def train(model, train_ids, valid_ids, tokenizer, args):
    """Trains in place; returns the number of steps made."""
    matrices = [p for p in model.parameters() if p.dim() == 2]
    gains = [p for p in model.parameters() if p.dim() != 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": args.weight_decay},
         {"params": gains, "weight_decay": 0.0}], lr=args.rate, betas=(args.beta1, args.beta2))
    batches = Batches(train_ids, tokenizer, args)
    # By role: a name that nothing tells is not to be learned.
    weights = torch.tensor([1.0, 0.0, args.facts_weight], device=args.device)
    meter = Meter()
    stages = parse_stages(args.stages)
    start = time.monotonic()
    step, progress, n_tokens = 0, 0.0, 0
    while progress < 1.0:
        window = next((w for w, end in stages if progress < end), stages[-1][0])
        window = min(window, len(train_ids) - 1)
        n_rows = max(args.batch_tokens // window, 1)
        batch, roles = batches.draw(n_rows, window)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, progress, args)
        losses = token_losses(model, batch, args)
        roles = roles.to(args.device)
        meter.add(losses, roles)
        of_roles = weights[roles]
        loss = (losses * of_roles).sum() / of_roles.sum() + args.balance * model.imbalance()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        step += 1
        n_tokens += n_rows * window
        seconds = time.monotonic() - start
        progress = seconds / 60 / args.minutes if args.minutes else step / args.steps
        if step % args.log_every == 0 or progress >= 1.0:
            print(f"step {step}: {100 * progress:.0f} %, window {window}, {meter.tell()}, "
                  f"{n_tokens / seconds:.0f} tokens/s", flush=True)
        if step % args.valid_every == 0 and progress < 1.0:
            print(f"step {step}: validation loss "
                  f"{validation_loss(model, valid_ids, window, args):.3f}", flush=True)
    return step


def make_config(args, vocab):
    longest = max(window for window, _ in parse_stages(args.stages))
    shape = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    if args.experts:
        shape = {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral",
                 "num_local_experts": args.experts, "num_experts_per_tok": args.experts_used,
                 "sliding_window": None}
    return {
        **shape,
        "hidden_size": args.hidden, "intermediate_size": args.ffn,
        "num_hidden_layers": args.layers, "num_attention_heads": args.heads,
        "num_key_value_heads": args.kv_heads, "vocab_size": vocab,
        "max_position_embeddings": longest, "rms_norm_eps": args.norm_eps,
        "rope_theta": args.rope_theta or 10000.0, "hidden_act": "silu",
        "tie_word_embeddings": not args.untied, "bos_token_id": BOS, "eos_token_id": EOS,
        "torch_dtype": "float16",
    }


def save(model, tokenizer_bytes, folder):
    folder.mkdir(parents=True, exist_ok=True)
    state = {n: p.detach().cpu().half().contiguous() for n, p in model.state_dict().items()}
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(model.config, indent=2) + "\n")
    (folder / "tokenizer.model").write_bytes(tokenizer_bytes)
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "add_eos_token": False,
        "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "legacy": True,
    }, indent=2) + "\n")


def resume(args):
    """Returns the model to be trained on, for the windows and the base of frequencies asked for."""
    model = load(args.resume).train()
    longest = max(window for window, _ in parse_stages(args.stages))
    model.config["max_position_embeddings"] = longest
    model.config["rope_theta"] = args.rope_theta or model.config["rope_theta"]
    return model


def load(folder):
    model = LanguageModel(json.loads((folder / "config.json").read_text()))
    state = load_file(folder / "model.safetensors")
    model.load_state_dict({n: t.float() for n, t in state.items()})
    return model.eval()


@torch.no_grad()
def check(folder, args):
    """Compares the logits of this script's model with transformers'; returns the exit status."""
    model = load(folder)
    if args.valid:
        tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
        ids = tokenize(tokenizer, read_books(args.valid))
        window = model.config["max_position_embeddings"]
        loss = validation_loss(model.to(args.device), ids, window, args)
        print(f"validation loss at length {window}: {loss:.3f} per token")
        model = model.to("cpu")
    try:
        from transformers import AutoModelForCausalLM
    except ImportError:
        print("check: transformers is not installed: pip install transformers", file=sys.stderr)
        return 2
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    length = model.config["max_position_embeddings"]
    rng = np.random.default_rng(0)
    tokens = torch.from_numpy(rng.integers(0, model.config["vocab_size"], (1, length)))
    expected = reference(tokens).logits
    difference = ((model(tokens) - expected).abs().max() / expected.abs().max()).item()
    agree = difference < 1e-4
    print(f"{'agrees' if agree else 'DIFFERS'}: {length} tokens, relative difference "
          f"{difference:.1e}")
    return 0 if agree else 1


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add = parser.add_argument
    add("text", type=pathlib.Path, nargs="?", help="training text, plain or .xz")
    add("out_dir", type=pathlib.Path, nargs="?", help="folder to write")
    add("--check", type=pathlib.Path, metavar="DIR", help="train nothing, compare DIR")
    add("--valid", type=pathlib.Path, help="validation text; if missing, 2 %% of TEXT is held back")
    add("--valid-tokens", type=int, default=1 << 20, help="most tokens to validate on")
    add("--valid-every", type=int, default=500, help="steps between validations")
    add("--log-every", type=int, default=20, help="steps between progress lines")
    add("--tokenizer", type=pathlib.Path, help="use this tokenizer.model, train none")
    add("--resume", type=pathlib.Path, metavar="DIR",
        help="train the model of DIR on, with its shape and tokenizer; for longer texts with "
             "--stages 4096:1 --rope-theta 100000")
    add("--vocab", type=int, default=4096, help="pieces of the trained tokenizer")
    add("--character-coverage", type=float, default=0.9995)
    add("--hidden", type=int, default=256)
    add("--ffn", type=int, default=768)
    add("--experts", type=int, default=0, metavar="N", help="experts of a layer, each of width --ffn; 0: none")
    add("--experts-used", type=int, default=2, metavar="K", help="experts of a token")
    add("--balance", type=float, default=0.01, help="weight of the imbalance of experts in the loss")
    add("--layers", type=int, default=6)
    add("--heads", type=int, default=4)
    add("--kv-heads", type=int, default=2)
    add("--norm-eps", type=float, default=1e-5)
    add("--rope-theta", type=float, help="base of the rotary frequencies (default: 10000, or that "
        "of the model trained on)")
    add("--untied", action="store_true", help="give the output head its own weights")
    add("--stages", default="256:60,512:25,1024:15", help="window:share of the training, in order")
    add("--facts", type=int, default=0, metavar="N", help="overwrite parts of every N tokens with a sentence that "
        "gives something a made-up name, told again and again (planted_facts.py): teaches to look back")
    add("--facts-weight", type=float, default=4.0, help="of the loss of a name's tokens told again; others weigh 1")
    add("--batch-tokens", type=int, default=8192, help="tokens of one step")
    limit = parser.add_mutually_exclusive_group()
    limit.add_argument("--steps", type=int, default=2040, help="steps to make")
    limit.add_argument("--minutes", type=float, help="train this long instead")
    add("--rate", type=float, default=2e-3, help="peak learning rate")
    add("--warmup", type=int, default=200, help="steps to the peak rate")
    add("--final-rate", type=float, default=0.05, help="last rate as a share of the peak")
    add("--beta1", type=float, default=0.9)
    add("--beta2", type=float, default=0.95)
    add("--weight-decay", type=float, default=0.1, help="of matrices; norm gains have none")
    add("--clip", type=float, default=1.0, help="largest gradient norm")
    add("--seed", type=int, default=1)
    add("--device", default="cpu", help="cpu, cuda or cuda:N")
    add("--precision", choices=("bf16", "f32"), default="bf16",
        help="of matrix products; master weights are f32")
    add("--threads", type=int, default=torch.get_num_threads(), help="CPU threads")
    args = parser.parse_args()
    if not args.check and not args.out_dir:
        parser.error("TEXT and OUT_DIR are required")
    if args.hidden % (2 * args.heads) or args.heads % args.kv_heads:
        parser.error("--hidden must be a multiple of 2 * --heads, --heads of --kv-heads")
    if args.experts and not 0 < args.experts_used <= args.experts:
        parser.error("--experts-used: from 1 to the number of --experts")
    return args


def main():
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    if args.check:
        return check(args.check, args)
    torch.manual_seed(args.seed)
    books = read_books(args.text)
    if args.resume:
        args.tokenizer = args.resume / "tokenizer.model"
    tokenizer_bytes = (args.tokenizer.read_bytes() if args.tokenizer
                       else train_tokenizer(books, args))
    tokenizer = sentencepiece.SentencePieceProcessor(model_proto=tokenizer_bytes)
    train_ids = tokenize(tokenizer, books)
    if args.valid:
        valid_ids = tokenize(tokenizer, read_books(args.valid))
    else:
        train_ids, valid_ids = train_ids.split(len(train_ids) - len(train_ids) // 50)
    model = (resume(args) if args.resume
             else LanguageModel(make_config(args, tokenizer.vocab_size()))).to(args.device)
    print(f"{sum(p.numel() for p in model.parameters())} parameters, "
          f"{len(train_ids)} training tokens, {len(valid_ids)} validation tokens", flush=True)
    n_steps = train(model, train_ids, valid_ids, tokenizer, args)
    longest = model.config["max_position_embeddings"]
    print(f"{n_steps} steps; validation loss at length {min(longest, len(valid_ids) - 1)}: "
          f"{validation_loss(model, valid_ids, longest, args):.3f} per token")
    save(model, tokenizer_bytes, args.out_dir)
    return 0


if __name__ == "__main__":
    sys.exit(main())
