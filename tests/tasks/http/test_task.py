"""The http task with real servers: its requests, and the outcomes of responses."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from schedo.core.leases import AttemptResult, Completed, Failed, Released
from schedo.core.model import Options
from schedo.core.strict_json import CheckedJson
from schedo.protocol.pieces import PIECE_BYTES
from schedo.tasks.http.task import HttpRunner, parse_retry_after
from schedo.tasks.runner import TakenBack
from tests.tasks.http.servers import NOW, Server, answer, call_server, make_runner, run
from tests.worker.calls import JOB, both_loops, capture_of, failure_of, make_context, result_of

MakeLoop = Callable[[], asyncio.AbstractEventLoop]
SECOND = 1_000_000
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@both_loops
def test_a_json_body_is_posted_with_the_job_s_identity(make_loop: MakeLoop) -> None:
    async def scenario() -> tuple[AttemptResult, Server]:
        async with Server(answer(200)) as server:
            report = await run(
                {"url": server.url("/hook?a=b"), "body": {"n": [1, "ä"]}, "headers": {"X-A": "b"}},
                options=Options(traceparent=TRACE, tracestate="a=b"),
            )
            return report, server

    with asyncio.Runner(loop_factory=make_loop) as runner:
        report, server = runner.run(scenario())

    (received,) = server.received
    assert received.line == "POST /hook?a=b HTTP/1.1"
    assert received.body == b'{"n": [1, "\\u00e4"]}'  # as it was submitted, byte for byte
    assert received.headers == {
        "host": f"127.0.0.1:{server.port}",
        "user-agent": "schedo/test",
        "accept": "*/*",
        "accept-encoding": "identity",
        "connection": "close",
        "content-type": "application/json",
        "content-length": "20",
        "webhook-id": JOB,
        "webhook-timestamp": "1614265330",
        "idempotency-key": f'"{JOB}"',
        "schedo-attempt": "2",
        "schedo-fence": "7",
        "schedo-scheduled-for": "2026-11-20T11:04:05.000250Z",
        "traceparent": TRACE,
        "tracestate": "a=b",
        "x-a": "b",
    }
    assert result_of(report) == {"status": 200, "headers": {"content-length": "0"}}


async def test_a_request_whose_job_another_server_may_have_once_it_is_connected_is_not_sent() -> (
    None
):
    async with Server(answer(200)) as server:
        context = make_context({"url": server.url("/hook")}, "http")
        connected: list[bool] = []

        def may_start() -> bool:
            connected.append(True)
            return False

        context.may_start = may_start
        with pytest.raises(TakenBack):
            await make_runner()(context)

    assert connected == [True]
    assert not server.received


@pytest.mark.parametrize(
    ("payload", "line", "body", "content_type"),
    [
        ({}, "GET /hook HTTP/1.1", b"", None),
        ({"body": None}, "GET /hook HTTP/1.1", b"", None),
        ({"method": "POST"}, "POST /hook HTTP/1.1", b"", None),
        ({"method": "DELETE"}, "DELETE /hook HTTP/1.1", b"", None),
        ({"body": "a\nä"}, "POST /hook HTTP/1.1", "a\nä".encode(), "text/plain; charset=utf-8"),
        ({"body": 0}, "POST /hook HTTP/1.1", b"0", "application/json"),
        ({"body": "", "method": "PUT"}, "PUT /hook HTTP/1.1", b"", "text/plain; charset=utf-8"),
        (
            {"body": "<a/>", "headers": {"Content-Type": "text/xml"}},
            "POST /hook HTTP/1.1",
            b"<a/>",
            "text/xml",
        ),
    ],
)
async def test_the_payload_sets_method_body_and_content_type(
    payload: Any, line: str, body: bytes, content_type: str | None
) -> None:
    async with Server(answer(204, framed=False)) as server:
        await call_server(server, **payload)

    (received,) = server.received
    assert (received.line, received.body) == (line, body)
    assert received.headers.get("content-type") == content_type


@pytest.mark.parametrize(
    "secret", [{"secret": SECRET}, {"secret_name": "crm"}], ids=["given", "named"]
)
async def test_a_secret_signs_id_timestamp_and_body(secret: dict[str, str]) -> None:
    async with Server(answer(200)) as server:
        await call_server(server, make_runner(secrets={"crm": SECRET}), body="{}", **secret)

    # HMAC-SHA256 of "0000000000011.1614265330.{}", computed with openssl dgst.
    signature = server.received[0].headers["webhook-signature"]
    assert signature == "v1,Wuc83CHhZ2ktpx50wlIR3YT7cK7OM2mN5kUYZPx7QWA="


async def test_a_secret_that_the_server_does_not_have_fails_before_any_call() -> None:
    async with Server(answer(200)) as server:
        report = await call_server(server, secret_name="crm")

    failure = failure_of(report)
    assert failure.type == "unknown-secret"
    assert server.received == []


@pytest.mark.parametrize(
    ("status", "retryable"),
    [
        (300, False), (301, False), (302, False), (304, False), (400, False), (401, False),
        (404, False), (410, False), (422, False), (408, True), (425, True), (429, True),
        (500, True), (502, True), (503, True), (504, True), (599, True),
    ],
)  # fmt: skip
async def test_a_status_that_is_not_expected_fails_the_attempt(
    status: int, retryable: bool
) -> None:
    async with Server(answer(status, "location: http://169.254.169.254/\r\n")) as server:
        report = await call_server(server)

    failure = failure_of(report)
    assert isinstance(report.outcome, Failed)
    assert (failure.type, failure.http_status) == ("http-status", status)
    assert report.outcome.retryable is retryable
    assert len(server.received) == 1  # a redirect is not followed


async def test_the_error_message_names_only_the_origin_of_the_url() -> None:
    async with Server(answer(410)) as server:
        report = await run({"url": server.url("/hook?token=hunter2")})

    assert failure_of(report).message == (
        f"http://127.0.0.1:{server.port} answered 410 Gone: it accepts no more calls"
    )


@pytest.mark.parametrize(
    ("expected", "status", "is_completed"),
    [
        ("2xx", 201, True), ("2xx", 302, False), (201, 201, True), (201, 200, False),
        ([200, 404], 404, True), (["2xx", "3xx"], 302, True), ([200, 404], 403, False),
        ("5xx", 503, True),
    ],
)  # fmt: skip
async def test_an_expected_status_completes_the_attempt(
    expected: Any, status: int, is_completed: bool
) -> None:
    async with Server(answer(status)) as server:
        report = await call_server(server, expected_status=expected)

    assert isinstance(report.outcome, Failed) is not is_completed


@pytest.mark.parametrize(
    ("text", "wait_us"),
    [
        (None, None),
        ("120", 120 * SECOND),
        ("0", None),
        ("86401", 86_400 * SECOND),
        ("9" * 400, 86_400 * SECOND),
        ("-5", None),
        ("1e400", None),
        ("NaN", None),
        ("inf", None),
        ("\x00", None),
        ("Thu, 25 Feb 2021 15:03:10 +9999", None),
        ("Mon, 01 Jan 0001 00:00:00 +2359", None),
        ("Fri, 31 Dec 9999 23:59:59 -2359", 86_400 * SECOND),
        ("1.5", None),
        ("٣", None),
        ("soon", None),
        ("", None),
        ("Thu, 25 Feb 2021 15:03:10 GMT", 60 * SECOND),
        ("Thu, 25 Feb 2021 15:03:10", 60 * SECOND),
        ("Thu, 25 Feb 2021 15:02:10 GMT", None),
        ("Wed, 24 Feb 2021 15:02:10 GMT", None),
        ("Thu, 25 Feb 2031 15:02:10 GMT", 86_400 * SECOND),
        ("Thu, 99 Feb 2021 15:02:10 GMT", None),
        ("Thu, 25 Feb 99999999999 15:02:10 GMT", None),
    ],
)
def test_the_header_retry_after_is_read_in_both_forms(
    text: str | None, wait_us: int | None
) -> None:
    assert parse_retry_after(text, NOW) == wait_us


@pytest.mark.parametrize(("status", "wait_us"), [(429, 7 * SECOND), (503, 7 * SECOND), (404, None)])
async def test_the_header_retry_after_delays_the_retry_of_a_retryable_status(
    status: int, wait_us: int | None
) -> None:
    async with Server(answer(status, "Retry-After: 7\r\n")) as server:
        report = await call_server(server)

    assert isinstance(report.outcome, Failed)
    assert report.outcome.retry_in_us == wait_us


async def test_an_attempt_without_a_free_descriptor_is_released(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("schedo.tasks.shortage.PAUSE_S", 0.01)
    monkeypatch.setattr("asyncio.open_connection", refuse)
    runner = HttpRunner(["127.0.0.1"], "test")
    report = await runner(make_context({"url": "http://127.0.0.1:9/"}, "http"))

    assert report.outcome == Released()
    assert runner.not_ready_reasons() == ["no connection can be opened: Too many open files"]


async def test_a_small_json_body_becomes_part_of_the_result() -> None:
    headers = "Content-Type: application/json; charset=utf-8\r\nX-Other: 1\r\n"
    async with Server(answer(201, headers, b'{"id": 7}')) as server:
        report = await call_server(server)

    assert result_of(report) == {
        "status": 201,
        "headers": {
            "content-type": "application/json; charset=utf-8",
            "content-length": "9",
        },
        "body": {"id": 7},
    }
    assert capture_of(report, "body").head == b'{"id": 7}'


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b'{"a":1,"a":2}',
        b"[" * 3_000,
        b"[" * 64 + b"]" * 64,
        b"NaN",
        b'"\\ud800"',
        b"9" * 5_000,
        b"\xff",
    ],
    ids=[
        "cut",
        "duplicate",
        "deep",
        "too deep within the result",
        "nan",
        "surrogate",
        "digits",
        "utf8",
    ],
)
async def test_json_that_is_not_strict_is_not_part_of_the_result(body: bytes) -> None:
    async with Server(answer(200, "content-type: application/json\r\n", body)) as server:
        report = await call_server(server)

    assert result_of(report)["body_is_json"] is False
    assert capture_of(report, "body").head == body


async def test_a_bad_payload_fails_the_attempt_without_a_retry() -> None:
    report = await run({"url": "ftp://a"})

    assert failure_of(report).type == "bad-payload"


async def test_a_large_json_body_is_checked_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    loads = orjson.loads

    def watch(text: bytes) -> object:
        read.append(len(text))
        return loads(text)

    body = b"[" + b",".join([b"[]"] * 20_000) + b"]"
    monkeypatch.setattr(orjson, "loads", watch)
    async with Server(answer(200, "content-type: application/json\r\n", body)) as server:
        report = await call_server(server)

    assert isinstance(report.outcome, Completed)
    assert isinstance(report.outcome.result, CheckedJson)
    assert max(read) <= PIECE_BYTES + 1_024
    assert len(result_of(report)["body"]) == 20_000
