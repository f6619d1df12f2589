"""Requests that one server of a cluster can answer, and only that one knows that it can.

A worker is connected to one server, and a reservation is in the memory of one. So is a job that is
not kept for a while after its end, where it has ended. An invocation runs on any worker that has
room now: those of the server that was asked come first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import orjson

from schedo.cluster.client_request import NOT_OWNER, ClientRequest
from schedo.errors import (
    NoCapacity,
    NoReservation,
    NotFound,
    PeerUnreachable,
    SchedoError,
    Unsatisfiable,
)
from schedo.store.cluster import Member, MemberState
from schedo.web.http import Response, problem_response

# With these, another server is asked; the first ones say the most. A server that does not respond
# may have what the others say does not exist.
_REFUSALS: tuple[type[SchedoError], ...] = (
    NoCapacity,
    PeerUnreachable,
    NoReservation,
    NotFound,
    Unsatisfiable,
)
_ELSEWHERE: Mapping[str, int] = {kind.code: place for place, kind in enumerate(_REFUSALS)}


class _Problem(msgspec.Struct):
    code: str = ""
    considered: int = 0
    rejected: dict[str, int] = {}


async def find(asked: ClientRequest, others: Sequence[Member]) -> Response:
    """Return the first response that is not a refusal, or the refusal that says the most."""
    response, _ = await find_server(asked, others)
    return response


async def find_server(
    asked: ClientRequest, others: Sequence[Member]
) -> tuple[Response, Member | None]:
    """Return that response and the server that has sent it; None: this one, or all refuse.

    Servers that leave are asked last, because they have hardly a worker any more.
    """
    try:
        response = await asked.here()
    except SchedoError as error:
        if error.code not in _ELSEWHERE or not others:
            raise
        response = problem_response(error, asked.request.id)
    refusals = [response]
    sender: Member | None = None
    for member in sorted(others, key=lambda each: each.state is not MemberState.OPEN):
        if _code_of(refusals[-1]) not in _ELSEWHERE:
            break
        try:
            response = await asked.forward(member)
        except PeerUnreachable as error:
            response = problem_response(error, asked.request.id)
        if (NOT_OWNER, b"1") not in response.headers:  # else it has no shard for a job yet
            refusals.append(response)
            sender = member
    if _code_of(refusals[-1]) not in _ELSEWHERE:
        return refusals[-1], sender
    return _sum_up(refusals), None


def rank_refusal(code: str | None) -> int:
    """Return what is smaller for a refusal that says more; None: it is none."""
    return -2 if code is None else _ELSEWHERE.get(code, -1)


def _code_of(response: Response) -> str:
    return _read(response).code


def _read(response: Response) -> _Problem:
    if response.status < 400:
        return _Problem()
    return msgspec.json.decode(response.body, type=_Problem)


def _sum_up(refusals: Sequence[Response]) -> Response:
    """Return the refusal that says the most, with the workers of all servers counted."""
    found = [(_read(response), response) for response in refusals]
    problem, response = min(found, key=lambda pair: _ELSEWHERE[pair[0].code])
    if problem.code != NoCapacity.code:
        return response
    body = orjson.loads(response.body)
    rejected: dict[str, int] = {}
    for each, _ in found:
        for reason, count in each.rejected.items():
            rejected[reason] = rejected.get(reason, 0) + count
    body |= {"considered": sum(each.considered for each, _ in found), "rejected": rejected}
    return response._replace(body=orjson.dumps(body))
