# SPDX-License-Identifier: MIT
"""Control groups of version 1 or 2, made for one run and removed after it. Needs root."""

import os
import pathlib
import time

ROOT = "/sys/fs/cgroup"


class NoControlGroup(Exception):
    """No control group can be made; the message says why."""


class ControlGroup:
    """A group of the controller `v2`, which version 1 names `v1`. A class made from this one sets its limits."""

    _made = 0

    def __init__(self, v2, v1):
        self.controller, self.is_v1 = v2, os.path.isdir(os.path.join(ROOT, v1))
        if not self.is_v1 and not os.path.exists(os.path.join(ROOT, "cgroup.controllers")):
            raise NoControlGroup(f"no {v2} controller is mounted under {ROOT}")
        ControlGroup._made += 1
        self.path = os.path.join(ROOT, v1 if self.is_v1 else "", f"qsf-{os.getpid()}-{ControlGroup._made}")

    def set_limits(self):
        """Writes the limits of the group, which has just been made."""

    def __enter__(self):
        try:
            if not self.is_v1:
                pathlib.Path(ROOT, "cgroup.subtree_control").write_text("+" + self.controller, encoding="ascii")
            os.mkdir(self.path)
            self.set_limits()
        except OSError as error:
            self.__exit__()
            raise NoControlGroup(f"{self.path}: {error.strerror}; run as root") from error
        return self

    def __exit__(self, *_):
        for _attempt in range(50):  # until the kernel has let go of the last process
            try:
                os.rmdir(self.path)
                return
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.02)

    def at(self, name):
        return os.path.join(self.path, name)

    def write(self, name, text):
        pathlib.Path(self.at(name)).write_text(text, encoding="ascii")

    def wrapper(self):
        """Returns a command that runs the arguments behind it inside the group, from the first instruction on."""
        return ["sh", "-c", 'echo $$ > "$0"/cgroup.procs && exec "$@"', self.path]
