#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""qsf-run and qsf-perplexity as a user runs them: text, statistics, refusals, signals, pipes.

Usage: qsf_run_test.py BIN_DIR SOURCE_DIR [unittest arguments]

Converts the model of SOURCE_DIR/models with BIN_DIR/qsf-convert first. The class Damage runs the
tool on thousands of damaged files and takes a minute; ctest runs it as a test of its own.
"""

import glob
import json
import math
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

BIN_DIR, SOURCE_DIR = sys.argv[1:3]
RUN = os.path.join(BIN_DIR, "qsf-run")
PERPLEXITY = os.path.join(BIN_DIR, "qsf-perplexity")
TIMEOUT_S = 120


def setUpModule():
    global scratch, model
    scratch = tempfile.TemporaryDirectory()
    model = path("tales.qsf")
    subprocess.run([os.path.join(BIN_DIR, "qsf-convert"), "--quiet", "--quant-type", "4bit",
                    os.path.join(SOURCE_DIR, "models", "tales-5M"), model], check=True)


def tearDownModule():
    scratch.cleanup()


def path(name):
    return os.path.join(scratch.name, name)


def write(name, data):
    with open(path(name), "wb") as file:
        file.write(data)
    return path(name)


def call(*arguments, tool=RUN, **keywords):
    """Runs a tool; returns exit code, stdout and stderr as bytes."""
    keywords.setdefault("stdin", subprocess.DEVNULL)
    done = subprocess.run([tool, *arguments], capture_output=True, timeout=TIMEOUT_S, **keywords)
    return done.returncode, done.stdout, done.stderr


def text(*arguments, **keywords):
    code, out, err = call(model, "--quiet", *arguments, **keywords)
    assert code == 0 and err == b"", (code, err)
    return out


def overflowing_model():
    """Converts the model with a final norm of 3e38: finite weights whose logits are not."""
    folder = path("overflow")
    shutil.copytree(os.path.join(SOURCE_DIR, "models", "tales-5M"), folder)
    weights = os.path.join(folder, "model.safetensors")
    with open(weights, "rb") as file:
        content = file.read()
    end = 8 + struct.unpack("<Q", content[:8])[0]
    tensors = json.loads(content[8:end])
    data = b""
    for name, tensor in tensors.items():
        if name == "__metadata__":
            continue
        first, last = tensor["data_offsets"]
        values = content[end + first:end + last]
        if name == "model.norm.weight":
            tensor["dtype"] = "F32"
            values = struct.pack("<f", 3e38) * tensor["shape"][0]
        tensor["data_offsets"] = [len(data), len(data) + len(values)]
        data += values
    header = json.dumps(tensors).encode()
    os.chmod(weights, 0o644)
    with open(weights, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + data)
    subprocess.run([os.path.join(BIN_DIR, "qsf-convert"), "--quiet", "--quant-type", "4bit",
                    folder, path("overflow.qsf")], check=True)
    return path("overflow.qsf")


class Case(unittest.TestCase):
    def refused(self, expected_code, word, *arguments, tool=RUN, out=b"", **keywords):
        """Asserts an exit code, nothing on stdout and one line on stderr that holds `word`."""
        code, stdout, err = call(*arguments, tool=tool, **keywords)
        message = err.decode()
        self.assertEqual(code, expected_code, (arguments, message))
        self.assertEqual(stdout, out, arguments)
        self.assertRegex(message, r"\A" + os.path.basename(tool) + r": [^\n]+\n\Z", arguments)
        self.assertIn(word, message, arguments)


class Usage(Case):
    def test_help_and_version(self):
        for tool in (RUN, PERPLEXITY):
            code, out, err = call("--help", tool=tool)
            self.assertEqual((code, err), (0, b""))
            self.assertIn(b"MODEL", out)
            code, out, err = call("--version", tool=tool)
            self.assertEqual((code, err), (0, b""))
            self.assertRegex(out.decode(), r"\A" + os.path.basename(tool) + r" \d+\.\d+\.\d+\n\Z")

    def test_unknown_options_and_missing_values(self):
        self.refused(2, "--frobnicate", model, "--prompt", "a", "--frobnicate")
        self.refused(2, "--prompt", model, "--prompt")
        self.refused(2, "not expected", model, "second", "third")
        self.refused(2, "PROMPT and --prompt exclude each other", model, "second", "--prompt", "a")
        self.refused(2, "MODEL and --model exclude each other", model, "second", "-m", model)
        self.refused(2, "no prompt", model)
        self.refused(2, "exclude", model, "--prompt", "a", "--prompt-file", "-")
        self.refused(2, "exclude", model, "--prompt", "a", "--quiet", "--verbose")

    def test_values_out_of_range(self):
        bad = {
            "--max-tokens": ["-1", "abc", "1.5", "", "99999999999", "1e3"],
            "--threads": ["0", "-1", "10000"],
            "--max-seq-len": ["0", "-5", "1000000"],
            "--attention": ["sparse", "none"],
            "--attention-chunk": ["0", "all"],
            "--attention-window": ["-1"],
            "--h2o-local": ["-1", "all"],
            "--h2o-chunk": ["0"],
            "--h2o-score": ["max"],
            "--kv-type": ["f8"],
            "--kv-type-k": ["3"],
            "--kv-type-v": [""],
            "--ram-budget": ["-1", "0", "0.5", "900k", "1T", "many"],
            "--io": ["", "aio"],
            "--kv-spill": [""],
            "--session-save": [""],
            "--session-load": [""],
            "--kv-policy": ["heavy", "all"],
            "--kv-heavy": ["-1", "few"],
            "--kv-window": ["0", "-1", "many"],
            "--kv-sinks": ["-1", "1.5"],
            "--rows-per-pass": ["0", "-1"],
        }
        for option, values in bad.items():
            for value in values:
                word = {"--max-seq-len": ""}.get(option, option)
                self.refused(2, word, model, "--prompt", "a", option, value)

    def test_more_pinned_threads_than_cores(self):
        if len(os.sched_getaffinity(0)) < 1000:
            self.refused(2, "physical cores; ask for at most", model, "--prompt", "a", "--pin",
                         "--threads", "1000")

    def test_sizes_of_sparse_prefill_that_contradict_each_other(self):
        h2o = ["--attention", "h2o"]
        for tool, arguments in ((RUN, [model, "--prompt", "a"]), (PERPLEXITY, [model, "--file", "x"])):
            for message, options in (
                    ("needs --attention h2o; the attention is full", ["--h2o-heavy", "9"]),
                    ("needs --attention chunked; the attention is h2o",
                     [*h2o, "--attention-chunk", "9"]),
                    ("needs --attention symmetric; the attention is full",
                     ["--attention-window", "9"]),
                    ("--h2o-local 24 and --h2o-heavy 8: expected a sum below --h2o-chunk 32",
                     [*h2o, "--h2o-local", "24", "--h2o-heavy", "8", "--h2o-chunk", "32"]),
                    ("--h2o-heavy 3: expected at least --h2o-sinks 4", [*h2o, "--h2o-heavy", "3"])):
                self.refused(2, message, *arguments, *options, tool=tool)

    def test_numbers_of_a_window_need_its_policy(self):
        for tool, arguments in ((RUN, (model, "--prompt", "a")), (PERPLEXITY, (model, "--file", "-"))):
            self.refused(2, "--kv-window 7: needs --kv-policy window or h2o; the policy is full", *arguments,
                         "--kv-window", "7", tool=tool)
            self.refused(2, "--kv-sinks 0: needs --kv-policy window or h2o", *arguments, "--kv-sinks", "0",
                         "--kv-policy", "full", tool=tool)
            self.refused(2, "--kv-heavy 9: needs --kv-policy h2o; the policy is window", *arguments,
                         "--kv-heavy", "9", "--kv-policy", "window", tool=tool)
            self.refused(2, "--kv-heavy 3: expected at least --kv-sinks 4", *arguments, "--kv-heavy", "3",
                         "--kv-policy", "h2o", tool=tool)
            self.refused(2, "--rope-reindex: needs --kv-policy window", *arguments, "--rope-reindex", tool=tool)

    def test_perplexity(self):
        self.refused(2, "MODEL", tool=PERPLEXITY)
        self.refused(2, "--file", model, tool=PERPLEXITY)
        self.refused(2, "--context", model, "--file", "x", "--context", "3", tool=PERPLEXITY)
        self.refused(2, "--chunks", model, "--file", "x", "--chunks", "0", tool=PERPLEXITY)
        self.refused(2, "--threads", model, "--file", "x", "--threads", "0", tool=PERPLEXITY)


class Failures(Case):
    def test_models_that_are_none(self):
        self.refused(1, "no such file", path("absent.qsf"), "--prompt", "a")
        self.refused(1, "without config.json", scratch.name, "--prompt", "a")
        self.refused(1, "no such file", path("x.gguf"), "--prompt", "a")
        self.refused(1, "empty.qsf", write("empty.qsf", b""), "--prompt", "a")
        self.refused(1, "not a QSF file: it starts with 51 53 46 30", write("magic.qsf", b"QSF0" * 1000),
                     "--prompt", "a")
        self.refused(1, "is a GGUF file, not a QSF file: run it with 'qsf run'",
                     write("model.bin", b"GGUF" * 1000), "--file", write("text", b"a b c"),
                     tool=PERPLEXITY)
        self.refused(1, "no such file", "", "--prompt", "a")
        unreadable = write("two\nlines.qsf", b"")
        self.refused(1, "two lines.qsf", unreadable, "--prompt", "a")

    def test_prompts(self):
        long = write("long.txt", b"a rather long text. " * 2000)
        self.refused(1, "the context holds 1024", model, "--prompt-file", long)
        self.refused(1, "the context holds 8", model, "--max-seq-len", "8", "--prompt", "one " * 30)
        self.refused(1, "No such file", model, "--prompt-file", path("absent.txt"))
        self.refused(1, "directory", model, "--prompt-file", scratch.name)

    def test_perplexity(self):
        short = write("short.txt", b"too short")
        self.refused(1, "at least one window", model, "--file", short, tool=PERPLEXITY)
        self.refused(1, "No such file", model, "--file", path("absent.txt"), tool=PERPLEXITY)
        self.refused(1, "QSF file", short, "--file", short, tool=PERPLEXITY)
        self.refused(2, "1024", model, "--file", short, "--context", "2048", tool=PERPLEXITY)
        words = write("many.txt", b"One two three. " * 60)
        self.refused(1, "logits are not finite", overflowing_model(), "--file", words,
                     "--context", "64", tool=PERPLEXITY)

    def test_unwritable_output(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([RUN, model, "--prompt", "a"], stdout=full,
                                  stderr=subprocess.PIPE, timeout=TIMEOUT_S)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, b"qsf-run: standard output: No space left on device\n")


class Text(Case):
    def test_prompt_is_echoed_and_the_output_ends_with_a_newline(self):
        out = text("--prompt", "Once upon a time", "--max-tokens", "20", "--seed", "1")
        # As the tokenizer reads it: SentencePiece puts a space in front of a text.
        self.assertTrue(out.startswith(b" Once upon a time"))
        self.assertTrue(out.endswith(b"\n"))
        rest = text("--prompt", "Once upon a time", "--max-tokens", "20", "--seed", "1",
                    "--no-echo")
        self.assertEqual(b" Once upon a time" + rest, out)

    def test_no_tokens(self):
        self.assertEqual(text("--prompt", "A dog", "--max-tokens", "0"), b" A dog\n")
        self.assertEqual(text("--prompt", "A dog", "--max-tokens", "0", "--no-echo"), b"")

    def test_prompt_from_file_and_standard_input(self):
        greedy = ["--temperature", "0", "--max-tokens", "12"]
        expected = text("--prompt", "The king said\nto his", *greedy)
        source = write("prompt.txt", b"The king said\nto his")
        self.assertEqual(text("--prompt-file", source, *greedy), expected)
        with open(source, "rb") as file:
            self.assertEqual(text("--prompt-file", "-", *greedy, stdin=file), expected)

    def test_any_bytes_are_a_prompt(self):
        out = text("--prompt", os.fsdecode(b"\xff\xfe\xc3 dog"), "--max-tokens", "2")
        self.assertTrue(out.decode().startswith(" \ufffd\ufffd\ufffd dog"))
        self.assertTrue(text("--prompt", "", "--max-tokens", "4"))

    def test_exact_products_are_other_products(self):
        arguments = ["--prompt", "A dog", "--max-tokens", "2", "--verbose", "--temperature", "0"]
        rounded = call(model, *arguments)
        exact = call(model, *arguments, "--exact", "--pin", "--threads", "1")
        self.assertEqual((rounded[0], exact[0]), (0, 0))
        self.assertIn(b"\nproducts: of int8 rows", rounded[2])
        self.assertIn(b"\nproducts: exact, of f32 rows\n", exact[2])

    def test_keys_and_values_have_types_of_their_own(self):
        arguments = ["--prompt", "Once upon a time", "--max-tokens", "60", "--temperature", "0"]
        texts = {(keys, values): text(*arguments, "--kv-type-k", keys, "--kv-type-v", values)
                 for keys in ("f32", "2") for values in ("f32", "2")}
        self.assertEqual(len(set(texts.values())), 4, texts)
        self.assertEqual(text(*arguments, "--kv-type", "2"), texts["2", "2"])
        self.assertEqual(text(*arguments, "--kv-type", "f32", "--kv-type-v", "2"), texts["f32", "2"])

    def test_long_prompts_attend_to_chunks_and_memory_sets(self):
        prompt = "".join(f"The king had {n} horses and a dog. " for n in range(2, 20))
        arguments = ["--prompt", prompt, "--max-tokens", "40", "--temperature", "0"]
        sizes = ["--h2o-local", "4", "--h2o-heavy", "5", "--h2o-chunk", "16"]
        sparse = text(*arguments, "--attention", "h2o", *sizes)
        for others in (["--rows-per-pass", "7"], ["--rows-per-pass", "32", "--threads", "1"]):
            self.assertEqual(text(*arguments, "--attention", "h2o", *sizes, *others), sparse)
        full = text(*arguments)
        self.assertNotEqual(sparse, full)
        self.assertEqual(text(*arguments, "--attention", "h2o"), full)  # one chunk
        self.assertEqual(text(*arguments, "--attention", "full"), full)
        self.assertEqual(text(*arguments, "--attention", "h2o", "--h2o-local", "0", "--h2o-heavy", "0",
                              "--h2o-chunk", "16"), full)

    def test_prompts_attend_within_chunks_or_to_both_sides(self):
        prompt = "".join(f"The king had {n} horses and a dog. " for n in range(2, 20))
        arguments = ["--prompt", prompt, "--max-tokens", "40", "--temperature", "0"]
        chunked = ["--attention", "chunked", "--attention-chunk", "16"]
        full = text(*arguments)
        self.assertNotEqual(text(*arguments, *chunked), full)
        self.assertEqual(text(*arguments, *chunked, "--rows-per-pass", "7"),
                         text(*arguments, *chunked))
        self.assertEqual(text(*arguments, "--attention", "chunked"), full)  # one chunk
        symmetric = ["--attention", "symmetric"]
        self.assertNotEqual(text(*arguments, *symmetric), full)
        self.assertNotEqual(text(*arguments, *symmetric, "--attention-window", "3"),
                            text(*arguments, *symmetric))
        self.refused(1, "a pass has at most 16 rows", model, *arguments, *symmetric,
                     "--rows-per-pass", "16")
        self.refused(1, "attention chunked with kv policy window", model, *arguments, *chunked,
                     "--kv-policy", "window")
        fox = write("fox.txt", b"The fox ran. " * 199)
        self.refused(1, "use full", model, "--file", fox, *symmetric, tool=PERPLEXITY)

    def test_keys_in_a_file_change_no_text(self):
        arguments = ["--prompt", "Once upon a time", "--max-tokens", "30", "--seed", "3"]
        spill = path("keys")
        self.assertEqual(text(*arguments, "--kv-spill", spill), text(*arguments))
        self.assertFalse(os.path.exists(spill))
        code, _, err = call(model, *arguments, "--verbose", "--kv-spill", spill)
        self.assertEqual(code, 0, err)
        self.assertIn(b"keys and values: in " + os.fsencode(spill), err)
        self.refused(2, "exists already", model, *arguments, "--kv-spill", model)
        self.refused(1, "cannot be created", model, *arguments, "--kv-spill", path("no/such/file"))

    def test_context(self):
        code, out, err = call(model, "--prompt", "Once upon a time", "--max-seq-len", "8",
                              "--temperature", "0")
        self.assertEqual(code, 0)
        self.assertIn(b"context full", err)

    def test_windows(self):
        """One that holds the whole text changes nothing, one that does not is another text, and the context ends both."""
        arguments = ["--prompt", "Once upon a time", "--max-tokens", "60", "--temperature", "0"]
        full = text(*arguments)
        self.assertEqual(text(*arguments, "--kv-policy", "window"), full)
        small = text(*arguments, "--kv-policy", "window", "--kv-window", "8", "--kv-sinks", "1")
        self.assertNotEqual(small, full)
        self.assertEqual(text(*arguments, "--kv-policy", "window", "--kv-window", "8", "--kv-sinks", "1",
                              "--rows-per-pass", "3"), small)
        code, _, err = call(model, "--prompt", "Once upon a time", "--kv-policy", "window", "--kv-window", "8",
                            "--max-seq-len", "40", "--temperature", "0", "--logit-bias", "70=100")
        self.assertEqual(code, 0)
        self.assertIn(b"context full", err)

    def test_h2o_eviction(self):
        """A window of the whole text changes nothing; with a small one heavy positions make another text, by any passes."""
        arguments = ["--prompt", "Once upon a time there was a little girl. " * 12, "--max-tokens", "40",
                     "--temperature", "0"]
        small = ["--kv-window", "16", "--kv-sinks", "1"]
        h2o = ["--kv-policy", "h2o"]
        self.assertEqual(text(*arguments, *h2o), text(*arguments))
        kept = text(*arguments, *h2o, *small, "--kv-heavy", "24")
        self.assertNotEqual(kept, text(*arguments, *h2o, *small, "--kv-heavy", "1"))
        self.assertEqual(text(*arguments, *h2o, *small, "--kv-heavy", "24", "--rows-per-pass", "7"), kept)
        self.refused(1, "attention h2o with kv policy h2o", model, *arguments, *h2o, "--attention", "h2o")

    def test_texts_past_the_trained_context(self):
        window = ["--kv-policy", "window", "--kv-window", "100", "--temperature", "0"]
        prompt = "Once upon a time " * 250  # of at least 1,000 tokens
        arguments = ["--prompt", prompt, *window, "--max-tokens", "300", "--logit-bias", "70=100", "--max-seq-len", "2000"]
        code, _, err = call(model, *arguments, "--rope-reindex")
        self.assertEqual(code, 0)
        self.assertNotIn(b"context full", err)
        self.refused(2, "trained for 1024; use fewer, or", model, *arguments)
        # While all fits it is the same text.
        short = ["--prompt", "Once upon a time", *window, "--max-tokens", "60"]
        self.assertEqual(text(*short, "--rope-reindex"), text(*short))
        self.refused(2, "4 sinks and a window of 1024", model, "--prompt", "a", "--kv-policy", "window", "--rope-reindex")

    def test_statistics_go_to_standard_error(self):
        code, out, err = call(model, "--prompt", "Once upon a time", "--max-tokens", "10")
        self.assertEqual(code, 0)
        for word in (b"prompt 5 tokens", b"generated 10 tokens", b"tokens/s", b"planned", b"peak",
                     b"read 3.3 MB, prompts in 1 pass of up to 512 rows", b"mode: resident; ", b"seed"):
            self.assertIn(word, err)
        self.assertNotIn(b"tokens/s", out)
        seed = re.search(rb"seed (\d+)", err).group(1).decode()
        again = text("--prompt", "Once upon a time", "--max-tokens", "10", "--seed", seed)
        self.assertEqual(again, out)

    def test_verbose_tells_plan_kernels_and_times(self):
        code, out, err = call(model, "--prompt", "a", "--max-tokens", "2", "--verbose")
        self.assertEqual(code, 0)
        for word in (b"memory plan", b"kv_cache", b"weights", b"kernels", b"threads",
                     b"matrix products", b"attention", b"sampling", b"opening",
                     b"waiting for the disk", b"disk: "):
            self.assertIn(word, err)
        regions = [int(n) for n in re.findall(rb"^ *(\d+)  \w+: ", err, re.M)]
        total = int(re.search(rb"^ *(\d+)  in all", err, re.M).group(1))
        self.assertTrue(0 <= total - sum(regions) < 64 * len(regions), (total, sum(regions)))

    def test_perplexity(self):
        words = ("The king of the old country had three sons and a daughter. " * 60).encode()
        source = write("words.txt", words)
        code, out, err = call(model, "--file", source, "--context", "64", tool=PERPLEXITY)
        self.assertEqual(code, 0)
        lines = out.decode().splitlines()
        last = re.fullmatch(r"PPL = (\d+\.\d+) \+/- (\d+\.\d+)", lines[-1])
        self.assertTrue(1.0 < float(last.group(1)) < 100.0 and float(last.group(2)) > 0, lines)
        self.assertTrue(any("tokens/s" in line for line in lines))
        windows = int(lines[0].split()[0])
        # The second half of a window without its first token, as llama.cpp scores.
        self.assertIn(f"{windows * 31} tokens scored", lines[0])
        code, some, err = call(model, "--file", source, "--context", "64", "--chunks", "2",
                               tool=PERPLEXITY)
        self.assertTrue(some.decode().startswith("2 windows of 64 tokens, 62 tokens scored"))
        with open(source, "rb") as file:
            code, piped, err = call(model, "--file", "-", "--context", "64", tool=PERPLEXITY,
                                    stdin=file)
        self.assertEqual(piped.splitlines()[-1], out.splitlines()[-1])

    def test_perplexity_writes_losses(self):
        source = write("losses.txt", b"The king of the old country had three sons. " * 40)
        losses = path("losses.json")
        code, out, err = call(model, "--file", source, "--context", "64", "--losses", losses,
                              tool=PERPLEXITY)
        self.assertEqual((code, err), (0, b""))
        with open(losses, encoding="ascii") as file:
            windows = [json.loads(line) for line in file]
        self.assertEqual([w["window"] for w in windows], list(range(int(out.split()[0]))))
        self.assertTrue(all((w["tokens"], w["first"], len(w["losses"]), len(w["ids"])) == (64, 33, 31, 64)
                            for w in windows))
        mean = sum(sum(w["losses"]) for w in windows) / (31 * len(windows))
        self.assertAlmostEqual(math.exp(mean), float(out.split()[-3]), delta=2e-4)
        self.refused(1, "No such file", model, "--file", source, "--context", "64", "--losses",
                     path("no/such/folder"), tool=PERPLEXITY)
        self.refused(1, "No space left", model, "--file", source, "--context", "64", "--losses",
                     "/dev/full", tool=PERPLEXITY)

    def test_perplexity_of_lines(self):
        lines = [b"The king went out.", b"Once upon a time there was a queen, and she was old."]
        source = write("lines.txt", b"\n".join(lines) + b"\n")
        losses = path("lines.json")
        code, out, err = call(model, "--file", source, "--context", "32", "--lines", "--losses",
                              losses, tool=PERPLEXITY)
        self.assertEqual((code, err), (0, b""))
        with open(losses, encoding="ascii") as file:
            windows = [json.loads(line) for line in file]
        self.assertEqual(len(windows), 2)
        self.assertEqual(out.split(b"\n")[0], b"2 windows of %d tokens at most, %d tokens scored" % (
            windows[1]["tokens"], sum(len(w["losses"]) for w in windows)))
        # A line has the losses that it has alone.
        alone = write("line.txt", lines[1])
        code, out, err = call(model, "--file", alone, "--context", str(windows[1]["tokens"]),
                              "--losses", losses, tool=PERPLEXITY)
        self.assertEqual((code, err), (0, b""))
        with open(losses, encoding="ascii") as file:
            self.assertEqual(json.loads(file.readline())["losses"], windows[1]["losses"])
        self.refused(1, "line 2 has ", model, "--file", source, "--context", "8", "--lines",
                     tool=PERPLEXITY)
        self.refused(1, "line 1 has 1 tokens, expected 4 to --context 8", model, "--file",
                     write("empty_line.txt", b"\nThe king\n"), "--context", "8", "--lines",
                     tool=PERPLEXITY)

    def test_perplexity_writes_what_is_left_to_see(self):
        source = write("kept.txt", b"The king of the old country had three sons. " * 60)
        kept = path("kept.json")
        code, out, err = call(model, "--file", source, "--context", "300", "--chunks", "1", "--kept",
                              kept, "--attention", "h2o", "--h2o-chunk", "128", "--h2o-local", "16",
                              "--h2o-heavy", "24", tool=PERPLEXITY)
        self.assertEqual((code, err), (0, b""))
        with open(kept, encoding="ascii") as file:
            steps = [json.loads(line) for line in file]
        self.assertEqual([(s["window"], s["tokens"]) for s in steps], [(0, 128), (0, 256), (0, 300)])
        for step in steps:
            start = step["tokens"] // 128 * 128
            self.assertEqual([len(layer) for layer in step["visible"]], [2] * 6)
            for layer in step["visible"]:
                for positions in layer:
                    self.assertEqual(positions, sorted(set(positions)))
                    self.assertEqual(positions[:4], [0, 1, 2, 3])
                    self.assertEqual(positions[24:], list(range(start - 16, step["tokens"])))
        code, out, err = call(model, "--file", source, "--context", "300", "--chunks", "1", "--kept",
                              kept, "--kv-policy", "window", "--kv-window", "5", tool=PERPLEXITY)
        with open(kept, encoding="ascii") as file:
            self.assertEqual(json.loads(file.readline())["visible"],
                             [[[0, 1, 2, 3, 296, 297, 298, 299]] * 2] * 6)

    def compared(self, reference, *arguments):
        """Returns the KLD, the share of equal top tokens in percent, PPL and the reference's PPL."""
        source = write("compared.txt", b"The king of the old country had three sons. " * 40)
        code, out, err = call(model, "--file", source, "--context", "64", "--reference", reference,
                              *arguments, tool=PERPLEXITY)
        self.assertEqual((code, err), (0, b""))
        lines = out.decode().splitlines()
        found = [re.fullmatch(pattern, line) for pattern, line in zip(
            [r"reference PPL = (\S+) \+/- \S+", r"mean KLD = (\S+) \+/- \S+",
             r"top-1 agreement = (\S+) % \+/- \S+ %", r"PPL = (\S+) \+/- \S+"], lines[-4:])]
        self.assertTrue(all(found), lines)
        reference_ppl, kld, top, ppl = [float(match.group(1)) for match in found]
        plain = call(model, "--file", source, "--context", "64", *arguments, tool=PERPLEXITY)[1]
        self.assertEqual(plain.decode().splitlines()[-1], lines[-1])
        return kld, top, ppl, reference_ppl

    def test_distance_from_a_reference(self):
        kld, top, ppl, reference_ppl = self.compared(model, "--exact")
        self.assertEqual((kld, top), (0.0, 100.0))
        self.assertEqual(ppl, reference_ppl)
        rounding, rounding_top = self.compared(model)[:2]  # a reference is exact by itself
        self.assertTrue(0.0 < rounding < 0.001 and rounding_top > 98.0, (rounding, rounding_top))
        folder = os.path.join(SOURCE_DIR, "models", "tales-5M")
        for bits in ("f16", "ternary"):
            subprocess.run([os.path.join(BIN_DIR, "qsf-convert"), "--quiet", "--quant-type", bits,
                            folder, path(bits + ".qsf")], check=True, stderr=subprocess.DEVNULL)
        near, near_top, ppl, reference_ppl = self.compared(path("f16.qsf"), "--chunks", "3")
        far, far_top = self.compared(path("ternary.qsf"), "--chunks", "3")[:2]
        self.assertTrue(0.0 < near < far and 100.0 > near_top > far_top, (near, far, near_top, far_top))
        self.assertNotEqual(ppl, reference_ppl)

    def test_references_that_cannot_be_compared(self):
        source = write("compared.txt", b"The king of the old country had three sons. " * 40)
        other = path("tiny.qsf")
        subprocess.run([os.path.join(BIN_DIR, "qsf-convert"), "--quiet", "--random", "tiny", other],
                       check=True)
        arguments = [model, "--file", source, "--context", "64", "--reference"]
        self.refused(1, "vocabulary of 330", *arguments, other, tool=PERPLEXITY)
        self.refused(1, "absent.qsf", *arguments, path("absent.qsf"), tool=PERPLEXITY)


