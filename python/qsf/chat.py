# SPDX-License-Identifier: MIT
"""Conversations: prompts of message lists, and chats that keep their context."""

from __future__ import annotations

import ctypes
import json
import os
import queue
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from . import _types as t
from ._library import check, sized, text_array
from ._worker import SLICE_S, Job
from .config import PathLike
from .generation import Collector, Completion
from .sampling import (
    MAX_INT, Callbacks, GenerateOptions, check_names, max_tokens_of, sampling_struct, stop_texts,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._engine import Engine, Handle

Message = Mapping[str, Any]


@dataclass(frozen=True)
class ChatPrompt:
    """The tokens of a conversation, and what ends its answer."""

    tokens: list[int]
    text: str
    end_tokens: list[int]
    end_texts: list[str]
    merges_system: bool
    tools_in_system: bool

    @classmethod
    def _make(cls, engine: Engine, messages: str | Sequence[Message],
              tools: Sequence[Mapping[str, Any]] | None, variables: Mapping[str, Any] | None,
              chat_template: str | None, add_generation_prompt: bool) -> ChatPrompt:
        lib, error, out = engine.lib, t.Error(), ctypes.c_void_p()
        listed = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        options: t.ChatPromptOptions = sized(t.ChatPromptOptions())
        lib.qsf_chat_prompt_options_init_sized(options, options.struct_size)
        for name, value in (("messages", list(listed)), ("tools", tools), ("variables", variables)):
            if value is not None:
                text = json.dumps(value).encode()
                setattr(options, name, text)
                setattr(options, name + "_bytes", len(text))
        options.chat_template = chat_template.encode() if chat_template is not None else None
        options.add_generation_prompt = add_generation_prompt
        with engine.text() as address:
            check(lib.qsf_chat_prompt_create(address, options, ctypes.byref(out), error), error)
        try:
            info: t.ChatPromptInfo = sized(t.ChatPromptInfo())
            check(lib.qsf_chat_prompt_get_info(out, info, error), error)
            return cls(
                tokens=list(info.tokens[:info.n_tokens]),
                text=ctypes.string_at(info.text, info.text_bytes).decode(),
                end_tokens=list(info.end_tokens[:info.n_end_tokens]) if info.n_end_tokens else [],
                end_texts=[each.decode() for each in info.end_texts[:info.n_end_texts]]
                if info.n_end_texts else [],
                merges_system=bool(info.merges_system), tools_in_system=bool(info.tools_in_system))
        finally:
            lib.qsf_chat_prompt_free(out)


class Chat:
    """A conversation in a session of its own, made by Model.start_chat. Only new text is computed;
    when the context is full, the oldest turns are dropped.

    Threads: any; calls queue on the model.
    """

    def __init__(self, engine: Engine, handle: Handle) -> None:
        self._engine, self._handle = engine, handle
        self._dropped_messages = 0

    @classmethod
    def _create(cls, engine: Engine, system: str | None, chat_template: str | None) -> Chat:
        options: t.ChatOptions = sized(t.ChatOptions())
        engine.lib.qsf_chat_options_init_sized(options, options.struct_size)
        if system is not None:
            text = system.encode()
            options.system, options.system_bytes = text, len(text)
        options.chat_template = chat_template.encode() if chat_template is not None else None
        create = engine.lib.qsf_chat_create
        handle = engine.create(
            "qsf_chat_free",
            lambda out, error: int(create(engine.check_open(), options, out, error)))
        return cls(engine, handle)

    def send(self, text: str, **options: Unpack[GenerateOptions]) -> Completion:
        """Sends a user's message and returns the answer, which becomes part of the chat.

        Args:
            options: sampling, stop, max_tokens (the room in the context) and on_prompt of
                qsf.GenerateOptions. A chat has no log probabilities.

        Raises:
            OutOfBudget: the message exceeds the context. The chat is unchanged on failure.
        """
        turn = _Turn(self, text, options)
        try:
            self._engine.run(turn.call, self._handle, may_stop=True)
        finally:
            turn.callbacks.reraise()
        return turn.completion()

    def stream(self, text: str, **options: Unpack[GenerateOptions]) -> Iterator[str]:
        """send() piece by piece. The engine does not wait for the reader. A reader that stops early
        cancels the answer; what was generated until then is part of the chat."""
        turn = _Turn(self, text, options)
        pieces: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        turn.pieces = pieces
        return self._pieces(turn, pieces)

    def _pieces(self, turn: _Turn, pieces: queue.SimpleQueue[str | None]) -> Iterator[str]:
        engine = self._engine
        job, error = engine.post(turn.call, self._handle, lambda: pieces.put(None))
        ended = False
        try:
            while not ended:
                try:
                    piece = pieces.get(timeout=SLICE_S)
                except queue.Empty:
                    continue
                ended = piece is None
                if piece:
                    yield piece
        finally:
            _end(engine, job)
        turn.callbacks.reraise()
        code = job.outcome()
        if code != t.CANCELLED:
            check(code, error)

    @property
    def messages(self) -> list[dict[str, str]]:
        """The messages, the system message included: [{"role": ..., "content": ...}]."""
        messages: list[dict[str, str]] = self._ask(
            lambda info: [self._message(i) for i in range(info.n_messages)])
        return messages

    @property
    def context_tokens(self) -> int:
        """Tokens in the context now."""
        return int(self._ask(lambda info: info.context_tokens))

    @property
    def dropped_messages(self) -> int:
        """Messages that the last turn dropped to make room."""
        return self._dropped_messages

    def _ask(self, read: Any) -> Any:
        info, answers = sized(t.ChatInfo()), []
        get = self._engine.lib.qsf_chat_get_info

        def call(error: t.Error) -> int:
            code: int = get(self._handle.address, info, error)
            if code == t.OK:
                answers.append(read(info))
            return code

        self._engine.run(call, self._handle)
        return answers[0]

    def _message(self, index: int) -> dict[str, str]:
        lib, error = self._engine.lib, t.Error()
        role, content = ctypes.c_char_p(), ctypes.c_void_p()
        check(lib.qsf_chat_get_message(self._handle.address, index, ctypes.byref(role),
                                       ctypes.byref(content), error), error)
        try:
            text = ctypes.string_at(content.value or 0).decode()
        finally:
            lib.qsf_string_free(content)
        return {"role": (role.value or b"").decode(), "content": text}

    def set_system(self, system: str) -> None:
        """Replaces the system message; an empty text removes it."""
        text = system.encode()
        self._handle.run("qsf_chat_set_system", text, len(text))

    def clear(self) -> None:
        """Drops all messages but the system message."""
        clear = self._engine.lib.qsf_chat_clear
        self._engine.run(lambda _: int(clear(self._handle.address) or t.OK), self._handle)

    def save(self, path: PathLike) -> None:
        """Writes messages and KV cache to a file, whole or not at all."""
        self._handle.run("qsf_chat_save", os.fsencode(path))

    def load(self, path: PathLike) -> None:
        """Reads such a file into a chat without messages."""
        self._handle.run("qsf_chat_load", os.fsencode(path))

    def cancel(self) -> None:
        """Stops the answer in progress, if there is one. Any thread may call it."""
        self._engine.cancel(self._handle)

    def close(self) -> None:
        """Frees the chat. Idempotent."""
        self._handle.close()

    def __enter__(self) -> Chat:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a chat cannot be pickled or copied: save() it")


def _end(engine: Engine, job: Job) -> None:
    """Cancels a job that has not ended, and waits for it."""
    if not job.done:
        engine.worker.cancel(job)
        job.wait_uninterrupted()


class _Turn:
    """One message and its answer, with all that C points to."""

    REFUSED = ("log_probs", "end_tokens", "ignore_end_of_text", "bos", "special", "prefix_key",
               "keep_special")

    def __init__(self, chat: Chat, text: str, options: GenerateOptions) -> None:
        check_names(options)
        for name in self.REFUSED:
            if name in options:
                raise TypeError(f"{name}: not for chats; Model.chat has it")
        engine = chat._engine
        self.callbacks = Callbacks()
        self.pieces: queue.SimpleQueue[str | None] | None = None
        self._chat, self._text = chat, text.encode()
        self._collector = Collector()
        self._keep: list[object] = []
        self._options: t.ChatSendOptions = sized(t.ChatSendOptions())
        self._result: t.ChatResult = sized(t.ChatResult())
        out = self._options
        engine.lib.qsf_chat_send_options_init_sized(out, out.struct_size)
        out.max_tokens = max_tokens_of(options, MAX_INT)
        sampling = sampling_struct(engine, options, self.callbacks, self._keep)
        out.sampling = ctypes.pointer(sampling)
        stop = stop_texts(options)
        out.stop, out.n_stop = text_array(stop), len(stop)
        out.on_token = t.TokenCallback(self._receive)
        if "on_prompt" in options:
            progress = options["on_prompt"]
            report = self.callbacks.guard(lambda done, total, _: progress(done, total))
            out.on_prompt = t.ProgressCallback(report)

    def _receive(self, token: int, text: bytes, _: object) -> None:
        # A rest comes with the id of the last token; the figures say how many tokens there are.
        self._collector.add(token, text, 0.0, (), False)
        if self.pieces is not None and text:
            self.pieces.put(text.decode())

    def call(self, error: t.Error) -> int:
        send = self._chat._engine.lib.qsf_chat_send
        code: int = send(self._chat._handle.address, self._text, len(self._text), self._options,
                         self._result, error)
        if code != t.OK:
            return code
        self._chat._dropped_messages = self._result.dropped_messages
        return t.CANCELLED if self._result.reason == t.STOP_CANCELLED else code

    def completion(self) -> Completion:
        del self._collector.tokens[self._result.generated_tokens:]
        return self._collector.completion(self._result)
