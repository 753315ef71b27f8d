# SPDX-License-Identifier: MIT
"""Sessions: sequences whose context is kept between calls."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Any, NoReturn

from . import _types as t
from ._library import int_array
from .arrays import address_of, output
from .config import PathLike
from .generation import Completion, Stream, generate
from .sampling import Callbacks, GenerateOptions, Prompt, tokenize_flags

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from typing_extensions import Unpack

    from ._engine import Engine, Handle


class Session:
    """One sequence of a model, made by Model.session. Counts toward Model's `sessions`.

    Threads: any; calls queue on the model.

    >>> with model.session() as session:
    ...     _ = session.generate("Once upon a time", max_tokens=8)
    ...     branch = session.fork()
    ...     more = branch.generate("", max_tokens=8)
    """

    def __init__(self, engine: Engine, handle: Handle, n_vocab: int) -> None:
        self._engine, self._handle, self._n_vocab = engine, handle, n_vocab

    def generate(self, prompt: Prompt = "", **options: Unpack[GenerateOptions]) -> Completion:
        """Completes a prompt behind the session's text. An empty one continues the text.

        Args:
            prompt: text, or token ids that are taken as they are.
            options: see qsf.GenerateOptions.

        Raises:
            OutOfBudget: the prompt does not fit the context. The session is unchanged.
        """
        return generate(self._engine, self._handle, prompt, options)

    def stream(self, prompt: Prompt = "", **options: Unpack[GenerateOptions]) -> Stream:
        """generate() token by token. Until the stream has ended, other calls that use the session
        raise InvalidArgument."""
        return Stream(self._engine, self._handle, prompt, options)

    def prefill(self, prompt: Prompt, *, logits: bool = False,
                out: NDArray[np.float32] | None = None) -> NDArray[np.float32] | None:
        """Appends a prompt.

        Args:
            logits: True: returns those after the last token.
            out: float32[n_vocab] for them.

        Returns:
            float32[n_vocab], or None.

        Raises:
            OutOfBudget: the context is full. Cancelled. The session is unchanged.
        """
        tokens = int_array(self._tokens_of(prompt))
        array = output(out, (self._n_vocab,), "float32") if logits or out is not None else None
        memory = None if array is None else address_of(array)
        self._handle.run("qsf_session_prefill", tokens, len(tokens), memory)
        return array

    def logits(self, prompt: Prompt, *,
               out: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """Appends a prompt.

        Args:
            out: float32[n_tokens, n_vocab], or None for a new array.

        Returns:
            float32[n_tokens, n_vocab]: the logits after each of its tokens.

        Raises:
            OutOfBudget: the context is full. Cancelled. The session is unchanged.
        """
        ids = self._tokens_of(prompt)
        tokens, n = int_array(ids), self._n_vocab
        array: NDArray[np.float32] = output(out, (len(ids), n), "float32")
        base, callbacks = address_of(array), Callbacks()

        def copy(row: int, first: int, values: int, n_logits: int, _: object) -> None:
            ctypes.memmove(base + 4 * (row * n + first), values, 4 * n_logits)

        callback = t.LogitsCallback(callbacks.guard(copy))
        self._handle.run("qsf_session_prefill_logits", tokens, len(tokens), callback, None)
        callbacks.reraise()
        return array

    def step(self, token: int, *, logits: bool = True,
             out: NDArray[np.float32] | None = None) -> NDArray[np.float32] | None:
        """Appends one token as a generated row.

        Returns:
            float32[n_vocab]: the logits after it; None with logits=False.
        """
        array = output(out, (self._n_vocab,), "float32") if logits or out is not None else None
        memory = None if array is None else address_of(array)
        self._handle.run("qsf_session_step", token, memory)
        return array

    def _tokens_of(self, prompt: Prompt) -> Any:
        from .model import encode

        if isinstance(prompt, str):
            return encode(self._engine, prompt, tokenize_flags(bos=len(self) == 0, special=False))
        return prompt

    def __len__(self) -> int:
        """Tokens in the context."""
        length, lengths = self._engine.lib.qsf_session_length, []

        def ask(_: t.Error) -> int:
            lengths.append(length(self._handle.address))
            return t.OK

        self._engine.run(ask, self._handle)
        return int(lengths[0])

    def __bool__(self) -> bool:
        """True, also without tokens."""
        return True

    @property
    def tokens(self) -> list[int]:
        """The tokens of the context, without a last one that was not computed yet."""
        capacity = len(self) + 1
        ids, n = (ctypes.c_int * capacity)(), ctypes.c_size_t()
        self._handle.run("qsf_session_get_tokens", ids, capacity, ctypes.byref(n))
        return list(ids[:n.value])

    def visible_positions(self, layer: int, kv_head: int) -> list[int]:
        """The positions that a prompt token appended now would attend to in a layer and KV head."""
        capacity = len(self) + 1
        positions, n = (ctypes.c_int * capacity)(), ctypes.c_size_t()
        self._handle.run("qsf_session_visible_positions", layer, kv_head, positions, capacity,
                         ctypes.byref(n))
        return list(positions[:n.value])

    def truncate(self, n_tokens: int) -> None:
        """Keeps the first n_tokens tokens.

        Raises:
            InvalidArgument: there are fewer, or the KV policy evicted what the next one needs.
        """
        self._handle.run("qsf_session_truncate", n_tokens)

    def set_adapter(self, adapter: int, scale: float = 1.0) -> None:
        """Chooses the LoRA adapter (1, 2, ...; 0 is none) of a session without tokens."""
        self._handle.run("qsf_session_set_adapter", adapter, scale)

    def fork(self) -> Session:
        """Returns a session with the same text, which shares its pages of the KV cache.

        Raises:
            OutOfBudget: the model has `sessions` sessions already, or no free page.
        """
        fork, origin = self._engine.lib.qsf_session_fork, self._handle
        handle = self._engine.create("qsf_session_free",
                                     lambda out, error: int(fork(origin.address, out, error)))
        return Session(self._engine, handle, self._n_vocab)

    def save(self, path: PathLike) -> None:
        """Writes tokens, keys and values to a file, whole or not at all; replaces an old one.

        Raises:
            InvalidArgument: there are no tokens. IoError. Cancelled.
        """
        self._handle.run("qsf_session_save", os.fsencode(path))

    def load(self, path: PathLike) -> None:
        """Reads such a file into an empty session, which continues with the same numbers.

        Raises:
            NotFound, Corrupt. InvalidArgument: saved by another model or with other settings.
            OutOfBudget: longer than the context.
        """
        self._handle.run("qsf_session_load", os.fsencode(path))

    def cancel(self) -> None:
        """Stops this session's call in progress, if there is one. Any thread may call it."""
        self._engine.cancel(self._handle)

    def close(self) -> None:
        """Frees the session. Idempotent."""
        self._handle.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a session cannot be pickled or copied: save() it, or fork() it")
