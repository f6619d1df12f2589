"""What the remote workers of all servers say about a job that waits at one of them.

The owner of the job sends the ready key to each other server. That one answers for the workers
which poll it, because only it knows how many of their slots are free.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from schedo.cluster.gathering import GATHER_S
from schedo.cluster.hops import OwnRequest
from schedo.core.model import ReadyKey
from schedo.core.remote_reasons import ALONE, Others, RemoteReasons
from schedo.errors import SchedoError
from schedo.protocol.roles import Role
from schedo.store.cluster import Member
from schedo.web.http import Response
from schedo.web.permissions import TokenPermission

if TYPE_CHECKING:
    from schedo.cluster.client_request import ClientRequest
    from schedo.cluster.router import Router

_PERMISSION = TokenPermission(Role.ADMIN, "cluster")  # no client asks
_KEY, _REASONS = msgspec.json.Decoder(ReadyKey), msgspec.json.Decoder(RemoteReasons)


async def explain_workers(router: Router, ready_key: ReadyKey) -> Others:
    """Return what all other servers say about their remote workers and jobs of the ready key."""
    members = router.others()
    if not members:
        return ALONE
    own = OwnRequest("POST", "/v1/work", "why", _PERMISSION, msgspec.json.encode(ready_key))
    found = await asyncio.gather(*(_ask(router, member, own) for member in members))
    answers = dict(zip((member.name for member in members), found, strict=True))
    said = {name: reasons for name, reasons in answers.items() if reasons is not None}
    return Others(router.cluster.me.name, said, [name for name in answers if name not in said])


async def _ask(router: Router, member: Member, own: OwnRequest) -> RemoteReasons | None:
    """Return what a server says; None: it does not respond, or is too old to know of this."""
    try:
        async with asyncio.timeout(GATHER_S):
            response = await router.send(member, "why", own)
        return _REASONS.decode(response.body) if response.status == 200 else None
    except (SchedoError, TimeoutError, msgspec.MsgspecError):
        return None


def explain_own_workers(asked: ClientRequest) -> Response:
    """Return what the remote workers that poll this server say, for the owner of a job."""
    ready_key = _KEY.decode(asked.request.body)
    found = asked.context.engine.sessions.explain_remote(ready_key)
    return Response(200, msgspec.json.encode(found))
