"""A server that stops breaks no connection that it has accepted, however late that came."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import pytest

from schedo.loops import new_loop
from schedo.web.server import HttpServer
from tests.passes import one_pass
from tests.web.world import World

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": new_loop}
CLOSES_WITHIN_S = 5.0


async def connect_each_pass(port: int, until: asyncio.Task[None]) -> list[socket.socket]:
    """Connect in each pass of the loop until the task ends; return those that were accepted."""
    clients = []
    while not until.done():
        client = socket.socket()
        if client.connect_ex(("127.0.0.1", port)) == 0:
            clients.append(client)
        else:
            client.close()
        await one_pass()
    return clients


async def is_closed(client: socket.socket) -> bool:
    """Whether the server closes the connection, with or without an error."""
    client.setblocking(False)
    try:
        async with asyncio.timeout(CLOSES_WITHIN_S):
            return await asyncio.get_running_loop().sock_recv(client, 1) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
    finally:
        client.close()


async def stop_while_clients_connect() -> None:
    async with World() as world:
        http = HttpServer()
        port = await http.start(world.app, "127.0.0.1", 0)

        clients = await connect_each_pass(port, asyncio.create_task(http.stop(grace_s=0.2)))
        are_closed = await asyncio.gather(*map(is_closed, clients))

    assert clients
    assert all(are_closed)


@pytest.mark.parametrize("new", LOOPS.values(), ids=LOOPS.keys())
def test_each_connection_that_comes_during_the_stop_is_closed(
    new: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    with asyncio.Runner(loop_factory=new) as runner:
        runner.run(stop_while_clients_connect())
