#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tests the tools for AArch64 in qemu's user emulation: ./check long aarch64.

    check_aarch64.py MODEL.gguf

For every tier of kernels, on a processor where it is the best one: its kernels, logits of
transformers, bits that do not depend on passes or threads, and a text of MODEL that is streamed
within a budget and equals the resident one. The scalar tier writes the text that this machine's
scalar tier writes. Streaming is repeated with pages of 16 KB, and the static release runs without a
C library. The presets aarch64-tools and aarch64-release, and release, are built before.

Speed, memory peaks and io_uring are not tested: the emulator has its own. Nor are programs with
pages of 16 KB that map files, which this emulator cannot do where the machine's pages are smaller.

Exit status 0 when all passed, 1 when one failed, 77 when programs cannot be emulated here.
"""

import os
import platform
import re
import shutil
import subprocess
import sys

import repo_files

EXIT_SKIPPED = 77
LIBRARIES = "/usr/aarch64-linux-gnu"
# Raspberry Pi 4, Raspberry Pi 5, and all that the emulator has.
PROCESSORS = {"neon": "cortex-a72", "neondot": "cortex-a76", "neoni8mm": "max"}
FAMILIES = ["llama_mha", "gemma2", "mixtral", "deepseek_v3", "granite4h", "mpt"]
LOGITS = ["F32MatchesTransformersAtEveryLength", "BitsDoNotDependOnPassesOrThreads",
          "BitsOfQuantisedRowsDoNotDependOnPassesOrThreads"]
PASSED = re.compile(r"^\[       OK \] (\S+)", re.MULTILINE)
KERNEL_STRIDE = "17"
# The emulator's own memory counts; about half of the weights stay in the smaller one.
RESIDENT_MB, STREAMED_MB = 300, 120
BINFMT = "/proc/sys/fs/binfmt_misc"
# The first 20 bytes of an executable for AArch64, and the bits of them that count.
MAGIC = (r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:"
         r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff")


class EmulatedPrograms:
    """Lets the kernel start programs for AArch64, which tests start in turn; undone at the end."""

    def __init__(self, emulator):
        self.line = f":qsf-aarch64:M::{MAGIC}:{emulator}:OC"
        self.registered = False

    def __enter__(self):
        if not os.path.exists(f"{BINFMT}/register"):
            subprocess.run(["mount", "-t", "binfmt_misc", "binfmt_misc", BINFMT], check=False,
                           capture_output=True)
        if not any("aarch64" in name for name in os.listdir(BINFMT)):
            with open(f"{BINFMT}/register", "w", encoding="ascii") as file:
                file.write(self.line)
            self.registered = True
        return self

    def __exit__(self, *_):
        if self.registered:
            with open(f"{BINFMT}/qsf-aarch64", "w", encoding="ascii") as file:
                file.write("-1")


class Checks:
    """Runs checks and counts those that failed."""

    def __init__(self, emulator, root, model):
        self.emulator, self.root, self.model = emulator, root, model
        self.failed = 0

    def tests(self, tier, program, gtest_filter, word=""):
        """Runs some tests of a program; none that passed and has the word in its name is a failure
        too."""
        environment = dict(os.environ, QEMU_CPU=PROCESSORS[tier], QEMU_LD_PREFIX=LIBRARIES,
                           QSF_TEST_STRIDE=KERNEL_STRIDE)
        path = os.path.join(self.root, "build/aarch64-tools/tests", program)
        result = subprocess.run([self.emulator, path, f"--gtest_filter={gtest_filter}"],
                                env=environment, capture_output=True, text=True, check=False)
        n_passed = sum(word in name for name in PASSED.findall(result.stdout))
        self.say(result.returncode == 0 and n_passed > 0, f"{tier}: {program}: {n_passed} tests",
                 result.stdout + result.stderr)

    def text(self, folder, budget_mb, tier=None, emulated=True, page_bytes=None):
        """Returns the text that a tool writes with the model, and how it ran."""
        environment = dict(os.environ)
        if tier:
            environment["QSF_ISA"] = tier
            environment["QEMU_CPU"] = PROCESSORS.get(tier, "max")
        command = [os.path.join(self.root, folder, "bin/qsf"), "run", "--model", self.model,
                   "--ram-budget", str(budget_mb), "--max-seq-len", "256", "--temperature", "0",
                   "--max-tokens", "16", "--prompt", "The capital of France is"]
        if emulated:
            command = [self.emulator, *(["-p", str(page_bytes)] if page_bytes else []), *command]
        result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        return result.stdout, result.stderr

    def texts(self, tier):
        """Compares a streamed text with the resident one."""
        release = "build/aarch64-release"
        resident, _ = self.text(release, RESIDENT_MB, tier)
        for page_bytes in (4096, 16384):
            streamed, how = self.text(release, STREAMED_MB, tier, page_bytes=page_bytes)
            ok = streamed == resident != "" and "mode: streamed" in how and f", {tier}" in how
            self.say(ok, f"{tier}: streamed text, pages of {page_bytes} bytes", streamed + how)
        if tier == "scalar":
            native, _ = self.text("build/release", RESIDENT_MB, tier, emulated=False)
            self.say(native == resident != "", "scalar: the text of this machine", native + resident)

    def say(self, ok, what, output):
        print(f"{'ok' if ok else 'FAILED'}: {what}", flush=True)
        if not ok:
            self.failed += 1
            print("\n".join(output.splitlines()[-20:]), flush=True)


def lacking():
    """Returns why nothing can be emulated here, or nothing."""
    if platform.machine() != "x86_64":
        return f"written for x86_64, this is {platform.machine()}"
    for program in ("qemu-aarch64", "aarch64-linux-gnu-g++"):
        if not shutil.which(program):
            return f"no {program} here; ./test installs it"
    return "" if os.geteuid() == 0 else "registering programs of AArch64 needs root"


def main(arguments):
    if len(arguments) != 1:
        print(__doc__.split("\n\n")[1].strip(), file=sys.stderr)
        return 2
    reason = lacking()
    if reason:
        print(f"aarch64: not run: {reason}")
        return EXIT_SKIPPED
    root = repo_files.repository_root()
    model = os.path.join(root, "build/aarch64-release/model.qsf")
    subprocess.run([os.path.join(root, "build/release/bin/qsf"), "convert", "--quiet", arguments[0],
                    model], check=True)
    emulator = shutil.which("qemu-aarch64")
    checks = Checks(emulator, root, model)
    families = ":".join(f"*GoldenLogitsTest.{test}/{family}" for family in FAMILIES for test in LOGITS)
    checks.texts("scalar")
    for tier in PROCESSORS:
        checks.texts(tier)
        checks.tests(tier, "kernels_test", f"*_{tier}*:IsaTest.*:KernelSetTest.*",
                     f"_{tier}")
        with EmulatedPrograms(emulator):
            checks.tests(tier, "golden_logits_test", families)
    os.remove(model)
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
