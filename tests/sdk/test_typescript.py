"""The TypeScript SDK keeps the contract of a worker, and works with a real server."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import AsyncIterator

import pytest

from tests.sdk.conftest import SDK, find_built
from tests.sdk.contract_log import LogClaims
from tests.sdk.contract_server import Command, ServerClaims
from tests.sdk.process_worker import ProcessWorker, process_worker
from tests.worker.contract import WorkerContract
from tests.worker.contract_worker import begin
from tests.worker.remote.server import WorkServer

BUILD = SDK / "typescript" / "build"


@pytest.fixture
def worker_command(capsys: pytest.CaptureFixture[str]) -> Command:
    return ["node", find_built(BUILD / "contract.js", capsys)]


@pytest.fixture
def client_command(capsys: pytest.CaptureFixture[str]) -> Command:
    return ["node", find_built(BUILD / "client.js", capsys)]


class TestTypescriptWorker(WorkerContract, LogClaims):
    @pytest.fixture
    async def worker(
        self, server: WorkServer, worker_command: Command
    ) -> AsyncIterator[ProcessWorker]:
        async with process_worker(worker_command, server.url) as worker:
            yield worker

    @pytest.mark.parametrize("what", ["bare", "message", "name", "stack"])
    async def test_whatever_a_handler_throws_fails_its_attempt_only(
        self, server: WorkServer, worker: ProcessWorker, what: str
    ) -> None:
        (call,) = await begin(server, worker)
        await server.next_poll()

        worker.end(call, "throw", what)
        (result,) = (await server.next_report()).results

        assert (result["lease"], result["outcome"]) == (call.lease, "failed")
        assert isinstance(result["error"]["message"], str)

    async def test_a_line_of_a_log_or_a_message_can_be_any_value(
        self, server: WorkServer, worker: ProcessWorker
    ) -> None:
        (call,) = await begin(server, worker)
        await server.next_poll()

        worker.progress(call, message=["page", 4])
        worker.progress(call, log=7)

        report = await server.next_report()
        assert report.body["progress"] == [{"lease": call.lease, "message": "page,4", "log": "7"}]


def test_the_name_of_a_worker_begins_with_that_of_its_host(worker_command: Command) -> None:
    module = SDK / "typescript" / "dist" / "index.js"
    program = f"import {{ Worker }} from '{module}'; console.log(new Worker().name)"
    environment = {name: value for name, value in os.environ.items() if name != "HOSTNAME"}

    ran = subprocess.run(
        ["node", "--input-type=module", "--eval", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )

    assert ran.stdout.startswith(f"{socket.gethostname()[:100]}-")


@pytest.mark.e2e
class TestTypescriptWithAServer(ServerClaims):
    """Every claim, with processes and sockets only."""