class Sessions(Case):
    GREEDY = ["--temperature", "0"]
    PROMPT = ["--prompt", "Once upon a time"]

    def test_a_text_goes_on_as_if_it_had_never_stopped(self):
        session = path("told.session")
        whole = text(*self.PROMPT, "--max-tokens", "40", *self.GREEDY)
        first = text(*self.PROMPT, "--max-tokens", "15", "--session-save", session, *self.GREEDY)
        rest = text("--session-load", session, "--max-tokens", "25", *self.GREEDY, "--kv-spill",
                    path("keys"), "--threads", "1", "--max-seq-len", "100")
        self.assertEqual(first.removesuffix(b"\n") + rest, whole)

    def test_a_prompt_that_was_computed_is_paid_once(self):
        session = path("prompt.session")
        long = write("story.txt", b" ".join([b"There was a king and a horse."] * 20))
        code, out, err = call(model, "--prompt-file", long, "--max-tokens", "0", "--no-echo",
                              "--session-save", session)
        self.assertEqual((code, out), (0, b""), err)
        saved = re.search(rb"session of (\d+) tokens saved in .*prompt.session: [\d.]+ [kMG]?B, in", err)
        self.assertTrue(saved, err)
        code, out, err = call(model, "--session-load", session, "--prompt", "The cat",
                              "--max-tokens", "8", *self.GREEDY)
        self.assertEqual(code, 0, err)
        self.assertIn(b"prompt 2 tokens", err)
        with open(long, "ab") as file:
            file.write(b" The cat")
        whole = text("--prompt-file", long, "--max-tokens", "8", "--no-echo", *self.GREEDY)
        self.assertTrue(out.endswith(whole), (out, whole))

    def test_what_attention_remembers_goes_on(self):
        session = path("remembered.session")
        long = write("remembered.txt", b" ".join([b"There was a king and a horse."] * 16))
        sparse = ["--attention", "h2o", "--h2o-local", "5", "--h2o-heavy", "6", "--h2o-chunk", "24",
                  "--h2o-sinks", "2"]
        policy = ["--kv-policy", "h2o", "--kv-window", "30", "--kv-sinks", "2", "--kv-heavy", "20"]
        load = ["--session-load", session]
        for remembers, saved, others in [
                (sparse, "h2o (local 5, heavy 6, chunk 24, sinks 2, score sum), expected ",
                 [("full", []), ("h2o (local 5, heavy 6, chunk 24, sinks 2, score mean)",
                                 [*sparse, "--h2o-score", "mean"])]),
                (policy, "h2o (window 30, sinks 2, heavy 20), expected ",
                 [("full", []), ("h2o (30, 2, 21)", [*policy[:-1], "21"])])]:
            arguments = ["--prompt-file", long, "--no-echo", *remembers, *self.GREEDY]
            whole = text(*arguments, "--max-tokens", "90")
            first = text(*arguments, "--max-tokens", "15", "--session-save", session)
            rest = text(*load, "--max-tokens", "75", *remembers, *self.GREEDY, "--threads", "1",
                        "--rows-per-pass", "5", "--kv-spill", path("keys"))
            self.assertEqual(first.removesuffix(b"\n") + rest, whole)
            for expected, options in others:
                self.refused(2, saved + expected, model, *load, *options)

    def test_one_file_for_both(self):
        session = path("both.session")
        both = ["--session-save", session]
        whole = text(*self.PROMPT, "--max-tokens", "18", *self.GREEDY)
        parts = text(*self.PROMPT, "--max-tokens", "6", *both, *self.GREEDY).removesuffix(b"\n")
        both += ["--session-load", session]
        parts += text("--max-tokens", "6", *both, *self.GREEDY).removesuffix(b"\n")
        parts += text("--max-tokens", "6", *both, *self.GREEDY)
        self.assertEqual(parts, whole)
        self.assertEqual([n for n in os.listdir(scratch.name) if ".tmp" in n], [])

    def test_refusals(self):
        session = path("refused.session")
        text(*self.PROMPT, "--max-tokens", "10", "--session-save", session)
        load = [model, "--session-load", session]
        self.refused(2, "keys of type f16, expected 4", *load, "--kv-type", "4")
        self.refused(1, "the context 8", *load, "--max-seq-len", "8")
        self.refused(1, "after 14 of the session, the context holds 16", *load, "--prompt",
                     "one two three", "--max-seq-len", "16")
        self.refused(1, "no such file", model, "--session-load", path("absent"))
        self.refused(1, "not a session file", model, "--session-load", model)
        other = path("other.qsf")
        subprocess.run([os.path.join(BIN_DIR, "qsf-convert"), "--quiet", "--quant-type", "8bit",
                        os.path.join(SOURCE_DIR, "models", "tales-5M"), other], check=True)
        self.refused(2, "saved with another model", other, "--session-load", session)
        with open(session, "rb") as file:
            content = bytearray(file.read())
        content[-100] ^= 4
        damaged = write("damaged.session", content)
        self.refused(1, "section layer_5", model, "--session-load", damaged)
        self.refused(1, "truncated", model, "--session-load",
                     write("short.session", bytes(content[:5000])))
        # Before anything is computed.
        self.refused(1, "--session-save: ", model, *self.PROMPT, "--session-save",
                     path("no/such/folder"))
        self.refused(1, "no regular file", model, *self.PROMPT, "--session-save", scratch.name)


