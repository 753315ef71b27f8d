# SPDX-License-Identifier: MIT
"""Generated texts: whole (Completion), or token by token (Stream)."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NoReturn

from . import _types as t
from ._library import check, sized
from .sampling import GenerateOptions, Prompt, Request

if TYPE_CHECKING:
    from ._engine import Engine, Handle

StopReason = Literal["max_tokens", "end_of_text", "stop", "context_full", "cancelled", "callback"]


@dataclass(frozen=True)
class Token:
    """A generated token. str() of it is its text.

    Attributes:
        id: the token.
        text: the whole characters that it completed, perhaps none.
        log_prob: natural logarithm of its probability, at temperature 1 and before sampling;
            NaN unless asked for.
        top: (token, log_prob) of the likeliest tokens, the likeliest first.
        is_rest: True: no further token, but text that was held back until after the last one.
    """

    id: int
    text: str
    log_prob: float
    top: tuple[tuple[int, float], ...]
    is_rest: bool

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Completion:
    """A generated text. str() of it is its text.

    Attributes:
        text: without the prompt and without the stop text.
        tokens: generated, those of a stop text included.
        stop_reason: why it ended.
        prompt_tokens, cached_tokens: of the prompt; how many of them came from the prefix cache.
        log_probs, top_log_probs: [len(tokens)] each, where asked for; else empty.
        prompt_s, first_token_s, generate_s: seconds for the prompt, from the call to the first
            token, and from the first token to the last.
        drafted_tokens, accepted_tokens: of speculation.
    """

    text: str
    tokens: tuple[int, ...]
    stop_reason: StopReason
    prompt_tokens: int
    cached_tokens: int
    log_probs: tuple[float, ...]
    top_log_probs: tuple[tuple[tuple[int, float], ...], ...]
    prompt_s: float
    first_token_s: float
    generate_s: float
    drafted_tokens: int = 0
    accepted_tokens: int = 0

    def __str__(self) -> str:
        return self.text

    @property
    def tokens_per_second(self) -> float:
        """Of generation, after the first token; 0 for fewer than two."""
        n = len(self.tokens) - 1
        return n / self.generate_s if n > 0 and self.generate_s > 0 else 0.0


class Collector:
    """Takes the tokens of a generation in C's form, on the worker."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.pieces: list[bytes] = []
        self.log_probs: list[float] = []
        self.top: list[tuple[tuple[int, float], ...]] = []
        self.wants_log_probs = False

    def add(self, token: int, text: bytes, log_prob: float, top: Sequence[tuple[int, float]],
            is_rest: bool) -> None:
        self.pieces.append(text)
        if is_rest:
            return
        self.tokens.append(token)
        if self.wants_log_probs:
            self.log_probs.append(log_prob)
            self.top.append(tuple(top))

    def completion(self, result: t.GenerateResult | t.ChatResult) -> Completion:
        return Completion(
            text=b"".join(self.pieces).decode(),
            tokens=tuple(self.tokens),
            stop_reason=t.STOP_REASONS[result.reason],  # type: ignore[arg-type]
            prompt_tokens=result.prompt_tokens,
            cached_tokens=getattr(result, "cached_tokens", 0),
            log_probs=tuple(self.log_probs),
            top_log_probs=tuple(self.top),
            prompt_s=result.prompt_ns / 1e9,
            first_token_s=result.first_token_ns / 1e9,
            generate_s=result.generate_ns / 1e9,
            drafted_tokens=getattr(result, "drafted_tokens", 0),
            accepted_tokens=getattr(result, "accepted_tokens", 0),
        )


def generate(engine: Engine, session: Handle, prompt: Prompt, options: GenerateOptions,
             end_texts: Sequence[bytes] = ()) -> Completion:
    """Completes a prompt in a session, in one call of the worker."""
    collector = Collector()
    collector.wants_log_probs = bool(options.get("log_probs", False))
    request = Request(engine, prompt, options, collector.add, end_texts)
    result: t.GenerateResult = sized(t.GenerateResult())
    run = engine.lib.qsf_session_generate

    def call(error: t.Error) -> int:
        code: int = run(session.address, request.struct, result, error)
        return t.CANCELLED if code == t.OK and result.reason == t.STOP_CANCELLED else code

    try:
        engine.run(call, session, may_stop=True)
    finally:
        request.callbacks.reraise()
    return collector.completion(result)


