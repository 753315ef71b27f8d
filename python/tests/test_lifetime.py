# SPDX-License-Identifier: MIT
"""What is left behind: nothing, by any way to end; and processes that fork."""

import gc
import os
import subprocess
import sys
import threading
import time
import weakref

import pytest
from conftest import MODEL, PROMPT, ROOT

import qsf


def resident_bytes():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def footprint():
    return len(os.listdir("/proc/self/fd")), threading.active_count(), len(os.listdir("/proc/self/task"))


def assert_footprint(expected):
    """A joined thread leaves the kernel's list a moment later."""
    deadline = time.monotonic() + 5
    while footprint() != expected and time.monotonic() < deadline:
        time.sleep(0.01)
    assert footprint() == expected


def cycle(i):
    """Opens, generates 8 tokens, of which every other cycle cancels some, and closes."""
    model = qsf.Model(MODEL, threads=1, context=256)
    stream = model.stream(PROMPT, max_tokens=8)
    next(stream)
    if i % 2:
        stream.cancel()
    list(stream)
    assert stream.result.stop_reason in ("cancelled", "max_tokens", "end_of_text")
    if i % 3:
        model.close()


def cycles(warm, total, growth_bytes):
    for i in range(warm):
        cycle(i)
    gc.collect()
    before, counts = resident_bytes(), footprint()
    for i in range(warm, total):
        cycle(i)
    gc.collect()
    assert_footprint(counts)
    assert resident_bytes() - before <= growth_bytes


@pytest.mark.skipif("libasan" in os.environ.get("LD_PRELOAD", ""),
                    reason="AddressSanitizer keeps freed memory for a while, and finds leaks itself")
def test_opening_and_closing_leaves_nothing():
    cycles(50, 150, 4 << 20)


@pytest.mark.long
def test_ten_thousand_cycles_leave_nothing():
    cycles(1000, 10_000, 1 << 20)


def test_del_frees_without_the_collector():
    gc.disable()
    try:
        counts = footprint()
        model = qsf.Model(MODEL, threads=1)
        session = model.session()
        model.generate  # noqa: B018
        engine = weakref.ref(model._engine)
        del model
        assert session.generate(PROMPT, max_tokens=1).tokens  # it keeps its engine
        del session
        assert engine() is None
        assert_footprint(counts)
    finally:
        gc.enable()


def test_a_failed_open_leaves_nothing(tmp_path):
    counts = footprint()
    for _ in range(3):
        with pytest.raises(FileNotFoundError):
            qsf.Model(tmp_path / "missing")
        with pytest.raises(qsf.OutOfBudget):
            qsf.Model(MODEL, ram_budget="1MB")
    assert_footprint(counts)


def run_python(code):
    return subprocess.run([sys.executable, "-X", "dev", "-c", code], capture_output=True, text=True,
                          check=False, timeout=60,
                          env={**os.environ, "PYTHONPATH": str(ROOT / "python")})


@pytest.mark.parametrize("ending", [
    "pass", "del model", "model.close()", "del stream", "raise SystemExit(0)"])
def test_an_interpreter_ends_quietly_with_a_model_open(ending):
    done = run_python(f"import qsf\nmodel = qsf.Model({str(MODEL)!r}, threads=1)\n"
                      f"stream = model.stream('A', max_tokens=900)\nnext(stream)\n{ending}\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_interpreter_ends_while_a_daemon_thread_generates():
    done = run_python(
        "import qsf, threading\n"
        f"model = qsf.Model({str(MODEL)!r}, threads=1)\n"
        "stream = model.stream('A', max_tokens=900)\nnext(stream)\n"
        "threading.excepthook = lambda event: print(event.exc_type.__name__)\n"
        "threading.Thread(target=lambda: list(stream), daemon=True).start()\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout in ("", "Cancelled\n", "InvalidArgument\n")


def test_a_fork_cannot_use_the_model(other_model):
    session = other_model.session()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            refused = 0
            for call in (lambda: other_model.tokenize("a"), lambda: session.generate("a"),
                         lambda: other_model.chat("a"), other_model.session):
                try:
                    call()
                except qsf.InvalidArgument as error:
                    refused += "fork" in str(error)
            other_model.cancel()
            session.close()
            other_model.close()  # frees nothing of the parent's
            code = 0 if refused == 4 else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert session.generate(PROMPT, max_tokens=2).tokens


def test_a_fork_opens_a_model_of_its_own(other_model):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with qsf.Model(MODEL, threads=1) as own:
                code = 0 if own.generate(PROMPT, max_tokens=2).tokens else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
