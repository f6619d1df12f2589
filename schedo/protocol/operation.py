"""The description of one operation of the HTTP API: method, path, request and responses."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from schedo.core.limits import BATCH_BYTES_MAX
from schedo.protocol.light_pages import LightPage, make_type
from schedo.protocol.roles import ROLES, Role

BODY_BYTES_MAX = 1_048_576

JSON_TYPE = "application/json"
SQLITE_TYPE = "application/vnd.sqlite3"
LINES_TYPE = "application/x-ndjson"


# By status: the shape of the JSON, or its possible shapes, or a media type.
ResponseKind = type[msgspec.Struct] | tuple[type[msgspec.Struct] | LightPage, ...] | str
_CHAPTERS = {
    "jobs": "jobs",
    "operations": "jobs",
    "schedules": "schedules",
    "declarations": "schedules",
    "cron": "schedules",
    "expectations": "expectations",
    "queues": "queues",
    "workers": "workers",
    "work": "workers",
    "invoke": "right now",
    "reservations": "right now",
}


def list_shapes(kind: ResponseKind) -> list[type[msgspec.Struct]]:
    """Return the possible shapes of the JSON; none for a media type."""
    if isinstance(kind, str):
        return []
    shapes = kind if isinstance(kind, tuple) else (kind,)
    return [make_type(each) if isinstance(each, LightPage) else each for each in shapes]


class Operation(NamedTuple):
    """One method on one path."""

    name: str
    route: str  # method and path
    summary: str
    responses: dict[int, ResponseKind]
    request: type[msgspec.Struct] | None = None
    is_batch: bool = False
    query: tuple[str, ...] = ()
    takes_key: bool = False  # supports Idempotency-Key
    takes_nonce: bool = False  # needs Schedo-Lease-Nonce
    is_large: bool = False  # its body may have the size of a batch
    needs_body: bool = False  # even though all fields are optional
    may_wait: bool = False  # the request may have a `wait`
    is_stream: bool = False  # the response has no end; HEAD is refused

    @property
    def method(self) -> str:
        return self.route.partition(" ")[0]

    @property
    def path(self) -> str:
        return self.route.partition(" ")[2]

    @property
    def role(self) -> Role | None:
        """Return the role that a token needs; None: no token is needed."""
        return ROLES[self.name]

    @property
    def tag(self) -> str:
        """Return the chapter of the documentation."""
        if self.name.startswith("short_"):
            return "short forms"
        part = self.path.removeprefix("/v1/").partition("/")[0].partition(":")[0]
        return _CHAPTERS.get(part, "server")

    @property
    def body_bytes_max(self) -> int:
        return BATCH_BYTES_MAX if self.is_batch or self.is_large else BODY_BYTES_MAX

    @property
    def media_types(self) -> tuple[str, ...]:
        return (JSON_TYPE, LINES_TYPE) if self.is_batch else (JSON_TYPE,)

    @property
    def body_is_optional(self) -> bool:
        """Return whether the body may be empty, because no field is required."""
        if self.request is None or self.is_batch or self.needs_body:
            return False
        return not any(field.required for field in msgspec.structs.fields(self.request))
