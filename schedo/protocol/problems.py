"""Errors as RFC 9457 problem documents, and the registry of their codes.

The registry is the tree in errors.py: each class is one code, and its docstring the description.
"""

from __future__ import annotations

from typing import Self

import msgspec
from msgspec import UNSET, Struct, UnsetType

from schedo.errors import (
    Invalid,
    MethodNotAllowed,
    NoCapacity,
    NotFound,
    Overloaded,
    Problem,
    SchedoError,
    Unauthorized,
    all_errors,
)
from schedo.protocol.fields import or_unset
from schedo.protocol.jobs import JobResponse

PROBLEM_TYPE = b"application/problem+json"
_RETRY_AFTER_S = 1


class ProblemKind(Struct, forbid_unknown_fields=True, frozen=True):
    """The meaning of an error code."""

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
        "tls-required",
        400,
        "TLS required",
        "The port speaks HTTPS: the URL must begin with https://.",
    ),
    ProblemKind(
        "grpc-port",
        400,
        "Port of gRPC",
        "This port speaks gRPC, over HTTP/2; HTTP/1.1 is for the server's other port (--port).",
    ),
    ProblemKind(
        "http-version", 505, "HTTP version not supported", "The server speaks HTTP/1.1 and 1.0."
    ),
)


def list_kinds() -> list[ProblemKind]:
    """Return every kind of error, by code."""
    kinds = {kind.code: kind for kind in _CONNECTION_KINDS}
    for code, error in all_errors().items():
        title = code.replace("-", " ").capitalize().replace("json", "JSON")
        description = (error.__doc__ or "").partition("\n")[0]
        kinds[code] = ProblemKind(code, error.status, title, description)
    kinds["internal"] = ProblemKind(
        "internal", 500, "Internal error", "A bug in schedo; the log has it under the request's id."
    )
    return [kinds[code] for code in sorted(kinds)]


KINDS = {kind.code: kind for kind in list_kinds()}


def get_kind(code: str) -> ProblemKind:
    """Return the kind of error with this code."""
    kind = KINDS.get(code)
    if kind is None:
        raise NotFound(f"there is no problem with the code {code[:40]!r}")
    return kind


class PointedProblem(Struct, forbid_unknown_fields=True, kw_only=True):
    """The error of one field (JSON pointer) or one query parameter."""

    detail: str
    pointer: str | UnsetType = UNSET
    parameter: str | UnsetType = UNSET

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """Return the place: "?limit" is a query parameter, other texts are JSON pointers."""
        if problem.pointer.startswith("?"):
            return cls(detail=problem.detail, parameter=problem.pointer[1:])
        return cls(detail=problem.detail, pointer=problem.pointer)


class ProblemResponse(Struct, forbid_unknown_fields=True, kw_only=True):
    """An error as a problem document of RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: list[PointedProblem] | UnsetType = UNSET
    considered: int | UnsetType = UNSET
    rejected: dict[str, int] | UnsetType = UNSET
    job: JobResponse | UnsetType = UNSET
    jobs: list[JobResponse] | UnsetType = UNSET
    request_id: str | UnsetType = UNSET

    @classmethod
    def of(cls, error: SchedoError, request_id: str | None = None) -> Self:
        kind = KINDS.get(error.code) or KINDS["internal"]
        document = cls(
            type=f"/problems/{kind.code}",
            title=kind.title,
            status=error.status,
            detail=str(error) or kind.description,
            code=kind.code,
            request_id=or_unset(request_id),
        )
        if isinstance(error, Invalid) and error.problems:
            document.errors = [PointedProblem.of(problem) for problem in error.problems]
        if isinstance(error, NoCapacity):
            document.considered, document.rejected = error.considered, error.rejected
        return document

    @classmethod
    def of_kind(cls, kind: ProblemKind) -> Self:
        """Return the problem document of a kind without details."""
        return cls(
            type=f"/problems/{kind.code}",
            title=kind.title,
            status=kind.status,
            detail=kind.description,
            code=kind.code,
        )


def render_kind(kind: ProblemKind) -> bytes:
    """Return the problem document of a kind without details, as JSON."""
    return msgspec.json.encode(ProblemResponse.of_kind(kind))


def render_problem(error: SchedoError, request_id: str | None = None) -> bytes:
    """Return the problem document for an error as JSON."""
    return msgspec.json.encode(ProblemResponse.of(error, request_id))


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
