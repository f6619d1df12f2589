"""Where the new process of an upgrade writes, and how it reports an error of its own."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from schedo.config import Config
from schedo.handover.listeners import ListenerPair
from schedo.handover.messages import Failed, decode
from schedo.handover.predecessor import Predecessor
from schedo.server import successor
from schedo.server.server import Server
from schedo.server.start import PLAIN_START
from schedo.server.successor import succeed


class Old(Predecessor):
    """An old process that passes no listeners."""

    has_spoken = False

    def speak(self) -> None:
        self.has_spoken = True

    async def introduce(self, schema: int, store: str) -> ListenerPair:
        return ListenerPair()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    config = Config(store=str(tmp_path / "jobs.db"))
    server = Server(config, PLAIN_START, lambda: config)
    yield server
    await server.leave()


async def test_it_speaks_before_its_children_begin_and_reports_a_bug(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    stderr = os.dup(2)
    old = Old(ours, stderr)
    had_spoken: list[bool] = []

    async def warm_up(_: Server) -> float:
        had_spoken.append(old.has_spoken)
        raise ValueError("a bug")

    monkeypatch.setattr(successor, "warm_up", warm_up)

    with pytest.raises(ValueError, match="a bug"):
        await succeed(server, old)

    assert had_spoken == [True]
    assert decode(theirs.recv(65_536)) == Failed("a bug")
    theirs.close()
    old.link.close()
    os.close(stderr)
