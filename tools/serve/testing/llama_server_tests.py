#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs the tests of llama-server that qsf serve passes: those in llama_server_tests.txt.

Usage: llama_server_tests.py BIN_DIR MODEL TESTS [--all]

TESTS is the folder tools/server/tests of llama.cpp's sources, and MODEL the Hugging Face folder of
stories260K. With --all every test runs, and those that pass are printed. Needs the packages pytest,
requests, wget, openai and filelock.
"""

import os
import re
import socket
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
LIST = os.path.join(HERE, "llama_server_tests.txt")
RESULT = re.compile(r"^(PASSED|FAILED|ERROR|SKIPPED) (?:\[\d+\] )?unit/(\S+::.+?)(?: - .*)?$", re.MULTILINE)
# The files that have tests for other servers too; the rest is about llama-server's own endpoints.
FILES = ["test_basic.py", "test_chat_completion.py", "test_compat_anthropic.py",
         "test_compat_oai_responses.py", "test_completion.py", "test_ctx_shift.py", "test_embedding.py",
         "test_infill.py", "test_security.py", "test_template.py", "test_tokenize.py",
         "test_tool_call.py"]
TIMEOUT_S = 1500


def read_list(path):
    """Returns the tests that are named in a file, a line each; # begins a comment."""
    with open(path, encoding="utf-8") as file:
        lines = [line.strip() for line in file]
    return [line for line in lines if line and not line.startswith("#")]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_tests(bin_dir, model, folder, names):
    """Returns the outcomes by test, and the output of pytest."""
    with tempfile.TemporaryDirectory(prefix=f"llama-tests-{os.getpid()}-") as work_dir:
        environment = {**os.environ, "PORT": str(free_port()), "QSF_WORK_DIR": work_dir,
                       "QSF_SERVE_PROGRAM": os.path.abspath(os.path.join(bin_dir, "qsf-serve")),
                       "QSF_TEST_MODEL": os.path.abspath(model), "PYTHONDONTWRITEBYTECODE": "1",
                       "LLAMA_SERVER_BIN_PATH": os.path.join(HERE, "llama_server_wrapper.py")}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-rA", "--tb=short",
             "--basetemp", os.path.join(work_dir, "pytest"), *("unit/" + name for name in names)],
            cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=TIMEOUT_S, check=False)
    outcomes = {name: outcome for outcome, name in RESULT.findall(done.stdout)}
    return outcomes, done.stdout


def main():
    everything = "--all" in sys.argv[1:]
    arguments = [argument for argument in sys.argv[1:] if argument != "--all"]
    if len(arguments) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    bin_dir, model, folder = arguments
    if not os.path.exists(os.path.join(folder, "utils.py")):
        print(f"llama-server's tests: '{folder}' has no utils.py, expected the folder "
              "tools/server/tests of llama.cpp; name it in LLAMA_SERVER_TESTS", file=sys.stderr)
        return 77
    expected = read_list(LIST)
    outcomes, output = run_tests(bin_dir, model, folder, FILES if everything else expected)
    if everything:
        print(output)
        for name, outcome in sorted(outcomes.items()):
            print(outcome, name)
        return 0
    failed = [name for name in expected if outcomes.get(name) != "PASSED"]
    if failed:
        print(output)
    for name in failed:
        print(f"{name}: {outcomes.get(name, 'not run')}, expected PASSED")
    print(f"{len(expected) - len(failed)} of {len(expected)} tests of llama-server pass")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
