#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""qsf-bench as a user runs it: tables, JSON, refusals, and a peer that only pretends.

Usage: qsf_bench_test.py BIN_DIR SOURCE_DIR [unittest arguments]
"""

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import unittest

BIN_DIR, SOURCE_DIR = sys.argv[1:3]
BENCH = os.path.join(BIN_DIR, "qsf-bench")
MODEL = os.path.join(SOURCE_DIR, "models", "tales-5M-4bit.qsf")
TIMEOUT_S = 300

# Says what it was asked, and answers as llama-bench does: 10 tokens/s in the first run, 20 in the next.
FAKE_PEER = """#!/bin/sh
echo "$@" >> "$LOG"
n=$(wc -l < "$LOG")
echo "loading" >&2
echo "[{\\"build_commit\\": \\"abc\\", \\"model_type\\": \\"llama 1B\\", \\"model_size\\": 5000000, \\"avg_ts\\": ${n}0.0}]"
"""


def setUpModule():
    global scratch
    scratch = tempfile.TemporaryDirectory()


def tearDownModule():
    scratch.cleanup()


def path(name):
    return os.path.join(scratch.name, name)


def write(name, text, mode=0o644):
    with open(path(name), "w", encoding="ascii") as file:
        file.write(text)
    os.chmod(path(name), mode)
    return path(name)


def call(*arguments, **environment):
    """Runs qsf-bench; returns exit code, stdout and stderr."""
    clean = {name: value for name, value in os.environ.items() if name != "QSF_LLAMA_BENCH"}
    done = subprocess.run([BENCH, *arguments], capture_output=True, text=True, timeout=TIMEOUT_S,
                          stdin=subprocess.DEVNULL, env={**clean, **environment})
    return done.returncode, done.stdout, done.stderr


class Case(unittest.TestCase):
    def refused(self, expected_code, word, *arguments, **environment):
        """Asserts an exit code, nothing on stdout and one line on stderr that holds `word`; returns that line."""
        code, out, err = call(*arguments, **environment)
        self.assertEqual((code, out), (expected_code, ""), err)
        self.assertEqual(err.count("\n"), 1, err)
        self.assertTrue(err.startswith("qsf-bench: "), err)
        self.assertIn(word, err)
        return err

    def measured(self, *arguments, **environment):
        """Returns the JSON of a run."""
        code, out, err = call(*arguments, "--json", **environment)
        self.assertEqual((code, err), (0, ""))
        return json.loads(out)


class Usage(Case):
    def test_help_and_version(self):
        code, out, _ = call("--help")
        self.assertEqual(code, 0)
        for option in ("--prompt", "--generate", "--depth", "--peer", "--kernels", "--json"):
            self.assertIn(option, out)
        self.assertRegex(call("--version")[1], r"\Aqsf-bench \d+\.\d+\.\d+\n\Z")

    def test_bad_usage(self):
        self.refused(2, "MODEL is required")
        self.refused(2, "--frobnicate", MODEL, "--frobnicate")
        for text in ("-1", "1,", ",1", "1;2", "x", "99999999999999999999"):
            self.refused(2, "numbers of tokens", MODEL, "-p=" + text)
        self.refused(2, "nothing to measure", MODEL, "-p", "0", "-n", "0")
        self.refused(2, "--repetitions", MODEL, "-r", "0")
        self.refused(2, "from 1 to 64", MODEL, "-s", "0")
        self.refused(2, "from 1 to 64", MODEL, "-s", "1,65")
        self.refused(2, "--threads", MODEL, "--threads", "0")
        self.refused(2, "--kv-type", MODEL, "--kv-type", "q8")
        self.refused(2, "--attention", MODEL, "--attention", "sparse")
        self.refused(2, "--h2o-chunk 64", MODEL, "--attention", "h2o", "--h2o-chunk", "64")
        self.refused(2, "chunked: is not measured", MODEL, "--attention", "chunked")
        self.refused(2, "--kv-type-k", MODEL, "--kv-type-k", "1")
        self.refused(2, "--texts excludes", MODEL, "--texts", MODEL, "--disk")

    def test_models_that_cannot_be_measured(self):
        self.refused(1, "no such file", path("absent.qsf"))
        self.refused(1, "magic.qsf", write("magic.qsf", "GGUF" * 1000))
        self.refused(1, "context of 1100 tokens", MODEL, "-p", "100", "-d", "1000")


class Models(Case):
    def test_sparse_attention_costs_less_operations(self):
        sizes = ["--attention", "h2o", "--h2o-local", "8", "--h2o-heavy", "8", "--h2o-chunk", "32"]
        arguments = [MODEL, "-p", "256", "-n", "0", "-r", "1", "--threads", "1", "--no-probe"]
        full = self.measured(*arguments)
        sparse = self.measured(*arguments, *sizes)
        self.assertEqual((full["model"]["attention"], sparse["model"]["attention"]), ("full", "h2o"))
        operations = [run["tests"][0]["operators"]["attention"]["operations"] for run in (full, sparse)]
        self.assertLess(2 * operations[1], operations[0])

    def test_texts_with_drafts(self):
        """A text that repeats its prompt is drafted, also with tokens that the vocabulary has not."""
        prompt = " ".join(str(100 + i % 25) for i in range(100))
        large = " ".join(str(90000 + i % 25) for i in range(100))
        texts = write("texts.tsv", f"small\t{prompt}\t{prompt}\nlarge\t{large}\t{large}\n")
        arguments = [MODEL, "--texts", texts, "-r", "2", "--threads", "1"]
        for budgets in ([], ["--stream", "40"]):
            figures = self.measured(*arguments, *budgets)["texts"]
            self.assertEqual([(figure["text"], figure["tokens"]) for figure in figures],
                             [("small", 100), ("large", 100)])
            for figure in figures:
                self.assertTrue(0 <= figure["accepted"] <= figure["drafted"] and figure["drafted"] > 0, figure)
                self.assertGreater(figure["off_tokens_per_second"]["median"], 0)
        code, out, err = call(*arguments)
        self.assertEqual((code, err), (0, ""))
        self.assertRegex(out, r"(?m)^ +- small +100 +[\d.]+ +[\d.]+ ")

    def test_texts_that_are_none(self):
        self.refused(1, "no.tsv: cannot be read", MODEL, "--texts", path("no.tsv"))
        self.refused(1, "no line with a text", MODEL, "--texts", write("empty.tsv", ""))
        for line in ("name", "name\t1 2", "name\t1 2\t3", "name\t1 x\t3 4", "name\t\t3 4"):
            self.refused(1, "line 2: expected a name", MODEL, "--texts", write("bad.tsv", f"\n{line}\n"))

    def test_table(self):
        code, out, err = call(MODEL, "-p", "8,4", "-n", "3", "-d", "0,5", "-r", "2", "--no-probe")
        self.assertEqual((code, err), (0, ""))
        for row in ("prompt 8", "prompt 4", "generate 3", "prompt 8 at 5", "generate 3 at 5"):
            self.assertEqual(len(re.findall(rf"^{row}  +[\d.]+", out, re.M)), 1, out)
            self.assertEqual(len(re.findall(rf"^{row} +ms a run", out, re.M)), 1, out)
        self.assertEqual(len(re.findall(r"^  gate and up +[\d.]+ +\d+ % +[\d.]+ +[\d.]+$", out, re.M)), 6)

    def test_json(self):
        for repetitions in (1, 2, 3):
            found = self.measured(MODEL, "-p", "8", "-n", "3", "-r", str(repetitions),
                                  "--threads", "1", "--no-probe")
            self.assertEqual(found["machine"]["threads"], 1)
            self.assertNotIn("limits", found)
            self.assertNotIn("peer", found)
            self.assertEqual([(t["kind"], t["tokens"]) for t in found["tests"]],
                             [("prompt", 8), ("generate", 3)])
            for test in found["tests"]:
                rates = [test["tokens"] / s for s in test["run_seconds"]]
                self.assertEqual(len(rates), repetitions)
                spread = test["tokens_per_second"]
                self.assertAlmostEqual(spread["median"] / statistics.median(rates), 1.0, 9)
                self.assertAlmostEqual(spread["min"] / min(rates), 1.0, 9)
                self.assertAlmostEqual(spread["max"] / max(rates), 1.0, 9)
                # The parts are what the runs took, and neither the warm-up nor the context before.
                parts = sum(operator["ns"] for operator in test["operators"].values()) * 1e-9
                self.assertLessEqual(parts, sum(test["run_seconds"]) * 1.01)
                self.assertGreater(parts, 0.0)

    def test_costs_of_a_known_shape(self):
        model = path("tiny.qsf")
        subprocess.run([os.path.join(BIN_DIR, "qsf-convert"), "--quiet", "--random", "tiny",
                        "--quant-type", "f32", model], check=True)
        found = self.measured(model, "-p", "2", "-n", "3", "-d", "10", "-r", "1", "--no-probe")
        # Rows are padded to groups of 16: 40 to 48, 200 to 208, 330 to 336.
        layer = 80 * 80 + 2 * 48 * 80 + 80 * 80 + 2 * 208 * 80 + 80 * 200
        self.assertEqual(found["model"]["weight_bytes_per_token"], 4 * (2 * layer + 336 * 80))
        prompt, generate = found["tests"]
        seconds = generate["run_seconds"][0]
        # Tokens 10, 11 and 12 see themselves and all before: 2 layers of keys and values of 40 f16.
        read = 3 * 4 * (2 * layer + 336 * 80) + (11 + 12 + 13) * 2 * 2 * 40 * 2
        self.assertAlmostEqual(generate["bytes_per_second"] * seconds / read, 1.0, 9)
        layer = 80 * 80 + 2 * 40 * 80 + 80 * 80 + 2 * 200 * 80 + 80 * 200
        attention = 4 * 2 * 80
        operations = 3 * 2 * (2 * layer + 330 * 80) + (11 + 12 + 13) * attention
        self.assertAlmostEqual(generate["operations_per_second"] * seconds / operations, 1.0, 9)
        # Of a prompt the last token alone has logits.
        operations = 2 * 2 * 2 * layer + 2 * 330 * 80 + (11 + 12) * attention
        seconds = prompt["run_seconds"][0]
        self.assertAlmostEqual(prompt["operations_per_second"] * seconds / operations, 1.0, 9)
        self.assertNotIn("bytes_per_second", prompt)

    def test_sequences_share_the_weights_of_a_pass(self):
        arguments = [MODEL, "-p", "0", "-n", "3", "-d", "4", "-r", "2", "--threads", "1", "--no-probe"]
        one, three = self.measured(*arguments, "-s", "1,3")["tests"]
        self.assertEqual((one["sequences"], three["sequences"]), (1, 3))
        self.assertEqual(three["tokens"], 3)
        rates = [9 / s for s in three["run_seconds"]]
        self.assertAlmostEqual(three["tokens_per_second"]["median"] / statistics.median(rates), 1.0, 9)
        gate = [test["operators"]["gate and up"] for test in (one, three)]
        self.assertEqual(gate[0]["bytes"], gate[1]["bytes"])
        self.assertEqual(3 * gate[0]["operations"], gate[1]["operations"])
        code, out, err = call(*arguments, "--sequences", "2")
        self.assertEqual((code, err), (0, ""))
        self.assertRegex(out, r"(?m)^generate 3 x 2 at 4 +[\d.]+")

    def test_limits(self):
        found = self.measured(MODEL, "-p", "0", "-n", "1", "-r", "1")
        limits = found["limits"]
        self.assertIn(limits["read_streams"], (1, 4, 8))
        for name in ("read_bytes", "int8_operations", "f32_operations"):
            self.assertGreater(limits[name + "_per_second"], 0.0)
        generate = found["tests"][0]
        read = generate["bytes_per_second"] / generate["read_beside_bytes_per_second"][0]
        self.assertAlmostEqual(generate["read_share"]["median"] / read, 1.0, 9)
        code, out, _ = call(MODEL, "-p", "4", "-n", "1", "-r", "1", QSF_ISA="scalar")
        self.assertEqual(code, 0)
        self.assertIn("probe_i8_scalar", out)
        self.assertRegex(out, r"(?m)^generate 1 .*\d %.*\d %")


class Peers(Case):
    ARGUMENTS = [MODEL, "-p", "8", "-n", "3", "-d", "4", "-r", "2", "--threads", "1", "--no-probe"]

    def setUp(self):
        self.gguf = write("model.gguf", "")
        self.log = path("log")
        if os.path.exists(self.log):
            os.remove(self.log)

    def test_a_peer_runs_in_turns(self):
        peer = write("llama-bench", FAKE_PEER, 0o755)
        found = self.measured(*self.ARGUMENTS, "--peer", "llama-bench=" + peer, "--peer-model",
                              self.gguf, LOG=self.log)
        with open(self.log, encoding="ascii") as file:
            calls = file.read().splitlines()
        common = f"-m {self.gguf} -t 1 "
        self.assertEqual(calls, 2 * [common + "-p 8 -n 0 -r 1 -o json -d 4"]
                         + 2 * [common + "-p 0 -n 3 -r 1 -o json -d 4"])
        self.assertEqual(found["peer"]["commit"], "abc")
        self.assertEqual(found["peer"]["model_bytes"], 5000000)
        for test, median in zip(found["tests"], (15.0, 35.0)):
            self.assertEqual(test["peer_tokens_per_second"]["median"], median)
            self.assertAlmostEqual(test["ratio"], test["tokens_per_second"]["median"] / median)

    def test_a_peer_of_the_environment_in_the_table(self):
        peer = write("llama-bench", FAKE_PEER, 0o755)
        code, out, err = call(*self.ARGUMENTS, "--peer-model", self.gguf, LOG=self.log,
                              QSF_LLAMA_BENCH=peer)
        self.assertEqual((code, err), (0, ""))
        self.assertIn(peer, out)
        self.assertRegex(out, r"(?m)^generate 3 at 4 .* 35\.00 +\d+\.\d\d$")

    def test_peers_that_are_none(self):
        self.refused(2, "QSF_LLAMA_BENCH", *self.ARGUMENTS, "--peer-model", self.gguf)
        self.refused(2, "--peer-model", *self.ARGUMENTS, "--peer", "llama-bench=/bin/true")
        self.refused(2, "no such program", *self.ARGUMENTS, "--peer", path("absent"),
                     "--peer-model", self.gguf)
        self.refused(2, "no such program", *self.ARGUMENTS, "--peer", "no-such-llama-bench",
                     "--peer-model", self.gguf)
        self.refused(2, "cannot be read", *self.ARGUMENTS, "--peer", "sh", "--peer-model",
                     path("absent.gguf"))
        failing = write("failing", "#!/bin/sh\nexit 3\n", 0o755)
        self.refused(1, "exit code 3", *self.ARGUMENTS, "--peer", failing, "--peer-model", self.gguf)
        for answer in ("hello", "[]", "[1]", "[{}]", "{}", '[{"avg_ts": "1"}]'):
            peer = write("odd", f"#!/bin/sh\necho '{answer}'\n", 0o755)
            self.refused(1, "avg_ts", *self.ARGUMENTS, "--peer", peer, "--peer-model", self.gguf)


class Kernels(Case):
    def test_filter(self):
        code, out, err = call("--kernels", "norm_scalar")
        self.assertEqual((code, err), (0, ""))
        lines = out.splitlines()
        self.assertEqual([line.split()[0] for line in lines], ["kernel"] + 2 * ["norm_scalar"])
        self.refused(1, "no-such-kernel", "--kernels", "no-such-kernel")

    def test_products(self):
        found = self.measured("--kernels", "matmul_q4g64_i8_scalar", "--threads", "1")
        self.assertEqual([k["kernel"] for k in found["kernels"]], 3 * ["matmul_q4g64_i8_scalar"])
        for kernel in found["kernels"]:
            self.assertGreater(kernel["ns"], 0.0)
            # 4096 columns in 64 blocks of 36 bytes: 2304 bytes a row.
            self.assertAlmostEqual(kernel["bytes"] % 2304, 0)
        one, many = [k["operations"] for k in found["kernels"]][:2]
        self.assertEqual(many, 64 * one)


class Streams(Case):
    def smallest_budget(self):
        """Returns the MB that the model needs in this build of the program, as its refusal names them: a
        sanitizer takes tens of MB of its own."""
        err = self.refused(1, "budget", MODEL, "--stream", "1", "-p", "0", "-n", "2")
        return int(re.search(r"needs (\d+) MB", err)[1])

    def test_runs_within_each_budget(self):
        timeline = path("timeline.json")
        small, large = self.smallest_budget() + 32, self.smallest_budget() + 64
        result = self.measured(MODEL, "--stream", f"{small},{large}", "-p", "8", "-n", "4", "-r", "2", "--no-probe",
                               "--timeline", timeline)
        self.assertEqual([stream["budget_bytes"] for stream in result["streams"]],
                         [small * 1_000_000, large * 1_000_000])
        for stream in result["streams"]:
            self.assertLessEqual(stream["planned_bytes"], stream["budget_bytes"])
            self.assertIn("resident", stream["mode"])
            prompt, generate = stream["tests"]
            self.assertEqual((prompt["kind"], prompt["tokens"]), ("prompt", 8))
            self.assertEqual((generate["kind"], generate["tokens"], len(generate["runs"])), ("generate", 4, 2))
            self.assertGreater(generate["tokens_per_second"]["median"], 0)
            # All of it stays in memory, so a run reads nothing.
            self.assertEqual((generate["resident_share"], generate["runs"][1]["bytes_read"]), (1.0, 0))
        with open(timeline, encoding="ascii") as file:
            self.assertIsInstance(json.load(file), list)

    def experts_model(self):
        """Converts a model of 2 layers with 7 experts, 3 of them for a token; returns its path."""
        model = path("experts.qsf")
        if not os.path.exists(model):
            source = os.path.join(SOURCE_DIR, "testdata", "golden", "qwen3_moe")
            done = subprocess.run([os.path.join(BIN_DIR, "qsf-convert"), source, model, "--quant-type", "8bit"],
                                  capture_output=True, text=True, timeout=TIMEOUT_S)
            self.assertEqual(done.returncode, 0, done.stderr)
        return model

    def test_records_and_replays_routings(self):
        recorded = path("recorded.txt")
        arguments = ["--stream", "500", "-p", "0", "-n", "5", "-r", "1", "--no-probe"]
        result = self.measured(self.experts_model(), *arguments, "--record-routing", recorded)
        stream = result["streams"][0]
        self.assertEqual((stream["experts"], stream["experts_kept"]), (14, 14))
        run = stream["tests"][0]["runs"][0]
        self.assertEqual((run["experts_used"], run["experts_missed"]), (5 * 2 * 3, 0))
        with open(recorded, encoding="ascii") as file:
            lines = file.read().splitlines()
        self.assertEqual(lines[0], "qsf-routing 1")
        self.assertEqual(len(lines), 1 + 5 * 2)
        for number, line in enumerate(lines[1:]):
            self.assertRegex(line, rf"^g {number % 2}( [0-6]:[\d.e+-]+){{3}} ;( [0-6]:[-\d.e+]+){{2}}$")
        with open(recorded, "w", encoding="ascii") as file:
            file.write("qsf-routing 1\ng 0 6 5 4\ng 1 0 1 2\n")
        run = self.measured(self.experts_model(), *arguments, "--routing", recorded)["streams"][0]["tests"][0]["runs"][0]
        self.assertEqual(run["experts_used"], 5 * 2 * 3)
        code, out, err = call(self.experts_model(), *arguments, "--routing", recorded)
        self.assertEqual(code, 0, err)
        self.assertIn("100.0 % of the experts used were in memory", out)
        self.assertIn("14 of 14 experts in memory at once", out)

    def test_a_recording_of_a_streamed_model_with_and_without_guesses_is_replayed(self):
        mixed = write("mixed.txt", "qsf-routing 1\ng 0 6 5 4\ng 1 0 1 2 > 0 1 3\ng 0 1 2 3\ng 1 4 5 6\n")
        arguments = ["-p", "0", "-n", "6", "-r", "1", "--no-probe"]
        run = self.measured(self.experts_model(), "--stream", "500", *arguments,
                            "--routing", mixed)["streams"][0]["tests"][0]["runs"][0]
        self.assertEqual(run["experts_used"], 6 * 2 * 3)

    def test_refuses_routings_that_do_not_fit(self):
        arguments = ["--stream", "500", "-p", "0", "-n", "2", "-r", "1", "--no-probe", "--routing"]
        model = self.experts_model()
        self.refused(1, "cannot be read", model, *arguments, path("none.txt"))
        self.refused(1, "line 1 is not", model, *arguments, write("other.txt", "hello\n"))
        for text, word in (("g 0 1 2", "2 experts, a row of the model takes 3"),
                           ("g 2 1 2 3", "layer 2, the model has 2"),
                           ("g 0 1 2 7", "expert 7, the model has 7"),
                           ("g 0 1 2 2", "expert 2 twice"),
                           ("g 0 1 2 3 > 1 2", "guesses: 2 experts"),
                           ("g 0 1 2 3 ; 4:1 > 1 2 9", "guesses: expert 9"),
                           ("x 0 1 2 3", "expected \"g LAYER EXPERT")):
            err = self.refused(1, word, model, *arguments, write("bad.txt", f"qsf-routing 1\n{text}\n"))
            self.assertIn("bad.txt: line 2", err)
        self.refused(1, "no routings", model, *arguments, write("empty.txt", "qsf-routing 1\n"))
        self.refused(1, "no experts", MODEL, *arguments, write("good.txt", "qsf-routing 1\ng 0 1 2 3\n"))
        self.refused(2, "--routing needs --stream", model, "--routing", path("bad.txt"))
        self.refused(2, "excludes", model, *arguments, path("bad.txt"), "--record-routing", path("out.txt"))

    def test_sets_a_run_against_the_disk(self):
        code, out, err = call(MODEL, "--stream", "128", "-p", "0", "-n", "2", "-r", "1")
        self.assertEqual(code, 0, err)
        self.assertIn("of disk", out)
        stream = self.measured(MODEL, "--stream", "128", "-p", "0", "-n", "2", "-r", "1")["streams"][0]
        self.assertGreater(stream["tests"][0]["runs"][0]["disk_beside_bytes_per_second"], 0)

    def test_a_budget_that_is_too_small_is_refused_with_one_that_is_not(self):
        self.refused(1, "budget", MODEL, "--stream", "3", "-p", "0", "-n", "2")

    def test_measures_the_disk(self):
        disk = self.measured(MODEL, "--disk")["disk"]
        self.assertEqual(disk["bytes_per_second"], max(cell["bytes_per_second"] for cell in disk["matrix"]))
        self.assertEqual(self.measured(MODEL, "--disk", "--io", "pread")["disk"]["path"], "pread")
        code, out, err = call(MODEL, "--disk")
        self.assertEqual(code, 0, err)
        self.assertEqual(out.count("chosen"), 1)

    def test_refuses_what_does_not_go_together(self):
        self.refused(2, "--timeline needs --stream", MODEL, "--timeline", path("t.json"))
        self.refused(2, "compare_streaming", MODEL, "--stream", "100", "--peer", "true", "--peer-model", MODEL)
        self.refused(1, "no such file", path("missing.qsf"), "--disk")
        self.refused(2, "expected budgets in MB", MODEL, "--stream", "64,0")
        self.refused(2, "--disk excludes", MODEL, "--disk", "--stream", "64")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
