"""Jobs over HTTP: submit, read, list, wait, change."""

from __future__ import annotations

import asyncio

import pytest

from schedo.core.leases import AttemptResult, CapturedOutput, Completed, Failed
from schedo.core.model import Failure
from tests.web.world import World


async def test_a_response_has_the_current_record_of_the_job(world: World) -> None:
    reply = await world.post(
        "/v1/jobs", {"task": "mail.send", "payload": {"to": "ada"}, "delay": "5s", "tags": ["a"]}
    )

    job = reply.json()
    assert reply.status == 201
    assert reply.headers["location"] == f"/v1/jobs/{job['id']}"
    assert job == {
        "id": job["id"],
        "state": "scheduled",
        "task": "mail.send",
        "queue": "default",
        "priority": 0,
        "payload": {"to": "ada"},
        "attempt": 0,
        "max_attempts": 5,
        "failures": 0,
        "losses": 0,
        "created_at": "2026-11-20T11:04:05.000000Z",
        "scheduled_at": "2026-11-20T11:04:10.000000Z",
        "tags": ["a"],
    }
    assert (await world.get(f"/v1/jobs/{job['id']}")).json() == job


async def test_a_payload_is_returned_as_it_was_sent(world: World) -> None:
    reply = await world.send("POST", "/v1/jobs", b'{"task":"t","payload":{"b": 1.0,\n "a":[ ]}}')

    assert b'"payload":{"b": 1.0,\n "a":[ ]}' in reply.body


async def test_a_large_payload_is_in_the_job_but_not_in_the_list(world: World) -> None:
    text = "x" * 10_000
    job = await world.submit(payload=text)

    assert job["payload"] == text
    assert (await world.get(f"/v1/jobs/{job['id']}")).json()["payload"] == text
    assert "payload" not in (await world.get("/v1/jobs")).json()["items"][0]


async def test_an_id_is_parsed_in_any_case_and_an_invalid_one_is_not_found(world: World) -> None:
    job = await world.submit()

    assert (await world.get(f"/v1/jobs/{job['id'].lower()}")).status == 200
    assert (await world.get("/v1/jobs/0000000000000")).code == "not-found"


@pytest.mark.parametrize(
    "job_id",
    ["..", "%2e%2e", "..%5c", "x" * 5000, "\0", "1", "\u0665" * 13, "a b", "'; DROP TABLE job;--"],
)
async def test_an_invalid_id_is_not_found(world: World, job_id: str) -> None:
    for path in ("", "/output", "/attempts", "/why", "/wait"):
        assert (await world.get(f"/v1/jobs/{job_id}{path}")).status == 404


async def test_each_page_but_the_last_has_a_cursor_to_the_next(world: World) -> None:
    ids = [(await world.submit())["id"] for _ in range(3)]

    first = await world.get("/v1/jobs?limit=2")
    cursor = first.json()["next_cursor"]
    second = await world.get(f"/v1/jobs?limit=2&cursor={cursor}")

    assert [job["id"] for job in first.json()["items"]] == [ids[2], ids[1]]
    assert first.headers["link"] == f'</v1/jobs?limit=2&cursor={cursor}>; rel="next"'
    assert [job["id"] for job in second.json()["items"]] == [ids[0]]
    assert "next_cursor" not in second.json()


async def test_a_cursor_belongs_to_its_filter(world: World) -> None:
    await world.submit()
    cursor = (await world.get("/v1/jobs?limit=1&queue=default")).json()["next_cursor"]

    reply = await world.get(f"/v1/jobs?limit=1&queue=other&cursor={cursor}")

    assert (reply.status, reply.code) == (400, "bad-request")
    assert reply.json()["errors"][0]["parameter"] == "cursor"


async def test_a_list_is_filtered_by_each_parameter(world: World) -> None:
    job = await world.submit(task="a", queue="q", tags=["t"], unique="k", delay=60)
    await world.submit(task="b")

    for query in (
        "task=a",
        "queue=q",
        "tag=t",
        "unique_key=k",
        "state=scheduled",
        "created_before=2026-11-20T11:04:06Z&task=a",
        "created_after=2026-11-20T12:04:05%2B01:00&queue=q",
    ):
        items = (await world.get(f"/v1/jobs?{query}")).json()["items"]
        assert [item["id"] for item in items] == [job["id"]], query


async def test_a_list_is_filtered_by_how_jobs_have_ended(world: World) -> None:
    job = await world.submit(delay=60)
    await world.post(f"/v1/jobs/{job['id']}:cancel")
    await world.submit(delay=60)

    for query, count in (
        ("ended_after=2026-11-20T11:04:05Z", 1),
        ("ended_after=2026-11-21T11:04:05Z", 0),
        ("ended_before=2026-11-21T11:04:05Z", 1),
        ("ended_before=2026-11-20T11:04:05Z", 0),
        ("error=timeout", 0),
    ):
        items = (await world.get(f"/v1/jobs?{query}")).json()["items"]
        assert [item["id"] for item in items] == [job["id"]] * count, query


