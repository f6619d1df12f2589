"""The old process after an upgrade: it sees through what it runs, and what its connections send.

It has neither the store nor the listener any more. Its attempts are those of a worker of the new
server (worker/drainer.py); the requests on its open connections are forwarded (web/forwarding.py).
It ends with the last of them.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from schedo.engine.freezing import Frozen
from schedo.errors import SchedoError
from schedo.handover.http_way import HttpWay
from schedo.store.sqlite.schema import newest_schema
from schedo.web.forwarding import Forwarder
from schedo.worker.drainer import Drainer
from schedo.worker.successor_backend import SuccessorBackend

if TYPE_CHECKING:
    from schedo.server.server import Server

log = logging.getLogger("schedo")

CONNECTIONS_S = 60.0  # for the clients of this process to close their connections


class Replaced:
    """A server whose place another process has taken."""

    def __init__(self, server: Server, worker: str, frozen: Frozen, successor_pid: int) -> None:
        """worker: the name by which the new server knows this process."""
        self._server = server
        self.successor_pid = successor_pid
        assert server.store.path is not None, "a store in memory cannot be passed on"
        self._way = HttpWay(server.store.path, newest_schema())
        self._drainer = Drainer(
            worker, server.engine.freezing, frozen.held, partial(self._way.open, is_trusted=True)
        )
        self._backend = SuccessorBackend(partial(self._way.open, is_trusted=True))
        server.workers.follow(self._backend)
        server.http.pass_on(Forwarder(partial(self._way.open, is_trusted=False)))

    async def drain(self) -> None:
        """Return when all attempts have ended and all connections are closed."""
        count = len(self._drainer.attempts)
        log.info("this process now only ends what it runs: %d attempts", count)
        workers = asyncio.create_task(self._server.workers.drain(None))
        connections = asyncio.create_task(self._server.http.wait_closed(CONNECTIONS_S))
        passing = asyncio.create_task(self._drainer.pass_on())
        ending = asyncio.create_task(self._drainer.run())
        try:
            await asyncio.wait((ending, passing), return_when=asyncio.FIRST_COMPLETED)
            (ending if ending.done() else passing).result()
        except SchedoError as error:
            log.error("the attempts of this process are lost: %s", error)
            self._server.workers.stop_now()
        await asyncio.gather(workers, connections)
        for task in (passing, ending):
            task.cancel()
        await asyncio.gather(passing, ending, return_exceptions=True)
        await self._backend.close()
        self._way.close()
