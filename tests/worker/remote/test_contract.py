"""`schedo.Worker` keeps the contract of a worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from schedo import Discard, Schedo, Snooze, Worker, report_progress
from schedo.errors import SchedoError
from schedo.protocol.leases import render_lease
from schedo.tasks.current_job import entered, find_context
from schedo.tasks.runner import AttemptContext
from tests.worker.contract import WorkerContract
from tests.worker.contract_worker import TOKEN, Call
from tests.worker.remote.server import WorkServer


class InProcess:
    """A Worker in the loop of the test."""

    def __init__(self, server: WorkServer) -> None:
        app = Schedo()
        app.task(name="work")(self._work)
        self._calls: asyncio.Queue[Call] = asyncio.Queue()
        self._contexts: dict[str, AttemptContext] = {}
        self._stops: dict[str, asyncio.Future[str]] = {}
        self._ends: dict[str, asyncio.Future[Any]] = {}
        self._worker = Worker(
            app, server=server.url, token=TOKEN, name="w1", slots=2, tasks=["work"], grace="60s"
        )
        self._run = asyncio.create_task(self._worker.run())

    async def _work(self) -> Any:
        context = find_context()
        assert context is not None
        lease = render_lease(context.lease.key)
        self._contexts[lease] = context
        self._ends[lease] = asyncio.get_running_loop().create_future()
        self._stops[lease] = asyncio.get_running_loop().create_future()
        self._calls.put_nowait(Call(lease, {}))
        try:
            return await self._ends[lease]
        except asyncio.CancelledError:
            self._stops[lease].set_result(str(context.stop.reason))
            raise

    async def called(self) -> Call:
        async with asyncio.timeout(10):
            return await self._calls.get()

    async def has_called(self) -> bool:
        await asyncio.to_thread(bool)  # meanwhile the loop runs what is ready
        return not self._calls.empty()

    async def stopped(self, call: Call) -> str:
        async with asyncio.timeout(10):
            return await self._stops[call.lease]

    def end(self, call: Call, how: str, value: Any = None) -> None:
        end = self._ends[call.lease]
        if how == "complete":
            end.set_result(value)
            return
        errors = {"fail": RuntimeError, "snooze": Snooze, "discard": Discard}
        end.set_exception(errors[how](value))

    def progress(self, call: Call, **update: Any) -> None:
        with entered(self._contexts[call.lease]):
            report_progress(**update)

    def stop(self) -> None:
        self._worker.stop()

    def stop_now(self) -> None:
        self._worker.stop_now()

    async def ended(self) -> str:
        async with asyncio.timeout(10):
            try:
                await self._run
            except SchedoError as error:
                return str(error)
        return ""

    async def close(self) -> None:
        self._run.cancel()
        await asyncio.gather(self._run, return_exceptions=True)


class TestWorker(WorkerContract):
    @pytest.fixture
    async def worker(self, server: WorkServer) -> AsyncIterator[InProcess]:
        worker = InProcess(server)
        yield worker
        await worker.close()
