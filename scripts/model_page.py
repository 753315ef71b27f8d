# SPDX-License-Identifier: MIT
"""The page of report_model.py: HTML with its plots inside, readable on light and dark screens. Plots need matplotlib."""

import html
import io
import re

STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --paper: #ffffff; --faint: #6b6b6b; --line: #d8d8d8; --best: #e9f2e6; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e6; --paper: #16181a; --faint: #9a9a9a; --line: #3a3d40; --best: #22301f; }
}
body { margin: 2rem auto; max-width: 72rem; padding: 0 1rem; background: var(--paper); color: var(--ink);
       font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th { color: var(--faint); font-weight: 600; }
th:first-child, td:first-child, td.left, th.left { text-align: left; }
tr.best td { background: var(--best); }
p, figcaption { color: var(--faint); max-width: 60rem; }
figure { margin: 1rem 0; } svg { max-width: 100%; height: auto; }
"""
FRONT, OTHER = "#3b7dd8", "#999999"
BARS = ("#3b7dd8", "#d98032", "#4f9d69", "#a566b0", "#b8a037")


def pareto_front(rows, cost):
    """Returns the rows that no other of at most their size undercuts in cost, by ascending size."""
    front = []
    for row in sorted(rows, key=lambda r: (r["bytes"], cost(r))):
        if not front or cost(row) < cost(front[-1]):
            front.append(row)
    return front


def figures():
    import matplotlib
    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "qsf", "font.size": 9,
                                "axes.spines.top": False, "axes.spines.right": False})
    from matplotlib import pyplot
    return pyplot


def svg_of(figure):
    """Returns the figure as SVG whose black is the colour of the text around it; None for none."""
    if figure is None:
        return None
    out = io.StringIO()
    figure.tight_layout()
    figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    text = text[text.index("<svg"):]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL).replace("#000000", "currentColor")
    return text.replace("<text ", '<text fill="currentColor" ').replace("\n", " ")


def save_png(figure, path):
    """Writes the figure on white."""
    figure.tight_layout()
    figure.savefig(path, dpi=80, metadata={"Software": None})


def label_points(axes, points):
    """Names points so that labels stay apart: those near each other go to other sides of theirs. Points are
    (x, y, name, is_front)."""
    sides = ((6, 4, "left"), (-6, -11, "right"), (6, -11, "left"), (-6, 5, "right"))
    placed = []
    transform = axes.transData.transform
    for x, y, name, is_front in sorted(points, key=lambda p: not p[3]):
        at = transform((x, y))
        for dx, dy, align in sides:
            width = 5.2 * len(name)
            left = at[0] + dx - (width if align == "right" else 0)
            box = (left, at[1] + dy, left + width, at[1] + dy + 10)
            if not any(a[0] < box[2] and box[0] < a[2] and a[1] < box[3] and box[1] < a[3] for a in placed):
                placed.append(box)
                axes.annotate(name, (x, y), textcoords="offset points", xytext=(dx * .72, dy * .72), ha=align, fontsize=7,
                              color="#000000" if is_front else "#808080")
                break


def plot_quality(rows):
    """Size against divergence; types without any are left out of a logarithmic axis."""
    shown = [row for row in rows if row["kld"] > 1e-7]
    if not shown:
        return None
    pyplot = figures()
    figure, axes = pyplot.subplots(figsize=(8.5, 4.8), dpi=72)
    front = pareto_front(shown, lambda row: row["kld"])
    axes.set_yscale("log")
    axes.plot([r["bytes"] / 1e6 for r in front], [r["kld"] for r in front], color=FRONT, linewidth=1)
    for row in shown:
        axes.errorbar(row["bytes"] / 1e6, row["kld"], yerr=row["kld_error"], marker="o", markersize=4, linewidth=1,
                      color=FRONT if row in front else OTHER)
    axes.set_xlabel("file, MB")
    axes.set_ylabel("KL divergence, nats a token")
    axes.grid(True, alpha=.25)
    axes.margins(x=.08)
    figure.canvas.draw()
    label_points(axes, [(r["bytes"] / 1e6, r["kld"], r["name"], r in front) for r in shown])
    return figure


def plot_speed(rows):
    pyplot = figures()
    figure, both = pyplot.subplots(1, 2, figsize=(10.5, 4.4), dpi=72)
    for axes, key, title in zip(both, ("generate", "prompt"), ("generation", "prompt")):
        for row in rows:
            rate = row[key]
            axes.errorbar(row["bytes"] / 1e6, rate["median"], marker="o", markersize=4, linewidth=1, color=FRONT,
                          yerr=[[rate["median"] - rate["min"]], [rate["max"] - rate["median"]]])
        axes.set_title(title, fontsize=9, loc="left")
        axes.set_ylim(bottom=0)
        axes.margins(x=.25)
        axes.set_xlabel("file, MB")
        axes.set_ylabel("tokens per second")
        axes.grid(True, alpha=.25)
        figure.canvas.draw()
        label_points(axes, [(r["bytes"] / 1e6, r[key]["median"], r["name"], True) for r in rows])
    return figure


def plot_memory(rows, budgets):
    pyplot = figures()
    names = [None, *budgets]
    figure, axes = pyplot.subplots(figsize=(8.5, .9 + .16 * len(rows) * max(2, len(names))), dpi=72)
    height = .8 / len(names)
    for i, budget in enumerate(names):
        found = [row["memory"] if budget is None else row["budgets"][str(budget)] for row in rows]
        axes.barh([y + i * height for y in range(len(rows))], [f.get("peak", 0) for f in found], height=height * .9,
                  color=BARS[i % len(BARS)], label="no budget" if budget is None else f"--ram-budget {budget}")
    axes.set_yticks([y + .4 - height / 2 for y in range(len(rows))], [row["name"] for row in rows])
    axes.set_ylim(len(rows), -.2)
    axes.set_xlabel("peak of memory, MB")
    axes.legend(fontsize=7, frameon=False, labelcolor="#000000")
    axes.grid(True, axis="x", alpha=.25)
    return figure


def cells(values, kind="td"):
    return "<tr>" + "".join(f"<{kind}>{html.escape(str(v))}</{kind}>" for v in values) + "</tr>"


def table(head, lines, marked=()):
    """Returns a table; lines whose number is in `marked` stand out."""
    body = "\n".join(cells(line).replace("<tr>", '<tr class="best">' if i in marked else "<tr>")
                     for i, line in enumerate(lines))
    return f'<div class="scroll"><table><thead>{cells(head, "th")}</thead><tbody>\n{body}\n</tbody></table></div>'


def figure_of(svg, caption):
    return f"<figure>{svg}<figcaption>{html.escape(caption)}</figcaption></figure>" if svg else ""


def main_table(rows):
    head = ["type", "bits", "file, MB", "perplexity", "over reference", "KL divergence", "same top", "prompt, tokens/s",
            "generation, tokens/s", "memory, MB", "converted in, s"]
    front = pareto_front(rows, lambda row: row["kld"])
    lines = [[r["name"], f"{r['bits']:.3f}", f"{r['bytes'] / 1e6:.2f}", f"{r['perplexity']:.3f}",
              f"{100 * r['increase']:+.2f} % +/- {100 * r['increase_error']:.2f}", f"{r['kld']:.5f} +/- {r['kld_error']:.5f}",
              f"{100 * r['top']:.1f} %", f"{r['prompt']['median']:,.0f}", f"{r['generate']['median']:,.1f}",
              f"{r['memory']['peak']:.1f}", f"{r['seconds']:.1f}"] for r in rows]
    return table(head, lines, [i for i, row in enumerate(rows) if row in front])


def budget_table(rows, budgets):
    def cell(found):
        if "failed" in found:
            return "does not fit"
        return f"{found['rate']:,.1f} tokens/s, {found['peak']:.1f} MB, read {found['read']:,.0f} MB"
    return table(["type", *(f"--ram-budget {budget}" for budget in budgets)],
                 [[row["name"], *(cell(row["budgets"][str(budget)]) for budget in budgets)] for row in rows])


def tensor_table(rows):
    lines = []
    for row in rows:
        worst = ", ".join(f"{t['section']} {t['tensor']} {t['cosine']:.5f}" for t in row["worst"][:3]) or "none rounded"
        lines.append([row["name"], row["n_rounded"], f"{row['lowest_cosine']:.6f}", row["n_below"], row["n_widened"], worst])
    return table(["type", "rounded", "lowest cosine", "below 0.99", "given more bits", "farthest from the original"], lines)


def page_of(title, rows, budgets, how):
    """Returns the page of rows that report_model.py made; `how` says what they were measured with."""
    smallest = min(rows, key=lambda row: row["bytes"])
    parts = [
        f"<h1>{html.escape(title)}: what every weight type costs</h1>",
        f"<p>{smallest['n_weights']:,} weights, scales {html.escape(how['scales'])}. Text: {html.escape(how['text'])}; the "
        f"second half of each is scored. In {html.escape(how['reference'])} its perplexity is {how['base']:.3f}, and the "
        f"increases and divergences are those from there. Speeds are medians of {how['rounds']} runs in turns, of prompts of "
        f"{how['prompt']} tokens and of {how['tokens']} generated ones, on {html.escape(rows[0]['machine'])}.</p>",
        "<h2>All types</h2>", main_table(rows),
        "<p>Marked: no smaller file diverges less. Errors of increases leave out one window after the other.</p>",
        "<h2>Size and quality</h2>", figure_of(svg_of(plot_quality(rows)), "Size of the file against the KL divergence from the "
                                               "reference; the line joins types that no smaller file beats."),
        "<h2>Speed</h2>", figure_of(svg_of(plot_speed(rows)), "Medians, with the slowest and the fastest run."),
        "<h2>Memory</h2>", figure_of(svg_of(plot_memory(rows, budgets)), "Peak of the whole process of qsf-run. No bar: it does "
                                     "not run in that budget.")]
    if budgets:
        parts += ["<p>Generation, peak and what was read from the disk, within a budget (MB):</p>",
                  budget_table(rows, budgets)]
    parts += ["<h2>Verification</h2>", "<p>Cosines of decoded tensors with the original. A type that is told by its name "
              "gives every matrix those bits; mixed gives more where the cosine falls below 0.99.</p>", tensor_table(rows)]
    body = "\n".join(part for part in parts if part)
    return (f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
            f'content="width=device-width, initial-scale=1"><title>{html.escape(title)}</title><style>{STYLE}</style></head>\n'
            f"<body>\n{body}\n</body></html>\n")
