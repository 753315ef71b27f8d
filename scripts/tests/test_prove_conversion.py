#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tests of prove_conversion with conversions that only seem to run: what it takes for broken, and how it goes about it."""

import json
import os
import signal
import tempfile
import unittest
from unittest import mock

import rooms
import fake_groups
from fake_groups import MB, setting

prove_conversion = rooms.load("measure", "prove_conversion")

BUDGET = 100
SECONDS = 1000.0
FIRST, WIDE, KILLED, ENDED, AGAIN = range(5)  # the runs of --kills 2


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)


def convert(run, command, number):
    """A conversion writes its output, and one that is signalled nothing and ends by that."""
    run.seconds, run.peak_bytes = SECONDS, 20 * MB
    run.stderr = "qsf-convert: 50 %, layer 7\n"
    if number is None:
        write(command[-1], b"converted")
    elif number == signal.SIGKILL:
        run.status = -number
    else:
        run.status = 1
        run.stderr += "qsf-convert: error: the conversion was interrupted\n"


class Prove(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = holder.name
        self.model = os.path.join(self.folder, "model.gguf")
        for path in (self.model, os.path.join(self.folder, "qsf-convert")):
            write(path, b"")
        self.json = os.path.join(self.folder, "runs.json")

    def prove(self, *options, changes=None, model=None):
        """Returns exit status, stdout and stderr."""
        self.groups, self.waits = fake_groups.Groups(convert, changes), []
        with mock.patch.object(prove_conversion.threading, "Timer", self.make_timer):
            return self.groups.run_main(prove_conversion, "--bin", self.folder, "--budget", str(BUDGET), "--kills", "2",
                                        "--json", self.json, model or self.model, *options)

    def make_timer(self, seconds, call, args):
        """Returns a timer that calls as soon as it is started."""
        self.waits.append(seconds)
        return mock.Mock(start=lambda: call(*args))

    def assert_broken(self, number, why, change, count=5):
        """Only this run is broken, for this reason alone, and all are run nevertheless."""
        status, out, _ = self.prove(changes={number: change})
        lines = [line for line in out.splitlines() if " limit " in line]
        self.assertEqual((status, len(lines)), (1, count), out)
        for i, line in enumerate(lines):
            self.assertTrue(line.endswith(f", BROKEN: {why}" if i == number else ", held"), line)
        self.assertIn("something did not hold", out)
        with open(self.json, encoding="ascii") as file:
            self.assertEqual([run["held"] for run in json.load(file)], [i != number for i in range(count)])

    def test_all_holds(self):
        status, out, err = self.prove("--", "--quant-type", "4bit", "--scale-search", "off")
        self.assertEqual((status, out.count(", held"), err), (0, 5, ""), out)
        self.assertIn("prove_conversion: all of it held", out)
        self.assertEqual(self.groups.limits, [limit * MB for limit in (100, 800, 100, 100, 100)])
        self.assertEqual(self.groups.signals, [signal.SIGKILL, signal.SIGTERM])
        self.assertTrue(all(0.05 * SECONDS <= wait <= 0.95 * SECONDS for wait in self.waits), self.waits)
        self.assertNotEqual(*self.waits)
        for command in self.groups.commands:
            self.assertEqual(command[:-1], [os.path.join(self.folder, "qsf-convert"), "--ram-budget", "100", "--quant-type",
                                            "4bit", "--scale-search", "off", self.model])
        self.assertFalse(os.path.exists(os.path.dirname(self.groups.commands[0][-1])))

    def test_a_limit_of_its_own_is_that_of_the_kernel(self):
        for peak, held in ((110, True), (121, False)):
            status, _, _ = self.prove("--limit", str(120 * MB), changes={FIRST: setting(peak_bytes=peak * MB)})
            self.assertEqual((status, self.groups.limits[:2]), (1 - held, [120 * MB, 800 * MB]))

    def test_leftovers(self):
        for number in (KILLED, ENDED):
            self.assert_broken(number, "left again.qsf.part",
                               lambda _, command: write(command[-1] + ".part", b"half"))

    def test_other_bytes(self):
        for number in (WIDE, AGAIN):
            self.assert_broken(number, "other bytes than those of the first run", lambda _, command: write(command[-1], b"otherwise"))

    def test_kills_by_the_kernel(self):
        for number in range(5):
            self.assert_broken(number, "killed by the kernel", setting(oom_kills=1))

    def test_a_peak_above_the_budget(self):
        # The kernel holds the first to it; it alone cannot prove anything.
        for number in (FIRST, WIDE, AGAIN):
            self.assert_broken(number, "its peak is above 100.0 MB", setting(peak_bytes=100 * MB + 1))

    def test_a_conversion_that_was_not_killed(self):
        why = "it ended by itself, with 1, where a signal should have ended it"
        self.assert_broken(KILLED, why, setting(status=1))
        self.assert_broken(ENDED, why, setting(status=1, stderr="qsf-convert: error: the disk is full\n"))

    def test_one_that_is_done_before_is_ended_sooner(self):
        def finish(run, command):
            write(command[-1], b"converted")
            run.status = 0

        tries = prove_conversion.TRIES
        status, out, _ = self.prove(changes={i: finish for i in range(KILLED, KILLED + tries - 1)})
        self.assertEqual((status, out.count(", held")), (0, 5), out)
        waits = self.waits
        self.assertEqual(waits[:tries], [waits[0] / 2 ** i for i in range(tries)])
        status, out, _ = self.prove(changes={i: finish for i in range(KILLED, KILLED + tries)})
        self.assertEqual((status, out.count(", held")), (1, 4), out)
        self.assertIn("BROKEN: it ended by itself, with 0, where a signal should have ended it; left again.qsf\n", out)
        # What one that was done has left beside its output is not forgotten.
        status, out, _ = self.prove(changes={KILLED: lambda *run: (finish(*run), write(run[1][-1] + ".part", b"half"))})
        self.assertEqual((status, out.count("BROKEN: left again.qsf.part\n")), (1, 1), out)

    def test_no_progress(self):
        for number in (FIRST, WIDE, AGAIN):
            self.assert_broken(number, "no line of progress: take a larger MODEL, and no --quiet",
                               setting(stderr="qsf-convert: 7 weights\n"))

    def test_a_conversion_that_fails(self):
        def fail(run, command):
            os.remove(command[-1])
            run.status = 1
        self.assert_broken(FIRST, "exit 1, expected 0", fail, count=1)
        for number in (WIDE, AGAIN):
            self.assert_broken(number, "exit 1, expected 0", fail)

    def test_nothing_is_proved_of_nothing(self):
        for path, options, what in (("/no/such.gguf", [], "/no/such.gguf: no such file or folder; MODEL names it"),
                                    (None, ["--bin", "/no"], "/no/qsf-convert: no such file or folder; --bin names it")):
            status, out, err = self.prove(*options, model=path)
            self.assertEqual((status, out), (2, ""))
            self.assertIn(what, err)
        for options in (["--kills", "0"], ["--budget", "0"], ["--limit", "-1"]):
            with self.assertRaises(SystemExit) as ended:
                self.prove(*options)
            self.assertEqual(ended.exception.code, 2)


if __name__ == "__main__":
    unittest.main()
