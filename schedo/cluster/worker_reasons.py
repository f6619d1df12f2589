"""What the remote workers of all servers say about a job that waits at one of them.

The owner of the job sends the ready key to each other server. That one answers for the workers
which poll it, because only it knows how many of their slots are free.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar

import msgspec
from msgspec.json import decode

from schedo.cluster.client_request import ClientRequest
from schedo.cluster.gathering import GATHER_S
from schedo.cluster.hops import OwnRequest, Purpose
from schedo.cluster.servers import Servers
from schedo.core.model import ReadyKey
from schedo.core.remote_reasons import ALONE, Others, RemoteReasons
from schedo.errors import SchedoError
from schedo.protocol.roles import Role
from schedo.store.cluster import Member
from schedo.web.http import Response
from schedo.web.permissions import TokenPermission

T = TypeVar("T")
_PERMISSION = TokenPermission(Role.ADMIN, "cluster")  # no client asks
_KEY = msgspec.json.Decoder(ReadyKey)


async def explain_workers(servers: Servers, ready_key: ReadyKey) -> Others:
    """Return what all other servers say about their remote workers and jobs of the ready key."""
    members = servers.others()
    if not members:
        return ALONE
    body = msgspec.json.encode(ready_key)
    asking = (ask(servers, each, "why", body, RemoteReasons, GATHER_S) for each in members)
    found = await asyncio.gather(*asking)
    answers = dict(zip((member.name for member in members), found, strict=True))
    said = {name: reasons for name, reasons in answers.items() if reasons is not None}
    return Others(servers.cluster.me.name, said, [name for name in answers if name not in said])


async def ask(
    servers: Servers, member: Member, purpose: Purpose, body: bytes, kind: type[T], limit_s: float
) -> T | None:
    """Return what a server says; None: it does not respond, or is too old to know of this."""
    own = OwnRequest("POST", "/v1/work", purpose, _PERMISSION, body)
    try:
        async with asyncio.timeout(limit_s):
            response = await servers.send(member, purpose, own)
        return decode(response.body, type=kind) if response.status == 200 else None
    except (SchedoError, TimeoutError, msgspec.MsgspecError):
        return None


def explain_own_workers(asked: ClientRequest) -> Response:
    """Return what the remote workers that poll this server say, for the owner of a job."""
    ready_key = _KEY.decode(asked.request.body)
    found = asked.context.engine.sessions.explain_remote(ready_key)
    return Response(200, msgspec.json.encode(found))
