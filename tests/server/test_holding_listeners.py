"""A server that cannot begin to hold its requests keeps its listeners."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from schedo.config import Config
from schedo.handover.messages import UpgradeFailed
from schedo.server.passing import pass_store
from schedo.server.server import Server
from schedo.server.start import PLAIN_START
from schedo.systemd import Inherited, Notifier
from tests.server.test_passing import Recipient, check_served


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    config = Config(store=str(tmp_path / "jobs.db"), host="localhost", port=0)
    server = Server(config, PLAIN_START, lambda: config)
    await server.open()
    await server.attach()
    await server.bind(Inherited())
    second = socket.create_server(("127.0.0.1", 0))
    server._bound.append(second)
    await server.listen(Notifier({}))
    yield server
    await server.stop()


def addresses(server: Server) -> list[object]:
    return [sock.getsockname() for sock in server.http.sockets]


async def test_without_a_free_descriptor_nothing_changes(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = addresses(server)
    descriptors = os.listdir("/proc/self/fd")
    dup = socket.socket.dup
    copies: list[socket.socket] = []

    def dup_once(sock: socket.socket) -> socket.socket:
        if copies:
            raise OSError(errno.EMFILE, "Too many open files")
        copies.append(dup(sock))
        return copies[0]

    with monkeypatch.context() as patched:
        patched.setattr(socket.socket, "dup", dup_once)
        with pytest.raises(UpgradeFailed, match="Too many open files"):
            await pass_store(server, Recipient(UpgradeFailed("it is not asked")))

    assert copies[0].fileno() < 0
    assert addresses(server) == before
    assert len(os.listdir("/proc/self/fd")) == len(descriptors)
    await check_served(server)


async def test_a_server_that_resumes_at_once_keeps_its_listeners(server: Server) -> None:
    before = addresses(server)
    has_begun = asyncio.Event()
    holding = asyncio.create_task(server.http.hold(has_begun.set))
    await has_begun.wait()

    await server.http.resume()
    await holding

    assert addresses(server) == before
    await check_served(server)


async def test_a_server_that_has_held_listens_at_the_same_addresses_again(server: Server) -> None:
    before = addresses(server)
    await server.http.hold(lambda: None)

    await server.http.resume()
    await server.http.resume()  # it holds nothing now

    assert addresses(server) == before
    await check_served(server)
