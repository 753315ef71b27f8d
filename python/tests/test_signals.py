# SPDX-License-Identifier: MIT
"""Ctrl-C: raised soon, wherever the main thread waits."""

import asyncio
import os
import signal
import threading
import time

import pytest
from conftest import MOVEMENT_BYTES, PROMPT, ROOT

import qsf

# An idle machine takes some milliseconds; the promise is 100 ms, this is for a loaded one. The
# slow call takes ten seconds if nothing stops it.
BOUND_S = 1.0
LONG_PROMPT = "once upon a time there was " * 150


@pytest.fixture(scope="module")
def streamed(tmp_path_factory):
    """A model whose weights, 23 MB, are read in every pass."""
    path = tmp_path_factory.mktemp("streamed") / "model.qsf"
    qsf.convert(ROOT / "models" / "tales-5M", path, quant_type="f32", threads=1)
    try:
        qsf.plan(path, ram_budget="1MB", context=1024)
    except qsf.OutOfBudget as refusal:
        needed = refusal.needed
    with qsf.Model(path, ram_budget=needed + MOVEMENT_BYTES, context=1024, threads=1) as model:
        assert not model.plan.everything_resident
        yield model


def interrupted(call, after_s=0.15):
    """Repeats a call until KeyboardInterrupt ends it. Returns the seconds from the signal on."""
    sent = []

    def interrupt():
        sent.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(after_s, interrupt)
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            deadline = time.perf_counter() + 20
            while time.perf_counter() < deadline:
                call()
        return time.perf_counter() - sent[0]
    finally:
        timer.join()


def calls_of(model):
    return {
        "prompt": lambda: model.generate(LONG_PROMPT, max_tokens=0),
        "decode": lambda: model.generate(PROMPT, max_tokens=1000, ignore_end_of_text=True),
        "stream": lambda: list(model.stream(PROMPT, max_tokens=1000, ignore_end_of_text=True)),
        "slow": lambda: model.generate(PROMPT, max_tokens=1000, ignore_end_of_text=True,
                                       logits_filter=lambda _: time.sleep(0.01)),
        "score": lambda: model.score(LONG_PROMPT),
    }


@pytest.mark.parametrize("name", ["prompt", "decode", "slow", "stream", "score"])
def test_ctrl_c_in_memory(other_model, name):
    took = interrupted(calls_of(other_model)[name])
    assert took < BOUND_S
    assert other_model.generate(PROMPT, max_tokens=3).stop_reason == "max_tokens"


@pytest.mark.parametrize("name", ["prompt", "decode", "stream"])
def test_ctrl_c_in_streamed_reads(streamed, name):
    took = interrupted(calls_of(streamed)[name])
    assert took < BOUND_S
    assert streamed.generate(PROMPT, max_tokens=3).stop_reason == "max_tokens"


def test_ctrl_c_in_a_streamed_answer_of_a_chat(other_model):
    with other_model.start_chat() as chat:
        def turn():
            chat.clear()
            for _ in chat.stream("Hello", max_tokens=900):
                pass

        assert interrupted(turn) < BOUND_S
        assert chat.send("Hello", max_tokens=2).text is not None


def test_ctrl_c_while_another_thread_computes(other_model):
    """The one that waits for its turn is interrupted, the other goes on."""
    with other_model.session() as session:
        started = threading.Event()
        results = []
        thread = threading.Thread(target=lambda: results.append(session.generate(
            PROMPT, max_tokens=60, logits_filter=lambda _: (started.set(), time.sleep(0.01)))))
        thread.start()
        started.wait(10)
        assert interrupted(lambda: len(session), after_s=0.1) < 5
        thread.join()
        assert len(results[0].tokens) == 60 or results[0].stop_reason == "end_of_text"


def test_ctrl_c_in_asynchronous_iteration(other_model):
    async def read():
        async for _ in other_model.stream(PROMPT, max_tokens=1000):
            pass

    assert interrupted(lambda: asyncio.run(read())) < BOUND_S
    assert other_model.generate(PROMPT, max_tokens=3).stop_reason == "max_tokens"


def test_a_signal_handler_may_cancel(other_model):
    before = signal.signal(signal.SIGALRM, lambda *_: other_model.cancel())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        deadline = time.perf_counter() + 20
        while time.perf_counter() < deadline:
            if other_model.generate(PROMPT, max_tokens=1000).stop_reason == "cancelled":
                break
        else:
            pytest.fail("nothing was cancelled")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