@pytest.mark.parametrize(
    "text", ["' OR 1=1 --", '"; DROP TABLE job; --', "%", "_", "a%' OR 'a'='a", "*", "NULL"]
)
async def test_sql_in_a_filter_finds_no_job_or_is_refused(world: World, text: str) -> None:
    await world.submit(unique="k")
    encoded = text.replace("%", "%25").replace(" ", "%20")

    for name in ("queue", "task", "tag", "schedule", "unique_key", "error"):
        reply = await world.get(f"/v1/jobs?{name}={encoded}")
        assert reply.status == 400 or reply.json()["items"] == []


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=501",
        "limit=-1",
        "limit=1e2",
        "limit=\u0665",
        "limit=",
        "cursor=",
        "cursor=abc",
        "cursor=%00",
        "cursor=" + "A" * 5000,
        "state=done",
        "created_after=yesterday",
        "created_after=2026-11-20T11:04:05",
        "created_after=2026-11-20T11:04:05+01:00",
        "page=2",
        "limit=1&limit=2",
        "queue=../x",
        "unique_key=%ff",
        "&".join(f"a{n}=1" for n in range(100)),
    ],
)
async def test_a_bad_query_parameter_is_refused(world: World, query: str) -> None:
    reply = await world.get(f"/v1/jobs?{query}")

    assert (reply.status, reply.code) == (400, "bad-request")


async def test_a_wait_for_a_job_ends_when_the_job_ends(world: World) -> None:
    world.attach_worker()
    waiting = asyncio.create_task(world.post("/v1/jobs?wait=30s", {"task": "demo"}))
    lease = await world.worker.first()
    world.engine.report(AttemptResult(lease.key, Completed(b'{"n":1}')))

    reply = await waiting

    assert reply.status == 200
    assert (reply.json()["state"], reply.json()["result"]) == ("completed", {"n": 1})


async def test_a_wait_that_ends_before_its_job_returns_202(world: World) -> None:
    job = await world.submit(delay=60)

    assert (await world.get(f"/v1/jobs/{job['id']}/wait?timeout=0")).status == 202
    assert (await world.post("/v1/jobs?wait=0", {"task": "t", "delay": 60})).status == 202


async def test_a_wait_for_a_job_ends_when_the_server_drains(world: World) -> None:
    job = await world.submit(delay=60)
    waiting = asyncio.create_task(world.get(f"/v1/jobs/{job['id']}/wait?timeout=5m"))
    await world.engine.flush()
    world.app.drain()

    reply = await waiting

    assert (reply.status, reply.json()["state"]) == (202, "scheduled")
    assert (await world.get("/readyz")).status == 503


async def test_an_invalid_or_too_long_timeout_of_a_wait_is_refused(world: World) -> None:
    job = await world.submit(delay=60)

    for text in ("6m", "-1", "nan", "soon", "1e9"):
        assert (await world.get(f"/v1/jobs/{job['id']}/wait?timeout={text}")).status == 400


async def test_a_waiting_job_can_be_cancelled_and_retried(world: World) -> None:
    job = await world.submit(delay=60)
    url = f"/v1/jobs/{job['id']}"

    cancelled = await world.post(f"{url}:cancel")
    again = await world.post(f"{url}:cancel")
    retried = await world.post(f"{url}:retry", {})

    assert cancelled.json()["cancelled_at"] == "2026-11-20T11:04:05.000000Z"
    assert again.json()["state"] == "cancelled"
    assert retried.json()["state"] == "queued"
    assert (await world.post(f"{url}:retry")).code == "illegal-transition"


async def test_a_waiting_job_can_be_rescheduled_and_run_now(world: World) -> None:
    job = await world.submit(delay=60)
    url = f"/v1/jobs/{job['id']}"

    moved = await world.patch(url, {"run_at": "2026-11-21T00:00:00Z", "priority": 3})
    run = await world.post(f"{url}:run")

    assert moved.json()["scheduled_at"] == "2026-11-21T00:00:00.000000Z"
    assert moved.json()["priority"] == 3
    assert run.json()["state"] == "queued"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"delay": 5, "run_at": "2026-11-21T00:00:00Z"},
        {"priority": 10},
        {"state": "completed"},
        {"run_at": "10000-01-01T00:00:00Z"},
        [],
    ],
)
async def test_a_bad_change_of_a_job_is_refused_and_changes_nothing(
    world: World, body: object
) -> None:
    job = await world.submit(delay=60)

    assert (await world.patch(f"/v1/jobs/{job['id']}", body)).code == "invalid"
    assert (await world.get(f"/v1/jobs/{job['id']}")).json() == job


