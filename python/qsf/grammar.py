# SPDX-License-Identifier: MIT
"""Grammars, compiled for the tokens of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._engine import Engine, Handle


class Grammar:
    """A compiled grammar; Model.grammar and Model.json_schema make one. Any number of generations
    may use it at once.

    Threads: any.
    """

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    @classmethod
    def _compile(cls, engine: Engine, kind: int, source: str) -> Grammar:
        text, create = source.encode(), engine.lib.qsf_grammar_create
        with engine.text() as address:
            handle = engine.create_now(
                "qsf_grammar_free",
                lambda out, error: create(address, kind, text, len(text), out, error))
        return cls(handle)

    def close(self) -> None:
        """Frees it once the generations that use it have ended. Idempotent."""
        self._handle.close()

    def __enter__(self) -> Grammar:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
