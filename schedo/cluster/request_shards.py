"""Which shard a request belongs to: the one of the key or the name that must be exact.

The order of precedence is that of the store: a unique key, a queue with a limit, and then an
Idempotency-Key. So the server that makes the job also owns the shard that the store gives it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from schedo.core.limits import DEFAULT_QUEUE
from schedo.core.shards import shard_of
from schedo.protocol.decode import UNDECODABLE
from schedo.web.http import Request
from schedo.web.idempotency import HEADER, read_key

HasLimit = Callable[[str], bool]  # whether the queue of this name has a limit


class _Unique(Struct):
    key: str


class _JobPlace(Struct):
    """The fields of a job that say where it belongs; the handler checks all of them."""

    queue: str = DEFAULT_QUEUE
    unique: _Unique | str | None = None
    broadcast: bool = False


_JOB = msgspec.json.Decoder(_JobPlace)


def shard_of_spec(item: bytes | msgspec.Raw, has_limit: HasLimit) -> int | None:
    """Return the shard that a job in JSON must be in; None: any, or the JSON is no job."""
    try:
        job = _JOB.decode(item)
    except UNDECODABLE:
        return None
    if job.broadcast:
        return None
    key = job.unique.key if isinstance(job.unique, _Unique) else job.unique
    if key is not None:
        return shard_of(key)
    return shard_of(job.queue) if has_limit(job.queue) else None


def shard_of_request(request: Request, has_limit: HasLimit) -> int | None:
    """Return the shard whose owner must answer; None: any server may.

    Raise BadRequest for a malformed Idempotency-Key.
    """
    name = request.params.get("name")
    if name is not None:
        return shard_of(name)
    shard = shard_of_spec(request.body, has_limit)
    return shard_of_key(request) if shard is None else shard


def is_broadcast(request: Request) -> bool:
    """Whether the request submits a broadcast."""
    try:
        return request.operation == "create_job" and _JOB.decode(request.body).broadcast
    except UNDECODABLE:
        return False


def shard_of_key(request: Request) -> int | None:
    """Return the shard of the request's Idempotency-Key; None if it has none."""
    key = read_key(request.find_header(HEADER))
    return None if key is None else shard_of(f"{request.client_id} {request.operation} {key}")


def names_link(body: bytes) -> bool:
    """Whether the body of a login has a link in place of a token."""
    try:
        return msgspec.json.decode(body, type=_Login).link is not None
    except UNDECODABLE:
        return False


class _Login(Struct):
    link: Any = None
