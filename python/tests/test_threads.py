# SPDX-License-Identifier: MIT
"""Several threads, cancellation, and callbacks that call back."""

import logging
import threading
import time

import pytest
from conftest import MODEL, PROMPT

import qsf

FOREVER = {"max_tokens": 1000, "logit_bias": {1: -100.0, 2: -100.0}}


def in_thread(function):
    """Runs it in a thread; returns the thread and the list that gets its result or exception."""
    results = []

    def run():
        try:
            results.append(function())
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, results


def joined(pairs):
    for thread, _ in pairs:
        thread.join(30)
        assert not thread.is_alive()
    return [results[0] for _, results in pairs]


def test_threads_queue_on_one_model(model):
    expected = [model.generate(PROMPT, max_tokens=20, seed=seed).text for seed in range(6)]
    pairs = [in_thread(lambda seed=seed: model.generate(PROMPT, max_tokens=20, seed=seed).text)
             for seed in range(4)]
    mixed = [in_thread(lambda: "".join(map(str, model.stream(PROMPT, max_tokens=20, seed=4))))]
    # Four sessions: who comes with all of them taken is refused, and nothing else happens.
    for result, text in zip(joined(pairs + mixed), expected):
        assert result == text or isinstance(result, qsf.OutOfBudget)


def test_calls_are_served_in_their_order(other_model):
    order, started, go_on = [], threading.Event(), threading.Event()
    waiting = other_model._engine.worker._jobs.qsize

    def first(_):
        started.set()
        go_on.wait(10)

    with other_model.session() as session:
        pairs = [in_thread(lambda: session.generate(PROMPT, max_tokens=2, logits_filter=first))]
        started.wait(10)
        for i in range(5):
            pairs.append(in_thread(lambda i=i: session.generate(
                "", max_tokens=1, logits_filter=lambda _: order.append(i))))
            while waiting() <= i:
                time.sleep(0.001)
        go_on.set()
        joined(pairs)
    assert order == list(range(5))


def test_two_models_run_at_once(other_model):
    with qsf.Model(MODEL, threads=1) as second:
        inside, both = [0], threading.Barrier(2, timeout=20)

        def meet(_):
            if inside[0] < 2:  # each waits for the other within its generation
                inside[0] += 1
                both.wait()

        pairs = [in_thread(lambda each=each: each.generate(PROMPT, max_tokens=4, logits_filter=meet))
                 for each in (other_model, second)]
        texts = [done.text for done in joined(pairs)]
        assert texts[0] == texts[1] != ""


def test_tokens_are_counted_while_another_thread_generates(other_model):
    started, pause = threading.Event(), threading.Event()

    def hold(_):
        started.set()
        pause.wait(10)

    pair = in_thread(lambda: other_model.generate(PROMPT, max_tokens=2, logits_filter=hold))
    started.wait(10)
    assert other_model.detokenize(other_model.tokenize("a cat")) == "a cat"
    pause.set()
    joined([pair])


def test_cancel_from_another_thread(other_model):
    started = threading.Event()

    def run():
        return other_model.generate(PROMPT, logits_filter=lambda _: started.set(), **FOREVER)

    pair = in_thread(run)
    started.wait(10)
    other_model.cancel()
    [done] = joined([pair])
    assert done.stop_reason == "cancelled" and len(done.tokens) < 1000
    # Nothing of it is left for the next call.
    for _ in range(3):
        assert other_model.generate(PROMPT, max_tokens=3).stop_reason == "max_tokens"


def test_cancel_of_idle_models_does_nothing(model):
    model.cancel()
    assert model.generate(PROMPT, max_tokens=3).stop_reason == "max_tokens"


def test_cancels_at_any_moment_hit_their_own_call_alone(other_model):
    expected = other_model.score(PROMPT)
    stop = threading.Event()

    def cancel_often():
        while not stop.is_set():
            other_model.cancel()
            time.sleep(0.0003)

    pair = in_thread(cancel_often)
    cancelled = 0
    for _ in range(200):
        try:
            assert (other_model.score(PROMPT) == expected).all()
        except qsf.Cancelled:
            cancelled += 1
    stop.set()
    joined([pair])
    assert cancelled < 200
    for _ in range(20):
        assert (other_model.score(PROMPT) == expected).all()


