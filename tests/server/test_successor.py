"""The new process of an upgrade whose old process dies."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from schedo.config import Config
from schedo.errors import Unavailable
from schedo.handover.predecessor import Predecessor
from schedo.server import successor
from schedo.server.server import Server
from schedo.server.start import Start
from schedo.server.successor import succeed
from schedo.store.sqlite.store import SqliteStore


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    config = Config(store=str(tmp_path / "jobs.db"))
    server = Server(config, Start(), lambda: config)
    yield server
    await server.leave()


@pytest.fixture
def dead(monkeypatch: pytest.MonkeyPatch) -> Predecessor:
    """An old process that has died at once."""
    monkeypatch.setattr(successor, "STANDBY_FIRST_S", 0.0)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    theirs.close()
    return Predecessor(ours, os.dup(2))


async def test_it_takes_the_store_of_an_old_process_that_has_died(
    server: Server, dead: Predecessor
) -> None:
    takeover = await succeed(server, dead)

    assert takeover.listeners == ((), ())
    dead.link.close()


async def test_it_ends_if_another_server_has_the_store(
    server: Server, dead: Predecessor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(successor, "ENDS_WITHIN_S", 0.1)
    assert server.store.path is not None
    other = SqliteStore(server.store.path)
    await other.open()

    with pytest.raises(Unavailable, match="another server has the store"):
        await succeed(server, dead)
    await other.close()
    dead.link.close()
