# SPDX-License-Identifier: MIT
"""Shared by scripts that measure a model on a text: their arguments and their exit status."""

import argparse
import importlib.util
import os
import sys

from markdown_tables import NoMark
from scored_models import ROOT, Failed


class Missing(Failed):
    """What a script needs and does not find, a line each."""

    def __init__(self, lines):
        super().__init__("\n".join(lines))


def make_parser(doc, model="MODEL"):
    """Returns a parser of the arguments that results_file.about_of() and scored_models.Scorer read."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("model", metavar=model)
    add("text", metavar="TEXT")
    add("results", metavar="RESULTS.json")
    add("--calibration", metavar="FILE", required=True, help="text for importance, other than TEXT")
    add("--no-runs", action="store_true", help="tables of what RESULTS.json holds")
    add_options(parser)
    return parser


def add_options(parser):
    """Adds what says how much of the texts is taken, how it is scored and by which programs."""
    add = parser.add_argument
    add("--bin", metavar="FOLDER", default=os.path.join(ROOT, "build", "release", "bin"))
    add("--bytes", type=int, default=120000, metavar="N", help="score the first N bytes")
    add("--calibration-bytes", type=int, default=500000, metavar="N")
    add("--context", type=int, default=512, metavar="N")
    add("--threads", type=int, default=1, metavar="N")


def missing_files(paths):
    """Returns a line for each (path, what names it) that does not exist."""
    return [f"{path or what}: no such file; {what} names it" for path, what in paths if not os.path.exists(path)]


def missing_inputs(args, *programs):
    """Returns a line for each file and program that does not exist."""
    return missing_files([(args.model, "MODEL"), (args.text, "TEXT"),
                          *([(args.calibration, "--calibration")] if args.calibration else []),
                          *((os.path.join(args.bin, program), "--bin") for program in programs)])


def missing_packages(*names):
    """Returns a line for each package that is not installed: to be told before hours of measuring, not after them."""
    return [f"{name} is not installed: pip install {name}" for name in names if importlib.util.find_spec(name) is None]


def require(missing):
    """Ends the work of a script where lines say what is missing."""
    if missing:
        raise Missing(missing)


def exit_status(script, work):
    """Runs work() and returns the script's exit status: what work() returns, 0 for nothing; 1 where it failed, and 2 where
    something is missing, with the reason on stderr."""
    try:
        return work() or 0
    except (Failed, NoMark) as failure:
        print("\n".join(f"{script}: {line}" for line in str(failure).splitlines()), file=sys.stderr)
        return 2 if isinstance(failure, Missing) else 1
