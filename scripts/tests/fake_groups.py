# SPDX-License-Identifier: MIT
"""Stands in for control groups in tests of the scripts that prove memory promises."""

import contextlib
import io
import sys
from unittest import mock

import rooms  # noqa: F401  (puts the folders of scripts/ on the path)
import memory_group

MB = 1_000_000


def setting(**fields):
    """Returns a change of a run's fields, for Groups."""
    return lambda run, _: vars(run).update(fields)


class Groups:
    """Runs of control groups. `do` makes one: do(run, command, number of the signal that the group got before, or None).
    `changes`, by the number of the run, gets (run, command) behind it."""

    def __init__(self, do, changes=None):
        self.do, self.changes = do, changes or {}
        self.limits, self.commands, self.signals = [], [], []

    def make(self, limit):
        groups = self

        class Group:
            number = None

            def __enter__(self):
                return self

            def __exit__(self, *_):
                pass

            def signal(self, number):
                self.number = number
                groups.signals.append(number)

            def run(self, command, **_):
                run = memory_group.GroupRun(0, 0.0, limit, 0, 0, b"", "", [])
                groups.do(run, command, self.number)
                groups.limits.append(limit)
                groups.commands.append(command)
                groups.changes.get(len(groups.commands) - 1, lambda *_: None)(run, command)
                return run

        return Group()

    def run_main(self, script, *argv):
        """Returns exit status, stdout and stderr of a script, with these groups for the kernel's."""
        out, err = io.StringIO(), io.StringIO()
        with mock.patch.object(sys, "argv", [script.__name__, *argv]), contextlib.redirect_stdout(out), \
                contextlib.redirect_stderr(err), mock.patch.object(memory_group, "MemoryGroup", self.make):
            status = script.main()
        return status, out.getvalue(), err.getvalue()
