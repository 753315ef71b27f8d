#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""qsf serve with LoRA adapters that requests choose.

Usage: qsf_serve_adapters_test.py BIN_DIR MODEL [unittest arguments]
"""

import concurrent.futures
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "testing"), os.path.join(HERE, "../testing")]
import serve_process  # noqa: E402
from write_adapter import write_adapter  # noqa: E402

BIN_DIR, MODEL = sys.argv[1:3]
SERVE = serve_process.program_in(BIN_DIR)
BASE = "tales-5M-4bit"
PROMPT = "The fox said to the little girl that"
DRAW = {"max_tokens": 24, "seed": 11, "temperature": 0.8, "top_k": 40, "top_p": 0.9}
FOLDER = None


def setUpModule():
    folder = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(folder.cleanup)
    globals()["FOLDER"] = folder.name
    write_adapter(path_of("red"), MODEL, "name in the file", seed=1)
    write_adapter(path_of("blue"), MODEL, "blue", seed=2)


def path_of(name):
    return os.path.join(FOLDER, name + ".qsf")


def server(*arguments, **keywords):
    return serve_process.Server(SERVE, MODEL, "--lora", path_of("red"), "--lora",
                                "azure=" + path_of("blue"), *arguments, **keywords)


def text_of_run(adapter=None, scale=1.0, prompt=PROMPT):
    """Returns what `qsf run` writes for a request with DRAW."""
    lora = [] if adapter is None else ["--lora", path_of(adapter), "--lora-scale", str(scale)]
    options = ["-n", DRAW["max_tokens"], "--seed", DRAW["seed"], "--temperature",
               DRAW["temperature"], "--top-k", DRAW["top_k"], "--top-p", DRAW["top_p"]]
    done = subprocess.run([os.path.join(BIN_DIR, "qsf-run"), MODEL, *map(str, options), *lora,
                           "--no-echo", "--quiet", "-p", prompt],
                          capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.rstrip("\n")


def call(*arguments):
    done = subprocess.run([SERVE, "--port", "0", *arguments], capture_output=True, text=True,
                          timeout=60, stdin=subprocess.DEVNULL, check=False)
    return done.returncode, done.stdout, done.stderr


class Choosing(unittest.TestCase):
    def ask(self, serve, **fields):
        return serve.complete(PROMPT, **DRAW, **fields)[0].rstrip("\n")

    def test_texts_are_those_of_qsf_run(self):
        base, red, blue = text_of_run(), text_of_run("red"), text_of_run("blue")
        self.assertEqual(len({base, red, blue}), 3)
        half = text_of_run("red", 0.5)
        self.assertNotIn(half, (base, red))
        with server() as serve:
            # Twice, so that pages of the cache are taken over.
            for model, lora, expected in [
                    (None, None, base), ("red", None, red), ("azure", None, blue),
                    (BASE, None, base), ("red:latest", None, red), (None, None, base),
                    (None, [{"id": 0, "scale": 1}], red), (BASE, [{"id": 1, "scale": 1}], blue),
                    (None, [{"id": 1}, {"id": 0, "scale": 0}], blue), ("red", [], red),
                    ("red", [{"id": 0, "scale": 0}], base), (None, [{"id": 0, "scale": 0}], base),
                    ("red", [{"id": 0, "scale": 0.5}], half)]:
                with self.subTest(model=model, lora=lora):
                    fields = {"model": model, "lora": lora}
                    self.assertEqual(self.ask(serve, **fields), expected)

    def test_the_scale_of_the_server(self):
        half = text_of_run("red", 0.5)
        with server("--lora-scale", "0.5") as serve:
            self.assertEqual(self.ask(serve, model="red"), half)
            self.assertEqual(self.ask(serve, lora=[{"id": 0}]), half)
            self.assertEqual(self.ask(serve, lora=[{"id": 0, "scale": 1}]), text_of_run("red"))
            self.assertEqual(self.ask(serve), text_of_run())

    def test_eight_at_once_get_what_they_get_alone(self):
        requests = [{"model": model, "seed": i, "temperature": 0.8, "max_tokens": 40, **more}
                    for i, (model, more) in enumerate([
                        ("red", {}), ("azure", {}), (BASE, {}), ("", {"lora": [{"id": 1}]}),
                        ("", {"lora": [{"id": 0, "scale": 0.5}]}), ("red", {}), ("azure", {}),
                        ("", {"lora": [{"id": 1, "scale": -1}]})])]
        with server("--no-prefix-cache") as serve:
            alone = [serve.complete(PROMPT, **request) for request in requests]
            self.assertEqual(len(set(alone)), 8)
        with server() as serve, concurrent.futures.ThreadPoolExecutor(8) as pool:
            for _ in range(2):
                together = list(pool.map(lambda r: serve.complete(PROMPT, **r), requests))
                self.assertEqual(together, alone)

    def test_texts_that_are_parked_keep_their_adapter(self):
        limits = ["--max-seq-len", "256", "--kv-positions", "320", "--default-max-tokens", "32"]
        models = ["red", "azure", BASE, "red", "azure", BASE]
        requests = [{"model": model, "max_tokens": -1, "ignore_eos": True, "seed": i,
                     "temperature": 0.8} for i, model in enumerate(models)]
        with server(*limits) as serve, concurrent.futures.ThreadPoolExecutor(8) as pool:
            alone = [serve.complete(PROMPT, **request) for request in requests]
            together = list(pool.map(lambda r: serve.complete(PROMPT, **r), requests))
            self.assertGreater(serve.metric("qsf_parkings_total"), 0)
        self.assertEqual(together, alone)

    def test_the_answers_to_one_prompt_have_its_adapter(self):
        with server() as serve:
            _, _, answer = serve.post("/v1/completions", {"prompt": PROMPT, "model": "red", "n": 3,
                                                          **DRAW})
            self.assertEqual(answer["model"], "red")
            texts = [choice["text"] for choice in answer["choices"]]
            for i, text in enumerate(texts):
                self.assertEqual(text, serve.complete(PROMPT, model="red",
                                                      **{**DRAW, "seed": 11 + i})[0])

    def test_every_interface(self):
        options = {"temperature": 0, "top_k": 40, "top_p": 0.9, "seed": 11}
        messages = [{"role": "user", "content": PROMPT}]

        def texts(serve, model):
            def post(path, body):
                status, _, answer = serve.post(path, {"model": model, **body})
                self.assertEqual(status, 200, answer)
                return answer
            yield post("/v1/completions", {"prompt": PROMPT, **options, "max_tokens": 24})[
                "choices"][0]["text"]
            yield post("/api/generate", {"prompt": PROMPT, "raw": True, "stream": False,
                                         "options": {**options, "num_predict": 24}})["response"]
            if not serve.get("/props")[2]["chat_template"]:
                return
            yield post("/v1/chat/completions", {"messages": messages, **options,
                                                "max_tokens": 24})["choices"][0]["message"][
                                                    "content"]
            yield post("/v1/messages", {"messages": messages, "max_tokens": 24,
                                        "temperature": 0})["content"][0]["text"]
            yield post("/v1/responses", {"input": PROMPT, "temperature": 0,
                                         "max_output_tokens": 24})["output"][0]["content"][0][
                                             "text"]

        with server() as serve:
            base, red = list(texts(serve, BASE)), list(texts(serve, "red"))
            self.assertGreaterEqual(len(base), 2)
            for of_base, of_red in zip(base, red, strict=True):
                self.assertNotEqual(of_base, of_red)


class Listing(unittest.TestCase):
    def test_adapters_are_models_with_a_parent(self):
        with server("--lora-scale", "0.5") as serve:
            data = serve.get("/v1/models")[2]["data"]
            self.assertEqual([(model["id"], model.get("parent")) for model in data],
                             [(BASE, None), ("red", BASE), ("azure", BASE)])
            self.assertEqual(data[1]["max_model_len"], data[0]["max_model_len"])
            self.assertEqual(data[1]["meta"]["size"], os.path.getsize(path_of("red")))
            self.assertEqual(serve.get("/v1/models/azure")[2], data[2])
            tags = serve.get("/api/tags")[2]["models"]
            self.assertEqual([(model["name"], model["details"]["parent_model"]) for model in tags],
                             [(BASE, ""), ("red", BASE), ("azure", BASE)])
            self.assertEqual(len({model["digest"] for model in tags}), 3)
            self.assertEqual(serve.get("/lora-adapters")[2],
                             [{"id": 0, "path": "red.qsf", "scale": 0, "name": "red"},
                              {"id": 1, "path": "blue.qsf", "scale": 0, "name": "azure"}])
            status, _, answer = serve.post("/lora-adapters", [{"id": 0, "scale": 1}])
            self.assertEqual((status, answer["error"]["type"]), (501, "not_supported_error"))


class Refusing(unittest.TestCase):
    def test_requests(self):
        with server() as serve:
            for fields, param, words in [
                    ({"lora": [{"id": 2}]}, "lora", "adapters are 0 to 1"),
                    ({"lora": [{"id": 0}, {"id": 1}]}, "lora", "one adapter"),
                    ({"lora": [{"id": 1}], "model": "red"}, "lora", "'model' is 'red'"),
                    ({"model": "green"}, "model", "'green' does not exist")]:
                with self.subTest(fields):
                    status, _, answer = serve.post("/v1/completions", {"prompt": "x", **fields})
                    self.assertEqual(status, 404 if param == "model" else 400, answer)
                    self.assertEqual(answer["error"]["param"], param)
                    self.assertIn(words, answer["error"]["message"])
            for path, field in [("/v1/embeddings", "input"), ("/api/embed", "input")]:
                status, _, answer = serve.post(path, {"model": "red:latest", field: "x"})
                self.assertEqual(status, 400, answer)
                self.assertIn("without adapters", str(answer))
                self.assertEqual(serve.post(path, {"model": BASE, field: "x"})[0], 200)

    def test_options(self):
        red = ["--lora", path_of("red")]
        for arguments, code, words in [
                ([MODEL, "two=" + MODEL, *red], 2, "--lora: an adapter belongs to one model"),
                (["--models-dir", FOLDER, *red], 2, "--lora: an adapter belongs to one model"),
                ([MODEL, "--lora-scale", "0.5"], 2, "--lora-scale: needs --lora"),
                ([MODEL, *red, *red], 1, "--lora: two models are called 'red'"),
                ([MODEL, "--lora", BASE + "=" + path_of("red")], 1,
                 f"--lora: two models are called '{BASE}'"),
                ([MODEL, "--lora", path_of("no")], 1, "no.qsf"),
                ([MODEL, "--lora", MODEL], 1, f"two models are called '{BASE}'"),
                ([MODEL, "--lora", "other=" + MODEL], 1, "adapter")]:
            with self.subTest(arguments):
                got, _, err = call(*arguments)
                self.assertEqual(got, code, err)
                self.assertIn(words, err)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
