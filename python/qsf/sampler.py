# SPDX-License-Identifier: MIT
"""Samplers, which draw from logits of the caller."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from . import _types as t
from ._library import check
from .arrays import address_of, output
from .errors import InvalidArgument
from .sampling import Callbacks, GenerateOptions, check_names, sampling_struct

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from typing_extensions import Unpack

    from ._engine import Engine


class Sampler:
    """Draws tokens from logits with the steps of a generation, made by Model.sampler. It remembers
    the tokens it was told of, for penalties and DRY.

    Threads: one at a time.
    """

    def __init__(self, engine: Engine, n_vocab: int, **options: Unpack[GenerateOptions]) -> None:
        check_names(options)
        if "grammar" in options or "json_schema" in options:
            raise InvalidArgument("sampler: draws without a grammar; generate() has them")
        self._n_vocab, self._callbacks = n_vocab, Callbacks()
        keep: list[object] = []
        struct = sampling_struct(engine, options, self._callbacks, keep)
        create = engine.lib.qsf_sampler_create
        self._handle = engine.create(
            "qsf_sampler_free",
            lambda out, error: int(create(engine.check_open(), struct, out, error)), keep=keep)

    def sample(self, logits: NDArray[np.float32]) -> int:
        """Draws a token; accept() it to let the penalties know.

        Args:
            logits: float32[n_vocab], contiguous.
        """
        array = output(logits, (self._n_vocab,), "float32")
        token, error = ctypes.c_int(), t.Error()
        with self._handle.engine.text():
            code = self._handle.engine.lib.qsf_sampler_sample(
                self._handle.address, address_of(array), ctypes.byref(token), error)
        self._callbacks.reraise()
        check(code, error)
        return token.value

    def accept(self, token: int) -> None:
        """Adds a token, of the prompt or drawn, to those that the penalties look at."""
        error = t.Error()
        with self._handle.engine.text():
            check(self._handle.engine.lib.qsf_sampler_accept(self._handle.address, token, error),
                  error)

    def reset(self, seed: int | None = None) -> None:
        """Drops the accepted tokens and draws as from the start; with a seed, with this one."""
        lib = self._handle.engine.lib
        with self._handle.engine.text():
            lib.qsf_sampler_reset(self._handle.address)
            if seed is not None:
                lib.qsf_sampler_set_seed(self._handle.address, seed)

    def close(self) -> None:
        """Frees it. Idempotent."""
        self._handle.close()
