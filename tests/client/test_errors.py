"""A problem document becomes the exception that the server raised."""

from __future__ import annotations

import json
from typing import Any

import pytest

from schedo.client.errors import JobFailed, parse_problem
from schedo.errors import (
    BadJson,
    DuplicateKey,
    Forbidden,
    IllegalTransition,
    Invalid,
    MethodNotAllowed,
    NotFound,
    Overloaded,
    SchedoError,
    StoreError,
    StoreFull,
    Unauthorized,
    Unavailable,
)


def parse(status: int, document: dict[str, Any] | None = None, **headers: str) -> SchedoError:
    return parse_problem(
        status, headers, b"" if document is None else json.dumps(document).encode()
    )


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (404, "not-found", NotFound),
        (409, "illegal-transition", IllegalTransition),
        (409, "duplicate-key", DuplicateKey),
        (400, "bad-json", BadJson),
        (422, "invalid", Invalid),
        (401, "unauthorized", Unauthorized),
        (405, "method-not-allowed", MethodNotAllowed),
        (429, "overloaded", Overloaded),
        (503, "outcome-unknown", StoreError),
        (507, "storage-full", StoreFull),
        (503, "unavailable", Unavailable),
        (500, "internal", SchedoError),
    ],
)
def test_the_code_selects_the_error_class(status: int, code: str, kind: type[SchedoError]) -> None:
    error = parse(status, {"status": status, "code": code, "detail": "what happened"})

    assert type(error) is kind
    assert str(error) == "what happened"
    assert (error.code, error.status) == (code, status)


def test_a_code_of_a_newer_server_falls_back_to_the_status() -> None:
    error = parse(403, {"status": 403, "code": "from-the-future", "detail": "no"})

    assert type(error) is Forbidden
    assert error.code == "from-the-future"


@pytest.mark.parametrize(
    ("status", "kind", "text"),
    [
        (502, SchedoError, "the server answered 502 Bad Gateway"),
        (404, NotFound, "the server answered 404 Not Found"),
        (418, Invalid, "the server answered 418 I'm a Teapot"),
        (599, SchedoError, "the server answered 599"),
    ],
)
def test_a_response_without_a_problem_document_becomes_an_error(
    status: int, kind: type[SchedoError], text: str
) -> None:
    error = parse_problem(status, {}, b"<html>Bad</html>")

    assert type(error) is kind
    assert str(error) == text


def test_an_error_lists_the_problem_of_each_field() -> None:
    errors = [{"pointer": "/cron", "detail": "six stars"}, {"parameter": "limit", "detail": "big"}]

    error = parse(422, {"status": 422, "code": "invalid", "detail": "no", "errors": errors})

    assert isinstance(error, Invalid)
    assert [(p.pointer, p.detail) for p in error.problems] == [
        ("/cron", "six stars"),
        ("?limit", "big"),
    ]


def test_an_error_has_the_request_id_as_a_note() -> None:
    error = parse(500, {"status": 500, "code": "internal", "detail": "x", "request_id": "r-7"})

    assert error.__notes__ == ["request r-7"]


def test_an_error_has_the_retry_after_time() -> None:
    error = parse_problem(429, {"retry-after": "7"}, b'{"status":429,"code":"overloaded"}')

    assert isinstance(error, Overloaded)
    assert error.retry_after_s == 7


def test_parsing_an_error_does_not_change_the_class_attributes() -> None:
    parse(418, {"status": 418, "code": "odd", "detail": "x"})

    assert (Invalid.code, Invalid.status) == ("invalid", 422)


@pytest.mark.parametrize(
    ("record", "text"),
    [
        ({"id": "A", "state": "failed", "error": {"message": "boom"}}, "job A failed: boom"),
        ({"id": "A", "state": "cancelled"}, "job A was cancelled"),
        ({"id": "A", "state": "expired", "error": None}, "job A expired"),
    ],
)
def test_a_failed_job_becomes_an_exception_with_its_error(
    record: dict[str, Any], text: str
) -> None:
    assert str(JobFailed(record)) == text
