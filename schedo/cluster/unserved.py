"""Which due jobs of this server the workers of the others could run.

The verdict, the long waits and the metrics say what waits for a worker, and must not wait for other
servers themselves. So this server asks the others once a second, while it has jobs that none of its
own workers can run or that wait for long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from schedo.cluster.client_request import ClientRequest
from schedo.cluster.servers import Servers
from schedo.core.model import ReadyKey
from schedo.core.remote_reasons import Others, RemoteReasons
from schedo.engine.sharing import jobs_in_steps
from schedo.engine.workers import Workers
from schedo.protocol.reading import Steps
from schedo.web.http import Response

ASK_S = 1.0  # until it is unknown what a server says
KEYS_MAX = 256  # in one question; jobs of the others count as if no server had a worker for them
_KEYS_IN_A_STEP = 16


class _Question(msgspec.Struct):
    waiting: list[ReadyKey]  # of jobs that wait for long
    unserved: list[ReadyKey]  # of jobs that no worker of the asking server can run


class _Response(msgspec.Struct):
    waiting: list[RemoteReasons]
    served: list[bool]


_QUESTION = msgspec.json.Decoder(_Question)


class UnservedJobs:
    """Asks the other servers about the jobs of this one."""

    def __init__(self, servers: Servers, workers: Workers) -> None:
        self._servers, self._workers = servers, workers

    async def look(self) -> None:
        """Ask them, if there is such a job; a look each second does it."""
        members = self._servers.others()
        if not members:
            self._workers.elsewhere.note({}, None)
            return
        waiting, unserved = self._workers.list_waiting_keys()
        asked = unserved[:KEYS_MAX]
        found: Sequence[_Response | None] = []
        if waiting or asked:
            body = msgspec.json.encode(_Question([*waiting], [*asked]))
            asking = (self._servers.ask(each, "served", body, _Response, ASK_S) for each in members)
            found = await asyncio.gather(*asking)
        said = {m.name: each for m, each in zip(members, found, strict=False) if each is not None}
        served = {
            key
            for each in said.values()
            for key, is_served in zip(asked, each.served, strict=False)
            if is_served
        }
        missing = [member.name for member in members if member.name not in said]
        others = {
            key: Others(
                self._servers.cluster.me.name,
                {name: each.waiting[place] for name, each in said.items()},
                missing,
            )
            for place, key in enumerate(waiting)
        }
        self._workers.elsewhere.note(others, {*unserved} - served)


async def say_what_is_served(asked: ClientRequest) -> Response:
    """Return what the remote workers that poll this server could run for another one."""
    question = _QUESTION.decode(asked.request.body)
    workers = asked.context.engine.sessions
    waiting = [workers.explain_remote(key, only_able=True) for key in question.waiting]
    served = await jobs_in_steps(_look(workers, question.unserved))
    return Response(200, msgspec.json.encode(_Response(waiting, served)))


def _look(workers: Workers, keys: Sequence[ReadyKey]) -> Steps[list[bool]]:
    served: list[bool] = []
    for key in keys:
        served.append(bool(workers.explain_remote(key, only_able=True).workers))
        if len(served) % _KEYS_IN_A_STEP == 0:
            yield
    return served
