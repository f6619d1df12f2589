"""A poller whose server is the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest

from schedo import report_progress
from schedo.client.async_transport import AsyncTransport
from schedo.client.messages import parse_address
from schedo.core.leases import AttemptResult, Completed, Outcome, StopReason
from schedo.protocol.work import WorkRequest
from schedo.tasks.current_job import enter
from schedo.tasks.runner import AttemptContext
from schedo.worker.executor import Executor
from schedo.worker.remote.poller import Poller
from tests.worker.remote.server import WorkServer, work_server


class ManualRunner:
    """A runner whose attempts the test ends."""

    def __init__(self) -> None:
        self.calls: asyncio.Queue[AttemptContext] = asyncio.Queue()
        self._ends: dict[AttemptContext, asyncio.Future[Outcome]] = {}
        self.says: list[dict[str, object]] = []  # of its progress, when it begins
        self.result: bytes | None = None  # set: attempts end at once, with it

    async def __call__(self, context: AttemptContext) -> AttemptResult:
        enter(context)
        for said in self.says:
            report_progress(**said)  # type: ignore[arg-type]
        if self.result is not None:
            return AttemptResult(context.lease.key, Completed(self.result))
        end = self._ends[context] = asyncio.get_running_loop().create_future()
        self.calls.put_nowait(context)
        return AttemptResult(context.lease.key, await end)

    async def called(self) -> AttemptContext:
        """Return the next attempt that starts."""
        async with asyncio.timeout(10):
            return await self.calls.get()

    def end(self, context: AttemptContext, outcome: Outcome) -> None:
        self._ends[context].set_result(outcome)


async def stopped(context: AttemptContext) -> StopReason:
    """Wait for the stop of the attempt and return its reason."""
    async with asyncio.timeout(10):
        return await context.stop.wait()


@pytest.fixture
async def server() -> AsyncIterator[WorkServer]:
    async with work_server() as running:
        yield running


@pytest.fixture
def runner() -> ManualRunner:
    return ManualRunner()


def execute(runner: ManualRunner) -> partial[Executor]:
    """Return what makes the executor of a poller."""
    return partial(Executor, {"work": runner}, watches_timeouts=True)


class RunningPoller:
    """A running poller."""

    def __init__(self, poller: Poller[Executor]) -> None:
        self.poller = poller
        self.ended = asyncio.create_task(poller.run())

    async def end(self) -> None:
        """Wait for the end of run(); raise its error."""
        async with asyncio.timeout(10):
            await self.ended


@pytest.fixture
async def running(server: WorkServer, runner: ManualRunner) -> AsyncIterator[RunningPoller]:
    """A poller with two slots and without random delays."""
    registration = WorkRequest(worker="w1", session="s1", slots=2)
    transport = AsyncTransport(parse_address(server.url, None), 10)
    running = RunningPoller(Poller(transport, registration, execute(runner), lambda: 0.0))
    yield running
    running.ended.cancel()
    await asyncio.gather(running.ended, return_exceptions=True)
    await running.poller.executor.close()
    await transport.close()
