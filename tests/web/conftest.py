"""A fresh world for each test; tests with real sockets run on both event loops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import uvloop

from schedo.web.server import HttpServer
from tests.web.connecting import Served
from tests.web.world import World

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Use both loops where they differ: they close and pause connections in their own ways."""
    if item.path.name.startswith("test_connection"):
        return LOOPS
    return {"asyncio": LOOPS["asyncio"]}


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with World() as made:
        yield made


@pytest.fixture
async def served(world: World) -> AsyncIterator[Served]:
    server = HttpServer(connections_max=3)
    port = await server.start(world.app, "127.0.0.1", 0)
    yield world, server, port
    await server.stop(grace_s=0.2)


@pytest.fixture
async def next_served(world: World) -> AsyncIterator[Served]:
    """The new process: another engine behind a server of its own."""
    async with World() as made:
        http = HttpServer()
        port = await http.start(made.app, "127.0.0.1", 0)
        yield made, http, port
        await http.stop(grace_s=0.2)
