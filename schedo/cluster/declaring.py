"""Declarations: each server puts those schedules and expectations whose shards it owns.

First all servers say what their parts would do, so that a declaration which one of them refuses
changes nothing. Each part is a commit of its own. What moves to another server meanwhile may be in
no part, so the servers are asked again until no shard has moved.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import orjson

from schedo.client.messages import HttpResponse
from schedo.cluster.client_request import ClientRequest, read_whole, to_response
from schedo.cluster.homes import list_owners
from schedo.cluster.hops import OwnRequest
from schedo.cluster.peers import ChangeLost
from schedo.cluster.servers import Servers
from schedo.core.commands import DeclareSchedules
from schedo.engine.declarations import PAUSE_S, TRIES
from schedo.engine.failures import OutcomeUnknown
from schedo.errors import SchedoError, Unavailable
from schedo.protocol.declarations import DeclarationRequest, render_entry
from schedo.protocol.problems import ProblemResponse
from schedo.protocol.roles import Role
from schedo.store.cluster import Member
from schedo.web.http import Response
from schedo.web.permissions import TokenPermission

Put = Callable[[DeclareSchedules], Awaitable[object]]  # puts schedules that this server owns
log = logging.getLogger("schedo.cluster")

# Between two tries to reach a server whose URL is wrong: the others load each schedule each time.
PAUSE_S_MAX = 1.0
_LISTS = ("schedules", "expectations", "undeclared", "undeclared_expectations")
_PERMISSION = TokenPermission(Role.ADMIN, "application")  # its code runs in the server


_IN_PART = "it may be declared in part; declare it again"


_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])


async def declare_in_parts(servers: Servers, asked: ClientRequest) -> Response:
    """Return what all servers have done, as one response; raise Invalid for a bad declaration."""
    if asked.hop is not None:
        return await asked.here()
    wanted = await asked.request.read(DeclarationRequest)  # in steps, if it is large
    names = {f"{kind}/{each.name}" for kind in _LISTS[:2] for each in getattr(wanted, kind)}
    if wanted.dry_run:
        return await _try(servers, asked, names)
    if servers.others():
        body = msgspec.json.encode(_MEMBERS.decode(asked.request.body) | {"dry_run": True})
        trial = replace(asked, request=asked.request._replace(body=body))
        response = await _try(servers, trial, names)
        if response.status >= 400:
            return response
    try:
        response, has_begun = await _declare(servers, asked, names)
    except Unavailable as error:  # some servers have done their part
        raise OutcomeUnknown(f"{_IN_PART}: {error}") from error
    if response.status < 400 or not has_begun:
        return response
    problem = msgspec.json.decode(response.body, type=ProblemResponse)
    raise OutcomeUnknown(f"{_IN_PART}: {problem.detail}")


async def _try(servers: Servers, asked: ClientRequest, names: set[str]) -> Response:
    """Return what a dry run says; raise Unavailable if a server does not respond."""
    try:
        response, _ = await _declare(servers, asked, names)
    except ChangeLost as error:
        raise Unavailable(
            "nothing is declared: a server has not said whether it accepts its part; try again soon"
        ) from error
    return response


async def _declare(
    servers: Servers, asked: ClientRequest, names: set[str]
) -> tuple[Response, bool]:
    """Return the response of all servers or a refusal, and whether a server has done its part."""
    found: list[dict[str, Any]] = []
    for number in range(TRIES):
        owners, others = list_owners(servers.cluster), servers.others()
        own = await read_whole(await asked.here())
        parts = [own]
        if own.status < 400:
            sending = (asked.send(member, "forward") for member in others)
            parts += map(to_response, await asyncio.gather(*sending))
        failed = next((part for part in parts if part.status >= 400), None)
        if failed is not None:
            return failed, number > 0 or failed is not own
        merged = _merge([*found, *(orjson.loads(part.body) for part in parts)])
        named = {f"{kind}/{each['name']}" for kind in _LISTS[:2] for each in merged[kind]}
        if names <= named and _have_stayed(servers, owners, others):
            return own._replace(body=orjson.dumps(merged)), True
        found = [merged]
        await servers.wait_for_change(PAUSE_S)
    raise Unavailable("some of the schedules move to another server; declare them again soon")


def _have_stayed(servers: Servers, owners: list[int | None], asked: Sequence[Member]) -> bool:
    """Whether these are still the owners of the shards, and all of them were asked."""
    known = {servers.cluster.me.no, *(member.no for member in asked)}
    return known.issuperset(owners) and owners == list_owners(servers.cluster)


def _merge(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the effects of all servers; each has set the queues.

    If a server was asked more than once, its first response says what it has changed; the later
    ones find nothing left to change.
    """
    merged = dict(parts[0])
    for kind in _LISTS[:2]:
        effects: dict[str, Any] = {}
        for each in (each for part in parts for each in part[kind]):
            effects.setdefault(each["name"], each)
        merged[kind] = [*effects.values()]
    for kind in _LISTS[2:]:
        merged[kind] = sorted({name for part in parts for name in part[kind]})
    return merged


