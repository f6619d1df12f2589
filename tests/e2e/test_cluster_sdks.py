"""The workers of the SDKs and of gRPC with a cluster, as they are for one server.

A load balancer is before the servers: each new connection reaches the next one.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster.link import Link, Streams
from tests.e2e.server import Server, eventually
from tests.e2e.serving_cluster import serving_cluster
from tests.sdk.conftest import SDK, find_built
from tests.sdk.process_worker import process_worker

pytestmark = pytest.mark.e2e

Command = Sequence[str]
SLOTS = 2  # of each worker


def find_go(capsys: pytest.CaptureFixture[str]) -> Command:
    return [find_built(SDK / "go" / "build" / "contract", capsys)]


def find_typescript(capsys: pytest.CaptureFixture[str]) -> Command:
    return ["node", find_built(SDK / "typescript" / "build" / "contract.js", capsys)]


def find_grpc(capsys: pytest.CaptureFixture[str]) -> Command:
    return [sys.executable, "-m", "tests.grpc.contract_worker"]


@asynccontextmanager
async def balancing(ports: Sequence[int]) -> AsyncIterator[str]:
    """Listen before these ports during the block; yield the host and the port."""
    turns = cycle(ports)

    async def connect_next() -> Streams:
        for _ in ports:
            with suppress(OSError):
                return await asyncio.open_connection("127.0.0.1", next(turns))
        raise ConnectionRefusedError("no server accepts a connection")

    balancer = Link(connect_next)
    await balancer.open()
    try:
        yield f"127.0.0.1:{balancer.port}"
    finally:
        await balancer.close()


def wait_for_ends(server: Server, jobs: Sequence[str]) -> list[dict[str, Any]]:
    """Wait for the ends of the jobs and return their records."""

    def records() -> list[dict[str, Any]]:
        return [server.ask("GET", f"/v1/jobs/{job}")[1] for job in jobs]

    eventually(lambda: all(each["state"] == "completed" for each in records()), "the ends")
    return records()


@pytest.mark.parametrize("find_command", [find_typescript, find_go, find_grpc])
async def test_a_worker_behind_a_load_balancer_keeps_its_attempts_when_a_server_dies(
    find_command: Callable[[pytest.CaptureFixture[str]], Command],
    tmp_path: Path,
    url: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command, is_grpc = find_command(capsys), find_command is find_grpc
    options = ("--grpc-port", "0") if is_grpc else ()
    with serving_cluster(tmp_path, url, *options) as servers:
        addresses = [each.grpc_address if is_grpc else each.url for each in servers]
        ports = [int(each.rpartition(":")[2]) for each in addresses]
        async with balancing(ports) as address:
            target = address if is_grpc else f"http://{address}"
            async with process_worker(command, target) as worker:
                jobs = [each.submit(task="work")["id"] for each in servers[:SLOTS]]
                calls = [await worker.called() for _ in jobs]
                servers[0].kill()
                for call in calls:
                    worker.end(call, "complete", "done")

                ended = await asyncio.to_thread(wait_for_ends, servers[1], jobs)

                assert [(job["result"], job["attempt"]) for job in ended] == [("done", 1)] * SLOTS
                assert not await worker.has_called()
