"""The desk of an application that runs beside its server: a client of the HTTP API."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec

from schedo.client import operations
from schedo.client.asynchronous import AsyncClient
from schedo.core.backoff import PRESETS
from schedo.core.model import JobSpec, Options, Retry, Unique
from schedo.errors import Invalid, SchedoError
from schedo.wire.times import render_instant
from schedo.workers.desk import Record, Ticket


class ClientDesk:
    """Asks the server at the URL.

    Within `async with` connections are kept; without it each call makes its own, so that a program
    may enqueue from any event loop and need not close anything.
    """

    def __init__(self, url: str, token: str | None) -> None:
        self._url = url
        self._token = token
        self._kept: AsyncClient | None = None
        AsyncClient(url, token)  # a bad URL or token is refused now

    async def open(self) -> None:
        """Keep connections from now on."""
        self._kept = AsyncClient(self._url, self._token)

    async def close(self) -> None:
        """Close the connections that were kept."""
        if self._kept is not None:
            await self._kept.close()
            self._kept = None

    async def submit(self, specs: Sequence[JobSpec]) -> list[Ticket | SchedoError]:
        """Hand in jobs, durable on return; one that was refused has its error in its place."""
        requests = [render_request(spec) for spec in specs]
        async with self._client() as client:
            if len(requests) == 1:
                try:
                    return [_ticket(await client.send(operations.submit(requests[0])))]
                except SchedoError as error:
                    return [error]
            return [
                item if isinstance(item, SchedoError) else _ticket(item)
                for operation in operations.submit_many(requests)
                for item in await client.send(operation)
            ]

    async def get(self, job_id: str) -> Record:
        """Return the job as it stands."""
        async with self._client() as client:
            return await client.send(operations.get_job(job_id))

    async def wait(self, job_id: str, timeout_s: float) -> Record:
        """Return the job when it is final, or as it stands when the time is up."""
        async with self._client() as client:
            return (await client.wait(job_id, timeout_s)).record

    async def cancel(self, job_id: str) -> Record:
        """Cancel the job if it waits, ask it to stop if it runs."""
        async with self._client() as client:
            return await client.send(operations.cancel_job(job_id))

    @contextlib.asynccontextmanager
    async def _client(self) -> AsyncIterator[AsyncClient]:
        if self._kept is not None:
            yield self._kept
            return
        async with AsyncClient(self._url, self._token) as client:
            yield client


def render_request(spec: JobSpec) -> Record:
    """Return the API's request for a spec."""
    request = {
        "task": spec.task,
        "payload": msgspec.json.decode(spec.payload),
        "queue": spec.queue,
        "priority": spec.priority,
        "run_at": _instant(spec.run_at),
        "delay": _duration(spec.delay_us or None),
        "expires_at": _instant(spec.expires_at),
        "expires_in": _duration(spec.expires_in_us),
        **_render_options(spec.options),
    }
    return {name: value for name, value in request.items() if value is not None}


_DELIVERY = {None: None, False: "at_least_once", True: "at_most_once"}


def _render_options(options: Options) -> Mapping[str, Any]:
    return {
        "retry": options.retry and _render_retry(options.retry),
        "timeout": _duration(options.timeout_us),
        "delivery": _DELIVERY[options.at_most_once],
        "unique": options.unique and _render_unique(options.unique),
        "tags": options.tags or None,
        "meta": options.meta,
        "traceparent": options.traceparent,
        "tracestate": options.tracestate,
    }


def _render_retry(retry: Retry) -> object:
    for name, preset in PRESETS.items():
        if retry == preset:
            return name
    if retry.backoff == "ladder":
        raise Invalid.field("/retry", "a server knows only the ladders that have a name")
    request = {
        "max_attempts": retry.max_attempts,
        "backoff": retry.backoff,
        "initial": _duration(retry.initial_us),
        "factor": retry.factor,
        "max": _duration(retry.max_us),
        "jitter": retry.jitter,
        "until": _instant(retry.until_at),
    }
    return {name: value for name, value in request.items() if value is not None}


def _render_unique(unique: Unique) -> object:
    request = {
        "key": unique.key,
        "while": unique.states,
        "for": _duration(unique.for_us),
        "on_conflict": unique.on_conflict,
    }
    return {name: value for name, value in request.items() if value is not None}


def _ticket(record: Record) -> Ticket:
    return Ticket(record["id"], bool(record.get("conflict")))


def _instant(us: int | None) -> str | None:
    return None if us is None else render_instant(us)


def _duration(us: int | None) -> str | None:
    return None if us is None else f"{us}us"
