# SPDX-License-Identifier: MIT
"""An open engine: its handle, the handles that live in it, and who may use them when."""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from . import _types as t
from ._library import check, check_budget, load
from ._worker import Job, Worker
from .config import Config, ids_of_log_lines
from .errors import InvalidArgument

if TYPE_CHECKING:
    from .generation import Stream

_live: weakref.WeakSet[Engine] = weakref.WeakSet()

Call = Callable[[t.Error], int]


class Engine:
    """A QSFEngine and its worker.

    Threads: any. Calls that compute wait for their turn; text() and cancel() do not.
    """

    def __init__(self, path: str, config: Config) -> None:
        self.lib = load()
        self._pid = os.getpid()
        self._handle: int | None = None
        self._text = threading.RLock()
        # Address: (function that frees it, what has to live as long). Single operations alone, which
        # are atomic: handles are made on any thread, and freed on the worker.
        self._children: dict[int, tuple[Any, object]] = {}
        self.streams: weakref.WeakSet[Stream] = weakref.WeakSet()
        self._config = config  # the engine uses its callbacks
        self.worker = Worker(f"qsf {os.path.basename(path)}")
        config.hooks.cancel = self.worker.cancel_running
        try:
            self._open(path, config)
        except BaseException:
            self.worker.stop()
            raise
        _live.add(self)

    def _open(self, path: str, config: Config) -> None:
        lib, out = self.lib, ctypes.c_void_p()
        name = os.fsencode(path)

        def open_engine(error: t.Error) -> int:
            with config.handle() as handle:
                code: int = lib.qsf_engine_open(name, handle, ctypes.byref(out), error)
            check_budget(code, error)  # here: the sizes are this thread's
            return code

        try:
            self._run(open_engine, cancellable=False)
        except BaseException:
            if out.value:  # a signal came while it opened
                self.worker.run(lambda: int(lib.qsf_free(out) or 0), cancellable=False)
            raise
        handle = out.value
        assert handle is not None
        self._handle = handle
        cancel = lib.qsf_engine_cancel
        self.worker.set_cancel(lambda: cancel(handle))

    # Use

    def check_open(self) -> int:
        """Returns the handle.

        Raises:
            InvalidArgument: the engine is closed, or this process is a fork of its own.
        """
        if os.getpid() != self._pid:
            raise InvalidArgument(
                f"model: opened by process {self._pid}, and not usable in its fork {os.getpid()}; "
                "open it in the new process")
        if self._handle is None:
            raise InvalidArgument("model: closed")
        return self._handle

    def run(self, call: Call, owner: object = None, may_stop: bool = False) -> int:
        """Runs call(error) on the worker, after the calls that wait already.

        Args:
            owner: whose cancel() stops it, beside the engine's.
            may_stop: True: a cancelled call returns; False: it raises.

        Returns:
            QSF_OK; QSF_CANCELLED with may_stop alone.

        Raises:
            Error: any other code; InvalidArgument also for an engine that is closed or in use by
                this thread.
        """
        self.check_open()
        if id(self._config) in ids_of_log_lines():
            raise InvalidArgument(
                "model: called by the handler of its own log line; let the handler return first")
        return self._run(call, owner, may_stop)

    def _run(self, call: Call, owner: object = None, may_stop: bool = False,
             cancellable: bool = True) -> int:
        error = t.Error()
        code = self.worker.run(lambda: self._call(call, error), owner, cancellable)
        if not (may_stop and code == t.CANCELLED):
            check(code, error)
        return code

    def post(self, call: Call, owner: object, notify: Callable[[], None]) -> tuple[Job, t.Error]:
        """run() that does not wait: `notify` is called on the worker at the end."""
        self.check_open()
        error = t.Error()
        job = Job(lambda: self._call(call, error), owner, notify=notify)
        return self.worker.post(job), error

    def _call(self, call: Call, error: t.Error) -> int:
        code = call(error)
        self._config.hooks.reraise()
        return code

    @contextmanager
    def text(self) -> Iterator[int]:
        """The handle, for calls that any thread may make at any time. close() waits for them."""
        with self._text:
            yield self.check_open()

    def cancel(self, owner: object = None) -> None:
        """Stops the call in progress and ends the open streams; of the owner, if one is named."""
        if self._handle is not None and os.getpid() == self._pid:
            for stream in list(self.streams):
                if owner is None or stream._session is owner:
                    stream._cancelled = True
            self.worker.cancel_running(owner)

    # Handles

    def create(self, free: str, call: Callable[[Any, t.Error], int], keep: object = None) -> Handle:
        """Makes a handle on the worker: call(pointer to it, error).

        Args:
            free: name of the function that frees it.
            keep: what has to live as long.
        """
        out = ctypes.c_void_p()
        function, children = getattr(self.lib, free), self._children

        def make(error: t.Error) -> int:
            code = call(ctypes.byref(out), error)
            if out.value:
                children[out.value] = (function, keep)
            return code

        try:
            self.run(make)
        except BaseException:
            if out.value and self._handle is not None:
                Handle(self, out.value).close()
            raise
        assert out.value is not None
        return Handle(self, out.value)

    def create_now(self, free: str, call: Callable[[Any, t.Error], int]) -> Handle:
        """create() on the calling thread, within text()."""
        out, error = ctypes.c_void_p(), t.Error()
        check(call(ctypes.byref(out), error), error)
        assert out.value is not None
        self._children[out.value] = (getattr(self.lib, free), None)
        return Handle(self, out.value)

    def release(self, address: int, wait: bool) -> None:
        """Frees a handle on the worker. Without waiting it is safe in __del__, on any thread."""
        if self._handle is None or os.getpid() != self._pid:
            return
        children = self._children

        def free() -> int:
            entry = children.pop(address, None)
            if entry is not None:
                entry[0](address)
            return t.OK

        try:
            if wait and not self.worker.is_current():
                self.worker.run(free, cancellable=False)
            else:
                self.worker.post(Job(free, cancellable=False))
        except InvalidArgument:
            pass  # close() came first, and frees it

    # End

    def close(self) -> None:
        """Cancels the call in progress and frees everything; calls that wait find it closed.
        Idempotent."""
        if os.getpid() != self._pid:
            return
        if self.worker.is_current():
            raise InvalidArgument("model: closed by one of its own callbacks")
        with self._text:
            handle, self._handle = self._handle, None
        if handle is None:
            return
        self._stop(handle)

    def _stop(self, handle: int) -> None:
        lib, children, worker = self.lib, self._children, self.worker

        def free() -> int:
            worker.set_cancel(None)
            while children:
                address, (function, _) = children.popitem()
                function(address)
            lib.qsf_free(handle)
            return t.OK

        worker.stop(Job(free, cancellable=False))

    def __del__(self) -> None:
        # Perhaps on the worker itself; and perhaps incomplete after an error of __init__.
        handle = getattr(self, "_handle", None)
        if handle is not None and os.getpid() == self._pid:
            self._handle = None
            self._stop(handle)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a model cannot be pickled or copied: open it in each process")


