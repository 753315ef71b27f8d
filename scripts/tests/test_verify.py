# SPDX-License-Identifier: MIT
"""Tests of verify.py: what the counts say about output that was seen from real runs."""

import contextlib
import io
import sys
import unittest
from unittest import mock

import rooms  # noqa: F401  (puts the folders of scripts/ on the path)

import verify

PASSING = """\
[==========] Running 3 tests from 1 test suite.
[ RUN      ] ATest.Works
printed without a newline[       OK ] ATest.Works (0 ms)
[ RUN      ] ATest.Waits/2
a_test.cc:12: Skipped
model: no such folder; tests that need it are skipped

[  SKIPPED ] ATest.Waits/2 (0 ms)
[ RUN      ] ATest.Also
[       OK ] ATest.Also (3 ms)
[==========] 3 tests from 1 test suite ran. (3 ms total)
[  PASSED  ] 2 tests.
[  SKIPPED ] 1 test, listed below:
[  SKIPPED ] ATest.Waits/2
"""
FAILING = PASSING.replace("[       OK ] ATest.Also (3 ms)",
                          "[  FAILED  ] ATest.Also, where GetParam() = 3 (3 ms)")
CRASHING = "\n".join(PASSING.split("\n")[:4]) + "\nSegmentation fault\n"


def junit(*cases):
    body = "".join(f'<testcase name="{name}" status="{status}">{inner}</testcase>'
                   for name, status, inner in cases)
    return f'<testsuite name="x">{body}</testsuite>'


def output(text):
    return f"<system-out>{text}</system-out>"


class GtestTest(unittest.TestCase):
    def test_passed_and_skipped(self):
        tally = verify.tally_gtest("a", PASSING, True)
        self.assertEqual((tally.passed, tally.failed), (2, []))
        self.assertEqual(tally.skipped, [
            ("a: ATest.Waits/2", "model: no such folder; tests that need it are skipped")])

    def test_failed(self):
        tally = verify.tally_gtest("a", FAILING, False)
        self.assertEqual((tally.passed, tally.failed), (1, ["a: ATest.Also"]))

    def test_crashed(self):
        tally = verify.tally_gtest("a", CRASHING, False)
        self.assertEqual((tally.passed, len(tally.failed)), (1, 1))

    def test_error_after_the_last_test(self):
        self.assertEqual(len(verify.tally_gtest("a", PASSING, False).failed), 1)

    def test_nothing_ran(self):
        text = ("[==========] Running 0 tests from 0 test suites.\n"
                "[==========] 0 tests from 0 test suites ran. (0 ms total)\n[  PASSED  ] 0 tests.\n")
        self.assertEqual(len(verify.tally_gtest("a", text, True).failed), 1)

    def test_a_lost_line_is_a_failure(self):
        text = PASSING.replace("[       OK ] ATest.Also (3 ms)\n", "")
        self.assertEqual(len(verify.tally_gtest("a", text, True).failed), 1)

    def test_disabled_tests_are_skipped_tests(self):
        text = PASSING + "\n  YOU HAVE 2 DISABLED TESTS\n"
        self.assertEqual(len(verify.tally_gtest("a", text, True).skipped), 3)


class JunitTest(unittest.TestCase):
    def test_binaries_and_programs(self):
        tally = verify.tally_junit(junit(("a", "run", output(PASSING)), ("b", "run", output("fine")),
                                         ("c", "fail", output("bad"))), "dev")
        self.assertEqual((tally.passed, tally.failed, len(tally.skipped)), (3, ["dev c"], 1))

    def test_a_missing_binary_is_a_failure(self):
        tally = verify.tally_junit(junit(("a", "notrun", '<skipped message="Unable to find executable"/>')),
                                   "dev")
        self.assertEqual(tally.failed, ["dev a: Unable to find executable"])

    def test_a_skipping_program_says_why(self):
        tally = verify.tally_junit(junit(("a", "notrun", '<skipped message="SKIP_RETURN_CODE=77"/>'
                                          + output("line\nno model here\n"))), "dev")
        self.assertEqual(tally.skipped, [("dev a", "no model here")])

    def test_nothing_ran(self):
        self.assertEqual(len(verify.tally_junit(junit(), "dev").failed), 1)


class TiersTest(unittest.TestCase):
    def test_the_tiers_that_ran_are_found(self):
        text = PASSING + "tier scalar: 3 kernels ran\ntier avx2: 1 kernels ran\n"
        text += "tier amx: 2 kernels skipped: the CPU lacks the tier amx\n"
        tally = verify.tally_junit(junit(("a", "run", output(text))), "dev")
        self.assertEqual(tally.tiers, ["scalar", "avx2"])

    def test_lower_tiers_run_again(self):
        runner = verify.Runner(1)
        asked = []
        runner.ctest = lambda preset, label, exclude, environment: asked.append(
            (label, environment["QSF_ISA"]))
        runner.lower_tiers(["scalar", "avx2", "avx512"])
        self.assertEqual(asked, [("tier", "scalar"), ("tier", "avx2")])
        runner.lower_tiers(["scalar"])
        self.assertEqual(len(asked), 2)


