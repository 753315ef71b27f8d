# SPDX-License-Identifier: MIT
"""The exceptions of the package: one tree below Error, each also the built-in of its kind."""

from __future__ import annotations

from . import _types


class Error(Exception):
    """What every failure of the engine is. The message says where, what is wrong and what to do."""


class InvalidArgument(Error, ValueError):
    """A value is out of range, or a call is not possible now."""


class NotFound(Error, FileNotFoundError):
    """There is no such file."""


class Corrupt(Error):
    """Data is damaged or contradicts itself."""


class Unsupported(Error, NotImplementedError):
    """A valid request that this version, or this model, cannot serve."""


class OutOfBudget(Error, MemoryError):
    """Something does not fit the memory budget or the context.

    Attributes:
        needed: bytes of the smallest budget that works; None where no budget was the reason.
        budget: bytes of the budget that is too small; None alike.
    """

    needed: int | None = None
    budget: int | None = None


class IoError(Error, OSError):
    """The operating system refused a read or a write."""


class Cancelled(Error):
    """cancel() was called, or the model closed, while the call ran."""


class Internal(Error):
    """A bug of the library, or a small allocation failed."""


class Caught:
    """An exception that another thread or a callback raised, for who waits for it."""

    __slots__ = ("error",)

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def keep(self, error: BaseException) -> None:
        """Keeps the first one."""
        self.error = self.error or error

    def reraise(self) -> None:
        """Raises it, if there is one, and drops it: its traceback holds the frames that saw it."""
        if self.error is not None:
            error, self.error = self.error, None
            try:
                raise error
            finally:
                del error


_OF_CODE: dict[int, type[Error]] = {
    _types.INVALID_ARGUMENT: InvalidArgument,
    _types.NOT_FOUND: NotFound,
    _types.CORRUPT: Corrupt,
    _types.UNSUPPORTED: Unsupported,
    _types.OUT_OF_BUDGET: OutOfBudget,
    _types.IO: IoError,
    _types.CANCELLED: Cancelled,
}


def from_code(code: int, message: str) -> Error:
    """Returns the exception of a qsf_code that is not QSF_OK."""
    return _OF_CODE.get(code, Internal)(message)
