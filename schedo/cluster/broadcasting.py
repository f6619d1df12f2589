"""Broadcasts in a cluster: a job for each worker, at whichever servers the workers are.

The server that leads makes the jobs for all remote workers, because those run jobs of any server.
The workers of a server itself run only its own jobs, so each other server makes a part: the jobs
for its own workers.

With an Idempotency-Key, each part has a key of its own, made from the number of its server. Then
the server that leads makes the jobs for its own workers as such a part, too: another one may lead
when the request is repeated.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from schedo.cluster.client_request import ClientRequest, read_whole, to_response
from schedo.cluster.gathering import GATHER_S
from schedo.cluster.hops import OWN_PERMISSION, OwnRequest
from schedo.cluster.servers import Servers
from schedo.core.worker_messages import WorkerStatus
from schedo.errors import PeerUnreachable, SchedoError, Unsatisfiable
from schedo.protocol.problems import ProblemResponse
from schedo.store.cluster import Member
from schedo.web.context import AppContext
from schedo.web.elsewhere import name_missing
from schedo.web.http import Response, problem_response
from schedo.web.idempotency import HEADER, read_key

_STATUSES = msgspec.json.Decoder(list[WorkerStatus])
# A server of the version before refuses a status with further fields; nothing here needs them.
_FIELDS_SENT = WorkerStatus._fields.index("reserved")


class _Items(msgspec.Struct):
    items: list[msgspec.Raw]


async def broadcast(servers: Servers, asked: ClientRequest) -> Response:
    """Return the jobs of all servers, those of this one first; raise Unsatisfiable if none."""
    others = servers.others()
    nothing: Unsatisfiable | None = None
    try:
        own = await read_whole(await asked.here())
    except Unsatisfiable as error:
        nothing, own = error, Response(207, msgspec.json.encode(_Items([])))
    if own.status >= 400:
        return own
    submitting = [_submit_part(asked, member) for member in others]
    if asked.request.find_header(HEADER) is not None:
        me = servers.cluster.me
        place = sum(member.no < me.no for member in others)  # whichever server leads
        others.insert(place, me)
        submitting.insert(place, _submit_own_part(asked, me))
    parts = await asyncio.gather(*submitting)
    items = [item for part in (own, *parts) if part is not None for item in _read_items(part)]
    missing = [member.name for member, part in zip(others, parts, strict=True) if part is None]
    if nothing is not None and not items:
        if missing:
            raise PeerUnreachable(f"these servers did not respond: {', '.join(missing)}; {nothing}")
        raise nothing
    return name_missing(Response(207, msgspec.json.encode(_Items(items)), own.headers), missing)


def _read_items(part: Response) -> list[msgspec.Raw]:
    """Return what came of a part; a server without such workers has made nothing."""
    if part.status < 400:
        return msgspec.json.decode(part.body, type=_Items).items
    if part.status == Unsatisfiable.status:
        return []
    problem = msgspec.json.decode(part.body, type=ProblemResponse)
    return [msgspec.Raw(msgspec.json.encode({"status": part.status, "problem": problem}))]


async def _submit_part(asked: ClientRequest, member: Member) -> Response | None:
    """Let another server make the jobs for its own workers; None: it cannot be reached."""
    try:
        return to_response(await _make_part(asked, member).send(member, "confirm"))
    except PeerUnreachable:
        return None
    except SchedoError as error:
        return problem_response(error, asked.request.id)


async def _submit_own_part(asked: ClientRequest, me: Member) -> Response:
    """Make the jobs for the workers of this server itself."""
    part = _make_part(asked, me)
    part = replace(part, request=part.request._replace(confirms=True, home_shards=()))
    try:
        return await read_whole(await part.here())
    except SchedoError as error:
        return problem_response(error, asked.request.id)


def _make_part(asked: ClientRequest, member: Member) -> ClientRequest:
    """Return the request for the workers of one server, with a key of its own."""
    request = asked.request
    headers = dict(request.headers)
    key = read_key(request.find_header(HEADER))
    if key is not None:
        headers[HEADER] = hashlib.sha256(f"{key} {member.no}".encode()).hexdigest().encode()
    return replace(asked, request=request._replace(headers=headers))


async def list_remote_workers(servers: Servers) -> list[WorkerStatus]:
    """Return the remote workers that the other servers know, without what they run."""
    lists = await asyncio.gather(*(_ask_for_workers(servers, each) for each in servers.others()))
    return [worker for found in lists for worker in found]


async def _ask_for_workers(servers: Servers, member: Member) -> Sequence[WorkerStatus]:
    own = OwnRequest("GET", "/v1/workers", "broadcast", OWN_PERMISSION)
    try:
        async with asyncio.timeout(GATHER_S):
            response = await servers.send(member, "confirm", own)
        return _STATUSES.decode(response.body) if response.status == 200 else ()
    except (SchedoError, TimeoutError, msgspec.MsgspecError):  # it is gone, or of an older version
        return ()


def describe_remote_workers(context: AppContext) -> Response:
    """Return the remote workers of this server, for another one that broadcasts."""
    found = [
        worker._replace(runs=())[:_FIELDS_SENT]
        for worker in context.engine.sessions.list(runs_max=0)
        if worker.kind == "remote"
    ]
    return Response(200, msgspec.json.encode(found))
