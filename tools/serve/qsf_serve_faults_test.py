#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""qsf serve where the disk fails it: session files that cannot be written or read, and model files
that change. What fails is named, and all else goes on.

Usage: qsf_serve_faults_test.py BIN_DIR MODEL [unittest arguments]
"""

import concurrent.futures
import glob
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "testing"))
import serve_process  # noqa: E402

BIN_DIR, MODEL = sys.argv[1:3]
SERVE = serve_process.program_in(BIN_DIR)
# Pages for little more than one context, and texts without a limit: they cannot all stay.
CROWDED = ["--max-seq-len", "512", "--kv-positions", "640", "--default-max-tokens", "64"]
REQUESTS = [{"prompt": prompt, "max_tokens": -1, "ignore_eos": True, "seed": i, "temperature": 0.8}
            for i, prompt in enumerate(["Once upon a time", "The fox said", "One day, a bird",
                                        "In the deep forest", "A boy named Tom", "Every morning"])]


def ask(serve, request):
    status, _, answer = serve.post("/v1/completions", request)
    return status, answer


def ask_all(serve):
    with concurrent.futures.ThreadPoolExecutor(len(REQUESTS)) as pool:
        return list(pool.map(lambda request: ask(serve, request), REQUESTS))


class Sessions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with serve_process.Server(SERVE, MODEL, *CROWDED) as serve:
            cls.alone = [serve.complete(**request) for request in REQUESTS]

    def check(self, serve, answers, words):
        """Some failed with an error that has all `words`, the others are as alone, and the server
        is well."""
        failed = [answer["error"] for status, answer in answers if status != 200]
        self.assertGreater(len(failed), 0)
        self.assertLess(len(failed), len(answers))
        for error in failed:
            self.assertEqual(error["type"], "server_error")
            for word in words:
                self.assertIn(word, error["message"])
        for alone, (status, answer) in zip(self.alone, answers):
            if status == 200:
                choice = answer["choices"][0]
                self.assertEqual((choice["text"], choice["finish_reason"]), alone)
        self.assertEqual(serve.get("/health")[0], 200)
        self.assertEqual(serve.complete(**REQUESTS[0]), self.alone[0])
        self.assertEqual(serve.end(), 0)
        # Each one failed for a reason of its own.
        self.assertEqual(len([line for line in serve.errors if words[0] in line]), len(failed))

    def test_a_disk_that_is_full(self):
        full = ["sh", "-c", "ulimit -f 8; trap '' XFSZ; exec \"$@\"", "sh"]
        with tempfile.TemporaryDirectory() as folder:
            with serve_process.Server(SERVE, MODEL, *CROWDED, "--session-dir", folder, wrapper=full) as serve:
                answers = ask_all(serve)
                self.assertEqual(glob.glob(folder + "/*/*"), [])
                self.check(serve, answers, [folder, "File too large"])
            self.assertEqual(os.listdir(folder), [])

    def test_a_session_file_that_is_damaged(self):
        with tempfile.TemporaryDirectory() as folder:
            over = threading.Event()
            damaged = []

            def damage():
                while not over.is_set() and not damaged:
                    for path in glob.glob(folder + "/*/*.session"):
                        with open(path, "r+b") as file:
                            file.seek(os.path.getsize(path) // 2)
                            file.write(b"\xa5" * 64)
                        damaged.append(path)
                    time.sleep(0.001)

            thread = threading.Thread(target=damage)
            with serve_process.Server(SERVE, MODEL, *CROWDED, "--session-dir", folder) as serve:
                thread.start()
                answers = ask_all(serve)
                over.set()
                thread.join()
                self.assertEqual(glob.glob(folder + "/*/*"), [])
                self.check(serve, answers, [folder, "the file is damaged"])
            self.assertEqual(os.listdir(folder), [])


def streaming_server(*arguments):
    """Returns a server that reads the model's file in every pass, within the largest budget in which it does: a model
    that is loaded again needs a little more than the smallest, since the process has grown."""
    arguments = [*arguments, "--max-seq-len", "512", "--texts", "4"]
    done = subprocess.run([SERVE, *arguments, "--port", "0", "--ram-budget", "5"], check=False,
                          capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)
    kilobytes = 1000 * int(re.search(r"it needs (\d+) MB", done.stderr)[1]) + 2000
    while True:
        serve = serve_process.Server(SERVE, *arguments, "--ram-budget", f"{kilobytes}K")
        if serve.get("/status")[2]["stream"]["resident_share"] < 0.5:
            return serve
        serve.__exit__()
        kilobytes -= 100


class ModelFile(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "model.qsf")
        shutil.copy(MODEL, self.path)
        self.serve = streaming_server(self.path, "other=" + MODEL)
        self.request = {**REQUESTS[0], "max_tokens": 40}
        self.alone = self.serve.complete(**self.request)

    def tearDown(self):
        self.serve.__exit__()
        self.folder.cleanup()

    def test_a_file_that_is_replaced(self):
        with open(self.path + ".new", "wb") as file:
            file.write(b"not a model")
        os.replace(self.path + ".new", self.path)
        self.assertEqual(self.serve.complete(**self.request), self.alone)
        # Loaded again it is read anew.
        self.assertEqual(self.serve.complete(**{**self.request, "model": "other"}), self.alone)
        status, answer = ask(self.serve, {**self.request, "model": "model"})
        self.assertEqual(status, 400)
        self.assertIn(self.path, answer["error"]["message"])
        self.assertEqual(self.serve.complete(**{**self.request, "model": "other"}), self.alone)
        self.assertEqual(self.serve.end(), 0)

    def test_a_file_that_is_truncated(self):
        with open(self.path, "rb") as file:
            whole = file.read()
        long = {**self.request, "max_tokens": 480}
        events = self.serve.events("/v1/completions", long)
        next(events)
        os.truncate(self.path, len(whole) // 2)
        rest = list(events)
        self.assertIn(self.path, json.loads(rest[-1])["error"]["message"])
        status, answer = ask(self.serve, self.request)
        self.assertEqual((status, answer["error"]["type"]), (500, "server_error"))
        self.assertIn(self.path, answer["error"]["message"])
        self.assertEqual(self.serve.get("/health")[0], 200)
        self.assertEqual(self.serve.complete(**{**self.request, "model": "other"}), self.alone)
        with open(self.path, "r+b") as file:
            file.write(whole)
        self.assertEqual(self.serve.complete(**{**self.request, "model": "model"}), self.alone)
        self.assertEqual(self.serve.end(), 0)


def make_untied(source, folder):
    """Copies a model whose head is its embedding, and gives it a head of its own."""
    shutil.copytree(source, folder)
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump({**config, "tie_word_embeddings": False}, file)
    weights = os.path.join(folder, "model.safetensors")
    with open(weights, "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        header, data = json.loads(file.read(size)), file.read()
    begin, end = header["model.embed_tokens.weight"]["data_offsets"]
    header["lm_head.weight"] = {**header["model.embed_tokens.weight"],
                                "data_offsets": [len(data), len(data) + end - begin]}
    head = bytearray(data[begin:end])
    head[-1] ^= 0x80  # the converter ties two that are equal
    text = json.dumps(header).encode()
    with open(weights, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data + head)


class DamagedRows(unittest.TestCase):
    """The embeddings of some tokens cannot be read: texts without these tokens go on."""

    LAST_TOKENS = [4090, 4091]

    def test_the_text_that_fails_ends_alone(self):
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models", "tales-5M")
        with tempfile.TemporaryDirectory() as folder:
            make_untied(source, os.path.join(folder, "untied"))
            path = os.path.join(folder, "untied.qsf")
            subprocess.run([os.path.join(BIN_DIR, "qsf-convert"), "--quiet", "--quant-type", "4bit",
                            "--tile-bytes", "73728", os.path.join(folder, "untied"), path], check=True)
            done = subprocess.run([os.path.join(BIN_DIR, "qsf-inspect"), "--json", path], check=True,
                                  capture_output=True)
            section = json.loads(done.stdout)["sections"][0]
            self.assertGreater(section["n_tiles"], 4)
            with open(path, "r+b") as file:
                file.seek(section["offset"] + section["bytes"] - 20000)  # in the last tile
                file.write(b"\xa5" * 64)
            with streaming_server(path, "--speculate", "off") as serve:
                # It generates no other tokens than these two.
                good = {"prompt": [10, 20, 30], "max_tokens": 100, "temperature": 0, "ignore_eos": True,
                        "logit_bias": {"20": 100, "21": 100}}
                alone, _ = serve.complete(**good)
                events = serve.events("/v1/completions", good)
                first = next(events)
                status, answer = ask(serve, {"prompt": [10, *self.LAST_TOKENS], "max_tokens": 4})
                # Counted at its end: the good text had not ended yet.
                self.assertEqual(serve.metric("qsf_generated_tokens_total"), 100)
                self.assertEqual(status, 500)
                self.assertIn(path + ": embedding: tile", answer["error"]["message"])
                rest = list(events)
                self.assertEqual(rest[-1], "[DONE]")
                texts = [json.loads(event)["choices"][0]["text"] for event in [first, *rest[:-1]]]
                self.assertEqual("".join(texts), alone)
                self.assertEqual(serve.get("/health")[0], 200)
                self.assertEqual(serve.end(), 0)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
