# SPDX-License-Identifier: MIT
"""NumPy's memory for the engine. NumPy is imported here, at first use, and nowhere else."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .errors import InvalidArgument

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def output(out: NDArray[Any] | None, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """Returns memory that the engine may fill: `out`, or a new array.

    Raises:
        InvalidArgument: out has another shape or type, is not contiguous, or not writeable.
    """
    import numpy as np

    if out is None:
        return np.empty(shape, dtype)
    if not isinstance(out, np.ndarray) or out.shape != shape or out.dtype != np.dtype(dtype):
        got = f"{out.dtype}{list(out.shape)}" if isinstance(out, np.ndarray) else type(out).__name__
        raise InvalidArgument(f"out: {got}, expected {dtype}{list(shape)}")
    if not (out.flags.c_contiguous and out.flags.writeable):
        raise InvalidArgument("out: expected an array that is contiguous (C) and writeable")
    return out


def address_of(array: NDArray[Any]) -> int:
    return int(array.ctypes.data)


@contextmanager
def copy_of_floats(address: int, n: int) -> Iterator[NDArray[np.float32]]:
    """float32[n] of the engine's memory; what the block changed in the copy is written back.

    A view would be faster, and dangling in the hands of a callback that keeps it.
    """
    import numpy as np

    buffer: Any = (ctypes.c_float * n).from_address(address)
    memory: NDArray[np.float32] = np.frombuffer(buffer, np.float32)
    copy = memory.copy()
    yield copy
    memory[:] = copy
