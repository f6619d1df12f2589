"""The calls of the HTTP API on many jobs at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schedo.client.messages import Operation, Record
from schedo.client.options import render_options
from schedo.client.rest import JSON, encode, get, items_with, post, quote_part, record_with

_COUNT_S = 600.0  # the server counts some hundred thousand jobs a second
_PATH = "/v1/operations"
_read_operation = record_with("id", "state")


def count_jobs(action: str, where: Mapping[str, Any]) -> Operation[Record]:
    """Count the jobs that an operation would change, as {"matched": ...}."""
    body = encode({"action": action, "where": render_options(where), "dry_run": True})
    read = record_with("matched")
    return Operation("POST", _PATH, read, body, JSON, is_repeatable=True, held_s=_COUNT_S)


def begin_operation(
    action: str,
    where: Mapping[str, Any],
    *,
    max_jobs: int | None = None,
    expected_count: int | None = None,
) -> Operation[Record]:
    """Begin to change all jobs that match.

    The server changes none if there are more than max_jobs, or not exactly expected_count. The
    request is not repeatable: each one begins another operation.
    """
    limits = {"max_jobs": max_jobs, "expected_count": expected_count}
    limits = {name: count for name, count in limits.items() if count is not None}
    body = encode({"action": action, "where": render_options(where), **limits})
    return Operation("POST", _PATH, _read_operation, body, JSON)


def list_operations() -> Operation[list[Record]]:
    """Return the operations that run and the latest ones that have ended, newest first."""
    return get(_PATH, items_with("id", "state"))


def get_operation(number: str) -> Operation[Record]:
    """Return the operation with its progress."""
    return get(f"{_PATH}/{quote_part(number)}", _read_operation)


def cancel_operation(number: str) -> Operation[Record]:
    """Stop the operation; the jobs that it has changed stay changed."""
    return post(f"{_PATH}/{quote_part(number)}:cancel", None, _read_operation, is_repeatable=True)


def undo_operation(number: str) -> Operation[Record]:
    """Begin to put back what the operation has changed; return the operation that does it."""
    return post(f"{_PATH}/{quote_part(number)}:undo", None, _read_operation)
