"""The example worker for gRPC does with a real server what every worker does."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.remote import find_port
from tests.e2e.server import Server, serving
from tests.grpc.contract_worker import example
from tests.sdk.contract_server import Command, WorkerServerClaims

RESULT = "x" * 1_000_000
COUNT = 9  # of such results; together they are larger than a message


@pytest.fixture
def worker_command() -> Command:
    return [sys.executable, "-m", "tests.grpc.contract_worker"]


@pytest.mark.e2e
class TestGrpcWorker(WorkerServerClaims):
    """Every claim about workers, with processes and sockets only."""

    def choose_options(self) -> list[str]:
        return ["--grpc-port", find_port()]

    def find_url(self, server: Server) -> str:
        return server.grpc_address


class Large:
    """A handler that waits until the test lets it go on, and has a result of the wanted size."""

    def __init__(self) -> None:
        self._begun: asyncio.Queue[None] = asyncio.Queue()
        self.may_end = asyncio.Event()
        self.calls = 0

    async def __call__(self, payload: int, job: Any) -> str:
        self.calls += 1
        self._begun.put_nowait(None)
        await self.may_end.wait()
        return RESULT * payload

    async def run_beside(self, server: Server, payloads: list[int]) -> list[str]:
        """Submit a job for each payload, and return their ids when all of them run."""
        jobs = [str(server.submit(task="work", payload=each)["id"]) for each in payloads]
        for _ in jobs:
            await self._begun.get()
        return jobs


@asynccontextmanager
async def working(server: Server, handler: Large) -> AsyncIterator[None]:
    worker = example.Worker(server.grpc_address, {"work": handler}, name="w1", slots=COUNT)
    running = asyncio.create_task(worker.run())
    try:
        yield
        worker.drain()
        await running
    finally:
        running.cancel()


async def ends(server: Server, jobs: list[str]) -> list[dict[str, Any]]:
    return [await asyncio.to_thread(server.ended, job) for job in jobs]


@pytest.mark.e2e
async def test_results_that_are_too_large_for_one_message_arrive_after_a_lost_connection(
    tmp_path: Path,
) -> None:
    handler = Large()
    with serving(tmp_path, "--grpc-port", find_port()) as server:
        async with working(server, handler):
            jobs = await handler.run_beside(server, [1] * COUNT)
            server.kill()
            handler.may_end.set()
            await asyncio.to_thread(server.start)

            ended = await ends(server, jobs)

    assert [(job["result"], job["attempt"]) for job in ended] == [(RESULT, 1)] * COUNT
    assert handler.calls == COUNT


@pytest.mark.e2e
async def test_a_result_that_is_too_large_for_a_message_fails_its_job_only(tmp_path: Path) -> None:
    handler = Large()
    with serving(tmp_path, "--grpc-port", "0") as server:
        async with working(server, handler):
            jobs = await handler.run_beside(server, [COUNT, 1])
            handler.may_end.set()

            large, small = await ends(server, jobs)

    assert (large["state"], large["failures"]) == ("failed", 1)
    assert large["error"]["type"] == "result-refused"
    assert "larger than 8 MiB" in large["error"]["message"]
    assert (small["result"], small["attempt"]) == (RESULT, 1)


def test_the_pause_after_thousands_of_failures_is_as_long_as_after_ten() -> None:
    assert example.longest_pause_s(1) == 0.05
    assert example.longest_pause_s(10) == example.longest_pause_s(5_000) == 5
