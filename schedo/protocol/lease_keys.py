"""The name of a lease as text: <job id>.<attempt>.<epoch>. It never names another attempt."""

from __future__ import annotations

import re
from typing import Annotated

from msgspec import Meta

from schedo.core.ids import parse_id, render_id
from schedo.core.model import LeaseKey
from schedo.errors import Invalid, NotFound

LeaseText = Annotated[
    str,
    Meta(
        description="Names one attempt: job id, attempt and epoch.",
        examples=["0CR5KPDD15T00.1.7"],
        extra_json_schema={"pattern": "^[0-9A-Za-z]{13}[.][0-9]{1,9}[.][0-9]{1,15}$"},
    ),
]
_LEASE = re.compile(r"([0-9A-Za-z]{13})\.([0-9]{1,9})\.([0-9]{1,15})\Z")


def render_lease(key: LeaseKey) -> str:
    return f"{render_id(key.job_id)}.{key.attempt}.{key.epoch}"


def parse_lease(text: str, pointer: str = "/lease") -> LeaseKey:
    """Return the lease with this name; raise Invalid for the field at the pointer."""
    found = _LEASE.match(text)
    if found is not None:
        try:
            return LeaseKey(parse_id(found[1]), int(found[2]), int(found[3]))
        except NotFound:
            pass
    raise Invalid.field(pointer, f"{text[:60]!a} is no lease; send it as the server did")