def test_a_stray_request_is_not_the_next_calls(other_model):
    engine = other_model._engine
    expected = other_model.score(PROMPT)
    for call in (lambda: other_model.score(PROMPT),
                 lambda: other_model.generate(PROMPT, max_tokens=3),
                 lambda: list(other_model.stream(PROMPT, max_tokens=3))):
        with engine.worker._guard:  # as if a request came when the engine's call was over
            engine.lib.qsf_engine_cancel(engine._handle)
            engine.worker._stray = True
        result = call()
        assert getattr(result, "stop_reason", "max_tokens") == "max_tokens"
    assert (other_model.score(PROMPT) == expected).all()


def test_close_cancels_what_runs_and_refuses_what_waits():
    model = qsf.Model(MODEL, threads=1, sessions=2)
    started = threading.Event()
    first = in_thread(lambda: model.generate(
        PROMPT, logits_filter=lambda _: (started.set(), time.sleep(0.001)), **FOREVER))
    started.wait(10)
    others = [in_thread(lambda: model.score(PROMPT)) for _ in range(3)]
    time.sleep(0.05)
    model.close()
    done, *waiting = joined([first, *others])
    assert isinstance(done, qsf.Error) or done.stop_reason == "cancelled"
    assert all(isinstance(each, qsf.InvalidArgument) for each in waiting)


def test_a_call_that_loses_the_race_with_close_is_refused():
    model = qsf.Model(MODEL, threads=1)
    handle = model._engine._handle
    model.close()
    model._engine._handle = handle  # as if close() came behind the check of the call
    try:
        for call in (lambda: model.score([1, 5, 6]), model.session):
            with pytest.raises(qsf.InvalidArgument, match="closed"):
                call()
    finally:
        model._engine._handle = None


@pytest.mark.parametrize("call", [
    lambda model: model.generate("a"), lambda model: model.score("a cat"),
    lambda model: next(model.stream("a")), lambda model: model.session(),
    lambda model: model.close()])
def test_a_callback_that_calls_its_model_is_refused(other_model, call):
    with pytest.raises(qsf.InvalidArgument, match="callback"):
        other_model.generate(PROMPT, max_tokens=2, logits_filter=lambda _: call(other_model))
    assert other_model.generate(PROMPT, max_tokens=2).tokens


def test_a_callback_may_cancel_and_tokenize(other_model):
    def stop(_):
        assert other_model.tokenize("a cat")
        other_model.cancel()

    done = other_model.generate(PROMPT, max_tokens=50, logits_filter=stop)
    assert (done.stop_reason, len(done.tokens) < 5) == ("cancelled", True)


def test_a_log_handler_that_calls_its_model_is_refused():
    from qsf import config

    caught = []

    class Handler(logging.Handler):
        def emit(self, record):
            try:
                model.generate("a", max_tokens=1)
            except qsf.InvalidArgument as error:
                caught.append(str(error))

    handler = Handler()
    with qsf.Model(MODEL, threads=1) as model:
        config.logger.addHandler(handler)
        try:
            settings = model._engine._config
            settings._log(1, b"a line", None)  # as the engine does, on any thread
        finally:
            config.logger.removeHandler(handler)
        assert len(caught) == 1 and "log line" in caught[0]
        assert model.generate("a", max_tokens=1).tokens


def test_a_progress_callback_may_fail(other_model):
    with pytest.raises(ZeroDivisionError):
        other_model.generate("word " * 300, max_tokens=2, on_prompt=lambda done, total: 1 / 0)
    calls = []
    other_model.generate("word " * 300, max_tokens=2, on_prompt=lambda *call: calls.append(call))
    assert calls and calls[-1][0] == calls[-1][1]
