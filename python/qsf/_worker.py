# SPDX-License-Identifier: MIT
"""The thread that owns an engine, and the calls that wait for it.

The C interface lets one thread at a time use an engine. Here that is always the same thread, and
calls come to it in a queue, first in, first out. So

- the calling thread waits in Python, where a signal reaches it: Ctrl-C cancels the call, which
  returns within about one weight tile, and is raised then;
- no Python lock is held while the engine computes, and none is taken in a callback;
- threads that the engine binds to cores (`pin`) stay what they are.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from . import _types
from .errors import Cancelled, Caught, InvalidArgument

# Signals end a wait by themselves where the main thread receives them; the slice is for the others.
SLICE_S = 0.05


class Job(Caught):
    """A call for the worker: `call` returns a qsf_code, or raises."""

    __slots__ = ("call", "cancellable", "cancelled", "code", "done", "notify", "owner",
                 "queued", "_finished")

    def __init__(self, call: Callable[[], int], owner: object = None, cancellable: bool = True,
                 notify: Callable[[], None] | None = None) -> None:
        self.call: Callable[[], int] | None = call
        self.owner = owner
        self.cancellable = cancellable
        self.notify = notify
        self.queued = False
        self.cancelled = False
        self.done = False
        self.code = _types.OK
        super().__init__()
        self._finished = threading.Lock()
        self._finished.acquire()

    def wait(self) -> None:
        """Waits for the end. An exception of a signal handler passes through."""
        while not self.done:
            self._finished.acquire(timeout=SLICE_S)

    def wait_uninterrupted(self) -> None:
        """Waits for the end, whatever signals come."""
        while not self.done:
            try:
                self._finished.acquire(timeout=SLICE_S)
            except BaseException:  # noqa: B036  a second Ctrl-C: the first one is raised soon
                continue

    def finish(self) -> None:
        self.call = self.owner = None  # what they hold is freed by the caller's thread
        notify, self.notify = self.notify, None
        self.done = True
        self._finished.release()
        if notify is not None:
            notify()

    def outcome(self) -> int:
        """Returns the code of the call, or raises what it raised."""
        self.reraise()
        return self.code


class Worker:
    """One thread with a queue of jobs."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        # Reentrant: a signal handler may cancel while the thread that it interrupts does.
        self._guard = threading.RLock()
        self._running: Job | None = None
        self._cancel: Callable[[], None] | None = None
        self._stray = False
        self._stopped = False
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def is_current(self) -> bool:
        """True on the worker's own thread: in a callback of the engine."""
        return threading.get_ident() == self._thread.ident

    def set_cancel(self, cancel: Callable[[], None] | None) -> None:
        """Sets what stops the engine's call in progress."""
        with self._guard:
            self._cancel = cancel

    def post(self, job: Job) -> Job:
        """Queues a job and returns at once.

        Raises:
            InvalidArgument: the worker was stopped.
        """
        with self._guard:
            if self._stopped:
                raise InvalidArgument("model: closed")
            job.queued = True
            self._jobs.put(job)
        return job

    def run(self, call: Callable[[], int], owner: object = None, cancellable: bool = True) -> int:
        """Queues a call and waits for its end.

        Returns:
            its code.

        Raises:
            InvalidArgument: in a callback of the same engine.
            BaseException: what the call raised; or a signal handler, after the call was cancelled.
        """
        if self.is_current():
            raise InvalidArgument(
                "model: called by one of its own callbacks, which may only cancel, tokenize and "
                "read; let the callback return first")
        job = Job(call, owner, cancellable)
        try:
            self.post(job)
            job.wait()
        except BaseException:
            if job.queued:
                self.cancel(job)
                job.wait_uninterrupted()
            raise
        return job.outcome()

    def cancel(self, job: Job) -> None:
        """Stops a job: at its next weight tile when it runs, before its start when it waits."""
        with self._guard:
            job.cancelled = True
            self._stop(job)

    def cancel_running(self, owner: object = None) -> None:
        """Stops the job in progress; with an owner, only one of this owner."""
        with self._guard:
            job = self._running
            if job is not None and (owner is None or job.owner is owner):
                job.cancelled = True
                self._stop(job)

    def stop(self, last: Job | None = None) -> None:
        """Cancels the job in progress, runs those that wait and `last`, and ends the thread.

        Waits for it, except on the worker itself. Idempotent.
        """
        with self._guard:
            if not self._stopped:
                self._stopped = True
                self.cancel_running()
                if last is not None:
                    self._jobs.put(last)
                self._jobs.put(None)
        if not self.is_current():
            self._thread.join()

    def _stop(self, job: Job) -> None:
        if job is self._running and job.cancellable and self._cancel is not None:
            self._cancel()

    def _serve(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                return
            self._perform(job)
            job.finish()

    def _perform(self, job: Job) -> None:
        with self._guard:
            if job.cancelled and job.cancellable:
                job.keep(Cancelled("cancelled before it began"))
                return
            self._running = job
        try:
            job.code = self._call(job)
        except BaseException as error:  # noqa: B036  it belongs to the thread that waits
            job.keep(error)
        with self._guard:
            self._running = None
            # The engine stops its next call where a request came after the end of this one.
            if job.cancelled and job.code != _types.CANCELLED:
                self._stray = True

    def _call(self, job: Job) -> int:
        assert job.call is not None
        code = job.call()
        # Not asked for: it was meant for an earlier job. The call has changed nothing.
        if code == _types.CANCELLED and self._stray and not job.cancelled:
            self._stray = False
            code = job.call()
        return code
