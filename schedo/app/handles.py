"""The handle that `enqueue` returns: the state, the result and the cancel of one job."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast, get_type_hints

import msgspec

from schedo.client.errors import job_failed
from schedo.core.ids import render_id
from schedo.core.states import FINAL, State
from schedo.tasks.arguments import decode_custom
from schedo.tasks.backend import Backend, Record, run_sync

# The longest wait of one request for the end of a job.
POLL_S = 20.0
T_co = TypeVar("T_co", covariant=True)


class JobHandle(msgspec.Struct, Generic[T_co], frozen=True, eq=False):
    """A submitted job; with `is_conflict`, the existing job that holds the unique key.

    The methods whose names end with _sync are for code that is not async.
    """

    # A struct, because `enqueue_many` makes thousands: it takes a quarter of a plain class's time.
    _backend: Backend
    _function: Callable[..., Any]
    _number: int
    is_conflict: bool

    @property
    def id(self) -> str:
        return render_id(self._number)

    def __repr__(self) -> str:
        return f"JobHandle({self.id!r})"

    async def status(self) -> Record:
        """Return the current record of the job, with the fields of `GET /v1/jobs/{id}`."""
        return await self._backend.get(self.id)

    async def cancel(self) -> Record:
        """Cancel a waiting job, or request a running one to stop; return its new record."""
        return await self._backend.cancel(self.id)

    async def result(self, timeout: float | None = None) -> T_co:  # noqa: ASYNC109
        """Wait for the end of the job and return the result of its handler.

        Raise JobFailed, JobCancelled, or TimeoutError after `timeout` seconds.
        """
        try:
            async with asyncio.timeout(timeout) as limit:
                record = await self._backend.wait(self.id, POLL_S)
                while record["state"] not in FINAL:
                    record = await self._backend.wait(self.id, POLL_S)
        except TimeoutError:
            if not limit.expired():
                raise
            raise TimeoutError(
                f"job {self.id} has not ended after {timeout:g} s;"
                f" `schedo jobs why {self.id}` says what it waits for"
            ) from None
        if record["state"] == State.COMPLETED:
            return cast(T_co, _read_result(self._function, record.get("result")))
        raise job_failed(record)

    def status_sync(self) -> Record:
        """Return the current record of the job; see status."""
        return run_sync(self._backend, self.status())

    def cancel_sync(self) -> Record:
        """Cancel the job; see cancel."""
        return run_sync(self._backend, self.cancel())

    def result_sync(self, timeout: float | None = None) -> T_co:
        """Wait for the end of the job and return its result; see result."""
        return run_sync(self._backend, self.result(timeout))


def _read_result(function: Callable[..., Any], result: Any) -> Any:
    """Convert the result to the annotated type, or return plain JSON data if that fails."""
    wanted = _find_return_type(function)
    if wanted is None:
        return result
    try:
        return msgspec.convert(result, wanted, str_keys=True, dec_hook=decode_custom)
    except (msgspec.ValidationError, TypeError):
        return result


@functools.lru_cache(maxsize=1_024)
def _find_return_type(function: Callable[..., Any]) -> Any:
    try:
        return get_type_hints(function, include_extras=True).get("return")
    except (NameError, AttributeError, TypeError, SyntaxError):
        return None
