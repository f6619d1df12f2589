"""The Go SDK keeps the contract of a worker, and works with a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.sdk.conftest import SDK, find_built
from tests.sdk.contract_log import LogClaims
from tests.sdk.contract_server import Command, ServerClaims
from tests.sdk.process_worker import ProcessWorker, process_worker
from tests.worker.contract import WorkerContract
from tests.worker.contract_worker import answer_until_the_end, begin
from tests.worker.remote.server import WorkServer

BUILD = SDK / "go" / "build"


@pytest.fixture
def worker_command(capsys: pytest.CaptureFixture[str]) -> Command:
    return [find_built(BUILD / "contract", capsys)]


@pytest.fixture
def client_command(capsys: pytest.CaptureFixture[str]) -> Command:
    return [find_built(BUILD / "client", capsys)]


class TestGoWorker(WorkerContract, LogClaims):
    @pytest.fixture
    async def worker(
        self, server: WorkServer, worker_command: Command
    ) -> AsyncIterator[ProcessWorker]:
        async with process_worker(worker_command, server.url) as worker:
            yield worker

    async def test_a_result_whose_encoding_panics_fails_its_attempt_only(
        self, server: WorkServer, worker: ProcessWorker
    ) -> None:
        (call,) = await begin(server, worker)
        await server.next_poll()

        worker.end(call, "panic_as_json")
        (result,) = (await server.next_report()).results

        assert (result["outcome"], result["retryable"]) == ("failed", False)
        assert "this has no JSON" in result["error"]["message"]

    async def test_a_handler_that_ends_its_goroutine_fails_its_attempt_and_frees_its_slot(
        self, server: WorkServer, worker: ProcessWorker
    ) -> None:
        (call,) = await begin(server, worker)
        await server.next_poll()

        worker.end(call, "goexit")
        report = await server.next_report()
        (result,) = report.results
        report.answer()
        worker.stop()
        await answer_until_the_end(server, worker)  # which comes when no slot is in use

        assert (result["outcome"], result["retryable"]) == ("failed", True)
        assert "runtime.Goexit" in result["error"]["message"]


@pytest.mark.e2e
class TestGoWithAServer(ServerClaims):
    """Every claim, with processes and sockets only."""
