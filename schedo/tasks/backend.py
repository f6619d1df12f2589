"""The backend to which an application's code submits jobs, in every kind of process.

In an embedding program it is the engine, in a child process the socket to its server, elsewhere an
HTTP client. All three accept the same templates, return jobs in the form of the HTTP API, and raise
the same errors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from schedo.errors import SchedoError
from schedo.protocol.job_templates import JobTemplate
from schedo.protocol.jobs import SubmittedJob

Record = dict[str, Any]
T = TypeVar("T")


class Backend(Protocol):
    """Submits jobs, and returns their current state."""

    async def submit(
        self, jobs: Sequence[tuple[JobTemplate, bytes]]
    ) -> list[SubmittedJob | SchedoError]:
        """Submit jobs, each a template and a payload (JSON); all are durable on return.

        A rejected job has its error at its position in the list. The template of a broadcast comes
        alone, and makes one job for each connected worker that may run it.
        """

    async def get(self, job_id: str) -> Record:
        """Return the job in its current state."""

    async def wait(self, job_id: str, timeout_s: float) -> Record:
        """Return the job when it is final, or in its current state after the timeout."""

    async def cancel(self, job_id: str) -> Record:
        """Cancel a waiting job; request a running one to stop."""


class ThreadsafeBackend:
    """A backend of the running event loop for callers in other loops.

    A task that is a plain function runs in a thread, and its calls use that thread's own loop.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._loop = asyncio.get_running_loop()

    def run_sync(self, call: Coroutine[Any, Any, T]) -> T:
        """Run the call in the backend's loop, and return its result to this thread."""
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()

    async def submit(
        self, jobs: Sequence[tuple[JobTemplate, bytes]]
    ) -> list[SubmittedJob | SchedoError]:
        """Submit jobs; see Backend."""
        return await self._run(self._backend.submit(jobs))

    async def get(self, job_id: str) -> Record:
        """Return the job in its current state."""
        return await self._run(self._backend.get(job_id))

    async def wait(self, job_id: str, timeout_s: float) -> Record:
        """Return the job when it is final, or in its current state after the timeout."""
        return await self._run(self._backend.wait(job_id, timeout_s))

    async def cancel(self, job_id: str) -> Record:
        """Cancel a waiting job; request a running one to stop."""
        return await self._run(self._backend.cancel(job_id))

    async def _run(self, call: Coroutine[Any, Any, T]) -> T:
        if asyncio.get_running_loop() is self._loop:
            return await call
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, self._loop))


def run_sync(backend: Backend, call: Coroutine[Any, Any, T]) -> T:
    """Run a call that uses the backend to its end, from code that is not async.

    Raise RuntimeError in a thread whose event loop runs: the loop would wait for itself.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        call.close()
        raise RuntimeError(
            "a call whose name ends with _sync would block the running event loop:"
            " await the method without _sync instead"
        )
    return backend.run_sync(call) if isinstance(backend, ThreadsafeBackend) else asyncio.run(call)
