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
    printed = run_program("import { Worker } from 'INDEX'; console.log(new Worker().name)")

    assert printed.startswith(f"{socket.gethostname()[:100]}-")


def test_a_client_says_why_no_address_of_a_name_can_be_reached(worker_command: Command) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

    printed = run_program(
        f"""
        import dns from 'node:dns';
        import {{ Client }} from 'INDEX';
        const addresses = [{{ address: '127.0.0.1', family: 4 }}, {{ address: '::1', family: 6 }}];
        dns.lookup = (host, options, done) => done(null, addresses);
        const client = new Client({{ url: 'http://localhost:{port}', retries: 0 }});
        await client.get('x').catch((error) => console.log(error.message));
        """
    )

    assert f"connect ECONNREFUSED 127.0.0.1:{port}, connect " in printed


def test_a_request_leaves_nothing_behind_at_a_signal_that_lives_on(worker_command: Command) -> None:
    printed = run_program(
        """
        import { createServer } from 'node:http';
        import { Client } from 'INDEX';
        const server = createServer((request, response) => response.end('{}'));
        await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
        const client = new Client({ url: `http://127.0.0.1:${server.address().port}` });
        const { signal } = new AbortController();
        for (let i = 0; i < 50; i += 1) await client.request('GET', '/', { signal });
        // Node keeps what depends on a signal, such as those of AbortSignal.any, in its sets.
        const fields = Object.getOwnPropertySymbols(signal).map((name) => signal[name]);
        console.log(Math.max(0, ...fields.map((field) => field?.size ?? 0)));
        server.closeAllConnections();
        server.close();
        """
    )

    assert int(printed) <= 1


def run_program(text: str) -> str:
    """Return what a program prints; INDEX in its text is the module of the SDK."""
    index = SDK / "typescript" / "dist" / "index.js"
    ran = subprocess.run(
        ["node", "--input-type=module", "--eval", text.replace("INDEX", str(index))],
        env={name: value for name, value in os.environ.items() if name != "HOSTNAME"},
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )
    return ran.stdout


@pytest.mark.e2e
class TestTypescriptWithAServer(ServerClaims):
    """Every claim, with processes and sockets only."""
