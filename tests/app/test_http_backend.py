"""An application that submits to a server over HTTP: its requests and its errors."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from schedo import Retry, Schedo
from schedo.app.options import make_job
from schedo.errors import DuplicateKey, Invalid, SchedoError
from tests.app.example import Example
from tests.client.server import fake_server


def test_code_that_is_not_async_submits_to_the_server_at_the_url() -> None:
    with fake_server() as server:
        server.on("POST", "/v1/jobs", 201, {"id": "00000000000AB", "state": "queued"})
        done = {"id": "00000000000AB", "state": "completed", "result": "ada"}
        server.on("GET", "/v1/jobs/00000000000AB/wait", 200, done)
        server.on("GET", "/v1/jobs/00000000000AB", 200, done)
        _, send = make_client_app(url=server.url)

        job = send.options(retry=Retry(max_attempts=2)).enqueue_sync("ada")

        assert job.result_sync() == "ada"
        assert job.status_sync()["state"] == "completed"

    assert server.requests[0].json["retry"]["max_attempts"] == 2


async def test_without_a_store_and_a_server_the_error_says_what_to_do(
    example: Example, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SCHEDO_URL", raising=False)
    app = Schedo()

    @app.task
    async def task() -> None: ...

    with pytest.raises(RuntimeError, match="set SCHEDO_URL, or run it with `schedo serve"):
        await task.enqueue()
    with pytest.raises(RuntimeError, match="enqueue inside `async with app:`"):
        await example.add.enqueue(1)


def make_client_app(**where: Any) -> tuple[Schedo, Any]:
    app = Schedo(**where)

    @app.task(queue="mail")
    async def send(to: str) -> str:
        return to

    return app, send


async def test_jobs_go_to_the_server_at_the_url(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_server() as server:
        server.on("POST", "/v1/jobs", 201, {"id": "00000000000AB", "state": "queued"})
        done = {"id": "00000000000AB", "state": "completed", "result": "ada"}
        server.on("GET", "/v1/jobs/00000000000AB/wait", 200, done)
        monkeypatch.setenv("SCHEDO_URL", server.url)
        monkeypatch.setenv("SCHEDO_TOKEN", "t0ken")
        app, send = make_client_app()

        outside = await send.options(delay="5m").enqueue("ada")
        async with app:
            inside = await send.enqueue("ada")

            assert await inside.result() == "ada"

    first, second, _ = server.requests
    assert outside.id == "00000000000AB"
    assert first.headers["authorization"] == "Bearer t0ken"
    assert first.json == {
        "task": "send",
        "payload": {"to": "ada"},
        "queue": "mail",
        "delay": "5m",
    }
    assert second.json["payload"] == {"to": "ada"}


async def test_an_error_response_of_the_server_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_server() as server:
        problem = {"code": "duplicate-key", "detail": "held", "status": 409}
        server.on("POST", "/v1/jobs", 409, problem)
        items = [
            {"status": 201, "job": {"id": "0CR5KPDD15T00"}},
            {"status": 409, "problem": problem},
        ]
        server.on("POST", "/v1/jobs:batch", 200, {"items": items})
        _, send = make_client_app(url=server.url)

        with pytest.raises(DuplicateKey, match="held"):
            await send.enqueue("ada")
        accepted, refused = await send.enqueue_many([{"to": "a"}, {"to": "b"}])

    assert accepted.id == "0CR5KPDD15T00"
    assert isinstance(refused, SchedoError)


async def test_many_jobs_with_options_of_their_own_are_one_request() -> None:
    with fake_server() as server:
        items = [{"status": 201, "job": {"id": "0CR5KPDD15T00"}}] * 2
        server.on("POST", "/v1/jobs:batch", 200, {"items": items})
        _, send = make_client_app(url=server.url)

        await send.enqueue_many([send.options(unique=to).job(to) for to in ("ada", "bob")])

    assert [(job["unique"], job["payload"]["to"]) for job in server.requests[0].json] == [
        ("ada", "ada"),
        ("bob", "bob"),
    ]


async def test_a_broadcast_goes_to_the_server() -> None:
    with fake_server() as server:
        item = {"status": 201, "job": {"id": "00000000000AB", "state": "queued"}}
        server.on("POST", "/v1/jobs", 200, {"items": [item]})
        _, send = make_client_app(url=server.url)

        (job,) = await send.broadcast("ada")

    assert job.id == "00000000000AB"
    assert server.requests[0].json["broadcast"] is True


def test_an_option_reaches_the_server_as_it_was_written() -> None:
    template = make_job(
        "t",
        {
            "expires_at": datetime(2027, 1, 15, 9, 0, tzinfo=UTC),
            "retries": Retry(4, "fixed", "1s", 1.0, "2m", 0.0),
            "timeout": 1.5,
            "requires": {"labels": {"gpu": "a100"}},
            "prefer": [{"zone": "lhr"}, {}],
        },
    )

    assert template.make_request(b'{"to":"ada"}') == {
        "task": "t",
        "payload": {"to": "ada"},
        "expires_at": "2027-01-15T09:00:00+00:00",
        "retry": {
            "max_attempts": 4,
            "backoff": "fixed",
            "initial": "1s",
            "factor": 1.0,
            "max": "2m",
            "jitter": 0.0,
        },
        "timeout": 1.5,
        "requires": {"labels": {"gpu": "a100"}},
        "prefer": [{"zone": "lhr"}, {}],
    }


async def test_a_job_enqueued_over_http_keeps_what_it_requires_and_prefers() -> None:
    with fake_server() as server:
        server.on("POST", "/v1/jobs", 201, {"id": "0CR5KPDD15T00", "state": "queued"})
        _, send = make_client_app(url=server.url)

        order = send.options(requires={"labels": {"gpu": "a100"}}, prefer=[{"zone": "lhr"}])
        await order.enqueue("ada")

        sent = server.requests[0].json
    assert sent["requires"] == {"labels": {"gpu": "a100"}}
    assert sent["prefer"] == [{"zone": "lhr"}]


def test_an_application_does_not_enqueue_a_broadcast() -> None:
    _, send = make_client_app(url="http://127.0.0.1:1")

    with pytest.raises(Invalid, match=r"call the task's method broadcast"):
        send.options(broadcast=True)
