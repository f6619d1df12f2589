"""Jobs that SQL clients have submitted: rows of the inbox, with the body of POST /v1/jobs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

import msgspec

from schedo.core import limits
from schedo.core.ids import render_id
from schedo.core.inbox import Enqueued, internal_error
from schedo.core.model import JobSpec
from schedo.core.strict_json import mask_escapes
from schedo.errors import Invalid, SchedoError
from schedo.protocol import fields
from schedo.protocol.jobs import JobRequest
from schedo.protocol.reading import Steps, read_request
from schedo.store.inbox import InboxRow

log = logging.getLogger("schedo.jobs")
UNREADABLE = "unreadable"  # the task of a job whose row does not name one
_STEP_STRINGS = 1_024  # take about a millisecond
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
        try:
            found.append((yield from _read(row, check)))
        except Exception as error:  # a bug, which must not hold the other rows up
            log.exception("job %s, which SQL has submitted, cannot be read", render_id(row.id))
            names = yield from _find_names(row.spec.encode(errors="replace"))
            found.append(Enqueued(row.id, names, internal_error(error)))
        yield
    return found


def _read(row: InboxRow, check: Callable[[JobSpec], None]) -> Steps[Enqueued]:
    body = row.spec.encode()
    if len(body) > limits.ENQUEUED_BYTES_MAX:  # it is cut, perhaps
        return Enqueued(row.id, (yield from _find_names(body)), _TOO_LARGE)
    try:
        request = yield from read_request(body, JobRequest)
        if request.broadcast:
            raise Invalid.field("/broadcast", "a job of SQL cannot be a broadcast")
        spec = request.to_spec()
        check(spec)
    except SchedoError as error:
        return Enqueued(row.id, (yield from _find_names(body)), str(error))
    return Enqueued(row.id, spec)


def _find_names(body: bytes) -> Steps[JobSpec]:
    """Return a spec with what is valid of the task and the queue of a refused row."""
    found = yield from _find_texts(body, (b"task", b"queue"))
    texts: dict[str, str] = {}
    for name, text in found.items():
        with suppress(msgspec.DecodeError):
            texts[name.decode()] = msgspec.json.decode(text, type=str)
    names = {name: text for name, text in texts.items() if fields.is_name(text)}
    return JobSpec(
        task=names.get("task", UNREADABLE), queue=names.get("queue", limits.DEFAULT_QUEUE)
    )


def _find_texts(body: bytes, names: Collection[bytes]) -> Steps[dict[bytes, bytes]]:
    """Return the texts that the outermost object of the body has under these names.

    No decoder helps: the body may be cut, or be nested deeper than one goes even to skip a value.
    """
    found: dict[bytes, bytes] = {}
    parts = mask_escapes(body).split(b'"')  # in turn outside and inside of strings
    strings = zip(parts[::2], parts[1::2], parts[2::2], strict=False)
    depth, at, name = 0, 0, b""
    for number, (before, text, after) in enumerate(strings):
        depth += sum(map(before.count, b"[{")) - sum(map(before.count, b"]}"))
        at += len(before)
        if depth == 1 and after.startswith(b":"):
            name = text
            if name == b"payload":  # jsonb has shorter names first
                break
        elif depth == 1 and name in names:
            found[name] = body[at : at + len(text) + 2]
        at += len(text) + 2
        if number % _STEP_STRINGS == 0:
            yield
    return found