class LongSuitesTest(unittest.TestCase):
    def run_main(self, *options):
        out, err = io.StringIO(), io.StringIO()
        with mock.patch.object(sys, "argv", ["verify.py", *options]), contextlib.redirect_stdout(out), \
                contextlib.redirect_stderr(err):
            try:
                status = verify.main()
            except SystemExit as error:
                status = error.code
        return status, out.getvalue(), err.getvalue()

    def test_suites_are_listed(self):
        status, out, _ = self.run_main("long")
        self.assertEqual(status, 0)
        self.assertEqual([line.split()[0] for line in out.splitlines()], list(verify.LONG_SUITES))

    def test_an_unknown_name_is_refused(self):
        status, _, err = self.run_main("long", "fuz")
        self.assertEqual(status, 2)
        self.assertIn("no suite fuz; the suites are aarch64, capi-calls, clients", err)
        status, _, err = self.run_main("lnog")
        self.assertEqual(status, 2)
        self.assertIn("unknown command lnog", err)

    def test_named_suites_run_and_are_counted(self):
        def suite(runner):
            runner.tally.passed += 3
        with mock.patch.dict(verify.LONG_SUITES, {"fuzz": ("", suite)}):
            status, out, _ = self.run_main("long", "fuzz")
        self.assertEqual((status, out.splitlines()[-1]), (0, "3 passed, 0 failed"))

    def test_tests_labelled_long_run_only_when_asked_for(self):
        asked = []

        def command(arguments, *_, **__):
            asked.append(arguments[arguments.index("-L") if "-L" in arguments else arguments.index("-LE"):])
            return 1, ""
        for label, exclude, expected in ((None, None, ["-LE", "^(long)$"]), (None, "slow", ["-LE", "^(slow|long)$"]),
                                         ("tier", "slow", ["-L", "^tier$", "-LE", "^(slow|long)$"]),
                                         ("long", None, ["-L", "^long$"])):
            runner = verify.Runner(1)
            runner.command = command
            with contextlib.redirect_stdout(io.StringIO()):
                runner.ctest("none", label, exclude)
            self.assertEqual(asked.pop(), expected)

    def test_the_slowest_tests_are_named(self):
        cases = "".join(f'<testcase name="t{i}" time="{i}.2"/>' for i in range(8))
        self.assertEqual(verify.slowest_line(f"<testsuite>{cases}</testsuite>"),
                         "slowest: t7 7 s, t6 6 s, t5 5 s, t4 4 s, t3 3 s")


class SkipLinesTest(unittest.TestCase):
    def test_few_are_named(self):
        skipped = [("dev a: X.y", "no model"), ("dev a: X.z", "no model"), ("b", "no tool")]
        self.assertEqual(verify.skip_lines(skipped),
                         ["dev a: X.y: no model", "dev a: X.z: no model", "b: no tool"])

    def test_many_are_counted(self):
        skipped = [(f"dev a: X.{i}", "no tier") for i in range(20)] + [("dev b: X.0", "no tier")]
        self.assertEqual(verify.skip_lines(skipped),
                         ["dev a: 20 tests: no tier", "dev b: X.0: no tier"])


class UnittestTest(unittest.TestCase):
    def test_counts(self):
        text = "FAIL: test_x (a.B)\n----\nRan 5 tests in 0.1s\n\nFAILED (failures=1)\n"
        tally = verify.tally_unittest(text, 1)
        self.assertEqual((tally.passed, len(tally.failed)), (4, 1))
        self.assertEqual(verify.tally_unittest("Ran 5 tests in 0.1s\n\nOK\n", 0).passed, 5)

    def test_nothing_ran(self):
        self.assertEqual(len(verify.tally_unittest("Ran 0 tests in 0.0s\n", 0).failed), 1)
        self.assertEqual(len(verify.tally_unittest("", 1).failed), 1)


class LastLineTest(unittest.TestCase):
    def test_forms(self):
        tally = verify.Tally()
        self.assertFalse(tally.ok())
        tally.passed = 2
        self.assertTrue(tally.ok())
        self.assertEqual(tally.last_line(), "2 passed, 0 failed")
        tally.skipped.append(("a", "b"))
        self.assertEqual(tally.last_line(), "2 passed, 0 failed, 1 skipped")
        tally.failed.append("c")
        self.assertFalse(tally.ok())


if __name__ == "__main__":
    unittest.main()
