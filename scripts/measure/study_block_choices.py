#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures the quality of forms of weight blocks, emulated in Python, before kernels are written for them.

    study_block_choices.py MODEL_DIR TEXT RESULTS.json --calibration FILE [--bytes 120000] [--context 512]
                           [--calibration-bytes 100000] [--threads 1] [--no-runs]
                           [--sets codes grid plain weights] [--levels 4 8 16]

Quantises the matrices of the layers of a Hugging Face folder (LLaMA with rows of multiples of 256) to each form of
block_forms.py, with searched fields and each squared error weighed by E[x^2] of its column over the calibration set, and
scores the text as qsf-perplexity does: perplexity and mean KL divergence from the unquantised model. Embedding and head
stay as they are.

    codes    forms with codes that no weight type has
    grid     group sizes and widths of fields for the codes there are
    plain    some forms with every column alike
    weights  ways to weigh errors, on a few forms

RESULTS.json keeps the measurements, which are not repeated. Needs torch, numpy, safetensors and sentencepiece.
docs/decisions/035-block-forms.md has the tables.
"""

import argparse
import json
import math
import pathlib
import sys

import measuring_script
from block_forms import TYPES, Form, forms_of_codes, forms_of_grid, forms_of_types
from markdown_tables import percent, table
from quantiser_figures import increase, jackknife, perplexity
from results_file import Results, about_of, head_of_text
from scored_models import Failed

SETS = ("codes", "grid", "plain", "weights")
PACKAGES = ("torch", "numpy", "safetensors", "sentencepiece")
WEIGHT_FORMS = (Form("min", 4, 16, 4),)


def make_parser(description, sets):
    """Returns a parser of what every study of the bundled model takes; `sets` are the names of what it measures."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("model", type=pathlib.Path, metavar="MODEL_DIR")
    add("text", type=pathlib.Path, metavar="TEXT")
    add("results", metavar="RESULTS.json")
    add("--calibration", type=pathlib.Path, required=True, metavar="FILE")
    add("--bytes", type=int, default=120000, metavar="N", help="score the first N bytes")
    add("--calibration-bytes", type=int, default=100000, metavar="N")
    add("--context", type=int, default=512, metavar="N")
    add("--threads", type=int, default=1, metavar="N")
    add("--sets", nargs="+", choices=sets, default=sets)
    add("--no-runs", action="store_true", help="tables of what RESULTS.json holds")
    return parser


def parse_arguments():
    parser = make_parser(__doc__, SETS)
    parser.add_argument("--levels", nargs="+", type=int, metavar="N", help="measure forms of these numbers of levels alone")
    return parser.parse_args()


def windows_of(folder, path, n_bytes, context):
    """Returns token ids [windows, context], each beginning with the token that begins texts."""
    import sentencepiece
    import torch

    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    ids = [tokenizer.bos_id(), *tokenizer.encode(head_of_text(path, n_bytes).decode("utf-8", "ignore"))]
    count = len(ids) // context
    windows = torch.tensor(ids[:count * context]).reshape(count, context)
    windows[:, 0] = tokenizer.bos_id()
    return windows


class Subject:
    """The model under study: its own weights, what its columns see, and its scores with other weights."""

    def __init__(self, args):
        import torch
        import train_model

        self.torch = torch
        torch.set_num_threads(args.threads)
        torch.set_grad_enabled(False)
        self.model = train_model.load(args.model)
        self.windows = windows_of(args.model, args.text, args.bytes, args.context)
        self.modules = {name: module for name, module in self.model.named_modules()
                        if isinstance(module, torch.nn.Linear) and ".layers." in name}
        self.weights = {name: module.weight.clone() for name, module in self.modules.items()}
        self.importance = self.gather(windows_of(args.model, args.calibration, args.calibration_bytes, args.context))
        self.reference = None
        self.base = self.score()

    def gather(self, windows):
        """Returns the mean of x^2 of each column of every matrix's input."""
        sums = {}

        def add(name):
            def hook(_, inputs):
                square = inputs[0].double().square().sum((0, 1))
                sums[name] = sums.get(name, 0) + square
            return hook

        hooks = [module.register_forward_pre_hook(add(name)) for name, module in self.modules.items()]
        for window in windows:
            self.model(window[None])
        for hook in hooks:
            hook.remove()
        return {name: (total / windows.numel()).float() for name, total in sums.items()}

    def score(self):
        """Returns mean loss and mean KL divergence of each window's second half. The first call keeps the reference."""
        first = self.windows.shape[1] // 2
        kept, losses, divergences = [], [], []
        scored_alone = self.model.model.norm.register_forward_hook(lambda *call: call[-1][:, first:-1])
        for i, window in enumerate(self.windows):
            logs = self.model(window[None])[0].log_softmax(-1)
            losses.append(-logs.gather(1, window[first + 1:, None]).mean().item())
            if self.reference is None:
                kept.append(logs)
            else:
                wanted = self.reference[i]
                divergences.append((wanted.exp() * (wanted - logs)).sum(1).mean().item())
        scored_alone.remove()
        self.reference = self.reference or kept
        return {"losses": losses, "kld": divergences}

    def score_form(self, form, weigh):
        """Scores the model with every matrix in `form`; weigh(matrix, E[x^2]) gives the weights of squared errors."""
        from block_search import quantise

        off = whole = 0.0
        for name, module in self.modules.items():
            original = self.weights[name]
            module.weight.copy_(quantise(form, original, weigh(original, self.importance[name])))
            off += (self.importance[name] * (module.weight - original) ** 2).sum().item()
            whole += (self.importance[name] * original ** 2).sum().item()
        result = self.score()
        return {**result, "error": off / whole}