class Stream:
    """An iterator over the tokens of a generation, also for `async for`.

    Every step computes one pass; between steps the model serves others. The generation ends with
    the text, with close(), with cancel(), and when the iterator is deleted; its session keeps what
    was computed.

    Threads: any, one at a time; cancel() at any time.
    """

    def __init__(self, engine: Engine, session: Handle, prompt: Prompt, options: GenerateOptions,
                 end_texts: Sequence[bytes] = (), owns_session: bool = False) -> None:
        ready: deque[Token] = deque()
        collector = Collector()
        collector.wants_log_probs = bool(options.get("log_probs", False))

        def on_token(token: int, text: bytes, log_prob: float, top: Sequence[tuple[int, float]],
                     is_rest: bool) -> None:
            collector.add(token, text, log_prob, top, is_rest)
            ready.append(Token(token, text.decode(), log_prob, tuple(top), is_rest))

        self._engine, self._session, self._owns_session = engine, session, owns_session
        self._options = options
        self._ready, self._collector = ready, collector
        self._result: Completion | None = None
        self._cancelled = False
        self._figures: t.GenerateResult = sized(t.GenerateResult())
        self._request = Request(engine, prompt, options, on_token, end_texts)
        self._generation = self._create()
        # One pointer for every step: nothing is made per token but the token.
        self._members = (ctypes.c_void_p * 1)(self._generation.address)
        self._ended: tuple[int, t.Error] | None = None  # code and error of the generation
        engine.streams.add(self)

    def _create(self) -> Handle:
        create, session = self._engine.lib.qsf_generation_create, self._session
        request = self._request
        return self._engine.create(
            "qsf_generation_free",
            lambda out, error: int(create(session.address, request.struct, out, error)),
            keep=request)

    # Iteration

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Token:
        while not self._ready:
            if self._result is not None or not self._generation.is_open:
                raise StopIteration
            try:
                self._engine.run(self._step, self._session, may_stop=True)
            except BaseException:
                self._fail()
                raise
            self._after_step()
        return self._ready.popleft()

    def _step(self, error: t.Error) -> int:
        """One pass, on the worker."""
        lib, generation = self._engine.lib, self._generation.address
        code: int = lib.qsf_engine_step(self._engine.check_open(), self._members, 1, None, error)
        if code == t.OK and lib.qsf_generation_is_finished(generation):
            own = t.Error()
            self._ended = (lib.qsf_generation_get_result(generation, self._figures, own), own)
        return code

    def _after_step(self) -> None:
        if self._request.callbacks.error is not None:
            self._fail()
            self._request.callbacks.reraise()
        if self._ended is not None:
            code, error = self._ended
            if code != t.OK:
                self._fail()
                check(code, error)
        elif self._cancelled:
            self._figures.reason = t.STOP_CANCELLED
        else:
            return
        self._result = self._collector.completion(self._figures)
        self._close_handles()

    def _fail(self) -> None:
        self._ready.clear()
        self._close_handles()

    # Asynchronous iteration

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> Token:
        while not self._ready:
            if self._result is not None or not self._generation.is_open:
                raise StopAsyncIteration
            try:
                await self._step_async()
            except BaseException:
                self._fail()
                raise
            self._after_step()
        return self._ready.popleft()

    async def _step_async(self) -> None:
        import asyncio  # here: it would double the time of import qsf

        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def set_done() -> None:
            if not done.done():
                done.set_result(None)

        def notify() -> None:
            try:
                loop.call_soon_threadsafe(set_done)
            except RuntimeError:
                pass  # the loop was closed meanwhile

        job, error = self._engine.post(self._step, self._session, notify)
        try:
            await done
        except BaseException:
            self._engine.worker.cancel(job)
            raise
        code = job.outcome()
        if code != t.CANCELLED:
            check(code, error)

    async def aclose(self) -> None:
        """close() for `contextlib.aclosing`."""
        self.close()

    # End

    @property
    def result(self) -> Completion | None:
        """The whole text and its figures, after the end; None before, and after close().

        The text is that of the tokens delivered so far and of those not yet taken.
        """
        return self._result

    def cancel(self) -> None:
        """Ends the generation, within about one weight tile where it computes, with the stop reason
        "cancelled". Any thread may call it, and a signal handler."""
        self._engine.cancel(self._session)

    def close(self) -> None:
        """Ends the generation and drops tokens not taken yet. Idempotent."""
        self._ready.clear()
        self._close_handles()

    def _close_handles(self) -> None:
        self._generation.close()
        if self._owns_session:
            self._session.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a stream cannot be pickled or copied: collect its text first")
