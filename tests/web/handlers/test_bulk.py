"""Operations on many jobs over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from schedo.protocol.roles import Role
from schedo.web.handlers import bulk
from schedo.web.permissions import TokenPermission, digest
from schedo.web.settings import WebSettings
from tests.web.world import World

PATH = "/v1/operations"


async def ended(world: World, number: str, headers: Any = ()) -> Any:
    """Return the operation once it has ended."""
    async with asyncio.timeout(30):
        while True:
            operation = (await world.get(f"{PATH}/{number}", headers)).json()
            if "ended_at" in operation:
                return operation
            await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.005)


async def change(world: World, action: str, **where: Any) -> Any:
    """Carry out an operation and return it."""
    reply = await world.post(PATH, {"action": action, "where": where})
    assert reply.status == 201, reply
    assert reply.headers["location"] == f"{PATH}/{reply.json()['id']}"
    return await ended(world, reply.json()["id"])


async def test_an_operation_cancels_all_jobs_that_match(world: World) -> None:
    jobs = [await world.submit(queue="mail", delay=60) for _ in range(3)]
    other = await world.submit(delay=60)

    operation = await change(world, "cancel", queue="mail")

    assert operation["state"] == "done"
    assert operation["where"] == {"queue": "mail"}
    counts = ("total", "matched", "done", "skipped", "failed", "errors")
    assert [operation[name] for name in counts] == [3, 3, 3, 0, 0, []]
    for job in jobs:
        assert (await world.get(f"/v1/jobs/{job['id']}")).json()["state"] == "cancelled"
    assert (await world.get(f"/v1/jobs/{other['id']}")).json()["state"] == "scheduled"
    assert (await world.get(PATH)).json()["items"] == [operation]


async def test_a_dry_run_counts_and_changes_nothing(world: World) -> None:
    await world.submit(queue="mail", delay=60)
    asked = {"action": "cancel", "where": {"queue": "mail"}, "dry_run": True}

    reply = await world.post(PATH, asked)

    assert reply.status == 200
    assert reply.json() == {"action": "cancel", "where": {"queue": "mail"}, "matched": 1}
    assert (await world.get(PATH)).json()["items"] == []
    assert (await world.post(PATH, {**asked, "action": "retry"})).json()["matched"] == 0


async def test_a_dry_run_that_takes_too_long_says_since_when_it_has_counted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "DRY_RUN_S", 0.0)
    for _ in range(2):
        await world.post("/v1/jobs:batch", [{"task": "demo", "queue": "mail", "delay": 60}] * 400)
    where = {"queue": "mail"}
    asked = {"action": "cancel", "where": where}

    counted = (await world.post(PATH, {**asked, "dry_run": True})).json()

    assert 500 <= counted["matched"] < 800
    newer = {**where, "created_after": counted["counted_since"]}
    limited = {**asked, "where": newer, "expected_count": counted["matched"]}
    begun = (await world.post(PATH, limited)).json()
    operation = await ended(world, begun["id"])
    assert (operation["state"], operation["done"]) == ("done", counted["matched"])


async def test_a_cancelled_job_is_retried_and_deleted(world: World) -> None:
    job = await world.submit(delay=60, tags=["a"])
    await change(world, "cancel", tag="a")

    assert (await change(world, "retry", state="cancelled"))["done"] == 1
    assert (await change(world, "cancel", tag="a"))["done"] == 1
    assert (await change(world, "delete", tag="a"))["done"] == 1

    assert (await world.get(f"/v1/jobs/{job['id']}")).status == 404


async def test_scheduled_jobs_run_now(world: World) -> None:
    job = await world.submit(delay=60)

    assert (await change(world, "run", task="demo"))["done"] == 1

    assert (await world.get(f"/v1/jobs/{job['id']}")).json()["state"] == "queued"


async def test_the_runs_of_a_schedule_are_selected_by_its_name(world: World) -> None:
    await world.put("/v1/schedules/nightly", {"task": "demo", "every": "1h"})
    await world.post("/v1/schedules/nightly:trigger")
    await world.submit()

    operation = await change(world, "cancel", schedule="nightly")

    assert operation["where"] == {"schedule": "nightly"}
    assert operation["done"] == 1


async def test_an_operation_on_more_jobs_than_allowed_is_refused(world: World) -> None:
    for _ in range(3):
        await world.submit(delay=60)

    asked = {"action": "cancel", "where": {"task": "demo"}, "max_jobs": 2}
    operation = await ended(world, (await world.post(PATH, asked)).json()["id"])

    assert (operation["state"], operation["total"], operation["done"]) == ("refused", 3, 0)
    assert operation["max_jobs"] == 2


async def test_an_operation_can_be_cancelled_again_and_again(world: World) -> None:
    await world.submit(delay=60)
    operation = await change(world, "cancel", task="demo")

    for _ in range(2):
        reply = await world.post(f"{PATH}/{operation['id']}:cancel")
        assert (reply.status, reply.json()) == (200, operation)


@pytest.mark.parametrize(
    ("asked", "pointer", "text"),
    [
        ({}, "/action", "required"),
        ({"action": "cancel"}, "/where", "at least one condition"),
        ({"action": "stop", "where": {"queue": "a"}}, "/action", "cancel, retry, run, delete"),
        ({"action": "cancel", "where": {}}, "/where", "at least one condition"),
        ({"action": "cancel", "where": {"que": "a"}}, "/where/que", "no such field"),
        ({"action": "cancel", "where": {"queue": "a b"}}, "/where/queue", "a name is"),
        ({"action": "cancel", "where": {"task": 5}}, "/where/task", "text"),
        ({"action": "cancel", "where": {"state": "done"}}, "/where/state", "none of"),
        ({"action": "cancel", "where": {"state": "failed"}}, "/where/state", "changes no failed"),
        ({"action": "retry", "where": {"state": "completed"}}, "/where/state", "only those that"),
        ({"action": "run", "where": {"state": "queued"}}, "/where/state", "scheduled, retrying"),
        ({"action": "delete", "where": {"state": "running"}}, "/where/state", "changes no running"),
        ({"action": "cancel", "where": {"schedule": "x"}}, "/where/schedule", "no schedule 'x'"),
        ({"action": "cancel", "where": {"error": ""}}, "/where/error", "length >= 1"),
        (
            {"action": "cancel", "where": {"ended_after": "now"}},
            "/where/ended_after",
            "RFC 3339",
        ),
        ({"action": "cancel", "where": {"queue": "a"}, "max_jobs": 0}, "/max_jobs", ">= 1"),
        ({"action": "cancel", "where": {"queue": "a"}, "dry_run": 1}, "/dry_run", "true or false"),
    ],
)
async def test_a_wrong_operation_is_refused_with_its_field(
    world: World, asked: dict[str, Any], pointer: str, text: str
) -> None:
    reply = await world.post(PATH, asked)

    assert (reply.status, reply.code) == (422, "invalid")
    [error] = reply.json()["errors"]
    assert error["pointer"] == pointer
    assert text in error["detail"]
    assert (await world.get(PATH)).json()["items"] == []


@pytest.mark.parametrize("number", ["0000000000000", "x", "%00", "06GKXR0000000"])
async def test_an_unknown_operation_is_not_found(world: World, number: str) -> None:
    for reply in (
        await world.get(f"{PATH}/{number}"),
        await world.post(f"{PATH}/{number}:cancel"),
    ):
        assert (reply.status, reply.code) == (404, "not-found")
        assert "there is no operation" in reply.json()["detail"]


async def test_only_an_ended_job_can_be_deleted(world: World) -> None:
    job = await world.submit(delay=60)

    refused = await world.send("DELETE", f"/v1/jobs/{job['id']}")
    await world.post(f"/v1/jobs/{job['id']}:cancel")
    deleted = await world.send("DELETE", f"/v1/jobs/{job['id']}")
    again = await world.send("DELETE", f"/v1/jobs/{job['id']}")

    assert (refused.status, refused.code) == (409, "illegal-transition")
    assert "cancel it first" in refused.json()["detail"]
    assert (deleted.status, deleted.body) == (204, b"")
    assert (again.status, again.code) == (404, "not-found")


TOKENS = {
    "ann": TokenPermission(Role.ADMIN, "ann"),
    "bob": TokenPermission(Role.OPERATOR, "bob"),
    "mia": TokenPermission(Role.OPERATOR, "mia", queues=frozenset({"mail"})),
    "tom": TokenPermission(Role.OPERATOR, "tom", tasks=frozenset({"demo"})),
    "eve": TokenPermission(Role.VIEWER, "eve"),
}


@pytest.mark.parametrize(
    ("token", "action", "where", "text"),
    [
        ("eve", "cancel", {"queue": "mail"}, "needs the role operator"),
        ("bob", "delete", {"queue": "mail"}, "needs the role admin"),
        ("mia", "cancel", {"task": "demo"}, "as where.queue (in the command line: --queue)"),
        ("mia", "cancel", {"queue": "default"}, "only for the queues mail"),
        ("tom", "cancel", {"queue": "mail"}, "as where.task (in the command line: --task)"),
        ("ann", "delete", {"queue": "mail"}, None),
        ("bob", "cancel", {"task": "demo"}, None),
        ("mia", "cancel", {"queue": "mail"}, None),
        ("tom", "retry", {"task": "demo"}, None),
    ],
)
async def test_a_token_changes_only_the_jobs_that_it_covers(
    token: str, action: str, where: dict[str, str], text: str | None
) -> None:
    settings = WebSettings(
        tokens={digest(each): permission for each, permission in TOKENS.items()}, anyone=None
    )
    headers = [("authorization", f"Bearer {token}")]
    async with World(settings) as world:
        reply = await world.post(PATH, {"action": action, "where": where}, headers)

        if text is not None:
            assert (reply.status, reply.code) == (403, "forbidden")
            assert text in reply.json()["detail"]
            return
        assert reply.status == 201
        operation = await ended(world, reply.json()["id"], headers)
        assert operation["requested_by"] == token
        restricted = [("authorization", "Bearer mia")]
        cancelled = await world.post(f"{PATH}/{operation['id']}:cancel", headers=restricted)
        assert cancelled.status == (200 if where == {"queue": "mail"} and token == "mia" else 403)


async def test_operations_are_measured(world: World) -> None:
    await world.submit(delay=60)
    await change(world, "cancel", task="demo")

    text = (await world.get("/metrics")).body.decode()

    assert "schedo_operations_running 0" in text
    assert 'schedo_operation_jobs_total{action="cancel",outcome="done"} 1' in text
