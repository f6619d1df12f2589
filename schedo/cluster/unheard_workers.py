"""Workers that hold leases of this server, and of which it hears nothing.

A worker behind a load balancer may poll another server with each request. If the response with its
leases is lost on the way, its lists do not have them, so no gateway sends a list to this server.
Then this server asks the others for what these workers run when they poll next. A lease that is not
in such a list starts again.
"""

from __future__ import annotations

import asyncio

import msgspec

from schedo.cluster.client_request import ClientRequest
from schedo.cluster.polling_workers import PollingWorkers
from schedo.cluster.servers import Servers
from schedo.engine.workers import Workers
from schedo.web.http import Response

ASK_S = 1.0
WORKERS_MAX = 256  # in one question; the next one, a second later, names the following ones


class _Question(msgspec.Struct):
    server: int  # which asks
    workers: list[str]


_QUESTION = msgspec.json.Decoder(_Question)


class UnheardWorkers:
    """Asks the other servers for what these workers run."""

    def __init__(self, servers: Servers, workers: Workers) -> None:
        self._servers, self._workers = servers, workers
        self._place = 0  # how many have been named

    async def look(self) -> None:
        """Ask them, if there is such a worker; a look each second does it."""
        members = self._servers.others()
        names = self._workers.list_unheard() if members else []
        if names:
            first = self._place % len(names)
            self._place += WORKERS_MAX
            named = (names[first:] + names[:first])[:WORKERS_MAX]
            question = _Question(self._servers.cluster.me.no, named)
            body = msgspec.json.encode(question)
            asking = (self._servers.ask(each, "lists", body, dict, ASK_S) for each in members)
            await asyncio.gather(*asking)


def note_doubts(asked: ClientRequest, workers: PollingWorkers) -> Response:
    """Send the asking server what these workers run; those that wait here poll again at once."""
    question = _QUESTION.decode(asked.request.body)
    for name in question.workers:
        poll = workers.doubt(name, question.server)
        if poll is not None:
            poll.end()
    return Response(200, b"{}")
