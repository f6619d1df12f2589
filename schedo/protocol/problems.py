"""Errors as RFC 9457 problem documents, and the registry of their codes.

The registry is the tree in errors.py: each class is one code, and its docstring the description.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import orjson

from schedo.errors import (
    Invalid,
    MethodNotAllowed,
    NoCapacity,
    NotFound,
    Overloaded,
    Problem,
    SchedoError,
    Unauthorized,
)

PROBLEM_TYPE = b"application/problem+json"
_RETRY_AFTER_S = 1


class ProblemKind(NamedTuple):
    """One kind of error as /problems/{code} explains it."""

    code: str
    status: int
    title: str
    description: str


# The connection itself responds with these, before there is a request that could raise.
_CONNECTION_KINDS = (
    ProblemKind("uri-too-long", 414, "URI too long", "The URL is longer than 8 KiB."),
    ProblemKind(
        "headers-too-large",
        431,
        "Headers too large",
        "The headers are more than 100, or larger than 32 KiB together.",
    ),
    ProblemKind(
        "request-timeout",
        408,
        "Request timeout",
        "The headers took longer than 10 s to arrive, or the body longer than 30 s.",
    ),
    ProblemKind(
        "bad-http",
        400,
        "Bad HTTP",
        "The bytes are not an HTTP/1.1 request.",
    ),
    ProblemKind(
        "http-version", 505, "HTTP version not supported", "The server speaks HTTP/1.1 and 1.0."
    ),
)


def _list_classes(root: type[SchedoError]) -> Iterator[type[SchedoError]]:
    yield root
    for child in root.__subclasses__():
        yield from _list_classes(child)


def list_kinds() -> list[ProblemKind]:
    """Return every kind of error, by code."""
    kinds = {kind.code: kind for kind in _CONNECTION_KINDS}
    for cls in _list_classes(SchedoError):  # the first class of a code documents it
        if cls.__module__ == SchedoError.__module__ and cls.code not in kinds:
            title = cls.code.replace("-", " ").capitalize().replace("json", "JSON")
            description = (cls.__doc__ or "").partition("\n")[0]
            kinds[cls.code] = ProblemKind(cls.code, cls.status, title, description)
    kinds["internal"] = ProblemKind(
        "internal", 500, "Internal error", "A bug in schedo; the log has it under the request's id."
    )
    return sorted(kinds.values())


KINDS = {kind.code: kind for kind in list_kinds()}


def get_kind(code: str) -> ProblemKind:
    """Return the kind of error with this code."""
    kind = KINDS.get(code)
    if kind is None:
        raise NotFound(f"there is no problem with the code {code[:40]!r}")
    return kind


def problem_fields(error: SchedoError, request_id: str | None = None) -> dict[str, Any]:
    """Return the problem document for an error."""
    kind = KINDS.get(error.code) or KINDS["internal"]
    answer: dict[str, Any] = {
        "type": f"/problems/{kind.code}",
        "title": kind.title,
        "status": error.status,
        "detail": str(error) or kind.description,
        "code": kind.code,
    }
    if isinstance(error, Invalid) and error.problems:
        answer["errors"] = [_locate(problem) for problem in error.problems]
    if isinstance(error, NoCapacity):
        answer |= {"considered": error.considered, "rejected": error.rejected}
    if request_id is not None:
        answer["request_id"] = request_id
    return answer


def render_kind(kind: ProblemKind) -> bytes:
    """Return the problem document of a kind without details, as JSON."""
    return orjson.dumps(
        {
            "type": f"/problems/{kind.code}",
            "title": kind.title,
            "status": kind.status,
            "detail": kind.description,
            "code": kind.code,
        }
    )


def render_problem(error: SchedoError, request_id: str | None = None) -> bytes:
    """Return the problem document for an error as JSON."""
    return orjson.dumps(problem_fields(error, request_id))


def _locate(problem: Problem) -> dict[str, str]:
    """Say where: "?limit" is the query parameter, all else is a JSON pointer into the body."""
    if problem.pointer.startswith("?"):
        return {"parameter": problem.pointer[1:], "detail": problem.detail}
    return {"pointer": problem.pointer, "detail": problem.detail}


def problem_headers(error: SchedoError) -> list[tuple[bytes, bytes]]:
    """Return the headers that go with the error's status."""
    if isinstance(error, Overloaded | NoCapacity):
        return [(b"retry-after", str(error.retry_after_s).encode())]
    if error.status == 503:
        return [(b"retry-after", str(_RETRY_AFTER_S).encode())]
    if isinstance(error, MethodNotAllowed):
        return [(b"allow", error.allow.encode())]
    if isinstance(error, Unauthorized):
        return [(b"www-authenticate", b'Bearer realm="schedo"')]
    return []
