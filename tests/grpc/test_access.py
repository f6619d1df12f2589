"""Calls need the same tokens and roles as requests of HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import grpc
import pytest

from schedo.grpc import schedo_pb2 as pb
from schedo.protocol.roles import Role
from schedo.web.permissions import TokenPermission, digest
from schedo.web.settings import WebSettings
from tests.grpc.calling import Client, Served, serving
from tests.web.world import World

CODE = grpc.StatusCode
ADMIN, VIEWER, WORKER = (f"sesame-sesame-{name}" for name in ("admin", "viewer", "worker"))
TOKENS = {
    digest(ADMIN): TokenPermission(Role.ADMIN, "admin"),
    digest(VIEWER): TokenPermission(Role.VIEWER, "viewer"),
    digest(WORKER): TokenPermission(Role.WORKER, "worker", queues=frozenset({"images"})),
}


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    settings = WebSettings(tokens=TOKENS, anyone=None)
    async with World(settings) as world, serving(world, ADMIN) as made:
        yield made


def client_with(served: Served, token: str | None) -> Client:
    return Client(served.client.address, token)


async def test_a_call_without_the_right_token_is_refused(served: Served) -> None:
    refused = [
        await client_with(served, token).refused("Get", id="01K3ZQ8XJ5V00")
        for token in (None, "sesame-sesame-wrong")
    ]

    assert [each.code for each in refused] == [CODE.UNAUTHENTICATED] * 2
    assert [each.reason for each in refused] == ["unauthorized"] * 2


async def test_a_role_permits_what_it_permits_over_http(served: Served) -> None:
    viewer = client_with(served, VIEWER)
    job = await served.client.call("Submit", task="resize", delay="1h")

    refused = await viewer.refused("Submit", task="resize")

    assert (await viewer.call("Get", id=job.id)).id == job.id
    assert (refused.code, "needs the role operator" in refused.detail) == (
        CODE.PERMISSION_DENIED,
        True,
    )


async def test_a_worker_gets_jobs_of_its_queues_only(served: Served) -> None:
    worker = client_with(served, WORKER).work()
    await worker.ask(worker="w1", session="s", slots=2)
    await served.client.call("Submit", task="resize")
    await served.client.call("Submit", task="resize", queue="images")
    stranger = client_with(served, WORKER).work()
    await stranger.send(worker="w2", queues=["default"])

    assert [lease.queue for lease in (await worker.next()).leases] == ["images"]
    assert (await stranger.ended())[0] == CODE.PERMISSION_DENIED


async def test_the_stream_of_a_worker_ends_when_its_token_is_removed(served: Served) -> None:
    worker = client_with(served, WORKER).work()
    await worker.ask(worker="w1", session="s", queues=["images"])
    app = served.world.app
    app.use(replace(app.context.settings, tokens={digest(ADMIN): TOKENS[digest(ADMIN)]}))

    await worker.send(progress=[pb.Progress(lease="01K3ZQ8XJ5V00.1.7", percent=1)])

    assert (await worker.ended())[0] == CODE.UNAUTHENTICATED


async def test_a_large_message_is_not_received_without_a_token(served: Served) -> None:
    refused = await client_with(served, None).refused("Submit", task="a", payload="x" * 8_000_000)

    assert refused.code == CODE.UNAUTHENTICATED


async def test_a_server_without_tokens_answers_to_its_own_names_only() -> None:
    async with World() as world, serving(world) as served:
        channel = grpc.aio.insecure_channel(
            served.client.address, [("grpc.default_authority", "evil.example")]
        )
        served.client.channel = channel

        refused = await served.client.refused("Get", id="01K3ZQ8XJ5V00")

    assert (refused.code, refused.reason) == (CODE.PERMISSION_DENIED, "misdirected")