async def test_a_failed_job_shows_its_error_and_its_output(world: World) -> None:
    world.attach_worker()
    job = await world.submit(retry=1)
    lease = await world.worker.first()
    failure = Failure("exit-code", "exit code 3", exit_code=3)
    captures = (
        CapturedOutput("stdout", b"caf\xc3\xa9\n", b"", 6),
        CapturedOutput("stderr", b"\x1b[31m\xff", b"<b>end", 5_000),
    )
    world.engine.report(AttemptResult(lease.key, Failed(failure), captures))
    await world.get(f"/v1/jobs/{job['id']}/wait")
    await world.engine.flush()

    found = (await world.get(f"/v1/jobs/{job['id']}")).json()
    attempts = (await world.get(f"/v1/jobs/{job['id']}/attempts")).json()["items"]
    output = (await world.get(f"/v1/jobs/{job['id']}/output")).json()["items"]
    text = await world.get(f"/v1/jobs/{job['id']}/output?stream=stderr&attempt=1")

    assert found["error"] == {"type": "exit-code", "message": "exit code 3", "exit_code": 3}
    assert [attempt["outcome"] for attempt in attempts] == ["failed"]
    assert (
        output[0]
        == {
            "attempt": 1,
            "stream": "stderr",
            "text": "\x1b[31m\ufffd\n[... 4988 bytes left out ...]\n<b>end",
            "total_bytes": 5_000,
            "truncated": True,
            "encoding": "base64",
            "base64": output[0]["base64"],
        }
        or output[0]["stream"] == "stdout"
    )
    assert {
        "attempt": 1,
        "stream": "stdout",
        "text": "café\n",
        "total_bytes": 6,
        "truncated": False,
    } in output
    assert text.headers["content-type"] == "text/plain; charset=utf-8"
    assert text.headers["x-content-type-options"] == "nosniff"
    assert text.body == b"\x1b[31m\xff\n[... 4988 bytes left out ...]\n<b>end"


async def test_output_that_is_not_there_is_not_found(world: World) -> None:
    job = await world.submit()

    assert (await world.get(f"/v1/jobs/{job['id']}/output")).json() == {"items": []}
    assert (await world.get(f"/v1/jobs/{job['id']}/output?stream=stdout")).code == "not-found"
    assert (await world.get(f"/v1/jobs/{job['id']}/output?stream=..")).status == 400


async def test_the_endpoint_why_explains_a_waiting_job(world: World) -> None:
    job = await world.submit(delay=60)

    answer = (await world.get(f"/v1/jobs/{job['id']}/why")).json()

    assert answer["state"] == "scheduled"
    assert answer["why"] == "; ".join(answer["reasons"])
    due = next(check for check in answer["checks"] if check["what"] == "due")
    assert (due["ok"], due["permanent"], due["text"]) == (False, False, answer["reasons"][-1])
    assert {each["ok"] for each in answer["workers"]} <= {True, False}


async def test_a_unique_conflict_returns_the_existing_job(world: World) -> None:
    first = await world.submit(unique="k", delay=60)

    second = await world.post("/v1/jobs", {"task": "demo", "unique": "k"})
    third = await world.post(
        "/v1/jobs", {"task": "demo", "unique": {"key": "k", "on_conflict": "reject"}}
    )

    assert (second.status, second.json()["id"]) == (200, first["id"])
    assert second.json()["conflict"] is True
    assert (third.status, third.code) == (409, "duplicate-key")


async def test_a_traceparent_comes_from_the_header_or_the_body(world: World) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    header = [("traceparent", trace)]

    assert (await world.post("/v1/jobs", {"task": "t"}, header)).json()["traceparent"] == trace
    ignored = await world.post("/v1/jobs", {"task": "t"}, [("traceparent", "junk")])
    assert "traceparent" not in ignored.json()
    refused = await world.post("/v1/jobs", {"task": "t", "traceparent": "junk"})
    assert refused.json()["errors"][0]["pointer"] == "/traceparent"


TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize(
    ("headers", "stored"),
    [
        ([("traceparent", TRACE), ("tracestate", "a=b")], (TRACE, "a=b")),
        ([("traceparent", f"cc{TRACE[2:]}-more")], (TRACE, None)),
        ([("traceparent", f"{TRACE}-more")], (None, None)),
        ([("traceparent", f"cc{TRACE[2:]}more")], (None, None)),
        ([("traceparent", f"ff{TRACE[2:]}")], (None, None)),
        ([("traceparent", TRACE.upper())], (None, None)),
        ([("traceparent", TRACE), ("tracestate", "x" * 513)], (TRACE, None)),
        ([("traceparent", "junk"), ("tracestate", "a=b")], (None, None)),
    ],
)
async def test_the_trace_context_of_a_request_is_read_by_the_rules_of_the_w3c(
    headers: list[tuple[str, str]], stored: tuple[str | None, str | None], world: World
) -> None:
    job = (await world.post("/v1/jobs", {"task": "t"}, headers)).json()

    assert (job.get("traceparent"), job.get("tracestate")) == stored