class Budget(Case):
    STORY = ["--prompt", "There was a king", "--max-tokens", "40", "--seed", "4"]

    def least(self, *arguments):
        """Returns the smallest budget in MB that a refusal of a smaller one names."""
        code, out, err = call(model, *self.STORY, *arguments, "--ram-budget", "2")
        self.assertEqual((code, out), (1, b""))
        self.assertRegex(err, rb"\Aqsf-run: [^\n]+tales.qsf: a budget of 2 MB is too small[^\n]+\n\Z")
        return int(re.search(rb"needs (\d+) MB", err).group(1))

    def test_the_budget_that_a_refusal_names_works_and_two_less_do_not(self):
        for arguments in ([], ["--max-seq-len", "128"], ["--io", "pread"]):
            least = self.least(*arguments)
            code, out, err = call(model, *self.STORY, *arguments, "--ram-budget", str(least))
            self.assertEqual(code, 0, err)
            self.assertIn(b"planned of %d.0 MB" % least, err)
            self.assertEqual(out, call(model, *self.STORY)[1])
            # What it names has a quarter of a MB to spare, so one less may just be enough.
            self.refused(1, f"budget of {least - 2} MB", model, *self.STORY, *arguments,
                         "--ram-budget", str(least - 2))

    def test_the_context_that_a_refusal_names_fits(self):
        short = self.least("--max-seq-len", "128")
        arguments = [model, *self.STORY, "--ram-budget", str(short + 1)]
        err = call(*arguments, "--max-seq-len", "1024")[2]
        found = re.search(rb"a context of (\d+) positions would fit", err)
        if found is None:  # on a machine whose keys and values are no part of the question
            self.skipTest(err.decode())
        context = int(found.group(1))
        # Two runs differ by some pages of the program that the system maps ahead: 100 positions are a
        # quarter of a MB here.
        self.assertEqual(call(*arguments, "--max-seq-len", str(context - 100))[0], 0)
        self.refused(1, "too small", *arguments, "--max-seq-len", str(context + 100))

    def test_small_budgets_say_what_they_gave_up_and_tell_the_same(self):
        expected = text(*self.STORY)
        least = self.least()
        code, out, err = call(model, *self.STORY, "--ram-budget", str(least))
        self.assertEqual((code, out), (0, expected))
        self.assertIn(b"qsf-run: warning: rows per pass: ", err)
        self.assertIn(b"qsf-run: mode: ", err)
        code, out, err = call(model, *self.STORY, "--ram-budget", str(least + 100))
        self.assertEqual((code, out), (0, expected))
        self.assertNotIn(b"warning", err)
        self.assertIn(b"mode: resident; ", err)
        self.assertIn(b", direct", err)

    def test_every_path_tells_the_same_and_says_which_it_is(self):
        expected = text(*self.STORY)
        for path, name in (("pread", b"; pread, "), ("mmap", b"; mmap, "), ("auto", b"resident; ")):
            code, out, err = call(model, *self.STORY, "--io", path)
            self.assertEqual((code, out), (0, expected), err)
            self.assertIn(name, err)
        self.assertIn(b"the kernel decides", call(model, *self.STORY, "--io", "mmap")[2])

    def test_long_prompts_are_refused_before_they_become_tokens(self):
        long = write("words.txt", b"one two " * 60000)
        self.refused(1, "of text", model, "--prompt-file", long, "--ram-budget", "40")
        self.refused(1, "the prompt has 480000 bytes", model, "--prompt-file", long,
                     "--ram-budget", "400")


