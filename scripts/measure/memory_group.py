# SPDX-License-Identifier: MIT
"""Runs programs under the kernel's own memory limit. The kernel charges a group for anonymous pages, for file
pages that it reads, and for kernel memory; a memory budget has to cover all of these.
"""

import contextlib
import dataclasses
import os
import pathlib
import subprocess
import threading
import time

from control_group import ControlGroup


@dataclasses.dataclass
class Sample:
    seconds: float  # since the start
    usage_bytes: int
    anonymous_bytes: int


@dataclasses.dataclass
class GroupRun:
    status: int
    seconds: float
    limit_bytes: int
    peak_bytes: int
    oom_kills: int
    stdout: bytes
    stderr: str
    samples: list


def _field(path, name):
    """Returns the number behind `name` in a file of lines "name number"."""
    with open(path, encoding="ascii") as file:
        for line in file:
            words = line.split()
            if len(words) == 2 and words[0] == name:
                return int(words[1])
    return 0


class MemoryGroup(ControlGroup):
    """A control group with a limit. Use as a context: with MemoryGroup(bytes) as group: group.run(...)"""

    def __init__(self, limit_bytes):
        super().__init__("memory", v1="memory")
        self.limit_bytes = limit_bytes

    def set_limits(self):
        self.write("memory.limit_in_bytes" if self.is_v1 else "memory.max", str(self.limit_bytes))
        swap = "memory.memsw.limit_in_bytes" if self.is_v1 else "memory.swap.max"
        if os.path.exists(self.at(swap)):
            self.write(swap, str(self.limit_bytes) if self.is_v1 else "0")

    def _number(self, v1_name, v2_name):
        with open(self.at(v1_name if self.is_v1 else v2_name), encoding="ascii") as file:
            return int(file.read())

    def peak(self):
        return self._number("memory.max_usage_in_bytes", "memory.peak")

    def oom_kills(self):
        return _field(self.at("memory.oom_control" if self.is_v1 else "memory.events"), "oom_kill")

    def usage(self):
        return self._number("memory.usage_in_bytes", "memory.current")

    def _sample(self, start):
        anonymous = _field(self.at("memory.stat"), "total_rss" if self.is_v1 else "anon")
        return Sample(time.monotonic() - start, self.usage(), anonymous)

    def signal(self, number):
        """Sends a signal to every process in the group; one that has just ended is passed over."""
        with open(self.at("cgroup.procs"), encoding="ascii") as file:
            for process in file.read().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(process), number)

    def run(self, command, environment=None, sample_seconds=0.0, cold=True):
        """Runs a command inside the group from its first instruction on. With sample_seconds > 0 the
        group's usage is read that often. `cold` empties the page cache before."""
        if cold:
            os.sync()
            pathlib.Path("/proc/sys/vm/drop_caches").write_text("3", encoding="ascii")
        samples = []
        over = threading.Event()
        start = time.monotonic()

        def watch():
            while not over.wait(sample_seconds):
                samples.append(self._sample(start))

        watcher = threading.Thread(target=watch) if sample_seconds > 0 else None
        if watcher:
            watcher.start()
        try:
            done = subprocess.run([*self.wrapper(), *command], stdin=subprocess.DEVNULL, capture_output=True,
                                  check=False, env={**os.environ, **(environment or {})})
        finally:
            over.set()
            if watcher:
                watcher.join()
        seconds = time.monotonic() - start
        return GroupRun(done.returncode, seconds, self.limit_bytes, self.peak(), self.oom_kills(), done.stdout,
                        done.stderr.decode(errors="replace"), samples)