def weighings():
    """Ways to weigh squared errors, of a matrix w [rows, cols] and a = E[x^2] of its columns."""
    return {
        "none": lambda w, a: None,
        "w^2": lambda w, a: w * w,
        "abs w": lambda w, a: w.abs(),
        "E[x^2]": lambda w, a: a,
        "sqrt E[x^2]": lambda w, a: a.sqrt(),
        "E[x^2] sqrt(mean w^2 + w^2)": lambda w, a: a * ((w * w).mean(1, keepdim=True) + w * w).sqrt(),
    }


def jobs_of(sets, levels):
    """Returns forms and names of weighings to measure."""
    jobs = []
    for name, forms, ways in (("codes", forms_of_codes(), ["E[x^2]"]), ("grid", forms_of_grid(), ["E[x^2]"]),
                              ("plain", forms_of_types(), ["none"]), ("weights", WEIGHT_FORMS, weighings())):
        if name in sets:
            jobs += [(form, way) for form in forms for way in ways if not levels or form.n_levels in levels]
    return list(dict.fromkeys(jobs))


def key_of(form, way):
    return f"{form.name} | {way}"


def measure(args, kept):
    subject = Subject(args)
    base = kept.get("base", lambda: subject.base)
    print(f"unquantised: {perplexity(base['losses']):.4f}", file=sys.stderr, flush=True)
    for form, way in jobs_of(args.sets, args.levels):
        result = kept.get(key_of(form, way), lambda: subject.score_form(form, weighings()[way]))
        print(f"{form.bits:.4f} bits, {key_of(form, way)}: {perplexity(result['losses']):.3f}", file=sys.stderr, flush=True)


def mean(values):
    return math.fsum(values) / len(values)


def cells(result, base):
    """Returns increase of perplexity and KL divergence with their errors, as text."""
    if result is None:
        return ["", ""]
    grown, error = jackknife(increase, result["losses"], base["losses"])
    kld, kld_error = jackknife(mean, result["kld"])
    return [f"{percent(grown)} +/- {100 * error:.2f}", f"{kld:.4f} +/- {kld_error:.4f}"]


def at_equal_bits(form, result):
    """Returns the KL divergence times 4 for each bit of a weight. A bit more halves errors, and the divergence grows with
    their square, so of two forms the one with the smaller product costs less in equally many bytes."""
    return mean(result["kld"]) * 4 ** form.bits


def form_table(forms, values):
    """A line a form, by ascending bits; the last columns without importance."""
    head = ["bits", "levels", "group", "field bits", "type", "over f32", "KLD", "KLD x 4^bits", "columns alike", "KLD"]
    lines = []
    for form in sorted(forms, key=lambda f: (f.bits, f.name)):
        weighed, alike = (values.get(key_of(form, way)) for way in ("E[x^2]", "none"))
        if weighed:
            fields = str(form.field_bits or "f16") + (", f32" if form.super_bits == 32 else "")
            lines.append([f"{form.bits:.4f}", f"{form.n_levels} {form.levels}", str(form.group), fields, TYPES.get(form, ""),
                          *cells(weighed, values["base"]), f"{at_equal_bits(form, weighed):.2f}",
                          *cells(alike, values["base"])])
    return table(head, lines)


def weighing_table(values):
    head = ["weight of a squared error", *(f"{f.n_levels} {f.levels}, {f.group}" for f in WEIGHT_FORMS)]
    return table(head, [[way, *(cells(values.get(key_of(form, way)), values["base"])[0] for form in WEIGHT_FORMS)]
                        for way in weighings()])


def results_of(args, measure_all):
    """Returns what RESULTS.json holds of a study, after measure_all(args, results) unless --no-runs says so."""
    if not args.no_runs:
        measuring_script.require(measuring_script.missing_packages(*PACKAGES) + measuring_script.missing_files(
            [(args.model, "MODEL_DIR"), (args.text, "TEXT"), (args.calibration, "--calibration")]))
    kept = Results(args.results, None if args.no_runs else about_of(args))
    if not args.no_runs:
        try:
            measure_all(args, kept)
        except (OSError, json.JSONDecodeError, KeyError) as error:
            raise Failed(f"{args.model}: {error!r}; expected config.json and tokenizer.model of a LLaMA, and its "
                         "model.safetensors") from error
    if not kept.values:
        raise Failed(f"{args.results}: nothing was measured yet")
    return kept.values


def measure_and_show(args):
    values = results_of(args, measure)
    if "base" not in values:
        raise Failed(f"{args.results}: holds nothing of study_block_choices.py")
    print(form_table(set(forms_of_codes() + forms_of_grid()), values))
    if "weights" in args.sets:
        print(f"\n{weighing_table(values)}")


def main():
    args = parse_arguments()
    return measuring_script.exit_status("study_block_choices.py", lambda: measure_and_show(args))


if __name__ == "__main__":
    sys.exit(main())
