#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures what rotations and outliers in f16 gain forms of weight blocks, emulated in Python.

    study_rotation.py MODEL_DIR TEXT RESULTS.json --calibration FILE [--bytes 120000] [--context 512]
                      [--calibration-bytes 100000] [--threads 1] [--no-runs]
                      [--sets rotations plain planted draws outliers synthetic]

Model, forms, search and scores are those of study_block_choices.py: the matrices of the layers are quantised, and what is
measured are perplexity and the mean KL divergence from the unquantised model.

    rotations  the residual stream and the values of heads rotated (rotations.py), errors weighed by E[x^2] of the rotated
               inputs
    plain      some of them with every column alike
    planted    the same of the model with columns that are outliers, planted so that no output changes
    draws      one form with other signs, which says what differences mean
    outliers   a share of the weights kept in f16, each with its place, beside the same form without
    synthetic  errors of random matrices that have outliers, as they are and rotated; the model is not run

RESULTS.json keeps what was measured; what is in it is not run again. Needs torch, numpy, safetensors and sentencepiece.
docs/decisions/038-rotation-and-outliers.md has the tables.
"""

import sys

import measuring_script
from block_forms import Form
from markdown_tables import table
from quantiser_figures import perplexity
from study_block_choices import Subject, cells, make_parser, mean, results_of

SETS = ("rotations", "plain", "planted", "draws", "outliers", "synthetic")
FORMS = {"2bit-super/64": Form("min", 4, 64, 6), "table2/16": Form("table2", 4, 16, 4), "3bit-super/64": Form("min", 8, 64, 6),
         "4bit-super/64": Form("min", 16, 64, 6)}
SHARES = (0.001, 0.0025, 0.005, 0.01)
# Of an outlier: its column and its value in f16 each; columns as distances from the one before take 8.
OUTLIER_BITS = {"16-bit columns": 32, "8-bit distances": 24}
CHOICES = ("error", "magnitude")
SEEDS = (2, 3, 4, 5)


def rotation_jobs(sets):
    """Returns (form name, stream, values, way of weighing, whether outliers are planted, seed) of what to measure."""
    jobs = []
    few = [(0, False), (256, True), (0, True), (256, False)]
    if "rotations" in sets:
        jobs += [(form, *turned, "E[x^2]", False, 1) for form in FORMS for turned in few]
        jobs += [(form, block, False, "E[x^2]", False, 1) for form in list(FORMS)[:2] for block in (128, 64, 32)]
    if "plain" in sets:
        jobs += [(form, *turned, "none", False, 1) for form in FORMS for turned in few]
    if "planted" in sets:
        jobs += [(form, *turned, way, True, 1) for form in FORMS for turned in few for way in ("E[x^2]", "none")]
    if "draws" in sets:
        jobs += [("2bit-super/64", *turned, "E[x^2]", False, seed) for turned in ((256, False), (0, True)) for seed in SEEDS]
    return jobs


def outlier_jobs():
    """Returns (form name, share, choice, way of weighing)."""
    jobs = [(form, share, choice, "E[x^2]") for choice in CHOICES for form in FORMS for share in SHARES]
    return jobs + [(form, 0.005, "error", "none") for form in FORMS]


def rotation_key(form, stream, values, way, planted=False, seed=1):
    more = (" | planted" if planted else "") + (f" | seed {seed}" if seed != 1 else "")
    return f"{form} | stream {stream} | values {int(values)} | {way}{more}"


def outlier_key(form, share, choice, way):
    return f"{form} | outliers {share} by {choice} | {way}"


def quantise_but_outliers(form, matrix, importance, share, choice):
    """Returns matrix in `form` but for a share of its weights, which are in f16: those whose squared errors, weighed,
    are largest in `form` alone, or those of the largest magnitude. The others' fields are searched without them."""
    import torch
    from block_search import quantise

    weight = torch.ones_like(matrix) if importance is None else importance.expand(matrix.shape)
    of_choice = matrix.abs() if choice == "magnitude" else weight * (quantise(form, matrix, importance) - matrix) ** 2
    chosen = torch.zeros(matrix.numel(), dtype=torch.bool)
    chosen[of_choice.flatten().topk(round(share * matrix.numel())).indices] = True
    chosen = chosen.reshape(matrix.shape)
    zero = torch.zeros_like(matrix)
    rest = quantise(form, torch.where(chosen, zero, matrix), torch.where(chosen, zero, weight))
    return torch.where(chosen, matrix.half().float(), rest)


