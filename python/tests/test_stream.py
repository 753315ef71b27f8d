# SPDX-License-Identifier: MIT
"""Streams: iteration, asynchronous too, and their end."""

import asyncio
import gc
import threading

import pytest
from conftest import PROMPT

import qsf

GREEDY = {"temperature": 0.0}


def test_a_stream_is_the_text_of_generate(model):
    whole = model.generate(PROMPT, max_tokens=30, log_probs=2, **GREEDY)
    stream = model.stream(PROMPT, max_tokens=30, log_probs=2, **GREEDY)
    assert stream.result is None
    tokens = list(stream)
    assert "".join(map(str, tokens)) == whole.text == stream.result.text
    assert tuple(token.id for token in tokens if not token.is_rest) == whole.tokens
    assert tuple(token.log_prob for token in tokens if not token.is_rest) == whole.log_probs
    assert tokens[0].top == whole.top_log_probs[0]
    assert (stream.result.stop_reason, list(stream)) == ("max_tokens", [])


def test_a_stop_text_is_held_back(model):
    text = model.generate(PROMPT, max_tokens=20, **GREEDY).text
    word = text.split()[3]
    stream = model.stream(PROMPT, max_tokens=20, stop=word, **GREEDY)
    assert "".join(map(str, stream)) == text[:text.index(word)]
    assert stream.result.stop_reason == "stop"


def sessions_free(model):
    """How many of the model's sessions are free."""
    held = []
    try:
        while True:
            held.append(model.session())
    except qsf.OutOfBudget:
        return len(held)
    finally:
        for session in held:
            session.close()


def test_a_stream_frees_its_session_however_it_ends(model):
    assert sessions_free(model) == 4
    stream = model.stream(PROMPT, max_tokens=50)
    next(stream)
    assert sessions_free(model) == 3
    stream.close()
    stream.close()
    assert (sessions_free(model), list(stream), stream.result) == (4, [], None)
    with model.stream(PROMPT, max_tokens=50) as stream:
        next(stream)
    assert sessions_free(model) == 4
    for _ in model.stream(PROMPT, max_tokens=50):
        break
    assert sessions_free(model) == 4
    stream = model.stream(PROMPT, max_tokens=50)
    next(stream)
    del stream
    gc.collect()
    assert sessions_free(model) == 4
    list(model.stream(PROMPT, max_tokens=3))
    assert sessions_free(model) == 4


def test_a_generator_around_a_stream_ends_it(model):
    def words():
        with model.stream(PROMPT, max_tokens=50) as stream:
            for token in stream:
                yield token.text

    generator = words()
    next(generator)
    generator.close()  # GeneratorExit
    assert sessions_free(model) == 4


def test_the_model_serves_others_between_steps(model):
    stream = model.stream(PROMPT, max_tokens=8, **GREEDY)
    expected = model.generate(PROMPT, max_tokens=8, **GREEDY).text
    text = ""
    for token in stream:
        text += token.text
        assert model.generate("A", max_tokens=1).tokens
    assert text == expected


def test_two_streams_alternate(model):
    expected = [model.generate(PROMPT, max_tokens=10, seed=seed).text for seed in (1, 2)]
    streams = [model.stream(PROMPT, max_tokens=10, seed=seed) for seed in (1, 2)]
    texts = ["", ""]
    for tokens in zip(*streams):
        texts = [text + token.text for text, token in zip(texts, tokens)]
    for i, stream in enumerate(streams):
        texts[i] += "".join(map(str, stream))
    assert texts == expected


def test_cancel_ends_a_stream_with_its_reason(model):
    stream = model.stream(PROMPT, max_tokens=50)
    next(stream)
    stream.cancel()
    list(stream)
    assert stream.result.stop_reason == "cancelled"
    stream = model.stream(PROMPT, max_tokens=50)
    next(stream)
    model.cancel()
    list(stream)
    assert stream.result.stop_reason == "cancelled"
    assert model.generate(PROMPT, max_tokens=3).stop_reason == "max_tokens"


def test_an_error_of_a_generation_is_raised(model):
    def fail(_):
        raise KeyError("mine")

    stream = model.stream(PROMPT, max_tokens=5, logits_filter=fail)
    with pytest.raises(KeyError, match="mine"):
        next(stream)
    assert list(stream) == []
    with pytest.raises(KeyError, match="mine"):
        model.generate(PROMPT, max_tokens=5, logits_filter=fail)


def test_asynchronous_iteration(model):
    async def collect(seed):
        return "".join([token.text async for token in model.stream(PROMPT, max_tokens=10, seed=seed)])

    async def both():
        beats = 0

        async def beat():
            nonlocal beats
            while True:
                await asyncio.sleep(0)
                beats += 1

        pulse = asyncio.ensure_future(beat())
        texts = await asyncio.gather(collect(1), collect(2))
        pulse.cancel()
        return texts, beats

    texts, beats = asyncio.run(both())
    assert texts == [model.generate(PROMPT, max_tokens=10, seed=seed).text for seed in (1, 2)]
    assert beats > 10, "the loop was blocked"


def test_a_cancelled_task_ends_its_stream(model):
    async def run():
        stream = model.stream(PROMPT, max_tokens=900)

        async def consume():
            async for _ in stream:
                pass

        task = asyncio.ensure_future(consume())
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await stream.aclose()

    asyncio.run(run())
    assert sessions_free(model) == 4
    assert model.generate(PROMPT, max_tokens=3).stop_reason == "max_tokens"


def test_a_cancelled_task_leaves_no_step_in_the_queue(model):
    stream = model.stream(PROMPT, max_tokens=9)
    begun, go_on = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: model.generate(
        PROMPT, max_tokens=1, logits_filter=lambda _: (begun.set(), go_on.wait(10))))
    thread.start()
    begun.wait(10)

    async def run():
        task = asyncio.ensure_future(stream.__anext__())
        await asyncio.sleep(0.05)
        task.cancel()
        threading.Timer(0.1, go_on.set).start()  # closing the stream waits for its turn
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    thread.join()
    assert stream._collector.tokens == []


def test_errors_reach_asynchronous_iteration(model):
    async def run():
        async for _ in model.stream(PROMPT, max_tokens=5, logits_filter=lambda logits: 1 / 0):
            pass

    with pytest.raises(ZeroDivisionError):
        asyncio.run(run())
