"""What all servers of a cluster respond to one request, as one response."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus

import orjson

from schedo.client.messages import HttpResponse
from schedo.cluster.client_request import ClientRequest, read_whole, to_response
from schedo.cluster.merging import MERGERS, Merge
from schedo.cluster.worker_lists import Record
from schedo.errors import BadRequest, NotFound, PeerUnreachable
from schedo.store.cluster import Member
from schedo.web.elsewhere import name_missing
from schedo.web.http import Response

log = logging.getLogger("schedo.cluster")

GATHER_S = 2.0  # until the response is made without a server that has not responded
_IF_NONE_MATCH, _ETAG = b"if-none-match", b"etag"
_MISFITS = (LookupError, TypeError, ValueError)


async def gather(asked: ClientRequest, own_name: str, others: Sequence[Member]) -> Response:
    """Return the response of this server with those of the others in it.

    The header `schedo-unreachable` has the names of the servers that did not respond, or whose
    response has another form. A server that finds the request wrong has nothing; if all do, it is.
    """
    if not others:
        return await asked.here()
    asked = asked.without_header(_IF_NONE_MATCH)  # it is about the whole response
    asking = [asyncio.ensure_future(_ask(asked, member)) for member in others]
    try:
        own = await _carry_out(asked)
        found = await asyncio.gather(*asking, return_exceptions=True)
    finally:
        for each in asking:
            each.cancel()
    responses = {} if isinstance(own, BadRequest) else {own_name: own}
    missing = []
    for member, response in zip(others, found, strict=True):
        status = 0 if isinstance(response, BaseException) else response.status
        if isinstance(response, HttpResponse) and status == HTTPStatus.OK:
            responses[member.name] = to_response(response)
        elif status != BadRequest.status:
            missing.append(member.name)
    if isinstance(own, BadRequest) and not responses:
        raise own
    return combine(asked, responses, missing)


def combine(
    asked: ClientRequest, responses: Mapping[str, Response], missing: Sequence[str] = ()
) -> Response:
    """Return one response for those of the servers, which are given by name.

    missing: the servers that have not responded.
    """
    without = [*missing]
    bodies = {server: response.body for server, response in responses.items()}
    merged = _merge(MERGERS[asked.operation.name], bodies, without)
    first = next(iter(responses.values()))
    headers = tuple((name, value) for name, value in first.headers if name != _ETAG)
    whole = first._replace(body=orjson.dumps(merged), headers=headers)
    return name_missing(whole, without)


def _merge(merge: Merge, bodies: Mapping[str, bytes], missing: list[str]) -> Record:
    """Return one response; a server whose body does not fit is added to the missing ones.

    A server of another version may respond without a field that this version needs.
    """
    try:
        return merge(_parse(bodies), missing)
    except _MISFITS:
        first, *others = bodies
        for server in others:
            try:
                merge(_parse({name: bodies[name] for name in (first, server)}), [])
            except _MISFITS as error:
                log.warning("the response of the server %s does not fit: %r", server, error)
                missing.append(server)
        fitting = {name: body for name, body in bodies.items() if name not in missing}
        return merge(_parse(fitting), missing)


def _parse(bodies: Mapping[str, bytes]) -> dict[str, Record]:
    return {server: orjson.loads(body) for server, body in bodies.items()}


async def _carry_out(asked: ClientRequest) -> Response | BadRequest:
    """Return the response of this server, or what it finds wrong.

    That may be the name of a queue that only other servers measure.
    """
    try:
        return await read_whole(await asked.here())
    except BadRequest as error:
        return error


async def see_worker(asked: ClientRequest, own_name: str, others: Sequence[Member]) -> Response:
    """Return a remote worker as all servers see it that know it; one of them does.

    Raise NotFound, or PeerUnreachable if a server may know it that has not responded.
    """
    asking = asyncio.gather(*(_ask(asked, each) for each in others), return_exceptions=True)
    seen: dict[str, Response] = {}
    missing = []
    with suppress(NotFound):
        seen[own_name] = await asked.here()
    for member, response in zip(others, await asking, strict=True):
        if isinstance(response, HttpResponse) and response.status == HTTPStatus.OK:
            seen[member.name] = to_response(response)
        elif not isinstance(response, HttpResponse) or response.status != NotFound.status:
            missing.append(member.name)
    if seen:
        return combine(asked, seen, missing)
    name = repr(asked.request.params["name"])
    if missing:
        raise PeerUnreachable(
            f"these servers did not respond: {', '.join(missing)}; the others have no worker {name}"
        )
    raise NotFound(f"there is no worker {name}")


async def _ask(asked: ClientRequest, member: Member) -> HttpResponse:
    async with asyncio.timeout(GATHER_S):
        return await asked.send(member, "forward")