class RotatedSubject(Subject):
    """The model under study with a rotation in its weights; divergence is from the model without."""

    def __init__(self, args):
        super().__init__(args)
        self.args = args

    def turn(self, rotation, planted=False):
        """Makes the model one with that rotation, behind outliers where they are planted."""
        import train_model
        from rotations import plant_outliers, rotate
        from study_block_choices import windows_of

        self.model = train_model.load(self.args.model)
        if planted:
            plant_outliers(self.model)
        rotate(self.model, rotation)
        self.modules = {name: module for name, module in self.model.named_modules()
                        if isinstance(module, self.torch.nn.Linear) and ".layers." in name}
        self.weights = {name: module.weight.clone() for name, module in self.modules.items()}
        self.importance = self.gather(windows_of(self.args.model, self.args.calibration, self.args.calibration_bytes,
                                                 self.args.context))
        changed = mean(self.score()["kld"])
        if changed > 1e-6:
            sys.exit(f"study_rotation.py: {rotation.name}: a rotation alone diverges by {changed}")

    def score_outliers(self, form, share, choice, way):
        for name, module in self.modules.items():
            importance = self.importance[name] if way == "E[x^2]" else None
            module.weight.copy_(quantise_but_outliers(form, self.weights[name], importance, share, choice))
        return self.score()


def measure(args, kept):
    if "synthetic" in args.sets:
        kept.get("synthetic", synthetic_errors)
    if set(args.sets) != {"synthetic"}:
        measure_model(args, kept)


def measure_model(args, kept):
    from rotations import Rotation
    from study_block_choices import weighings

    subject = RotatedSubject(args)
    base = kept.get("base", lambda: subject.base)
    print(f"unquantised: {perplexity(base['losses']):.4f}", file=sys.stderr, flush=True)
    jobs = rotation_jobs(args.sets)
    # A rotation is made once for all that is measured with it.
    for stream, values, planted, seed in dict.fromkeys((*job[1:3], *job[4:]) for job in jobs):
        missing = [job for job in jobs
                   if (*job[1:3], *job[4:]) == (stream, values, planted, seed) and rotation_key(*job) not in kept.values]
        if not missing:
            continue
        subject.turn(Rotation(stream, values, seed), planted)
        for job in missing:
            result = subject.score_form(FORMS[job[0]], weighings()[job[3]])
            kept.put(rotation_key(*job), result)
            print(f"{rotation_key(*job)}: {perplexity(result['losses']):.3f}, {mean(result['kld']):.4f}",
                  file=sys.stderr, flush=True)
    if "outliers" not in args.sets:
        return
    subject.turn(Rotation())
    for form, share, choice, way in outlier_jobs():
        result = kept.get(outlier_key(form, share, choice, way),
                          lambda: subject.score_outliers(FORMS[form], share, choice, way))
        print(f"{outlier_key(form, share, choice, way)}: {perplexity(result['losses']):.3f}, {mean(result['kld']):.4f}",
              file=sys.stderr, flush=True)


def synthetic_matrices():
    """Returns by name matrices [256, 1024] and E[x^2] of their columns [1024]."""
    import torch

    draw = torch.Generator().manual_seed(1)
    normal = torch.randn(256, 1024, generator=draw)
    alike = torch.ones(1024)
    few_columns = torch.rand(1024, generator=draw) < 0.01
    few_rows = torch.rand(256, generator=draw) < 0.02
    few_weights = torch.rand(256, 1024, generator=draw) < 0.002
    chi = torch.randn(3, 256, 1024, generator=draw).square().sum(0)
    return {
        "normal": (normal, alike),
        "1 % of columns 10 times as large": (torch.where(few_columns, 10 * normal, normal), alike),
        "2 % of rows 10 times as large": (torch.where(few_rows[:, None], 10 * normal, normal), alike),
        "0.2 % of weights 10 times as large": (torch.where(few_weights, 10 * normal, normal), alike),
        "Student's t, 3 degrees of freedom": (normal / (chi / 3).sqrt(), alike),
        "normal, 1 % of inputs 20 times as large": (normal, torch.where(few_columns, 400.0, 1.0)),
    }


