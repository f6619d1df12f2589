"""Errors of the clients: converts problem+json back into the SchedoError that the server raised.

The message is the server's `detail`. The request id, by which the server's log knows the request,
is added as a note, so that a traceback shows it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

from schedo.errors import (
    Conflict,
    Forbidden,
    Invalid,
    MethodNotAllowed,
    NoCapacity,
    NotFound,
    Overloaded,
    Problem,
    SchedoError,
    StoreFull,
    TooLarge,
    Unauthorized,
    Unavailable,
    all_errors,
)


class Unreachable(SchedoError):
    """No response: no server listens at the address, or the connection broke."""

    code = "unreachable"
    status = 503


class NotSchedo(SchedoError):
    """What responded is no schedo server, or one of another version."""

    code = "not-schedo"
    status = 502

    @classmethod
    def because(cls, what: str) -> NotSchedo:
        """Return the error for a response of which this is said."""
        return cls(f"this is not a schedo server: {what}")


class JobFailed(SchedoError):
    """The job ended without a result; `job` is its record and `error` its last error.

    The message has the type and the message of that error, and a note its traceback.
    """

    code = "job-failed"
    status = 409

    def __init__(self, job: Mapping[str, Any]) -> None:
        self.job = job
        self.error: Mapping[str, Any] = job.get("error") or {}
        reason = ": ".join(
            str(self.error[key]) for key in ("type", "message") if self.error.get(key)
        )
        ending = _ENDINGS.get(job.get("state", ""), "ended")
        super().__init__(f"job {job.get('id')} {ending}" + (f": {reason}" if reason else ""))
        if self.error.get("traceback"):
            self.add_note(f"The traceback of the handler:\n{self.error['traceback']}")


class JobCancelled(JobFailed):
    """The job was cancelled."""

    code = "job-cancelled"


def job_failed(job: Mapping[str, Any]) -> JobFailed:
    """Return the error for a job that ended without a result."""
    return JobCancelled(job) if job.get("state") == "cancelled" else JobFailed(job)


_ENDINGS = {"failed": "failed", "cancelled": "was cancelled", "expired": "expired"}

_BY_STATUS: dict[int, type[SchedoError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: TooLarge,
    429: Overloaded,
    503: Unavailable,
    507: StoreFull,
}
_BY_CODE = all_errors()
_DIGITS_MAX = 10  # of a count; Python refuses to parse a text of thousands


def parse_problem(status: int, headers: Mapping[str, str], body: bytes) -> SchedoError:
    """Return the error of a response with a status of 400 or more."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        phrase = HTTPStatus(status).phrase if status in list(HTTPStatus) else ""
        document = {"detail": f"the server answered {status} {phrase}".strip()}
    return build_error(
        {
            "status": status,
            "retry_after": headers.get("retry-after"),
            "allow": headers.get("allow"),
            **document,
        }
    )


def build_error(document: Mapping[str, Any]) -> SchedoError:
    """Return the error that a problem document describes."""
    status, code = document.get("status"), document.get("code")
    kind = _BY_CODE.get(str(code)) or _by_status(status)
    detail = str(document.get("detail") or document.get("title") or f"the server answered {status}")
    error = _make(kind, detail, document)
    if isinstance(code, str):
        error.code = code
    if isinstance(status, int):
        error.status = status
    if document.get("request_id"):
        error.add_note(f"request {document['request_id']}")
    return error


def _by_status(status: object) -> type[SchedoError]:
    if not isinstance(status, int):
        return SchedoError
    return _BY_STATUS.get(status, Invalid if 400 <= status < 500 else SchedoError)


def _make(kind: type[SchedoError], detail: str, document: Mapping[str, Any]) -> SchedoError:
    if issubclass(kind, Invalid):
        return kind(detail, *_fields(document.get("errors")))
    if issubclass(kind, Overloaded):
        return kind(detail, _retry_after_s(document))
    if issubclass(kind, NoCapacity):
        rejected = document.get("rejected")
        return kind(
            detail,
            _read_count(document.get("considered")),
            rejected if isinstance(rejected, dict) else None,
            _retry_after_s(document),
        )
    if issubclass(kind, MethodNotAllowed):
        return kind(detail, str(document.get("allow") or ""))
    return kind(detail)


def _retry_after_s(document: Mapping[str, Any]) -> int:
    return _read_count(document.get("retry_after")) or 1


def _read_count(value: object) -> int:
    """Return a count of a document that may be that of another program, or 0."""
    text = str(value)
    return int(text) if text.isascii() and text.isdecimal() and len(text) < _DIGITS_MAX else 0


def _fields(errors: object) -> Iterator[Problem]:
    for item in errors if isinstance(errors, list) else ():
        if isinstance(item, dict):
            place = item.get("pointer") or f"?{item.get('parameter', '')}"
            yield Problem(str(place), str(item.get("detail", "")))
