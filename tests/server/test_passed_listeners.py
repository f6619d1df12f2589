"""A server whose listeners are those of the server before needs a token if others reach them."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from schedo.config import Config, Secret
from schedo.errors import Invalid
from schedo.handover.link import Link
from schedo.handover.listeners import ListenerPair
from schedo.handover.messages import Hello
from schedo.handover.predecessor import Predecessor
from schedo.server.server import Server
from schedo.server.start import PLAIN_START
from schedo.server.successor import succeed


@pytest.fixture
def everywhere() -> Iterator[ListenerPair]:
    """The listeners of a server that other machines reach."""
    with socket.create_server(("0.0.0.0", 0)) as listener:
        yield ListenerPair([listener])


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    """A server whose settings name an address that only this machine reaches, and no token."""
    config = Config(store=str(tmp_path / "jobs.db"))
    server = Server(config, PLAIN_START, lambda: config)
    yield server
    await server.leave()


async def test_listeners_that_only_this_machine_reaches_need_no_token(
    server: Server, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.2", 0)) as near, socket.socket(socket.AF_UNIX) as local:
        local.bind(str(tmp_path / "api.sock"))

        server.passed_listeners.take(ListenerPair([near, local], [near]), server.config)


async def test_a_new_process_without_a_token_does_not_replace_a_server_that_others_reach(
    server: Server, everywhere: ListenerPair
) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    old = Link(ours)
    predecessor = Predecessor(theirs, os.dup(2))

    succeeding = asyncio.create_task(succeed(server, predecessor))
    await old.expect(Hello)
    everywhere.pass_by(old.send, takes_grpc=True)

    with pytest.raises(Invalid, match=r"the server before listens there.*without a token"):
        await succeeding
    old.close()
    predecessor.link.close()


async def test_a_reload_does_not_take_the_token_from_a_server_that_others_reach(
    tmp_path: Path, everywhere: ListenerPair, caplog: pytest.LogCaptureFixture
) -> None:
    with_token = Config(store=str(tmp_path / "jobs.db"), token=Secret("t" * 32))
    without = Config(store=str(tmp_path / "jobs.db"))
    server = Server(with_token, PLAIN_START, lambda: without)
    server.passed_listeners.take(everywhere, server.config)

    server.reload.run()

    assert "without a token" in caplog.text
    assert server.config.token == with_token.token
    assert server.app.context.settings.anyone is None
    await server.leave()
