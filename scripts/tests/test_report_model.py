#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tests of report_model.py and its page, with tools that only seem to convert, score and run."""

import contextlib
import html.parser
import importlib.util
import json
import os
import sys
import unittest
from unittest import mock

import rooms  # noqa: F401  (puts the folders of scripts/ on the path)
import fake_tools
import model_page
import report_model

HAS_MATPLOTLIB = importlib.util.find_spec("matplotlib") is not None
if HAS_MATPLOTLIB:
    from matplotlib.text import Text


class Tables(html.parser.HTMLParser):
    """The cells of a page's tables, a list a line, and its open elements."""

    EMPTY = ("meta", "path", "use", "rect", "circle", "line")

    def __init__(self, text):
        super().__init__()
        self.lines, self.open, self.in_cell = [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if tag not in self.EMPTY:
            self.open.append(tag)
        if tag == "tr":
            self.lines.append([])
        if tag in ("td", "th"):
            self.lines[-1].append("")
            self.in_cell = True

    def handle_endtag(self, tag):
        if tag in self.EMPTY:
            return
        if not self.open or self.open.pop() != tag:
            raise AssertionError(f"</{tag}> where {self.open[-1:]} is open")
        if tag in ("td", "th"):
            self.in_cell = False

    def handle_data(self, data):
        if self.in_cell:
            self.lines[-1][-1] += data


class Report(fake_tools.ScriptTest):
    def setUp(self):
        super().setUp()
        self.out = os.path.join(self.folder, "out")

    def make(self, *options, bin_folder=None, draws=False):
        """Returns exit status and stderr."""
        model, text, _ = self.inputs
        with contextlib.ExitStack() as stack:
            if not draws or not HAS_MATPLOTLIB:
                stack.enter_context(mock.patch.dict(sys.modules, {"matplotlib": mock.MagicMock(__spec__="here")}))
                for name in ("plot_quality", "plot_speed", "plot_memory"):
                    stack.enter_context(mock.patch.object(model_page, name, lambda *_: None))
            status, _, err = self.run_main(report_model, model, text, self.out, "--bin", bin_folder or self.folder, "--rounds",
                                           "3", *options)
        return status, err

    def page(self):
        with open(os.path.join(self.out, "index.html"), encoding="utf-8") as file:
            return file.read()

    def test_the_page_has_what_was_measured(self):
        status, err = self.make("--types", "f16", "4bit/64", "2bit/32", "--budgets", "5", "20", "--png",
                                os.path.join(self.folder, "plot.png"), draws=True)
        self.assertEqual(status, 0, err)
        page = self.page()
        tables = Tables(page)
        self.assertEqual(tables.open, [])
        four = next(line for line in tables.lines if line[0] == "4bit/64")
        self.assertEqual(four, ["4bit/64", "4.500", "4.50", "21.905", "+1.18 % +/- 0.00", "0.00586 +/- 0.00012", "99.4 %",
                                "5,059", "910.5", "17.3", "0.5"])
        self.assertIn(["2bit/32", "needs 12 MB", "123.4 tokens/s, 17.3 MB, read 2 MB"], tables.lines)
        self.assertIn(["2bit/32", "1", "0.984375", "0", "0", "layer 0 attn_q 0.98438"], tables.lines)
        self.assertEqual([line[0] for line in tables.lines[1:4]], ["f16", "4bit/64", "2bit/32"])
        self.assertIn("prefers-color-scheme: dark", page)
        self.assertEqual(sorted(os.listdir(self.out)), ["index.html", "results.json"])
        if HAS_MATPLOTLIB:
            self.assertEqual(page.count('<figure><div class="scroll"><svg'), 3)
            self.assertNotIn("#000000", page)
            self.assertIn(">4bit/64</text>", page)
            with open(os.path.join(self.folder, "plot.png"), "rb") as file:
                self.assertEqual(file.read(4), b"\x89PNG")

    def test_the_page_says_what_was_measured_with_what(self):
        for options, said in (([], "24 weights; scales searched. Quality"),
                              (["--calibration", self.inputs[2]],
                               "scales calibrated by the first 500,000 bytes of training.txt. Quality"),
                              (["--calibration", self.inputs[2], "--calibration-bytes", "0", "--gptq"],
                               "GPTQ from all bytes of training.txt. Quality")):
            self.out = os.path.join(self.folder, f"out{len(options)}")
            self.make("--types", "4bit/64", "--bytes", "1000", *options)
            self.assertIn(f"{said}: the first 1,000 bytes of text.txt, 4 windows of 512 tokens", self.page())
            self.assertIn("prompts of 256 tokens and 64 generated, on fake, 1 thread, none.", self.page())

    def test_a_failure_in_a_budget_that_is_not_the_budgets_ends_it(self):
        with open(os.path.join(self.folder, "qsf-run"), "a", encoding="utf-8") as file:
            file.write('if budget:\n    sys.exit("qsf-run: model.qsf: checksum of layer 2 is wrong")\n')
        status, err = self.make("--types", "4bit/64", "--budgets", "20")
        self.assertEqual(status, 1)
        self.assertIn("checksum of layer 2 is wrong", err)

    def test_types_take_turns_in_being_timed(self):
        self.make("--types", "4bit/64", "2bit/64")
        benches = [call.split()[1] for call in fake_tools.take_calls(self.folder) if call.startswith("qsf-bench")]
        self.assertEqual(benches, ["4bit-64.qsf", "2bit-64.qsf"] * 3)

    def test_goes_on_where_it_was(self):
        os.rename(os.path.join(self.folder, "qsf-run"), os.path.join(self.folder, "away"))
        with open(os.path.join(self.folder, "qsf-run"), "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\necho 'qsf-run: out of order' >&2\nexit 1\n")
        os.chmod(os.path.join(self.folder, "qsf-run"), 0o755)
        with mock.patch.object(report_model, "about_of", return_value={}):
            status, err = self.make("--types", "4bit/64")
            self.assertEqual(status, 1)
            self.assertIn("out of order", err)
            self.assertFalse(os.path.exists(os.path.join(self.out, "index.html")))
            fake_tools.take_calls(self.folder)
            os.replace(os.path.join(self.folder, "away"), os.path.join(self.folder, "qsf-run"))
            status, _ = self.make("--types", "4bit/64")
            self.assertEqual((status, [c.split()[0] for c in fake_tools.take_calls(self.folder)]), (0, ["qsf-run"]))
            self.make("--types", "4bit/64")
            self.assertEqual(fake_tools.take_calls(self.folder), [])

    def test_types_that_are_added_are_measured_alone(self):
        self.make("--types", "4bit/64", "3bit/64")
        fake_tools.take_calls(self.folder)
        self.make("--types", "4bit/64", "2bit/64", "3bit/64")
        converted = [call.split()[-1] for call in fake_tools.take_calls(self.folder) if call.startswith("qsf-convert")]
        self.assertEqual(converted, ["reference.qsf", "3bit-64.qsf", "2bit-64.qsf"])
        self.assertIn(">4bit/64</td>", self.page())

    def test_a_folder_of_others_is_left_alone(self):
        kept = os.path.join(self.out, "models", "4bit-64.qsf")
        os.makedirs(os.path.dirname(kept))
        with open(kept, "w", encoding="utf-8") as file:
            file.write("not of this script")
        status, err = self.make("--types", "4bit/64")
        self.assertEqual((status, os.listdir(self.out), fake_tools.take_calls(self.folder)), (1, ["models"], []))
        self.assertIn("does not say that it was made here: give another OUT_DIR, or remove the folder", err)
        # Nor is one taken that was made with results that were removed.
        os.remove(kept)
        os.rmdir(os.path.dirname(kept))
        self.make("--types", "4bit/64", "--keep-models")
        self.assertIn("4bit-64.qsf", os.listdir(os.path.dirname(kept)))
        self.assertEqual(self.make("--types", "4bit/64")[0], 0)
        self.assertFalse(os.path.exists(os.path.dirname(kept)))
        os.makedirs(os.path.dirname(kept))
        self.assertEqual(self.make("--types", "4bit/64")[0], 1)
        os.rmdir(os.path.dirname(kept))
        self.make("--types", "4bit/64", "2bit/64", "--keep-models")
        os.remove(os.path.join(self.out, "results.json"))
        self.assertEqual(self.make("--types", "4bit/64")[0], 1)

    def test_a_file_whose_report_was_lost_is_converted_again(self):
        with mock.patch.object(report_model, "hash_of", side_effect=KeyboardInterrupt), self.assertRaises(KeyboardInterrupt):
            self.make("--types", "4bit/64")
        self.assertEqual(self.make("--types", "4bit/64")[0], 0)
        self.assertIn(">4bit/64</td>", self.page())

    def test_calibration_is_gathered_once_and_fed_back_where_asked(self):
        calibration = ["--calibration", self.inputs[2]]
        self.make("--types", "4bit/64", "2bit/64", *calibration)
        calls = [call for call in fake_tools.take_calls(self.folder) if call.startswith("qsf-convert")]
        self.assertEqual([("--calibration-out" in call, "--calibration calibration" in call) for call in calls],
                         [(False, False), (True, True), (False, True), (False, True)])
        with self.assertRaises(SystemExit) as ended:
            self.make("--types", "4bit/64", *calibration, "--gptq")
        self.assertIn("give another file", str(ended.exception))

    def test_what_cannot_be_converted_is_left_out_and_named(self):
        status, err = self.make("--types", "3bit/64", "4bit/64")
        self.assertEqual(status, 0)
        self.assertIn("3bit/64: left out: ", err)
        self.assertNotIn("3bit", self.page())
        status, err = self.make("--types", "3bit/32")
        self.assertEqual(status, 1)
        self.assertIn("no type could be converted", err)

    def test_errors_name_what_is_missing(self):
        status, err = self.make(bin_folder="/no/such/folder")
        self.assertEqual(status, 2)
        for tool in report_model.TOOLS:
            self.assertIn(f"/no/such/folder/{tool}: no such file; --bin names it", err)
        with mock.patch.dict(sys.modules, {"matplotlib": None}):
            status, _, err = self.run_main(report_model, *self.inputs[:2], self.out, "--bin", self.folder)
        self.assertEqual(status, 2)
        self.assertIn("matplotlib is not installed", err)
        self.assertFalse(os.path.exists(self.out))

    def test_results_of_other_arguments_are_refused(self):
        self.make("--types", "4bit/64")
        with self.assertRaises(SystemExit) as ended:
            self.make("--types", "4bit/64", "--context", "64")
        self.assertIn("give another file", str(ended.exception))
        with open(os.path.join(self.out, "results.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["about"]["context"], 512)


class Front(unittest.TestCase):
    def test_the_front_has_what_no_smaller_file_beats(self):
        rows = [{"bytes": b, "kld": k} for b, k in ((5, 0.1), (3, 0.2), (4, 0.3), (3, 0.25), (2, 0.4), (6, 0.1))]
        self.assertEqual([(r["bytes"], r["kld"]) for r in model_page.pareto_front(rows, lambda r: r["kld"])],
                         [(2, 0.4), (3, 0.2), (5, 0.1)])


@unittest.skipUnless(HAS_MATPLOTLIB, "matplotlib is not installed: plots are drawn with it")
class Plots(unittest.TestCase):
    # Where files lie (MB, nats): six close together at the left edge, one on the right.
    SPOTS = {**{f"a-name-of-a-type-{i}": (2.15 + 0.03 * i, 0.3 * (0.94 if i % 2 else 1.03) ** i) for i in range(6)},
             "last": (8.0, 0.001)}

    def rows(self):
        return [{"name": name, "bytes": mb * 1e6, "kld": kld, "kld_error": kld / 100} for name, (mb, kld) in self.SPOTS.items()]

    def test_every_name_has_room_of_its_own(self):
        figure = model_page.plot_quality([*self.rows(), {"name": "exact", "bytes": 2e7, "kld": 0.0, "kld_error": 0.0}])
        axes = figure.axes[0]
        texts = {text.get_text(): text for text in axes.texts}
        self.assertEqual(set(texts), set(self.SPOTS))
        room = axes.get_window_extent()
        boxes = [Text.get_window_extent(text) for text in texts.values()]
        for i, box in enumerate(boxes):
            self.assertTrue(room.x0 <= box.x0 and box.x1 <= room.x1 and room.y0 <= box.y0 and box.y1 <= room.y1)
            for x, y in [axes.transData.transform(spot) for spot in self.SPOTS.values()]:
                self.assertFalse(box.x0 < x < box.x1 and box.y0 < y < box.y1)
            for other in boxes[:i]:
                self.assertFalse(box.overlaps(other))

    def test_no_text_is_black_on_a_dark_screen(self):
        figure = model_page.figures().figure()
        figure.text(0, 0, "$10^{-1}$")
        figure.text(0, 0, "plain")
        svg = model_page.svg_of(figure)
        self.assertIn(">plain</text>", svg)
        self.assertEqual(svg.count("<text"), svg.count('<text fill="currentColor"'))

    def test_ticks_are_plain_numbers(self):
        figure = model_page.plot_quality(self.rows())
        figure.canvas.draw()
        self.assertIn("0.005", [label.get_text() for label in figure.axes[0].get_yticklabels()])
        self.assertIn("3", [label.get_text() for label in figure.axes[0].get_xticklabels()])

    def test_nothing_is_drawn_where_nothing_diverges(self):
        self.assertIsNone(model_page.plot_quality([{**row, "kld": 0.0} for row in self.rows()]))

    def test_a_budget_that_no_type_runs_in_has_no_bars(self):
        rows = [{"name": name, "memory": {"peak": 20.0}, "budgets": {"5": {"failed": "too small"}, "9": found}}
                for name, found in (("a", {"peak": 8.0}), ("b", {"failed": "too small"}))]
        axes = model_page.plot_memory(rows, [5, 9]).axes[0]
        self.assertEqual([text.get_text() for text in axes.get_legend().get_texts()], ["no budget", "within 9 MB"])
        self.assertEqual([bar.get_width() for bar in axes.patches], [20, 20, 8, 0])
        self.assertEqual(len({bar.get_facecolor() for bar in axes.patches}), 2)
        self.assertEqual([label.get_text() for label in axes.get_yticklabels()], ["a", "b"])

    def test_seven_budgets_have_a_colour_each_and_names_that_fit(self):
        budgets = list(range(1024, 1024 * 8, 1024))
        figure = model_page.plot_memory([{"name": "4bit-super/32", "memory": {"peak": 20.0},
                                          "budgets": {str(budget): {"peak": 8.0} for budget in budgets}}], budgets)
        axes = figure.axes[0]
        self.assertEqual(len({bar.get_facecolor() for bar in axes.patches}), 8)
        figure.tight_layout()
        legend = axes.get_legend().get_window_extent()
        self.assertTrue(0 <= legend.x0 and legend.x1 <= figure.bbox.x1 and legend.y1 <= figure.bbox.y1, (legend, figure.bbox))


if __name__ == "__main__":
    unittest.main()
