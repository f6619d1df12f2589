"""The calls of the HTTP API for named expectations, as Operations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schedo.client.messages import Operation, Record
from schedo.client.options import render_options
from schedo.client.rest import (
    JSON,
    encode,
    get,
    items_with,
    post,
    quote_part,
    read_nothing,
    record_with,
)

_read_expectation = record_with("name")


def _expectation(name: str) -> str:
    return f"/v1/expectations/{quote_part(name)}"


def put_expectation(name: str, spec: Mapping[str, Any]) -> Operation[Record]:
    """Create or change a named expectation; return it."""
    body = encode(render_options(spec))
    return Operation("PUT", _expectation(name), _read_expectation, body, JSON, is_repeatable=True)


def list_expectations() -> Operation[list[Record]]:
    """Return the named expectations."""
    return get("/v1/expectations", items_with("name"))


def get_expectation(name: str) -> Operation[Record]:
    """Return a named expectation, and whether it is met."""
    return get(_expectation(name), _read_expectation)


def delete_expectation(name: str) -> Operation[None]:
    """Delete a named expectation. It is not repeatable: a second request gets a 404."""
    return Operation("DELETE", _expectation(name), read_nothing)


def beat(name: str) -> Operation[Record]:
    """Note that the work outside has been done."""
    return post(f"{_expectation(name)}/beat", {}, _read_expectation, is_repeatable=True)
