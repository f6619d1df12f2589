"""Batches whose jobs belong to several servers: each gets a part, and the items keep their order.

A part is a batch of its own, in a commit of its own. With an Idempotency-Key there is a part for
each shard, and each has a key of its own. So a batch that is repeated has the same parts, even if
the shards have other owners by then.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import NamedTuple

import msgspec

from schedo.cluster.client_request import ClientRequest, read_whole, refuse
from schedo.cluster.request_shards import shard_of_key, shard_of_spec
from schedo.cluster.servers import Servers
from schedo.core.shards import SHARDS
from schedo.engine.sharing import jobs_in_steps
from schedo.errors import SchedoError, StoreError, Unavailable
from schedo.protocol.problems import ProblemResponse
from schedo.protocol.reading import Steps, split_array, split_lines
from schedo.web.http import Request, Response, problem_response
from schedo.web.idempotency import HEADER, read_key

_WARNING = b"schedo-warning"
_REPLAYED = (b"idempotency-replayed", b"true")
_ITEMS_IN_A_STEP = 500


class _Items(NamedTuple):
    """The items of a batch, or of the part of it that one server submits."""

    places: list[int]  # in the batch that is divided
    items: list[msgspec.Raw]
    shards: list[int | None]  # one for each item; None: any server may have it

    @property
    def home_shards(self) -> set[int]:
        return {shard for shard in self.shards if shard is not None}


class _Page(msgspec.Struct):
    items: list[msgspec.Raw]


async def respond_to_batch(servers: Servers, asked: ClientRequest) -> Response:
    """Return the results of all items, in their order."""
    request = asked.request
    try:
        items = await jobs_in_steps(_read_items(request))
        shard_of_all = shard_of_key(request)
        # A batch that is repeated must be divided alike, and the limits of queues can change.
        has_limit = servers.has_limit if shard_of_all is None else _has_no_limit
        shards = await jobs_in_steps(_find_shards(items, cache(has_limit)))
    except SchedoError:
        return await asked.here()  # its handler says what is wrong
    whole = _number(items, shards)
    if asked.hop is not None:
        return await _respond_to_part(servers, asked, whole.home_shards)
    if shard_of_all is not None:
        whole = _number(items, [shard_of_all if each is None else each for each in shards])
    return await _submit(servers, asked, whole)


def _has_no_limit(_: str) -> bool:
    return False


async def _respond_to_part(servers: Servers, asked: ClientRequest, needed: set[int]) -> Response:
    """Carry out what another server has sent, unless a shard that it needs is not here."""
    if asked.hop is not None and asked.hop.home_shard is not None:
        # It is that of the client's key: a part has a key of its own.
        needed.add(asked.hop.home_shard)
    if all(map(servers.cluster.is_mine, needed)):
        try:
            return await asked.with_home_shards(needed).here()
        except Unavailable:
            if all(map(servers.cluster.is_mine, needed)):
                raise
    return refuse(asked.request)


async def _submit(servers: Servers, asked: ClientRequest, whole: _Items) -> Response:
    """Let each owner submit its part; what gets several owners meanwhile is divided again."""
    find_owner = partial(_find_owner, servers) if shard_of_key(asked.request) is None else None
    parts = _divide(whole, find_owner)
    if len(parts) > 1:
        responses = await asyncio.gather(
            *(_submit_as_batch(servers, asked, part) for part in parts)
        )
        return _join(len(whole.items), parts, responses)

    def has_one_owner() -> bool:
        return len(_divide(whole, find_owner)) == 1

    async def here(asked: ClientRequest) -> Response:
        return await asked.with_home_shards(whole.home_shards).here()

    try:
        return await servers.at_owner(asked, next(iter(whole.shards), None), here, has_one_owner)
    except Unavailable:  # nothing has happened
        if has_one_owner():
            raise
    return await _submit(servers, asked, whole)


def _find_owner(servers: Servers, shard: int) -> int:
    """Return the number of the server that owns the shard; -1 while it moves."""
    owner = servers.cluster.owner(shard)
    return -1 if owner is None else owner.no


def _number(items: list[msgspec.Raw], shards: list[int | None]) -> _Items:
    """Return the items of a whole batch."""
    return _Items([*range(len(items))], items, shards)


def _read_items(request: Request) -> Steps[list[msgspec.Raw]]:
    if request.is_lines:
        return [msgspec.Raw(line) for line in split_lines(request.body)]
    return (yield from split_array(request.body))


def _find_shards(
    items: Sequence[msgspec.Raw], has_limit: Callable[[str], bool]
) -> Steps[list[int | None]]:
    shards: list[int | None] = []
    for item in items:
        shards.append(shard_of_spec(item, has_limit))
        if len(shards) % _ITEMS_IN_A_STEP == 0:
            yield
    return shards


def _divide(whole: _Items, find_owner: Callable[[int], int] | None) -> list[_Items]:
    """Return a part for each owner; without `find_owner`, for each shard."""
    if len(set(whole.shards)) <= 1:
        return [whole]
    parts: dict[int | None, _Items] = {}
    for place, item, shard in zip(*whole, strict=True):
        group = shard if find_owner is None or shard is None else SHARDS + find_owner(shard)
        part = parts.setdefault(group, _Items([], [], []))
        part.places.append(place)
        part.items.append(item)
        part.shards.append(shard)
    return [*parts.values()]


async def _submit_as_batch(servers: Servers, asked: ClientRequest, part: _Items) -> Response:
    """Submit a part as a batch of its own; return its response, also if that is an error."""
    request = asked.request
    headers: dict[bytes, bytes] = {**request.headers, b"content-type": b"application/json"}
    key = read_key(request.find_header(HEADER))
    if key is not None:
        headers[HEADER] = hashlib.sha256(f"{key} {part.shards[0]}".encode()).hexdigest().encode()
    body = b"[%b]" % b",".join(map(bytes, part.items))
    alone = request._replace(headers=headers, body=body, is_lines=False)
    try:
        whole = _number(part.items, part.shards)
        return await read_whole(await _submit(servers, replace(asked, request=alone), whole))
    except SchedoError as error:
        return problem_response(error, request.id)


def _join(count: int, parts: Sequence[_Items], responses: Sequence[Response]) -> Response:
    """Return the items of all parts; those of a part that was refused have its problem."""
    if all(response.status >= 400 for response in responses):
        return next(filter(_is_unknown, responses), responses[0])
    items: list[bytes] = [b""] * count
    warnings: dict[bytes, None] = {}
    for part, response in zip(parts, responses, strict=True):
        found = _read_results(response, len(part.places))
        for place, item in zip(part.places, found, strict=True):
            items[place] = item
        warnings |= dict.fromkeys(value for name, value in response.headers if name == _WARNING)
    whole = Response(200, b'{"items":[%b]}' % b",".join(items))
    if all(_REPLAYED in response.headers for response in responses):
        whole = whole.with_headers(_REPLAYED)
    return whole.with_headers((_WARNING, b"; ".join(warnings))) if warnings else whole


def _is_unknown(refused: Response) -> bool:
    """Whether a part may have been carried out: no other part says so of the whole batch."""
    return _read_problem(refused).code == StoreError.code


def _read_results(response: Response, count: int) -> list[bytes]:
    if response.status < 400:
        return [bytes(item) for item in msgspec.json.decode(response.body, type=_Page).items]
    problem = _read_problem(response)
    return [msgspec.json.encode({"status": response.status, "problem": problem})] * count


def _read_problem(response: Response) -> ProblemResponse:
    return msgspec.json.decode(response.body, type=ProblemResponse)
