# SPDX-License-Identifier: MIT
"""Tests of cli_help.py, and of the man page and completions that are made from what it reads."""

import unittest

import rooms  # noqa: F401  (puts the folders of scripts/ on the path)

import cli_help
import make_completions
import make_man_page

HELP = """\
Does a thing: with a model.
.Second line.
Usage: qsf-thing [OPTIONS] MODEL IN [OUT]

Positionals:
  MODEL REQUIRED              Model file (.qsf)
  IN FOLDER REQUIRED          Where from

Options:
  -h,--help                   Print this help message and exit
  --max-tokens N=256          Tokens to generate at most; 0: none
  --stop TEXT ...             End before this text
  --logit-bias ID=F ...       Add F to token ID, -inf bans it; [may] be 'it'
  --file FILE REQUIRED        What to read
  --type TEXT:{f32,f16,4bit}=4bit
                              Weight type: f32, f16
  --kind TEXT:{a,b} [a]       Newer layout
  --flag                      A flag
                              of two lines
"""


def parsed():
    return cli_help.parse_help("qsf-thing", "1.2.3", HELP)


class ParseTest(unittest.TestCase):
    def entry(self, name):
        return next(entry for entry in parsed().entries if name in entry.names)

    def test_arguments_and_defaults(self):
        self.assertEqual(self.entry("-h").names, ["-h", "--help"])
        self.assertFalse(self.entry("-h").takes_value())
        self.assertEqual((self.entry("--max-tokens").argument, self.entry("--max-tokens").default),
                         ("N", "256"))
        self.assertEqual((self.entry("--logit-bias").argument, self.entry("--logit-bias").default),
                         ("ID=F", ""))
        self.assertTrue(self.entry("--stop").repeated)
        self.assertTrue(self.entry("--file").required)
        self.assertEqual(self.entry("--type").choices, ["f32", "f16", "4bit"])
        self.assertEqual(self.entry("--type").default, "4bit")
        self.assertEqual(self.entry("--kind").default, "a")
        self.assertEqual(self.entry("--flag").text, "A flag of two lines")
        self.assertEqual(self.entry("--logit-bias").text, "Add F to token ID, -inf bans it; [may] be 'it'")

    def test_kinds(self):
        kinds = {entry.names[-1]: entry.kind() for entry in parsed().entries}
        self.assertEqual([kinds[name] for name in ("MODEL", "IN", "--file", "--type", "--stop")],
                         ["model", "folder", "file", "choice", "text"])

    def test_aligned_long_names(self):
        text = HELP.replace("-h,--help    ", "-h,     --help")
        self.assertEqual(cli_help.parse_help("t", "1", text).options()[0].names, ["-h", "--help"])

    def test_an_unknown_layout_is_an_error(self):
        for old, new in (("Usage: ", "Use: "), ("  --flag  ", " -> --flag"), ("--stop TEXT ...", "--stop TEXT ???"),
                         ("Options:", "Options")):
            with self.assertRaises(ValueError):
                cli_help.parse_help("qsf-thing", "1", HELP.replace(old, new))


class PageTest(unittest.TestCase):
    def test_page(self):
        page = make_man_page.man_page(parsed(), ["qsf-other", "qsf-thing"], 86400)
        self.assertIn('.TH QSF\\-THING 1 "1970-01-02" "qsf 1.2.3"', page)
        self.assertIn("qsf\\-thing \\- does a thing\n", page)
        self.assertIn("\n\\&.Second line.\n", page)
        self.assertIn("\\fB\\-\\-type\\fR \\fITEXT\\fR\nWeight type: f32, f16. One of: f32, f16, 4bit. Default: 4bit.", page)
        self.assertIn(".BR qsf\\-other (1)\n", page)
        self.assertNotIn(".BR qsf\\-thing (1)", page)
        self.assertTrue(all(len(line) <= 80 for line in page.split("\n")))


class CompletionsTest(unittest.TestCase):
    def test_every_option_is_offered(self):
        for make in (make_completions.bash, make_completions.zsh, make_completions.fish):
            text = make(parsed())
            for entry in parsed().options():
                self.assertIn(entry.names[-1].lstrip("-"), text)
            self.assertIn("f32 f16 4bit", text)

    def test_quotes(self):
        self.assertIn("\\[may\\] be '\\''it'\\''", make_completions.zsh(parsed()))
        self.assertIn("be \\'it\\'", make_completions.fish(parsed()))


if __name__ == "__main__":
    unittest.main()
