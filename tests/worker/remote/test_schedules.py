"""The schedules of a remote worker's application: the request, the log lines and the retries."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from schedo import Schedo
from schedo.client.aio import AsyncClient
from schedo.worker.remote.schedules import declare_schedules
from tests.client.server import FakeServer, fake_server, problem

PATH = "/v1/declarations"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
app = Schedo()


@app.every("1h", on_failure={"task": "http", "payload": {"url": "https://x.org", "secret": SECRET}})
@app.cron("0 3 * * *", name="nightly", payload={"n": 1})
@app.task
def report(n: int = 0) -> None:
    """Do nothing."""


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with fake_server() as running:
        yield running


async def declare(server: FakeServer, caplog: pytest.LogCaptureFixture) -> list[str]:
    """Declare the schedules of the application; return the lines that this logs."""
    caplog.set_level(logging.INFO, "schedo.worker")
    schedules = app.registry.schedules.values()
    async with AsyncClient(server.url) as client:
        await declare_schedules(client, "code:shop:app", schedules, is_pruning=False)
    return [record.message for record in caplog.records if record.name == "schedo.worker"]


async def test_the_schedules_are_sent_with_their_secrets_and_the_result_is_logged(
    server: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    schedules = [
        {"name": "a", "effect": "kept", "changes": [], "warnings": ["tz: changed by hand"]},
        {"name": "b", "effect": "unchanged", "changes": [], "warnings": []},
    ]
    server.on("POST", PATH, 200, {"schedules": schedules, "queues": [], "undeclared": ["old"]})

    lines = await declare(server, caplog)

    request = server.requests[0].json
    by_name = {each["name"]: each for each in request["schedules"]}
    assert (request["owner"], request["keep_edits"], request["prune"]) == (
        *("code:shop:app", True, False),
    )
    assert (by_name["nightly"]["cron"], by_name["nightly"]["payload"]) == ("0 3 * * *", {"n": 1})
    assert by_name["report"]["on_failure"]["payload"]["secret"] == SECRET
    assert lines == [
        "schedules of code:shop:app: 1 changed by hand, 1 up to date",
        "schedule a: tz: changed by hand",
        "code:shop:app no longer declares old, which will fire until deleted: schedo schedules rm"
        " NAME deletes one, a start with --prune deletes all that are no longer declared",
    ]


async def test_an_interval_that_is_written_as_cron_is_sent_as_it_is_written(
    server: FakeServer,
) -> None:
    beating = Schedo()
    beating.cron("@every 90s")(report)
    server.on("POST", PATH, 200, {"schedules": [], "queues": [], "undeclared": []})

    async with AsyncClient(server.url) as client:
        await declare_schedules(
            client, "code:x", beating.registry.schedules.values(), is_pruning=False
        )

    [sent] = server.requests[0].json["schedules"]
    assert sent["cron"] == "@every 90s"
    assert "every" not in sent, "the server takes exactly one of them"


async def test_a_refusal_is_logged_once(
    server: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.on("POST", PATH, 403, problem(403, "forbidden", "the token needs schedules=yes"))

    [line] = await declare(server, caplog)

    assert line.startswith("the server did not accept the schedules of code:shop:app: the token")
    assert len(server.requests) == 1


async def test_a_busy_server_is_asked_again(
    server: FakeServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("schedo.worker.remote.schedules.RETRY_S", 0.0)
    for _ in range(6):  # the client itself tries again, too
        server.on("POST", PATH, 503, problem(503, "unavailable", "it starts"))
    server.on("POST", PATH, 200, {"schedules": [], "queues": [], "undeclared": []})

    assert await declare(server, caplog) == ["schedules of code:shop:app: none"]


@pytest.mark.parametrize("status", [502, 504, 507])
async def test_the_schedules_are_put_when_a_proxy_or_the_store_works_again(
    server: FakeServer,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
) -> None:
    monkeypatch.setattr("schedo.worker.remote.schedules.RETRY_S", 0.0)
    for _ in range(2):
        server.on("POST", PATH, status, {})
    server.on("POST", PATH, 200, {"schedules": [], "queues": [], "undeclared": []})

    warning, done = await declare(server, caplog)

    assert warning.startswith("the schedules of code:shop:app are not put yet: ")
    assert done == "schedules of code:shop:app: none"
