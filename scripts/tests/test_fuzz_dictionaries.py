# SPDX-License-Identifier: MIT
"""Tests of fuzz_dictionaries.py: what it finds in configurations, headers and sources."""

import struct
import unittest

import rooms  # noqa: F401  (puts the folders of scripts/ on the path)

import fuzz_dictionaries


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


class FuzzDictionariesTest(unittest.TestCase):
    def test_keys_and_texts_of_configurations(self):
        config = {"a": 1, "b": {"c": ["x", {"d": None}], "e": True}}
        self.assertEqual(fuzz_dictionaries.config_words(config), {"a", "b", "c", "d", "e", "x"})

    def test_keys_behind_values_of_every_size(self):
        header = struct.pack("<4sIQQ", b"GGUF", 3, 0, 4)
        header += text("x") + struct.pack("<IH", 2, 5)
        header += text("y") + struct.pack("<IIQ3I", 9, 4, 3, 1, 2, 3)
        header += text("w") + struct.pack("<IIQ", 9, 8, 2) + text("p") + text("")
        header += text("z") + struct.pack("<I", 8) + text("v")
        self.assertEqual(fuzz_dictionaries.gguf_keys(header), {"w", "x", "y", "z"})

    def test_literals_side_by_side_are_one(self):
        self.assertEqual(fuzz_dictionaries.literals('f("a\\"b" "c", "\\n"); // "d"'),
                         {'a"bc', "\n", "d"})

    def test_entries_are_ascii(self):
        self.assertEqual(fuzz_dictionaries.entry('a"\\\n\u00e9'), '"a\\x22\\x5c\\x0a\\xc3\\xa9"')

    def test_words_of_the_tree(self):
        words = fuzz_dictionaries.words_by_target()
        self.assertLessEqual({"layer_types", "num_local_experts", "lfm2", "local_attention",
                              "pooling_mode_cls_token", "in_features"}, words["fuzz_hf_config"])
        self.assertLessEqual({"nemotron_h_moe.expert_count", "modern-bert.hidden_activation"},
                             words["fuzz_gguf_model"])
        self.assertIn("expert.count", words["fuzz_model"])
        self.assertIn("<|tool_call_start|>", words["fuzz_chat_answer"])


if __name__ == "__main__":
    unittest.main()
