# SPDX-License-Identifier: MIT
"""Tests of json_prefix.py: every prefix of a value is one, and a text with a fault is not."""

import json
import os
import sys
import unittest

import rooms

sys.path.append(os.path.join(rooms.SCRIPTS, "..", "tools", "serve", "testing"))
from json_prefix import is_json_prefix  # noqa: E402

VALUES = ['{"a": [1, -2.5e+3, {"b": null}], "c": "x\\u00e9\\n\\"", "d": true}', "[]", "{}", "-0.5",
          ' [ false , "" ] ', '"\\ud83d\\ude00"', "[[[[1]]]]", "0", '{"a":{"b":{}}}']
BROKEN = ["{a", "[1,]", "[,", '{"a",', '{"a":}', '{"a":1,}', "01", "[01", "1.e", "-a", "tru3", "nul]",
          '"\\x', '"\\u12g', '"a\n', "[1 2", "{1", "[1}", '{"a":1]', "1 2", "{} {", "--", "1e+,", "+1",
          "[1.]", "'a'", ".5"]


class JsonPrefix(unittest.TestCase):
    def test_prefixes_of_values(self):
        for value in VALUES:
            json.loads(value)
            for end in range(len(value) + 1):
                self.assertTrue(is_json_prefix(value[:end]), value[:end])

    def test_broken_texts(self):
        for text in BROKEN:
            self.assertFalse(is_json_prefix(text), text)

    def test_a_character_more(self):
        for value in VALUES:
            self.assertFalse(is_json_prefix(value + "}"), value)
            self.assertFalse(is_json_prefix(value.rstrip() + "?"), value)


if __name__ == "__main__":
    unittest.main()
