"""A process that has passed its store on: it ends what it runs, and what its connections send.

That is the old process of an upgrade, or a server that stops beside a standby. It has neither the
store nor the listener any more. Its attempts are those of a worker of the new
server (worker/drainer.py); the requests on its open connections are forwarded (web/forwarding.py).
It ends with the last of them.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from schedo.core.limits import SECOND
from schedo.engine.freezing import Frozen
from schedo.errors import SchedoError
from schedo.handover.http_way import HttpWay
from schedo.protocol.query import WAIT_US_MAX
from schedo.store.sqlite.schema import newest_schema
from schedo.web.forwarding import Forwarder
from schedo.web.server import FORWARDING_IDLE_S
from schedo.worker.drainer import Drainer
from schedo.worker.successor_backend import SuccessorBackend

if TYPE_CHECKING:
    from schedo.server.server import Server

log = logging.getLogger("schedo")

# For the clients of this process to close their connections. A wait for a job that has just begun
# ends before that, and idle connections are closed much sooner.
CONNECTIONS_S = WAIT_US_MAX / SECOND + 10.0
STOPPING_IDLE_S = 1.0  # after which a process that must end soon closes a connection


class Replaced:
    """A server whose place another process has taken."""

    def __init__(self, server: Server, worker: str, frozen: Frozen) -> None:
        """worker: the name by which the new server knows this process."""
        self._server = server
        assert server.store.path is not None, "a store in memory cannot be passed on"
        self._way = HttpWay(server.store.path, newest_schema(), worker)
        self._drainer = Drainer(
            worker, server.engine.freezing, frozen.held, partial(self._way.open, is_trusted=True)
        )
        self._backend = SuccessorBackend(partial(self._way.open, is_trusted=True))
        server.workers.follow(self._backend)
        server.http.pass_on(Forwarder(partial(self._way.open, is_trusted=False)))
        server.grpc.pass_on()

    async def stop(self, grace_s: float) -> None:
        """Return when the attempts have ended, at the latest when the grace time is over."""
        asyncio.get_running_loop().call_later(grace_s, self._server.workers.stop_now)
        await self._drain(grace_s + STOPPING_IDLE_S, STOPPING_IDLE_S)

    async def drain(self) -> None:
        """Return when all attempts have ended, however long they take, and all connections."""
        await self._drain(CONNECTIONS_S, FORWARDING_IDLE_S)

    async def _drain(self, connections_s: float, idle_s: float) -> None:
        count = len(self._drainer.attempts)
        log.info("this process now only ends what it runs: %d attempts", count)
        workers = asyncio.create_task(self._server.workers.drain(None))
        connections = asyncio.create_task(self._server.http.wait_closed(connections_s, idle_s))
        passing = asyncio.create_task(self._drainer.pass_on())
        ending = asyncio.create_task(self._drainer.run())
        try:
            await asyncio.wait((ending, passing), return_when=asyncio.FIRST_COMPLETED)
            (ending if ending.done() else passing).result()
        except SchedoError as error:
            log.error("the attempts of this process are lost: %s", error)
            self._server.workers.stop_now()
        await asyncio.gather(workers, connections, self._server.grpc.stop(connections_s))
        for task in (passing, ending):
            task.cancel()
        await asyncio.gather(passing, ending, return_exceptions=True)
        await self._backend.close()
        self._way.close()
