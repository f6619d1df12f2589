"""The status of a call: the errors of schedo as gRPC shows them.

The details are those of google.rpc (AIP-193): ErrorInfo has the `code` of the HTTP API as its
reason, BadRequest the fields, RetryInfo the time to wait.
"""

from __future__ import annotations

import binascii
from enum import IntEnum
from typing import NamedTuple
from urllib.parse import quote

import msgspec
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status as StatusMessage

DOMAIN = "schedo"
_MESSAGE_CHARACTERS_MAX = 1_000  # a header must not become larger than a client takes
_FIELDS_MAX = 10
_DETAIL_CHARACTERS_MAX = 200


class Code(IntEnum):
    """The codes of google.rpc.Code that the server sends."""

    OK = 0
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


# By the code of the HTTP API. Clients repeat a call by themselves after UNAVAILABLE only, so no
# error whose outcome is unknown has that code.
CODES = {
    "bad-http": Code.INTERNAL,
    "bad-json": Code.INVALID_ARGUMENT,
    "bad-request": Code.INVALID_ARGUMENT,
    "conflict": Code.FAILED_PRECONDITION,
    "cross-site": Code.PERMISSION_DENIED,
    "duplicate-key": Code.ALREADY_EXISTS,
    "forbidden": Code.PERMISSION_DENIED,
    "grpc-port": Code.INTERNAL,
    "headers-too-large": Code.INVALID_ARGUMENT,
    "http-version": Code.INTERNAL,
    "idempotency-in-progress": Code.ABORTED,
    "idempotency-mismatch": Code.INVALID_ARGUMENT,
    "illegal-transition": Code.FAILED_PRECONDITION,
    "internal": Code.INTERNAL,
    "invalid": Code.INVALID_ARGUMENT,
    "invocation-failed": Code.ABORTED,
    "invocation-timeout": Code.DEADLINE_EXCEEDED,
    "method-not-allowed": Code.UNIMPLEMENTED,
    "misdirected": Code.PERMISSION_DENIED,
    "no-capacity": Code.UNAVAILABLE,
    "no-reservation": Code.FAILED_PRECONDITION,
    "not-found": Code.NOT_FOUND,
    "outcome-unknown": Code.UNKNOWN,
    "overloaded": Code.RESOURCE_EXHAUSTED,
    "peer-unreachable": Code.UNAVAILABLE,
    "request-timeout": Code.UNKNOWN,
    "shell-disabled": Code.PERMISSION_DENIED,
    "stale-lease": Code.FAILED_PRECONDITION,
    "storage-full": Code.RESOURCE_EXHAUSTED,
    "store-broken": Code.UNKNOWN,
    "store-damaged": Code.UNKNOWN,
    "store-locked": Code.UNAVAILABLE,
    "tls-required": Code.INTERNAL,
    "too-large": Code.INVALID_ARGUMENT,
    "unauthorized": Code.UNAUTHENTICATED,
    "unavailable": Code.UNAVAILABLE,
    "unsatisfiable": Code.FAILED_PRECONDITION,
    "unsupported-media-type": Code.INVALID_ARGUMENT,
    "uri-too-long": Code.INVALID_ARGUMENT,
    "worker-replaced": Code.FAILED_PRECONDITION,
}


class Status(NamedTuple):
    """How a call ends."""

    code: Code
    message: str = ""
    details: tuple[Message, ...] = ()

    def trailers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers that end the call."""
        found = [(b"grpc-status", b"%d" % self.code)]
        if self.message:
            text = quote(self.message[:_MESSAGE_CHARACTERS_MAX], safe=_UNQUOTED)
            found.append((b"grpc-message", text.encode()))
        if self.details:
            status = StatusMessage(code=self.code, message=self.message[:_MESSAGE_CHARACTERS_MAX])
            for each in self.details:
                status.details.add().Pack(each)
            found.append((b"grpc-status-details-bin", _base64(status.SerializeToString())))
        return found


OK = Status(Code.OK)
# What may stand in a grpc-message as it is: printable ASCII but the percent sign.
_UNQUOTED = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")


class CallFailed(Exception):
    """Ends a call with this status."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.message)
        self.status = status


def fail(code: Code, message: str) -> CallFailed:
    """Return the error that ends a call with this code."""
    return CallFailed(Status(code, message))


class _PointedProblem(msgspec.Struct):
    detail: str
    pointer: str = ""
    parameter: str = ""


class ProblemFields(msgspec.Struct):
    """What a call uses of a problem document of the HTTP API."""

    status: int
    code: str
    detail: str
    errors: list[_PointedProblem] = []


_problems = msgspec.json.Decoder(ProblemFields)


def read_problem(body: bytes) -> ProblemFields:
    """Return the problem in the body of a response."""
    return _problems.decode(body)


def status_of(problem: ProblemFields, retry_after_s: int | None = None) -> Status:
    """Return the status of a call that the HTTP API refuses with this problem."""
    details: list[Message] = [ErrorInfo(reason=problem.code, domain=DOMAIN)]
    if problem.errors:
        details.append(BadRequest(field_violations=map(_violation, problem.errors[:_FIELDS_MAX])))
    if retry_after_s is not None:
        retry = RetryInfo()
        retry.retry_delay.FromSeconds(retry_after_s)
        details.append(retry)
    # After an upgrade the problem can be one of a newer version.
    code = CODES.get(problem.code, Code.UNKNOWN)
    return Status(code, problem.detail, tuple(details))


def _violation(each: _PointedProblem) -> BadRequest.FieldViolation:
    return BadRequest.FieldViolation(
        field=each.pointer or each.parameter, description=each.detail[:_DETAIL_CHARACTERS_MAX]
    )


def _base64(data: bytes) -> bytes:
    return binascii.b2a_base64(data, newline=False).rstrip(b"=")
