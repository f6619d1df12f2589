"""The active server as its control socket shows it."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from typing import TYPE_CHECKING

import schedo
from schedo.handover.listeners import ListenerPair, describe_addresses
from schedo.handover.messages import (
    Activated,
    Hello,
    LastTakeover,
    StandbyStatus,
    Status,
    Welcome,
)
from schedo.protocol.times import render_instant
from schedo.server.predecessors import name_of
from schedo.server.settings import ADMIN
from schedo.store.sqlite.schema import oldest_reader

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from schedo.server.server import Server

log = logging.getLogger("schedo")

_PREDECESSOR = "predecessor"  # the client id of the old process of an upgrade


class ActiveServer:
    """The facts about one server; handover.control.Active describes the methods."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._standbys = 0
        self._trusting: ASGIApp | None = None
        self._serving: set[asyncio.Task[None]] = set()

    def welcome(self) -> Welcome:
        return Welcome(
            version=schedo.__version__,
            schema=oldest_reader(),
            pid=os.getpid(),
            epoch=self._server.engine.health().epoch,
            takeovers=self._server.app.context.tenure.takeovers,
        )

    def status(self, standbys: list[StandbyStatus]) -> Status:
        from schedo.web.handlers.system import read_notes  # a start does not need it

        server = self._server
        health = server.engine.health()
        return Status(
            pid=os.getpid(),
            version=schedo.__version__,
            epoch=health.epoch,
            since=render_instant(server.engine.metrics.began_at),
            store=server.engine.store.path or server.config.store,
            addresses=describe_addresses(self._server.http.sockets),
            is_ready=health.ready and not server.shutdown.is_requested,
            reasons=["the server is stopping"] * server.shutdown.is_requested + health.reasons,
            takeovers=server.app.context.tenure.takeovers,
            last_takeover=self._last_takeover(),
            standbys=standbys,
            handover=server.handover,
            notes=read_notes(server.app.context, health),
        )

    def _last_takeover(self) -> LastTakeover | None:
        engine, takeover = self._server.engine, self._server.takeover
        if takeover is None:
            return None
        return LastTakeover(
            at=render_instant(engine.metrics.began_at),
            was_killed=engine.was_killed,
            took_ms=takeover.took_ms,
            steps_ms=takeover.steps_ms,
        )

    def listeners(self) -> ListenerPair:
        return self._server.find_listeners()

    def note_standbys(self, count: int) -> None:
        self._server.engine.bound_replay(count > 0)
        if count != self._standbys:
            log.info("standbys connected: %d", count)
            self._standbys = count

    def note_predecessor(self, seen_pid: int, hello: Hello) -> None:
        self._server.predecessors.watch(seen_pid, hello.worker or name_of(hello.pid))

    def serve_http(self, sock: socket.socket, *, is_trusted: bool) -> None:
        app: ASGIApp = self._server.app
        if is_trusted:
            if self._trusting is None:
                self._trusting = self._server.app.trusting(ADMIN, _PREDECESSOR)
            app = self._trusting
        task = asyncio.create_task(self._server.http.serve(sock, app))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def upgrade(self, timeout_s: float) -> Activated:
        return await self._server.upgrades.run(timeout_s)