class Handle:
    """A handle of C that lives in an engine: a session, a chat, a generation, a grammar."""

    __slots__ = ("engine", "_address")

    def __init__(self, engine: Engine, address: int) -> None:
        self.engine = engine
        self._address: int | None = address

    @property
    def address(self) -> int:
        """For the C interface.

        Raises:
            InvalidArgument: it is closed, or its engine is.
        """
        self.engine.check_open()
        if self._address is None:
            raise InvalidArgument("closed: it cannot be used any more")
        return self._address

    @property
    def is_open(self) -> bool:
        return self._address is not None and self.engine._handle is not None

    def run(self, function: str, *arguments: Any, may_stop: bool = False) -> int:
        """Engine.run() of function(handle, arguments, error), owned by the handle."""
        call = getattr(self.engine.lib, function)
        return self.engine.run(lambda error: int(call(self.address, *arguments, error)), self,
                               may_stop)

    def close(self) -> None:
        """Frees it. Idempotent."""
        address, self._address = self._address, None
        if address is not None:
            self.engine.release(address, wait=True)

    def __del__(self) -> None:
        address = getattr(self, "_address", None)
        if address is not None:
            self._address = None
            self.engine.release(address, wait=False)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a handle of a model cannot be pickled or copied; use its save()")


@atexit.register
def _close_all() -> None:
    for engine in list(_live):
        engine.close()
