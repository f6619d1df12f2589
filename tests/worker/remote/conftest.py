"""A session with a server that is played by the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from schedo import report_progress
from schedo.client.async_transport import AsyncTransport
from schedo.client.messages import parse_address
from schedo.core.leases import AttemptResult, Completed, Outcome, StopReason
from schedo.tasks.current_job import enter
from schedo.tasks.runner import AttemptContext
from schedo.worker.remote.poller import Poller
from tests.worker.remote.server import WorkServer, work_server


class Hands:
    """A runner whose attempts end when and how the test says."""

    def __init__(self) -> None:
        self.calls: asyncio.Queue[AttemptContext] = asyncio.Queue()
        self._ends: dict[AttemptContext, asyncio.Future[Outcome]] = {}
        self.says: list[dict[str, object]] = []  # of its progress, when it begins
        self.result: bytes | None = None  # set: attempts end at once, with it

    async def __call__(self, call: AttemptContext) -> AttemptResult:
        enter(call)
        for said in self.says:
            report_progress(**said)  # type: ignore[arg-type]
        if self.result is not None:
            return AttemptResult(call.lease.key, Completed(self.result))
        end = self._ends[call] = asyncio.get_running_loop().create_future()
        self.calls.put_nowait(call)
        return AttemptResult(call.lease.key, await end)

    async def called(self) -> AttemptContext:
        """Return the next attempt that has begun."""
        async with asyncio.timeout(10):
            return await self.calls.get()

    def end(self, call: AttemptContext, outcome: Outcome) -> None:
        """End the attempt."""
        self._ends[call].set_result(outcome)


async def stopped(call: AttemptContext) -> StopReason:
    """Return why the attempt is told to stop, once it is."""
    async with asyncio.timeout(10):
        return await call.stop.wait()


@pytest.fixture
async def server() -> AsyncIterator[WorkServer]:
    async with work_server() as running:
        yield running


@pytest.fixture
def hands() -> Hands:
    return Hands()


class Talk:
    """A session that runs, and its end."""

    def __init__(self, session: Poller) -> None:
        self.session = session
        self.ended = asyncio.create_task(session.run())

    async def end(self) -> None:
        """Return when the session has ended; raise what it raised."""
        async with asyncio.timeout(10):
            await self.ended


@pytest.fixture
async def talk(server: WorkServer, hands: Hands) -> AsyncIterator[Talk]:
    """A worker with two slots that speaks with the server and waits for nothing."""
    offer = {"worker": "w1", "session": "s1", "slots": 2}
    transport = AsyncTransport(parse_address(server.url, None), 10)
    talk = Talk(Poller(transport, offer, {"work": hands}, lambda: 0.0))
    yield talk
    talk.ended.cancel()
    await asyncio.gather(talk.ended, return_exceptions=True)
    await talk.session.attempts.close()
    await transport.close()
