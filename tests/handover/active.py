"""An active server without a store, behind a real control socket."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from schedo.handover.control import Control
from schedo.handover.listeners import ListenerPair, close_sockets
from schedo.handover.messages import (
    Activated,
    Hello,
    StandbyStatus,
    Status,
    UpgradeFailed,
    Welcome,
)
from schedo.server.control import ControlSocket

SCHEMA = 7
NOW = "2026-11-22T19:00:00Z"


class FakeActive:
    """An active server that listens on one port."""

    def __init__(self) -> None:
        self.sockets = [socket.create_server(("127.0.0.1", 0))]
        self.grpc_sockets: list[socket.socket] = []
        self.counts: list[int] = []  # of standbys, in the order of the changes
        self.predecessors: list[tuple[int, str]] = []

    def __enter__(self) -> FakeActive:
        return self

    def __exit__(self, *_: object) -> None:
        close_sockets([*self.sockets, *self.grpc_sockets])

    def welcome(self) -> Welcome:
        return Welcome(version="1.0", schema=SCHEMA, pid=os.getpid(), epoch=3, takeovers=2)

    def status(self, standbys: list[StandbyStatus]) -> Status:
        return Status(
            pid=os.getpid(),
            version="1.0",
            epoch=3,
            since=NOW,
            store="/jobs.db",
            addresses=["127.0.0.1:1"],
            is_ready=True,
            reasons=[],
            takeovers=2,
            last_takeover=None,
            standbys=standbys,
        )

    def listeners(self) -> ListenerPair:
        return ListenerPair(self.sockets, self.grpc_sockets)

    def note_standbys(self, count: int) -> None:
        self.counts.append(count)

    def note_predecessor(self, seen_pid: int, hello: Hello) -> None:
        self.predecessors.append((seen_pid, hello.worker))

    def serve_http(self, sock: socket.socket, *, is_trusted: bool) -> None:
        with sock:
            sock.send(b"trusted" if is_trusted else b"client")

    async def upgrade(self, timeout_s: float) -> Activated:
        if timeout_s > 10:
            raise UpgradeFailed("the new process has failed")
        return Activated(pid=7, version="2.0", epoch=4, took_ms=12.0, steps_ms={"freeze": 12.0})


class Served(NamedTuple):
    """An active server and its control socket."""

    active: FakeActive
    socket: ControlSocket
    path: str  # of the store

    @property
    def control_path(self) -> str:
        return self.path + ".ctl"


@asynccontextmanager
async def serving(active: FakeActive, path: Path) -> AsyncIterator[Served]:
    control = ControlSocket(lambda: Control(active), str(path))
    control.open()
    try:
        yield Served(active, control, str(path))
    finally:
        await control.close()


def make_status(**changes: object) -> StandbyStatus:
    fields: dict[str, object] = {
        "pid": os.getpid(),
        "version": "1.0",
        "since": NOW,
        "is_warm": False,
    }
    return StandbyStatus(**{**fields, **changes})  # type: ignore[arg-type]


async def no_notes(_: Sequence[str]) -> list[str]:
    return []


def take_all(_: ListenerPair) -> None:
    """Take the listeners, whatever their addresses are."""


def open_descriptors() -> set[str]:
    """Return what the descriptors of this process are open on, but for the listing itself."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add(f"{name} {os.readlink(f'/proc/self/fd/{name}')}")
        except FileNotFoundError:
            continue  # the descriptor of the listing
    return found


Check = Callable[[], bool]