def synthetic_errors():
    """Returns, by form and matrix, the shares of E[(W x)^2] that quantising loses: as it is, with columns rotated in
    blocks of 256, with rows as well. Inputs are independent, so that of a rotated input the mean of squares of a block is
    the same for all its columns. The error is that of the search without and with weights of columns."""
    import torch
    from block_search import quantise
    from rotations import hadamard_rows

    def lost(form, matrix, importance, weigh):
        wrong = quantise(form, matrix, importance if weigh else None) - matrix
        return ((importance * wrong ** 2).sum() / (importance * matrix ** 2).sum()).item()

    torch.set_grad_enabled(False)
    errors = {}
    for matrix_name, (matrix, importance) in synthetic_matrices().items():
        flat = importance.reshape(-1, 256).mean(1, keepdim=True).expand(-1, 256).reshape(-1)
        columns = hadamard_rows(matrix, 256).float()
        both = hadamard_rows(columns.T.contiguous(), 256).T.contiguous().float()
        whole = (importance * matrix ** 2).sum() / (flat * columns ** 2).sum()
        for form_name in ("2bit-super/64", "3bit-super/64", "4bit-super/64"):
            form = FORMS[form_name]
            found = [lost(form, matrix, importance, False), lost(form, matrix, importance, True)]
            # Shares of what the matrix gives: the mean of squares is exact for each input, not for products of two.
            found += [lost(form, turned, flat, True) / whole.item() for turned in (columns, both)]
            errors[f"{form_name} | {matrix_name}"] = found
    return errors


def rotation_table(values, planted):
    head = ["type", "stream", "values", "over f32", "KLD", "columns alike", "KLD"]
    lines = []
    for form in FORMS:
        for stream, turned in dict.fromkeys(job[1:3] for job in rotation_jobs(SETS)):
            weighed, alike = (values.get(rotation_key(form, stream, turned, way, planted)) for way in ("E[x^2]", "none"))
            if weighed or alike:
                lines.append([form, f"blocks of {stream}" if stream else "", "rotated" if turned else "",
                              *cells(weighed, values["base"]), *cells(alike, values["base"])])
    return table(head, lines)


def draw_table(values):
    head = ["signs", "stream rotated, over f32", "KLD", "values rotated, over f32", "KLD"]
    lines = []
    for seed in (1, *SEEDS):
        found = [values.get(rotation_key("2bit-super/64", *turned, "E[x^2]", False, seed)) for turned in ((256, False), (0, True))]
        lines.append([str(seed), *(cell for result in found for cell in cells(result, values["base"]))])
    return table(head, lines)


def outlier_table(values):
    head = ["type", "in f16", "chosen by", "over f32", "KLD"]
    head += [f"{how}: bits, KLD x 4^bits" for how in OUTLIER_BITS]
    lines = []
    for form, n_bits in ((name, FORMS[name].bits) for name in FORMS):
        for share, choice, way in [(0.0, "", "E[x^2]"), *(j[1:] for j in outlier_jobs() if j[0] == form)]:
            key = outlier_key(form, share, choice, way) if share else rotation_key(form, 0, False, way)
            result = values.get(key)
            if result is None:
                continue
            sizes = [n_bits + share * of_one for of_one in OUTLIER_BITS.values()]
            chosen = choice + (", columns alike" if way == "none" else "")
            lines.append([form, f"{100 * share:g} %" if share else "", chosen, *cells(result, values["base"]),
                          *(f"{bits:.4f}, {mean(result['kld']) * 4 ** bits:.2f}" for bits in sizes)])
    return table(head, lines)


def synthetic_table(errors):
    head = ["type", "matrix", "as it is", "weighed by E[x^2]", "columns rotated", "rows too"]
    return table(head, [[*key.split(" | "), *(f"{error:.5f}" for error in found)] for key, found in errors.items()])


def measure_and_show(args):
    values = results_of(args, measure)
    if "base" in values:
        tables = [rotation_table(values, planted) for planted in (False, True)]
        tables += [draw_table(values), outlier_table(values)]
        print("\n\n".join(tables) + "\n")
    if "synthetic" in values:
        print(synthetic_table(values["synthetic"]))


def main():
    args = make_parser(__doc__, SETS).parse_args()
    return measuring_script.exit_status("study_rotation.py", lambda: measure_and_show(args))


if __name__ == "__main__":
    sys.exit(main())
