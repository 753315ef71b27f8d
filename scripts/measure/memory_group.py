# SPDX-License-Identifier: MIT
"""Runs programs under the kernel's own memory limit: a control group of version 1 or 2, made for one
run and removed after it. The kernel charges the group for anonymous pages, for file pages that it
reads, and for kernel memory; a memory budget has to cover all of these. Needs root.
"""

import contextlib
import dataclasses
import os
import subprocess
import threading
import time

V1 = "/sys/fs/cgroup/memory"
V2 = "/sys/fs/cgroup"


class NoMemoryGroup(Exception):
    """No control group can be made; the message says why."""


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


def _write(path, text):
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def _field(path, name):
    """Returns the number behind `name` in a file of lines "name number"."""
    with open(path, encoding="ascii") as file:
        for line in file:
            words = line.split()
            if len(words) == 2 and words[0] == name:
                return int(words[1])
    return 0


class MemoryGroup:
    """A control group with a limit. Use as a context: with MemoryGroup(bytes) as group: group.run(...)"""

    _made = 0

    def __init__(self, limit_bytes):
        self.limit_bytes = limit_bytes
        self.is_v1 = os.path.isdir(V1)
        if not self.is_v1 and not os.path.exists(os.path.join(V2, "cgroup.controllers")):
            raise NoMemoryGroup("no memory controller is mounted under /sys/fs/cgroup")
        MemoryGroup._made += 1
        self.path = os.path.join(V1 if self.is_v1 else V2, f"qsf-{os.getpid()}-{MemoryGroup._made}")

    def __enter__(self):
        try:
            if not self.is_v1:
                _write(os.path.join(V2, "cgroup.subtree_control"), "+memory")
            os.mkdir(self.path)
            _write(self._at("memory.limit_in_bytes" if self.is_v1 else "memory.max"), str(self.limit_bytes))
        except OSError as error:
            raise NoMemoryGroup(f"{self.path}: {error.strerror}; run as root") from error
        swap = self._at("memory.memsw.limit_in_bytes" if self.is_v1 else "memory.swap.max")
        if os.path.exists(swap):
            _write(swap, str(self.limit_bytes) if self.is_v1 else "0")
        return self

    def __exit__(self, *_):
        for _attempt in range(50):  # until the kernel has let go of the last process
            try:
                os.rmdir(self.path)
                return
            except OSError:
                time.sleep(0.02)

    def _at(self, name):
        return os.path.join(self.path, name)

    def _number(self, v1_name, v2_name):
        with open(self._at(v1_name if self.is_v1 else v2_name), encoding="ascii") as file:
            return int(file.read())

    def wrapper(self):
        """Returns a command that runs the arguments behind it inside the group."""
        return ["sh", "-c", 'echo $$ > "$0"/cgroup.procs && exec "$@"', self.path]

    def peak(self):
        return self._number("memory.max_usage_in_bytes", "memory.peak")

    def oom_kills(self):
        return _field(self._at("memory.oom_control" if self.is_v1 else "memory.events"), "oom_kill")

    def usage(self):
        return self._number("memory.usage_in_bytes", "memory.current")

    def _sample(self, start):
        anonymous = _field(self._at("memory.stat"), "total_rss" if self.is_v1 else "anon")
        return Sample(time.monotonic() - start, self.usage(), anonymous)

    def signal(self, number):
        """Sends a signal to every process in the group; one that has just ended is passed over."""
        with open(self._at("cgroup.procs"), encoding="ascii") as file:
            for process in file.read().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(process), number)

    def run(self, command, environment=None, sample_seconds=0.0, cold=True):
        """Runs a command inside the group from its first instruction on. With sample_seconds > 0 the
        group's usage is read that often. `cold` empties the page cache before."""
        if cold:
            os.sync()
            _write("/proc/sys/vm/drop_caches", "3")
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
