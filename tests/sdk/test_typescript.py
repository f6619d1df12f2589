"""The TypeScript SDK keeps the contract of a worker, and works with a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.sdk.conftest import SDK, find_built
from tests.sdk.contract_server import Command, ServerClaims
from tests.sdk.process_worker import ProcessWorker, process_worker
from tests.worker.contract import WorkerContract
from tests.worker.remote.server import WorkServer

BUILD = SDK / "typescript" / "build"


@pytest.fixture
def worker_command(capsys: pytest.CaptureFixture[str]) -> Command:
    return ["node", find_built(BUILD / "contract.js", capsys)]


@pytest.fixture
def client_command(capsys: pytest.CaptureFixture[str]) -> Command:
    return ["node", find_built(BUILD / "client.js", capsys)]


class TestTypescriptWorker(WorkerContract):
    @pytest.fixture
    async def worker(
        self, server: WorkServer, worker_command: Command
    ) -> AsyncIterator[ProcessWorker]:
        async with process_worker(worker_command, server.url) as worker:
            yield worker


@pytest.mark.e2e
class TestTypescriptWithAServer(ServerClaims):
    """Every claim, with processes and sockets only."""
