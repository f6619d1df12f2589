"""The request of each operation, without a server."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from schedo.client import operations, schedule_operations
from schedo.client.messages import HttpResponse, Operation
from schedo.core import limits
from schedo.errors import Invalid, NoCapacity, NotFound, SchedoError

ID = "01K0000000001"

CASES: list[tuple[str, Operation[Any], str, str, Any, bool]] = [
    ("get", operations.get_job(ID), "GET", f"/v1/jobs/{ID}", None, True),
    ("why", operations.why_job(ID), "GET", f"/v1/jobs/{ID}/why", None, True),
    ("history", operations.get_history(ID), "GET", f"/v1/jobs/{ID}/history", None, True),
    ("attempts", operations.list_attempts(ID), "GET", f"/v1/jobs/{ID}/attempts", None, True),
    ("outputs", operations.list_outputs(ID), "GET", f"/v1/jobs/{ID}/output", None, True),
    ("cancel", operations.cancel_job(ID), "POST", f"/v1/jobs/{ID}:cancel", {}, True),
    ("retry", operations.retry_job(ID), "POST", f"/v1/jobs/{ID}:retry", {}, False),
    ("run now", operations.run_job_now(ID), "POST", f"/v1/jobs/{ID}:run", {}, False),
    (
        "reschedule",
        operations.reschedule_job(ID, {"delay": "5m", "priority": 3, "run_at": None}),
        "PATCH",
        f"/v1/jobs/{ID}",
        {"delay": "5m", "priority": 3},
        False,
    ),
    (
        "list",
        operations.list_jobs({"state": "failed", "queue": None, "tag": "a b"}, 5, "c="),
        "GET",
        "/v1/jobs?state=failed&tag=a+b&limit=5&cursor=c%3D",
        None,
        True,
    ),
    (
        "put schedule",
        schedule_operations.put_schedule(
            "n", {"cron": "@daily", "task": "t", "payload": None, "tz": None}
        ),
        "PUT",
        "/v1/schedules/n",
        {"cron": "@daily", "task": "t", "payload": None},
        True,
    ),
    ("get schedule", schedule_operations.get_schedule("n"), "GET", "/v1/schedules/n", None, True),
    ("backup", operations.create_backup(), "POST", "/v1/backup", None, False),
    (
        "schedules",
        schedule_operations.list_schedules(9),
        "GET",
        "/v1/schedules?limit=9",
        None,
        True,
    ),
    (
        "failing schedules",
        schedule_operations.list_schedules(9, failing=True),
        *("GET", "/v1/schedules?failing=true&limit=9", None, True),
    ),
    (
        "decisions",
        schedule_operations.list_decisions("n"),
        "GET",
        "/v1/schedules/n/decisions?limit=50",
        None,
        True,
    ),
    ("delete", schedule_operations.delete_schedule("n"), "DELETE", "/v1/schedules/n", None, False),
    (
        "pause",
        schedule_operations.pause_schedule("n", "moving"),
        "POST",
        "/v1/schedules/n:pause",
        {"note": "moving"},
        True,
    ),
    (
        "resume",
        schedule_operations.resume_schedule("n", datetime(2026, 11, 20, 11, tzinfo=UTC)),
        "POST",
        "/v1/schedules/n:resume",
        {"resume_from": "2026-11-20T11:00:00+00:00"},
        True,
    ),
    (
        "trigger",
        schedule_operations.trigger_schedule("n"),
        "POST",
        "/v1/schedules/n:trigger",
        {},
        False,
    ),
    ("queues", operations.list_queues(), "GET", "/v1/queues", None, True),
    (
        "lift a limit",
        operations.set_queue("mail", {"concurrency": None, "weight": 2}),
        "PATCH",
        "/v1/queues/mail",
        {"concurrency": None, "weight": 2},
        True,
    ),
    ("pause queue", operations.pause_queue("q"), "POST", "/v1/queues/q:pause", {}, True),
    (
        "pause queue for a time",
        operations.pause_queue("q", {"note": "n", "duration": "2h", "until": None}),
        *("POST", "/v1/queues/q:pause", {"note": "n", "duration": "2h"}, True),
    ),
    ("resume queue", operations.resume_queue("q"), "POST", "/v1/queues/q:resume", {}, True),
    ("progress", operations.list_progress(ID), "GET", f"/v1/jobs/{ID}/progress", None, True),
    (
        "explain",
        schedule_operations.explain_cron("0 5 * * *", {"tz": "Europe/Paris"}),
        "POST",
        "/v1/cron:explain",
        {"cron": "0 5 * * *", "tz": "Europe/Paris"},
        True,
    ),
    (
        "invoke",
        operations.invoke({"task": "t", "payload": 1}, 5),
        "POST",
        "/v1/invoke",
        {"task": "t", "payload": 1, "wait": 5},
        False,
    ),
    (
        "dry run",
        operations.dry_run({"task": "t"}),
        "POST",
        "/v1/invoke",
        {"task": "t", "dry_run": True},
        True,
    ),
    (
        "reserve",
        operations.reserve({"count": 2, "task": None}),
        "POST",
        "/v1/reservations",
        {"count": 2},
        False,
    ),
    (
        "commit",
        operations.commit_reservation({"id": "r", "nonce": "n"}, {"task": "t"}, 0),
        "POST",
        "/v1/reservations/r:commit",
        {"task": "t", "wait": 0},
        False,
    ),
    (
        "release",
        operations.release_reservation({"id": "r", "nonce": "n"}),
        "POST",
        "/v1/reservations/r:release",
        {},
        False,
    ),
    ("a hostile name", operations.get_job("..x?y#"), "GET", "/v1/jobs/..x%3Fy%23", None, True),
]


@pytest.mark.parametrize(
    ("operation", "method", "target", "body", "is_repeatable"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
def test_a_call_sends_the_documented_request(
    operation: Operation[Any], method: str, target: str, body: Any, is_repeatable: bool
) -> None:
    assert (operation.method, operation.target) == (method, target)
    assert (json.loads(operation.body) if operation.body else None) == body
    assert operation.is_repeatable == is_repeatable


def test_a_submit_carries_a_key_so_that_it_can_be_repeated() -> None:
    first, second = (operations.submit({"task": "t"}) for _ in range(2))

    assert first.is_repeatable
    assert first.headers["Idempotency-Key"] != second.headers["Idempotency-Key"]


def test_a_given_key_is_quoted_as_a_structured_field() -> None:
    operation = operations.submit({"task": "t"}, 'my "key" \\')

    assert operation.headers["Idempotency-Key"] == r'"my \"key\" \\"'


def test_a_key_that_would_break_the_header_is_refused() -> None:
    with pytest.raises(Invalid, match="idempotency key"):
        operations.submit({"task": "t"}, "a\r\nX: 1")


def test_options_become_json_values_and_none_is_left_out() -> None:
    request = operations.render_job(
        "t",
        [None],
        {
            "delay": timedelta(minutes=1, milliseconds=500),
            "queue": None,
            "retry": {"max_attempts": 2, "initial": timedelta(seconds=3)},
            "tags": ("a", "b"),
            "meta": {"owner": None},
        },
    )

    assert request == {
        "task": "t",
        "payload": [None],
        "delay": 60.5,
        "retry": {"max_attempts": 2, "initial": 3.0},
        "tags": ["a", "b"],
        "meta": {"owner": None},
    }


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(Invalid, match="2026-11-20T11:00:00 has no time zone"):
        operations.render_job("t", None, {"run_at": datetime(2026, 11, 20, 11)})  # noqa: DTZ001


@pytest.mark.parametrize("payload", [float("nan"), float("inf"), object(), {1, 2}, b"x"])
def test_a_payload_that_is_not_json_is_refused(payload: object) -> None:
    with pytest.raises(Invalid, match="cannot be written as JSON"):
        operations.submit(operations.render_job("t", payload, {}))


def test_a_payload_that_is_nested_too_deep_is_refused() -> None:
    payload: list[object] = []
    for _ in range(100_000):
        payload = [payload]

    with pytest.raises(Invalid, match="the request is nested deeper than 64 levels"):
        operations.submit(operations.render_job("t", payload, {}))


def test_a_batch_is_split_at_the_limit_of_the_api() -> None:
    requests = [{"task": "t", "payload": number} for number in range(2_001)]

    parts = [json.loads(operation.body) for operation in operations.submit_many(requests, "k")]

    assert [len(part) for part in parts] == [1_000, 1_000, 1]
    assert parts[2] == [{"task": "t", "payload": 2_000}]


def test_a_batch_with_too_many_bytes_is_split_as_well() -> None:
    requests = [{"task": "t", "payload": f"{number}" * 10_000} for number in range(1_000, 2_000)]

    made = operations.submit_many(requests, "k")

    assert max(len(operation.body) for operation in made) <= limits.BATCH_BYTES_MAX
    assert [job for operation in made for job in json.loads(operation.body)] == requests
    keys = [operation.headers["Idempotency-Key"] for operation in made]
    assert len({*keys}) == len(made) > 4


def test_a_job_that_is_no_json_is_found_before_the_first_batch_is_sent() -> None:
    requests = [{"task": "t"}] * 1_000 + [{"task": "t", "payload": object()}]

    with pytest.raises(Invalid):
        operations.submit_many(requests)


def test_each_part_of_a_batch_has_its_own_key() -> None:
    keys = [
        operation.headers["Idempotency-Key"]
        for operation in operations.submit_many([{"task": "t"}] * 1_001, "k")
    ]

    assert keys == ['"k/0"', '"k/1000"']


def test_a_batch_returns_a_job_or_an_error_at_each_position() -> None:
    (operation,) = operations.submit_many([{"task": "t"}, {"task": "u"}])
    refused = {"code": "not-found", "detail": "there is no task u"}
    body = {"items": [{"status": 201, "job": {"id": ID}}, {"status": 404, "problem": refused}]}

    made, error = operation.read(HttpResponse(200, {}, json.dumps(body).encode()))

    assert made == {"id": ID}
    assert isinstance(error, NotFound)
    assert str(error) == "there is no task u"


def test_a_failed_invocation_returns_its_jobs() -> None:
    problem = {"code": "invocation-failed", "status": 502, "detail": "job 1 is failed"}
    invocation = operations.invoke({"task": "t"}, 5)

    for found in ({"job": {"id": ID}}, {"jobs": [{"id": ID}]}):
        body = json.dumps({**problem, **found}).encode()
        assert invocation.read(HttpResponse(502, {}, body)) == [{"id": ID}]


def test_a_bad_gateway_of_a_proxy_is_an_error() -> None:
    with pytest.raises(SchedoError, match="the server answered 502 Bad Gateway"):
        operations.invoke({"task": "t"}, 5).read(HttpResponse(502, {}, b"<html>"))


def test_no_capacity_has_its_counts() -> None:
    problem = {"code": "no-capacity", "detail": "none", "considered": 3, "rejected": {"task": 3}}

    with pytest.raises(NoCapacity) as refused:
        operations.invoke({"task": "t"}, 5).read(
            HttpResponse(503, {"retry-after": "2"}, json.dumps(problem).encode())
        )

    error = refused.value
    assert (error.considered, error.rejected, error.retry_after_s) == (3, {"task": 3}, 2)


def clock(*instants: float) -> Iterator[float]:
    yield from instants


def test_a_wait_is_split_into_requests_until_its_timeout() -> None:
    instants = clock(0.0, 0.0, 20.0, 20.0, 40.0, 40.0, 45.0)

    waits = list(operations.wait_job(ID, 45.0, lambda: next(instants)))

    assert [wait.target.partition("?")[2] for wait in waits] == [
        "timeout=20.000000",
        "timeout=20.000000",
        "timeout=5.000000",
    ]
    assert [wait.held_s for wait in waits] == [20.0, 20.0, 5.0]


def test_a_wait_of_zero_sends_one_request() -> None:
    waits = list(operations.wait_job(ID, 0.0, lambda: 7.0))

    assert [wait.target for wait in waits] == [f"/v1/jobs/{ID}/wait?timeout=0.000000"]


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'"x"', b""], ids=repr)
def test_a_response_of_another_kind_of_server_is_reported(body: bytes) -> None:
    with pytest.raises(SchedoError, match="not a schedo server"):
        operations.get_job(ID).read(HttpResponse(200, {"content-type": "text/html"}, body))


NOT_UTF8 = os.fsdecode(b"caf\xe9")  # as Python decodes such an argument of a command


@pytest.mark.parametrize(
    "ask",
    [
        lambda: operations.submit({"task": "demo", "payload": NOT_UTF8}),
        lambda: operations.get_job(NOT_UTF8),
        lambda: operations.pause_queue(NOT_UTF8),
        lambda: operations.list_jobs({"tag": NOT_UTF8}, 10, None),
    ],
    ids=["body", "job", "queue", "query"],
)
def test_text_that_is_not_utf8_is_refused_before_it_is_sent(ask: Callable[[], object]) -> None:
    with pytest.raises(Invalid, match="not UTF-8"):
        ask()


@pytest.mark.parametrize("name", ["", "backup/db", "a/../b"])
def test_a_name_that_would_lead_to_another_address_is_refused_before_it_is_sent(name: str) -> None:
    for ask in (operations.get_job, operations.pause_queue, schedule_operations.get_schedule):
        with pytest.raises(Invalid) as raised:
            ask(name)

        assert f"{name!r} is neither a name nor an id" in str(raised.value)


def test_a_job_of_a_batch_keeps_its_payload_and_renders_its_options() -> None:
    payload = {"due": None, "list": (1, 2)}

    request = operations.render_request(
        {"task": "t", "delay": timedelta(seconds=90), "queue": None, "payload": payload}
    )

    assert request == {"task": "t", "delay": 90.0, "payload": payload}
    assert request["payload"] is payload
    assert operations.render_request({"task": "t"}) == {"task": "t", "payload": None}
