"""Jobs that SQL clients have submitted: rows of the inbox, with the body of POST /v1/jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from schedo.core import limits
from schedo.core.inbox import Enqueued
from schedo.core.model import JobSpec
from schedo.errors import Invalid, SchedoError
from schedo.protocol import fields
from schedo.protocol.jobs import JobRequest
from schedo.protocol.reading import Steps, read_request
from schedo.store.inbox import InboxRow

UNREADABLE = "unreadable"  # the task of a job whose row does not name one
_PAYLOAD = b', "payload": '  # as jsonb has it: the task and the queue come before, as shorter names
_TOO_LARGE = (
    f"the job has more than {limits.ENQUEUED_BYTES_MAX} bytes; a payload has at most"
    f" {limits.PAYLOAD_BYTES_MAX}"
)


def read_rows(rows: Sequence[InboxRow], check: Callable[[JobSpec], None]) -> Steps[list[Enqueued]]:
    """Return the rows with their specs, or with the reason why they are refused.

    check: raises the error of a spec that this server does not accept.
    """
    found = []
    for row in rows:
        found.append((yield from _read(row, check)))
        yield
    return found


def _read(row: InboxRow, check: Callable[[JobSpec], None]) -> Steps[Enqueued]:
    body = row.spec.encode()
    if len(body) > limits.ENQUEUED_BYTES_MAX:  # it is cut, perhaps
        return Enqueued(row.id, _find_names(_before_payload(body)), _TOO_LARGE)
    try:
        request = yield from read_request(body, JobRequest)
        if request.broadcast:
            raise Invalid.field("/broadcast", "a job of SQL cannot be a broadcast")
        spec = request.to_spec()
        check(spec)
    except SchedoError as error:
        names = _find_names(body)
        # The levels of a payload may be too many for the decoder, even to skip them.
        if names.task == UNREADABLE:
            names = _find_names(_before_payload(body))
        return Enqueued(row.id, names, str(error))
    return Enqueued(row.id, spec)


def _before_payload(body: bytes) -> bytes:
    return body.partition(_PAYLOAD)[0] + b"}"


def _find_names(body: bytes) -> JobSpec:
    """Return a spec with what is valid of the task and the queue of a refused row."""
    found: dict[str, Any] = {}
    with suppress(msgspec.DecodeError, RecursionError):
        decoded = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        for name in ("task", "queue"):
            with suppress(msgspec.DecodeError):
                found[name] = msgspec.json.decode(decoded.get(name, b"null"), type=str)
    names = {name: text for name, text in found.items() if fields.is_name(text)}
    return JobSpec(
        task=names.get("task", UNREADABLE), queue=names.get("queue", limits.DEFAULT_QUEUE)
    )
