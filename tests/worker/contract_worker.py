"""A worker that a test leads, and what the claims of the contract have in common."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple, Protocol

from tests.worker.remote.server import Exchange, WorkServer, lease_of, lease_text

TOKEN = "sesame-sesame-1234"


class Call(NamedTuple):
    """A handler that has begun."""

    lease: str
    payload: Any


class ContractWorker(Protocol):
    """A worker that the test leads."""

    async def called(self) -> Call:
        """Return the next handler that begins."""

    async def has_called(self) -> bool:
        """Whether a handler has begun that called() has not returned."""

    async def stopped(self, call: Call) -> str:
        """Wait until the handler is asked to stop; return why."""

    def end(self, call: Call, how: str, value: Any = None) -> None:
        """End the handler: "complete" with a result, "snooze", "fail" or "discard" with a text."""

    def progress(self, call: Call, **update: Any) -> None:
        """Let the handler report progress: `percent` and `message`, or `log`."""

    def stop(self) -> None:
        """Let the worker drain and end."""

    def stop_now(self) -> None:
        """Let the worker end without waiting for its handlers."""

    async def ended(self) -> str:
        """Wait for the end of the worker; return its error, or an empty text."""


async def begin(server: WorkServer, worker: ContractWorker, count: int = 1) -> list[Call]:
    """Give this many leases to the worker and wait until it runs them."""
    leases = [lease_of(payload={}, lease=lease_text(number + 1)) for number in range(count)]
    (await server.next_poll()).answer(leases=leases)
    calls = [await worker.called() for _ in leases]
    return sorted(calls)


async def answer_until_the_end(server: WorkServer, worker: ContractWorker) -> list[dict[str, Any]]:
    """Respond to every request until the worker has ended without an error; return the results."""
    results: list[dict[str, Any]] = []
    ended = asyncio.create_task(worker.ended())
    while not ended.done():
        request = asyncio.create_task(server.next_request())
        await asyncio.wait((request, ended), return_when=asyncio.FIRST_COMPLETED)
        if request.done():
            results += request.result().results
            request.result().answer()
        else:
            request.cancel()
    assert await ended == ""
    return results


async def next_with_results(server: WorkServer, count: int) -> Exchange:
    """Respond to the requests without results; return the first one with `count` of them."""
    while True:
        exchange = await server.next_request()
        if len(exchange.results) == count:
            return exchange
        exchange.answer()


async def next_idle_poll(server: WorkServer) -> Exchange:
    """Respond to requests until a poll says that nothing runs; return it."""
    for _ in range(10):  # responses on two connections can arrive in any order
        exchange = await server.next_request()
        if exchange.is_poll and not exchange.body["running"]:
            return exchange
        exchange.answer()
    raise AssertionError("every poll lists an attempt")


async def next_result(server: WorkServer) -> dict[str, Any]:
    """Respond to requests until one brings a result; return it."""
    exchange = await next_with_results(server, 1)
    exchange.answer()
    return exchange.results[0]