class Disk(Case):
    """A model whose disk is asked how it wants to be read, which smaller ones are not worth, on the
    disk of the build: temporary files are often in memory."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(dir=BIN_DIR)
        self.addCleanup(self.folder.cleanup)
        self.model = os.path.join(self.folder.name, "gpt2.qsf")
        subprocess.run([os.path.join(BIN_DIR, "qsf-convert"), "--quiet", "--random", "gpt2", "--quant-type",
                        "4bit", self.model], check=True)

    def run_within(self, budget):
        return call(self.model, "--prompt", "one", "--max-tokens", "2", "--max-seq-len", "64", "--seed", "1", "--io",
                    "pread", "--ram-budget", str(budget), env={**os.environ, "XDG_CACHE_HOME": self.folder.name})

    def test_a_remembered_depth_that_does_not_fit_is_halved(self):
        least = int(re.search(rb"needs (\d+) MB", self.run_within(2)[2]).group(1))
        code, expected, err = self.run_within(least)
        self.assertEqual(code, 0, err)
        if b", direct" not in err:
            self.skipTest("no direct reads here: " + err.decode())
        remembered, = glob.glob(os.path.join(self.folder.name, "qsf", "disk-*-pread-direct"))
        with open(remembered, encoding="ascii") as file:
            lines = file.read()
        self.assertGreater(os.path.getsize(self.model), 64 << 20)
        with open(remembered, "w", encoding="ascii") as file:
            file.write(re.sub(r"(?m)^best .*$", "best 32 1048576 1000000000", lines))
        code, out, err = self.run_within(least)
        self.assertEqual((code, out), (0, expected), err)
        self.assertRegex(err, rb"warning: reads at once: \d+ instead of 32; the disk may have to wait")


class Streaming(Case):
    ENDLESS = ["--prompt", "Once upon a time", "--max-tokens", "900", "--max-seq-len", "1024",
               "--logit-bias", "2=-inf"]

    def start(self, *arguments, **keywords):
        return subprocess.Popen([RUN, model, *arguments], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, **keywords)

    def test_every_write_ends_with_a_whole_character(self):
        arguments = [*self.ENDLESS, "--temperature", "20", "--top-k", "0", "--top-p", "1"]
        process = self.start(*arguments)
        read, n_reads = b"", 0
        while chunk := os.read(process.stdout.fileno(), 4096):
            read += chunk
            n_reads += 1
            read.decode()  # raises in the middle of a character
        process.communicate(timeout=TIMEOUT_S)
        self.assertEqual(process.returncode, 0)
        self.assertGreater(n_reads, 20, "the text did not come piece by piece")
        self.assertTrue(any(byte >= 0x80 for byte in read), "no character of several bytes")

    def test_interrupt_ends_the_text_and_prints_the_statistics(self):
        process = self.start(*self.ENDLESS)
        os.read(process.stdout.fileno(), 1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=TIMEOUT_S)
        self.assertEqual(process.returncode, 0)
        self.assertTrue(out.endswith(b"\n"))
        self.assertIn(b"tokens/s", err)
        self.assertIn(b"interrupted", err)

    def test_a_reader_that_leaves_is_no_error(self):
        process = self.start(*self.ENDLESS)
        os.read(process.stdout.fileno(), 1)
        process.stdout.close()
        err = process.stderr.read()
        process.stderr.close()
        self.assertEqual(process.wait(timeout=TIMEOUT_S), 0)
        self.assertEqual(err, b"")

    def interrupted_on_a_terminal(self, *arguments):
        """Returns what a terminal shows of a run that Ctrl-C ends after 200 bytes."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.execv(RUN, [RUN, model, *self.ENDLESS, *arguments])
        shown = b""
        deadline = time.monotonic() + TIMEOUT_S
        interrupted = False
        while time.monotonic() < deadline:
            ready, _, _ = select.select([terminal], [], [], 1)
            try:
                chunk = os.read(terminal, 4096) if ready else b""
            except OSError:  # how a terminal says that the other end closed
                break
            shown += chunk
            if len(shown) > 200 and not interrupted:
                os.write(terminal, b"\x03")  # Ctrl-C
                interrupted = True
        _, status = os.waitpid(pid, 0)
        self.assertEqual(status, 0)
        self.assertIn(b"interrupted", shown)
        return shown

    def test_on_a_terminal(self):
        shown = self.interrupted_on_a_terminal()
        self.assertIn(b"Once upon a time", shown)
        self.assertIn(b"\r\nqsf-run: prompt 5 tokens", shown)

    def test_the_summary_begins_a_line_when_ctrl_c_follows_a_newline(self):
        newlines = write("newlines.gbnf", b'root ::= "\\n"*')
        shown = self.interrupted_on_a_terminal("--grammar", newlines)
        self.assertIn(b"\r\nqsf-run: prompt 5 tokens", shown)


class Damage(Case):
    def test_truncated_at_every_997th_byte(self):
        with open(model, "rb") as file:
            whole = file.read()
        for size in range(0, len(whole), 997):
            self.refused(1, "cut.qsf", write("cut.qsf", whole[:size]), "--prompt", "a")

    def test_every_header_byte_flipped(self):
        with open(model, "rb") as file:
            whole = bytearray(file.read())
        for at in range(128):
            whole[at] ^= 0xFF
            self.refused(1, "flipped.qsf", write("flipped.qsf", whole), "--prompt", "a")
            whole[at] ^= 0xFF


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
