"""Lets all other servers follow a change before its client gets the response."""

from __future__ import annotations

import asyncio
from collections.abc import Container

from schedo.cluster.client_request import ClientRequest, to_response
from schedo.cluster.servers import Servers
from schedo.errors import PeerUnreachable
from schedo.store.cluster import Member
from schedo.web.http import Response


async def confirm(
    servers: Servers, asked: ClientRequest, done: str, allowed: Container[int] = ()
) -> dict[str, Response]:
    """Let all other servers follow a change; raise PeerUnreachable if one of them has not.

    Return the responses of those that have, by the names of the servers.

    done: what this server has done, for the error. allowed: statuses of errors with which a server
    has nothing to do.
    """
    others = servers.others()
    confirming = (asked.send(member, "confirm") for member in others)
    confirmed = await asyncio.gather(*confirming, return_exceptions=True)
    responses, missing = {}, []
    for member, found in zip(others, confirmed, strict=True):
        if isinstance(found, BaseException):
            if _lives(servers, member):  # else it reads the change when it is back
                missing.append(member.name)
        elif found.status < 400:
            responses[member.name] = to_response(found)
        elif found.status not in allowed:
            missing.append(member.name)
    if missing:
        names = ", ".join(missing)
        raise PeerUnreachable(
            f"{done}, but these servers have not confirmed it: {names}; send the request again"
        )
    return responses


def _lives(servers: Servers, member: Member) -> bool:
    if servers.cluster.has_lost(member):
        return False
    return any(each.epoch == member.epoch for each in servers.others())
