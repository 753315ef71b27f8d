# SPDX-License-Identifier: MIT
"""Hooks for research: what layers compute, and which positions H2O eviction keeps.

    def show(layer):
        print(layer.number, layer.hidden().std(), layer.kv_bytes)

    def newest(candidates):
        return candidates.positions

    qsf.Model("model.qsf", on_layer=show)
    qsf.Model("model.qsf", kv_policy="h2o", kv_window=256, kv_heavy=64, kv_rank=newest)

Slow: Python runs behind every layer of every pass, with the GIL. Arrays are copies. An exception in
a hook stops the call in progress and is raised by it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Union

from . import _types as t
from ._library import check, load, sized
from .arrays import address_of, output
from .errors import Caught, InvalidArgument, Unsupported

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

PAGE_POSITIONS = 64  # of a block of keys or values

_KV_TYPES = ("f16", "f32", "8bit", "4bit", "2bit")
_DTYPES = {"f16": "<f2", "f32": "<f4"}
_KEYS, _VALUES = range(2)


class Layer:
    """A layer that a pass has computed. Usable during the call of the hook alone.

    Attributes:
        number: 0 to n_layers - 1.
        n_layers: of the model.
        n_rows: of the pass, prompts and answers together.
        hidden_size: columns of hidden().
        n_kv_heads: of keys and values of the layer's own; 0: it has none.
        head_dim: columns of keys() and values().
        k_type, v_type: how they are stored.
        kv_bytes: of keys and values that the layer keeps for the sequences of the rows.
    """

    def __init__(self, address: int) -> None:
        self._address: int | None = address
        info: t.LayerInfo = sized(t.LayerInfo())
        self._call("qsf_layer_get_info", ctypes.byref(info))
        self.number: int = info.layer
        self.n_layers: int = info.n_layers
        self.n_rows: int = info.n_rows
        self.hidden_size: int = info.hidden_size
        self.n_kv_heads: int = info.n_kv_heads
        self.head_dim: int = info.head_dim
        self.k_type = _KV_TYPES[info.k_type]
        self.v_type = _KV_TYPES[info.v_type]
        self.kv_bytes: int = info.kv_bytes
        self._rows: list[t.LayerRow] | None = None

    def tokens(self) -> NDArray[np.int32]:
        """Returns the token of each row, int32[n_rows]."""
        return self._numbers("token")

    def positions(self) -> NDArray[np.int32]:
        """Returns the position of each row in its text, int32[n_rows]."""
        return self._numbers("position")

    def sequences(self) -> NDArray[np.int32]:
        """Returns the number of each row's sequence, int32[n_rows]: one for each session."""
        return self._numbers("sequence")

    def is_generated(self) -> NDArray[np.bool_]:
        """Returns which rows are tokens of an answer, bool[n_rows]; the others are of prompts."""
        return self._numbers("is_generated").astype(bool)

    def hidden(self, out: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """Copies the residual stream behind the layer.

        Args:
            out: float32[n_rows, hidden_size] to fill; None: a new array.

        Returns:
            float32[n_rows, hidden_size]
        """
        array = output(out, (self.n_rows, self.hidden_size), "float32")
        for i, row in enumerate(self._all_rows()):
            ctypes.memmove(address_of(array[i]), row.hidden, 4 * self.hidden_size)
        return array

    def keys(self, row: int, kv_head: int) -> NDArray[np.float32]:
        """Copies the keys of the sequence of a row, up to the row's position.

        Returns:
            float32[position + 1, head_dim]; NaN where keys are not in memory (evicted, heavy
            hitters before the window, a KV cache in a file)

        Raises:
            InvalidArgument: no such row or head.
            Unsupported: a quantised type, whose rows are rotated; use kv_type "f16" or "f32".
        """
        return self._stored(row, kv_head, _KEYS, self.k_type)

    def values(self, row: int, kv_head: int) -> NDArray[np.float32]:
        """Copies the values, as keys()."""
        return self._stored(row, kv_head, _VALUES, self.v_type)

    def kv_block(self, row: int, kv_head: int, part: Literal["keys", "values"],
                 first_position: int) -> bytes | None:
        """Copies a block of 64 positions as the engine stores it, of any type.

        Returns:
            the bytes of docs/decisions/012-kv-cache-layout.md; None where it is not in memory

        Raises:
            InvalidArgument: no such row, head or block.
        """
        number = {"keys": _KEYS, "values": _VALUES}.get(part)
        if number is None:
            raise InvalidArgument(f'part: {part!r}, expected "keys" or "values"')
        return self._block(row, kv_head, number, first_position)

    def attention(self, row: int, kv_head: int,
                  out: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """Copies the attention that each position received, summed over the queries of a KV head.

        Args:
            out: float32[n] for the first n positions; None: a new array for all up to the row's.

        Returns:
            float32[position + 1], NaN where a position is evicted

        Raises:
            InvalidArgument: no such row or head.
            Unsupported: any kv_policy but "h2o". With a window as long as the context that evicts
                nothing.
        """
        n = self._position(row) + 1 if out is None else out.size
        array = output(out, (n,), "float32")
        self._call("qsf_layer_get_attention", row, kv_head, address_of(array), n)
        return array

    # Reading

    def _call(self, function: str, *arguments: Any) -> None:
        if self._address is None:
            raise InvalidArgument("layer: its hook has returned; keep what its methods return")
        error = t.Error()
        check(getattr(load(), function)(self._address, *arguments, ctypes.byref(error)), error)

    def _all_rows(self) -> list[t.LayerRow]:
        if self._address is None or self._rows is None:
            rows = []
            for i in range(self.n_rows):
                row: t.LayerRow = sized(t.LayerRow())
                self._call("qsf_layer_get_row", i, ctypes.byref(row))
                rows.append(row)
            self._rows = rows
        return self._rows

    def _numbers(self, name: str) -> NDArray[np.int32]:
        import numpy as np

        return np.array([getattr(row, name) for row in self._all_rows()], np.int32)

    def _position(self, row: int) -> int:
        if not 0 <= row < self.n_rows:
            raise InvalidArgument(f"row: {row}, expected 0 to {self.n_rows - 1}")
        return int(self._all_rows()[row].position)

    def _block(self, row: int, kv_head: int, part: int, first_position: int) -> bytes | None:
        block, n = ctypes.c_void_p(), ctypes.c_size_t()
        self._call("qsf_layer_get_kv_block", row, kv_head, part, first_position,
                   ctypes.byref(block), ctypes.byref(n))
        return ctypes.string_at(block.value, n.value) if block.value else None

    def _stored(self, row: int, kv_head: int, part: int, kv_type: str) -> NDArray[np.float32]:
        import numpy as np

        n = self._position(row) + 1
        if kv_type not in _DTYPES:
            raise Unsupported(
                f'kv_type {kv_type}: rows are rotated and quantised; use "f16" or "f32", or '
                "kv_block() for the bytes")
        array = np.full((n, self.head_dim), np.nan, np.float32)
        for first in range(0, n, PAGE_POSITIONS):
            block = self._block(row, kv_head, part, first)
            if block is None:
                continue
            numbers = np.frombuffer(block, _DTYPES[kv_type])
            rows = (numbers.reshape(self.head_dim, PAGE_POSITIONS).T if part == _KEYS
                    else numbers.reshape(PAGE_POSITIONS, self.head_dim))
            array[first:first + PAGE_POSITIONS] = rows[:n - first]
        return array


@dataclass(frozen=True)
class Candidates:
    """The positions that compete for the `kv_heavy` slots of a KV head.

    Attributes:
        layer: among those with keys and values of their own.
        kv_head: of it.
        n_kept: how many of the candidates stay.
        n_positions: of the text so far; position p was seen by n_positions - p queries.
        positions: int32[n], first those kept until now, then those that leave the window.
        attention: float32[n], received so far, summed over the queries of the head.
        ranks: float32[n], by which the engine chooses: the mean attention.
    """

    layer: int
    kv_head: int
    n_kept: int
    n_positions: int
    positions: NDArray[np.int32]
    attention: NDArray[np.float32]
    ranks: NDArray[np.float32]


LayerHook = Callable[[Layer], None]
RankHook = Callable[[Candidates], Union["ArrayLike", None]]


class Hooks(Caught):
    """The callbacks of a configuration, and the first exception in one."""

    def __init__(self, on_layer: LayerHook | None, rank: RankHook | None) -> None:
        super().__init__()
        self.cancel: Callable[[], None] | None = None  # of the engine, once it is open
        # NULL where there is none.
        self.layer_callback = t.LayerCallback(self._layer_function(on_layer) if on_layer else 0)
        self.rank_callback = t.RankCallback(self._rank_function(rank) if rank else 0)

    def _layer_function(self, hook: LayerHook) -> Callable[[int, object], int]:
        def see(address: int, _: object) -> int:
            layer = None
            try:
                layer = Layer(address)
                hook(layer)
            except BaseException as error:  # noqa: B036  raised by the call in progress
                self.keep(error)
                return 1
            finally:
                if layer is not None:
                    layer._address = layer._rows = None
            return 0

        return see

    def _rank_function(self, hook: RankHook) -> Callable[[Any, int, object], None]:
        def rank(pointer: Any, address: int, _: object) -> None:
            try:
                _rank(hook, pointer.contents, address)
            except BaseException as error:  # noqa: B036  raised by the call in progress
                self.keep(error)
                if self.cancel is not None:
                    self.cancel()

        return rank


def _rank(hook: RankHook, given: t.KvCandidates, address: int) -> None:
    import numpy as np

    n = int(given.n)
    memory = np.ctypeslib.as_array((ctypes.c_float * n).from_address(address))
    candidates = Candidates(
        given.layer, given.kv_head, given.n_kept, given.n_positions,
        np.ctypeslib.as_array(given.positions, (n,)).astype(np.int32),
        np.ctypeslib.as_array(given.attention, (n,)).astype(np.float32), memory.copy())
    ranks = hook(candidates)
    if ranks is None:
        return
    chosen = np.asarray(ranks, np.float32)
    if chosen.shape != (n,):
        raise InvalidArgument(f"kv_rank: ranks {list(chosen.shape)}, expected [{n}]")
    memory[:] = chosen
