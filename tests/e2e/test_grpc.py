"""The gRPC port of a real server: through an upgrade, over TLS, and what it costs without it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import grpc
import grpc.aio
import pytest

from schedo.grpc import schedo_pb2 as pb
from tests.certificates import Authority
from tests.e2e.remote import find_port
from tests.e2e.server import Server, serving
from tests.e2e.test_standby import standing_by
from tests.e2e.test_upgrade import Upgraded, upgradable
from tests.grpc.calling import Client
from tests.sdk.process_worker import process_worker

pytestmark = pytest.mark.e2e

WORKER = [sys.executable, "-m", "tests.grpc.contract_worker"]


def read(path: str) -> bytes:
    return Path(path).read_bytes()


def has_protobuf(server: Server) -> bool:
    """Whether the process has loaded the library of gRPC's messages."""
    return "google/_upb" in Path(f"/proc/{server.pid}/maps").read_text()


def test_only_a_server_with_the_port_imports_grpc(tmp_path: Path) -> None:
    (tmp_path / "without").mkdir()
    (tmp_path / "with").mkdir()
    with (
        serving(tmp_path / "without") as without,
        serving(tmp_path / "with", "--grpc-port", "0") as having,
    ):
        assert (has_protobuf(without), has_protobuf(having)) == (False, True)
        assert (without.grpc_address, having.grpc_address[:10]) == ("", "127.0.0.1:")


async def test_an_upgrade_breaks_no_call_and_keeps_the_attempts_of_workers(tmp_path: Path) -> None:
    with upgradable(tmp_path, "--grpc-port", find_port()) as upgraded:
        server = upgraded.server
        client = Client(server.grpc_address)
        async with process_worker(WORKER, server.grpc_address) as worker:
            job = await client.call("Submit", task="work")
            call = await worker.called()
            submitted = await submit_during(upgraded, client)
            worker.end(call, "complete", "done")
            ended = await client.call("Get", id=job.id, wait="10s")
            assert not await worker.has_called()
        await client.channel.close()

        stored = [server.ask("GET", f"/v1/jobs/{each}")[0] for each in submitted]

    assert (ended.state, ended.result, ended.attempt) == ("completed", '"done"', 1)
    assert len(submitted) > 10
    assert set(stored) == {200}


async def submit_during(upgraded: Upgraded, client: Client) -> list[str]:
    """Submit jobs one after the other until an upgrade has ended; return their ids."""
    upgrading = asyncio.create_task(asyncio.to_thread(upgraded.upgraded))
    ids = []
    while not upgrading.done():
        ids.append((await client.call("Submit", task="none", delay="1h")).id)
    await upgrading
    return ids


async def test_a_standby_serves_on_the_grpc_port_of_a_server_that_was_killed(
    tmp_path: Path,
) -> None:
    options = ("--grpc-port", "0")
    with serving(tmp_path, *options) as active, standing_by(active, *options):
        async with process_worker(WORKER, active.grpc_address) as worker:
            client = Client(active.grpc_address)
            job = await client.call("Submit", task="work")
            call = await worker.called()
            active.kill()
            worker.end(call, "complete", "done")

            ended = await asyncio.to_thread(active.ended, job.id)  # the standby has both ports
            again = await Client(active.grpc_address).call("Get", id=job.id)
            await client.channel.close()
            assert not await worker.has_called()

    assert (ended["result"], ended["attempt"]) == ("done", 1)
    assert again.id == job.id


async def test_the_port_speaks_tls_if_the_server_does(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    options = authority.issue("server").options
    with serving(tmp_path, *options, "--grpc-port", "0") as server:
        server.tls = authority.client()
        trusted = grpc.ssl_channel_credentials(await asyncio.to_thread(read, authority.cert))
        async with grpc.aio.secure_channel(server.grpc_address, trusted) as channel:
            submit = channel.unary_unary(
                "/schedo.v1.Schedo/Submit", pb.SubmitRequest.SerializeToString, pb.Job.FromString
            )
            job = await submit(pb.SubmitRequest(task="resize"))
        plain = await Client(server.grpc_address).refused("Get", id=job.id)
        status, _ = server.ask("GET", f"/v1/jobs/{job.id}")

    assert (status, plain.code) == (200, grpc.StatusCode.UNAVAILABLE)
