"""Responses for clients that may see no payloads (--hide-payload-from)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

import orjson

from schedo.errors import Forbidden
from schedo.web.http import JSON_TYPE, Response

_PAYLOAD = "payload"
_TEXT = "q"  # searches for a text, also in payloads
# Values of users, in which a member of this name is no payload of a job.
_VALUES = frozenset({"result", "meta"})


def check_query(query: Mapping[str, str]) -> None:
    """Raise Forbidden if the query looks into payloads: what it finds would tell what they have."""
    for name in query:
        if name == _TEXT or name.startswith(_PAYLOAD + "."):
            raise Forbidden(f"the parameter {name} looks into payloads, which are hidden from you")


async def without_payloads(response: Response) -> Response:
    """Return the response without the members that are payloads of jobs, at any depth."""
    if response.content_type != JSON_TYPE:
        return response
    body = response.body
    if response.pieces is not None:
        async with aclosing(response.pieces) as pieces:
            body = b"".join([bytes(piece) async for piece in pieces])
    if f'"{_PAYLOAD}"'.encode() in body:
        body = orjson.dumps(_strip(orjson.loads(body)))
    return response._replace(body=body, pieces=None)


def _strip(value: Any) -> Any:
    if isinstance(value, list):
        return [*map(_strip, value)]
    if isinstance(value, dict):
        return {
            name: inner if name in _VALUES else _strip(inner)
            for name, inner in value.items()
            if name != _PAYLOAD
        }
    return value
