"""What the remote workers of all servers say about a job that waits at one of them.

The owner of the job sends the ready key to each other server. That one answers for the workers
which poll it, because only it knows how many of their slots are free.
"""

from __future__ import annotations

import asyncio

import msgspec

from schedo.cluster.client_request import ClientRequest
from schedo.cluster.gathering import GATHER_S
from schedo.cluster.servers import Servers
from schedo.core.model import ReadyKey
from schedo.core.remote_reasons import ALONE, Others, RemoteReasons
from schedo.web.http import Response

_KEY = msgspec.json.Decoder(ReadyKey)


async def explain_workers(servers: Servers, ready_key: ReadyKey) -> Others:
    """Return what all other servers say about their remote workers and jobs of the ready key."""
    members = servers.others()
    if not members:
        return ALONE
    body = msgspec.json.encode(ready_key)
    asking = (servers.ask(each, "why", body, RemoteReasons, GATHER_S) for each in members)
    found = await asyncio.gather(*asking)
    answers = dict(zip((member.name for member in members), found, strict=True))
    said = {name: reasons for name, reasons in answers.items() if reasons is not None}
    return Others(servers.cluster.me.name, said, [name for name in answers if name not in said])


def explain_own_workers(asked: ClientRequest) -> Response:
    """Return what the remote workers that poll this server say, for the owner of a job."""
    ready_key = _KEY.decode(asked.request.body)
    found = asked.context.engine.sessions.explain_remote(ready_key)
    return Response(200, msgspec.json.encode(found))
