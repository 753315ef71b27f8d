# SPDX-License-Identifier: MIT
"""Holds a program's reads of a disk to a rate: a control group of version 1 or 2. Needs root."""

import os
import time

V1 = "/sys/fs/cgroup/blkio"
V2 = "/sys/fs/cgroup"


class NoDiskGroup(Exception):
    """No control group can be made; the message says why."""


class DiskGroup:
    """A control group that reads at most `bytes_per_second` from the disk that holds `path`."""

    def __init__(self, path, bytes_per_second):
        self.is_v1 = os.path.isdir(V1)
        self.path = os.path.join(V1 if self.is_v1 else V2, f"qsf-disk-{os.getpid()}")
        device = os.stat(path).st_dev
        self.limit = f"{os.major(device)}:{os.minor(device)} " + (
            str(bytes_per_second) if self.is_v1 else f"rbps={bytes_per_second}")

    def __enter__(self):
        try:
            if not self.is_v1:
                self._write(os.path.join(V2, "cgroup.subtree_control"), "+io")
            os.mkdir(self.path)
            name = "blkio.throttle.read_bps_device" if self.is_v1 else "io.max"
            self._write(os.path.join(self.path, name), self.limit)
        except OSError as error:
            raise NoDiskGroup(f"{self.path}: {error.strerror}; run as root") from error
        return self

    def __exit__(self, *_):
        for _attempt in range(50):  # until the kernel has let go of the last process
            try:
                os.rmdir(self.path)
                return
            except OSError:
                time.sleep(0.02)

    @staticmethod
    def _write(path, text):
        with open(path, "w", encoding="ascii") as file:
            file.write(text)

    def command(self, command):
        """Returns a command that runs `command` inside the group from its first instruction on."""
        return ["sh", "-c", 'echo $$ > "$0"/cgroup.procs && exec "$@"', self.path, *command]