async def declare_elsewhere(
    servers: Servers, put: Put, command: DeclareSchedules
) -> DeclareSchedules:
    """Return the part of an application's declaration that this server puts itself.

    The others get theirs as soon as they can be reached. The start of this server does not wait for
    that: servers that start together would wait for each other.
    """
    own = msgspec.structs.replace(
        command,
        specs=[spec for spec in command.specs if servers.owns(spec.name)],
        removed=[name for name in command.removed if servers.owns(name)],
    )
    if len(own.specs) < len(command.specs) or len(own.removed) < len(command.removed):
        done = {spec.name for spec in own.specs}.union(own.removed)
        servers.begin(_declare_rest(servers, put, command, done))
    return own


async def _declare_rest(
    servers: Servers, put: Put, command: DeclareSchedules, done: set[str]
) -> None:
    """Put all schedules that are not done, each at its owner, however often the owners change.

    If some are removed, each other server must have responded: they may be its own. And no shard
    may have moved meanwhile, or both its owners may have left them to the other one.
    """
    pause_s = PAUSE_S
    try:
        while True:
            owners, others = list_owners(servers.cluster), servers.others()
            responses = await _send(servers, others, command)
            done |= {name for response in responses for name in _read_names(response)}
            missing = [spec for spec in command.specs if spec.name not in done]
            own = [spec for spec in missing if servers.owns(spec.name)]
            removed = [n for n in command.removed if n not in done and servers.owns(n)]
            if own or removed:  # they have become those of this server
                await put(msgspec.structs.replace(command, specs=own, removed=removed))
                done |= {spec.name for spec in own}.union(removed)
            is_whole = None not in responses and _have_stayed(servers, owners, others)
            if len(own) == len(missing) and (is_whole or not command.removed):
                return
            await servers.wait_for_change(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)
    except SchedoError as error:
        log.error("the schedules of %s were not put by other servers: %s", command.owner, error)


async def _send(
    servers: Servers, others: Sequence[Member], command: DeclareSchedules
) -> list[HttpResponse | None]:
    """Send all schedules to the other servers; return their responses. None: there is none.

    Each puts its own. One that has just come to it must be among them: it removes all others.
    """
    request = {
        "owner": command.owner,
        "schedules": [render_entry(spec) for spec in command.specs],
        "keep_edits": command.keeps_edits,
        "prune": bool(command.removed),
    }
    sent = OwnRequest("POST", "/v1/declarations", "code", _PERMISSION, orjson.dumps(request))
    return await asyncio.gather(*(_ask(servers, member, sent) for member in others))


async def _ask(servers: Servers, member: Member, sent: OwnRequest) -> HttpResponse | None:
    try:
        response = await servers.send(member, "forward", sent)
    except SchedoError:
        return None
    return None if response.status >= 500 else response


def _read_names(response: HttpResponse | None) -> list[str]:
    if response is None:
        return []
    if response.status >= 400:
        raise SchedoError(f"another server refuses the schedules: {response.body.decode()[:500]}")
    return [each["name"] for each in orjson.loads(response.body)["schedules"]]
