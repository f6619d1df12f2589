"""Another process takes the place of this one: calls wait, and none of them fails."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator
from typing import NoReturn

import pytest

from schedo.grpc import schedo_pb2 as pb
from schedo.grpc import server as server_module
from schedo.web.server import HttpServer
from tests.grpc.calling import Served, serving
from tests.web.connecting import forwarder, turn
from tests.web.world import World

_TURNS = 20  # many more than the way from a listener to a connection takes


def nothing() -> None:
    """End no waits."""


class Passing:
    """A server for both, as a process has it."""

    def __init__(self, http: HttpServer, grpc: Served) -> None:
        self.http, self.grpc = http, grpc

    async def hold(self) -> None:
        await asyncio.gather(self.http.hold(nothing), self.grpc.server.hold(nothing))


@pytest.fixture
async def passing() -> AsyncIterator[Passing]:
    async with World() as world:
        http = HttpServer()
        await http.start(world.app, "127.0.0.1", 0)
        async with serving(world, find_app=lambda: http.answering) as grpc:
            yield Passing(http, grpc)
        await http.stop(grace_s=0.2)


async def begin_call(passing: Passing) -> asyncio.Task[pb.Job]:
    """Call a server that holds; return when the call has arrived."""
    calling = asyncio.create_task(passing.grpc.client.call("Submit", task="resize", delay="1h"))
    while not any(each.streams for each in passing.grpc.server.connections):
        await turn()
    return calling


async def test_calls_wait_and_are_answered_when_the_server_goes_on(passing: Passing) -> None:
    await passing.grpc.client.call("Submit", task="resize")
    await passing.hold()
    calling = await begin_call(passing)

    await passing.http.resume()
    passing.grpc.server.resume()

    job = await calling
    assert (await passing.grpc.world.get(f"/v1/jobs/{job.id}")).status == 200


class FullSocket(socket.socket):
    """A listener of a process that has no descriptor left."""

    def accept(self) -> NoReturn:
        raise OSError(errno.EMFILE, "Too many open files")


async def test_a_pause_without_descriptors_ends_after_the_passing(
    passing: Passing, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = passing.grpc.server
    monkeypatch.setattr(server_module, "_CHECK_S", 0.0)
    with FullSocket() as full:
        server._accept_waiting(full)
    await server.hold(nothing)

    _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    for _ in range(_TURNS):
        await turn()
    assert not server.connections

    server.resume()
    while not server.connections:
        await turn()
    writer.close()


async def test_calls_that_wait_are_forwarded_to_the_next_process(passing: Passing) -> None:
    await passing.grpc.client.call("Submit", task="resize")
    await passing.hold()
    calling = await begin_call(passing)
    async with World() as following:
        http = HttpServer()
        port = await http.start(following.app, "127.0.0.1", 0)
        passing.http.pass_on(forwarder((following, http, port)))
        passing.grpc.server.pass_on()

        job = await calling

        assert (await following.get(f"/v1/jobs/{job.id}")).status == 200
        await http.stop(grace_s=0.2)


async def test_the_next_call_of_a_client_reaches_the_next_process(passing: Passing) -> None:
    client = passing.grpc.client
    await client.call("Submit", task="resize")
    kept = [sock.dup() for sock in passing.grpc.server.sockets]
    await passing.hold()
    async with World() as following, serving(following, sockets=kept):
        passing.http.pass_on(forwarder((following, passing.http, 0)))
        passing.grpc.server.pass_on()
        # A call that the client sends before it has heard of that is forwarded.
        while passing.grpc.server.connections:
            await turn()

        job = await client.call("Submit", task="resize")

        assert (await following.get(f"/v1/jobs/{job.id}")).status == 200
