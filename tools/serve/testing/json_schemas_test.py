#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Answers of qsf serve under JSON schemas at temperature 1: those that end validate, and those that
are cut begin a JSON value. Needs the package jsonschema; `./check long schemas` installs it.

Usage: json_schemas_test.py BIN_DIR MODEL [unittest arguments]
"""

import concurrent.futures
import json
import sys
import unittest

import jsonschema

import example_schemas
import json_prefix
import serve_process

BIN_DIR, MODEL = sys.argv[1:3]
SCHEMAS = example_schemas.SCHEMAS
N_ANSWERS = 10    # of each schema
N_AT_ONCE = 8
MAX_TOKENS = 500  # beyond every answer but a rare deep one
MIN_ENDED = 200
CUTS = (1, 3, 7, 12, 18, 25)


def setUpModule():
    global serve
    serve = serve_process.Server(serve_process.program_in(BIN_DIR), "chat=" + MODEL,
                                 "--texts", str(N_AT_ONCE), "--grammars", str(N_AT_ONCE))


def tearDownModule():
    code = serve.end()
    serve.__exit__()
    assert code == 0, code


def answer(name, seed, max_tokens):
    """Returns the text of an answer and why it ended."""
    status, _, body = serve.post("/v1/chat/completions", {
        "messages": [{"role": "user", "content": f"Write an example of: {name}. Answer in JSON."}],
        "temperature": 1, "seed": seed, "max_tokens": max_tokens,
        "response_format": {"type": "json_schema", "json_schema": {
            "name": "example", "strict": True, "schema": SCHEMAS[name]}}})
    assert status == 200, (name, body)
    choice = body["choices"][0]
    return choice["message"]["content"], choice["finish_reason"]


def answers(asked):
    """Yields what was asked, the text and the reason for each (name, seed, max_tokens)."""
    with concurrent.futures.ThreadPoolExecutor(N_AT_ONCE) as pool:
        for what, got in zip(asked, pool.map(lambda what: answer(*what), asked)):
            yield what, *got


class Schemas(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.whole = {what[:2]: (text, reason) for what, text, reason in answers(
            [(name, seed, MAX_TOKENS) for name in SCHEMAS for seed in range(N_ANSWERS)])}

    def test_ended_answers_validate(self):
        texts = []
        for (name, seed), (text, reason) in self.whole.items():
            with self.subTest(name=name, seed=seed, text=text):
                self.assertIn(reason, ("stop", "length"))
                if reason == "length":
                    self.assertTrue(json_prefix.is_json_prefix(text))
                    continue
                texts.append(text)
                jsonschema.validate(json.loads(text), SCHEMAS[name],
                                    format_checker=jsonschema.FormatChecker())
        print(f"{len(texts)} of {len(self.whole)} answers ended by themselves, "
              f"{len(set(texts))} of them differ")
        self.assertGreaterEqual(len(texts), MIN_ENDED)
        self.assertGreater(len(set(texts)), MIN_ENDED // 2)

    def test_cut_answers_begin_values(self):
        cut = 0
        for (name, seed, _), text, reason in answers([(name, seed, most) for name in SCHEMAS
                                                      for seed, most in enumerate(CUTS)]):
            with self.subTest(name=name, seed=seed, text=text):
                # The whole answer validates, so its beginning is one of a valid value.
                whole, whole_reason = self.whole[name, seed]
                self.assertTrue(whole.startswith(text), whole)
                self.assertTrue(json_prefix.is_json_prefix(text))
                cut += reason == "length"
                if reason != "length":
                    self.assertEqual((text, reason), (whole, whole_reason))
        self.assertGreater(cut, len(SCHEMAS) * len(CUTS) // 2)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
