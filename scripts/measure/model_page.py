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
.scroll svg { min-width: 42rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th { color: var(--faint); font-weight: 600; white-space: normal; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: var(--paper); }
.worst td:last-child, .worst th:last-child { text-align: left; }
tr.best td { background: var(--best); }
p, figcaption { color: var(--faint); max-width: 60rem; }
figure { margin: 1rem 0; } svg { max-width: 100%; height: auto; }
"""
FRONT, OTHER, FAINT = "#3b7dd8", "#999999", "#767676"  # the last is of names alone, and becomes the page's faint colour
BARS = ("#3b7dd8", "#d98032", "#4f9d69", "#a566b0", "#b8a037", "#4aa3ab", "#c75a6a", "#8a8f98")


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
    """Returns the figure as SVG whose black and grey are the colours of the text around it; None for none."""
    if figure is None:
        return None
    out = io.StringIO()
    figure.tight_layout()
    figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    text = text[text.index("<svg"):]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL).replace("#000000", "currentColor")
    text = text.replace(FAINT, "var(--faint)")
    return re.sub(r"<text\b", '<text fill="currentColor"', text).replace("\n", " ")


def save_png(figure, path):
    """Writes the figure on white."""
    figure.tight_layout()
    figure.savefig(path, dpi=80, metadata={"Software": None})


def label_points(axes, points, front):
    """Names points where there is room beside the line through `front`: next to them, or farther away at the end of a line of
    their own; those of the front first. A name without any room is left to the table. Points are (x, y, name, is_front)."""
    from matplotlib.text import Text
    near = [(5, 3, "left"), (-5, 3, "right"), (5, -9, "left"), (-5, -9, "right")]
    far = [(dx, dy, align) for n in (10, 20, 35, 55) for dx, dy, align in
           [(n, n - 4, "left"), (-n, -n - 4, "right"), (n, -4, "left"), (-n, -4, "right"), (n, -n - 4, "left"),
            (-n, n - 4, "right"), (0, -n - 8, "center"), (0, n, "center")]]
    dots = [(*axes.transData.transform(point[:2]), 3) for point in points]
    corners = [axes.transData.transform(point) for point in front]
    dots += [(*(a + (b - a) * i / 100), 1) for a, b in zip(corners, corners[1:]) for i in range(100)]
    taken = [(x - size, y - size, x + size, y + size) for x, y, size in dots]
    room = axes.get_window_extent()
    for x, y, name, is_front in sorted(points, key=lambda p: not p[3]):
        for dx, dy, align in near + far:
            line = {"arrowstyle": "-", "linewidth": .5, "color": FAINT, "shrinkA": 0, "shrinkB": 2} if (dx, dy, align) in far else None
            text = axes.annotate(name, (x, y), textcoords="offset points", xytext=(dx, dy), ha=align, fontsize=7,
                                 color="#000000" if is_front else FAINT, arrowprops=line)
            text.update_positions(axes.figure.canvas.get_renderer())
            place = Text.get_window_extent(text)  # without its line, which begins in the point
            box = (place.x0, place.y0, place.x1, place.y1)
            inside = room.x0 < box[0] and box[2] < room.x1 and room.y0 < box[1] and box[3] < room.y1
            if inside and not any(a[0] < box[2] and box[0] < a[2] and a[1] < box[3] and box[1] < a[3] for a in taken):
                taken.append(box)
                break
            text.remove()


def plain_ticks(axis, steps):
    """Gives a logarithmic axis ticks at these multiples of powers of ten, as plain numbers."""
    from matplotlib import ticker
    axis.set_major_locator(ticker.LogLocator(subs=steps))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(ticker.NullLocator())


def plot_quality(rows):
    """Size against divergence, both logarithmic; types without any divergence are left out."""
    shown = [row for row in rows if row["kld"] > 1e-7]
    if not shown:
        return None
    pyplot = figures()
    figure, axes = pyplot.subplots(figsize=(10.5, 6.4), dpi=72)
    front = pareto_front(shown, lambda row: row["kld"])
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.plot([r["bytes"] / 1e6 for r in front], [r["kld"] for r in front], color=FRONT, linewidth=1)
    for row in shown:
        axes.errorbar(row["bytes"] / 1e6, row["kld"], yerr=row["kld_error"], marker="o", markersize=4, linewidth=1,
                      color=FRONT if row in front else OTHER)
    plain_ticks(axes.xaxis, (1, 1.5, 2, 3, 4, 5, 7))
    plain_ticks(axes.yaxis, (1, 2, 5))
    axes.set_xlabel("file, MB")
    axes.set_ylabel("KL divergence, nats a token")
    axes.grid(True, alpha=.25)
    axes.margins(x=.08, y=.08)
    figure.tight_layout()
    figure.canvas.draw()
    label_points(axes, [(r["bytes"] / 1e6, r["kld"], r["name"], r in front) for r in shown],
                 [(r["bytes"] / 1e6, r["kld"]) for r in front])
    return figure


def bars_of(pyplot, rows, columns, inches_a_row):
    """Returns a figure and its axes, `columns` beside each other, for bars of every row under its name."""
    figure, axes = pyplot.subplots(1, columns, figsize=(10.5, .9 + inches_a_row * len(rows)), dpi=72, sharey=True, squeeze=False)
    axes[0][0].set_yticks(range(len(rows)), [row["name"] for row in rows])
    axes[0][0].set_ylim(len(rows) - .4, -.6)
    for one in axes[0]:
        one.grid(True, axis="x", alpha=.25)
        one.set_axisbelow(True)
        one.tick_params(axis="y", length=0)
    return figure, axes[0]


def plot_speed(rows):
    figure, both = bars_of(figures(), rows, 2, .22)
    for axes, key, title in zip(both, ("generate", "prompt"), ("generation", "prompt")):
        rates = [row[key] for row in rows]
        axes.barh(range(len(rows)), [r["median"] for r in rates], height=.7, color=FRONT)
        axes.errorbar([r["median"] for r in rates], range(len(rows)), linestyle="none", color="#000000", linewidth=1,
                      xerr=[[r["median"] - r["min"] for r in rates], [r["max"] - r["median"] for r in rates]])
        axes.set_title(title, fontsize=9, loc="left")
        axes.set_xlabel("tokens per second")
    return figure


def plot_memory(rows, budgets):
    """A budget that no type runs in has no bars and is not named."""
    peaks = {"no budget": [row["memory"]["peak"] for row in rows]}
    for budget in budgets:
        found = [row["budgets"][str(budget)].get("peak", 0) for row in rows]
        if any(found):
            peaks[f"within {budget} MB"] = found
    figure, (axes,) = bars_of(figures(), rows, 1, .1 + .12 * len(peaks))
    height = .8 / len(peaks)
    for i, (name, found) in enumerate(peaks.items()):
        axes.barh([y + (i - (len(peaks) - 1) / 2) * height for y in range(len(rows))], found, height=height * .9,
                  color=BARS[i % len(BARS)], label=name)
    axes.set_xlabel("peak of memory, MB")
    axes.legend(fontsize=8, frameon=False, labelcolor="#000000", loc="lower left", bbox_to_anchor=(0, 1), ncols=8,
                columnspacing=1, handlelength=1.2, handletextpad=.5)
    return figure


def cells(values, kind="td"):
    return "<tr>" + "".join(f"<{kind}>{html.escape(str(v))}</{kind}>" for v in values) + "</tr>"


def table(head, lines, marked=(), kind="figures"):
    """Returns a table; lines whose number is in `marked` stand out. In one of kind "worst" the last column is text."""
    body = "\n".join(cells(line).replace("<tr>", '<tr class="best">' if i in marked else "<tr>")
                     for i, line in enumerate(lines))
    return f'<div class="scroll"><table class="{kind}"><thead>{cells(head, "th")}</thead><tbody>\n{body}\n</tbody></table></div>'


def figure_of(svg, caption):
    """Returns a figure that scrolls where the screen is narrow; nothing without one."""
    return f'<figure><div class="scroll">{svg}</div><figcaption>{html.escape(caption)}</figcaption></figure>' if svg else ""


def main_table(rows):
    head = ["type", "bits per weight", "file, MB", "perplexity", "over reference", "KL divergence, nats a token",
            "top-1 agreement", "prompt, tokens/s", "generation, tokens/s", "peak of memory, MB", "converted in, s"]
    front = pareto_front(rows, lambda row: row["kld"])
    lines = [[r["name"], f"{r['bits']:.3f}", f"{r['bytes'] / 1e6:.2f}", f"{r['perplexity']:.3f}",
              f"{100 * r['increase']:+.2f} % +/- {100 * r['increase_error']:.2f}", f"{r['kld']:.5f} +/- {r['kld_error']:.5f}",
              f"{100 * r['top']:.1f} %", f"{r['prompt']['median']:,.0f}", f"{r['generate']['median']:,.1f}",
              f"{r['memory']['peak']:.1f}", f"{r['seconds']:.1f}"] for r in rows]
    return table(head, lines, [i for i, row in enumerate(rows) if row in front])


def budget_table(rows, budgets):
    def cell(found):
        if "failed" in found:
            needed = re.search(r"needs (\d+) MB", found["failed"])
            return f"needs {needed.group(1)} MB" if needed else "does not fit"
        return f"{found['rate']:,.1f} tokens/s, {found['peak']:.1f} MB, read {found['read']:,.0f} MB"
    return table(["type", *(f"--ram-budget {budget} (MB)" for budget in budgets)],
                 [[row["name"], *(cell(row["budgets"][str(budget)]) for budget in budgets)] for row in rows])


def tensor_table(rows):
    lines = []
    for row in rows:
        worst = ", ".join(f"{t['section']} {t['tensor']} {t['cosine']:.5f}" for t in row["worst"][:3]) or "none rounded"
        lines.append([row["name"], row["n_rounded"], f"{row['lowest_cosine']:.6f}", row["n_below"], row["n_widened"], worst])
    return table(["type", "tensors rounded", "lowest cosine", "below 0.99", "given more bits", "farthest from the original"], lines,
                 kind="worst")


def page_of(title, rows, budgets, how):
    """Returns the page of rows that report_model.py made; `how` says what they were measured with."""
    smallest = min(rows, key=lambda row: row["bytes"])
    parts = [
        f"<h1>{html.escape(title)}: what every weight type costs</h1>",
        f"<p>{smallest['n_weights']:,} weights; {html.escape(how['scales'])}. Quality: {html.escape(how['text'])}, of which the "
        f"second half of each is scored. In {html.escape(how['reference'])}, the reference, perplexity is {how['base']:.3f}. "
        f"Speed: medians of {how['rounds']} runs in turns, prompts of {how['prompt']} tokens and {how['tokens']} generated, on "
        f"{html.escape(rows[0]['machine'])}.</p>",
        "<h2>All types</h2>", main_table(rows),
        "<p>Marked: every file that is no larger diverges more. Errors are standard errors; those of increases leave out one "
        "window after the other.</p>",
        "<h2>Size and quality</h2>", figure_of(svg_of(plot_quality(rows)), "Size of the file against the KL divergence from the "
                                               "reference; the line joins those marked above. Types that do not diverge are left out."),
        "<h2>Speed</h2>", figure_of(svg_of(plot_speed(rows)), "Medians, with the slowest and the fastest run."),
        "<h2>Memory</h2>", figure_of(svg_of(plot_memory(rows, budgets)), "Peak of the whole process of qsf-run, at the "
                                     "model's whole context. No bar: it does not run in that budget.")]
    if budgets:
        parts += ["<p>Within a budget: generation, peak, and what was read from the disk; or what qsf-run says that it needs:</p>",
                  budget_table(rows, budgets)]
    parts += ["<h2>Verification</h2>", "<p>Cosines of tensors as they are decoded with what they were. mixed gives a matrix more bits "
              "where its cosine would fall below 0.99; no other type does.</p>", tensor_table(rows)]
    body = "\n".join(part for part in parts if part)
    return (f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
            f'content="width=device-width, initial-scale=1"><title>{html.escape(title)}</title><style>{STYLE}</style></head>\n'
            f"<body>\n{body}\n</body></html>\n")
