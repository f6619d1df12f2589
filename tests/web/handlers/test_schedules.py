"""Schedules and queues over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from schedo.protocol.schedules import ScheduleRequest
from tests.web.world import SECOND, T0, World

DAILY = {"cron": "30 9 * * mon-fri", "tz": "Europe/Paris", "task": "report"}


async def test_a_schedule_is_returned_with_its_next_fires(world: World) -> None:
    reply = await world.put("/v1/schedules/daily", DAILY)

    assert reply.status == 201
    assert reply.headers["location"] == "/v1/schedules/daily"
    assert reply.json() == {
        "name": "daily",
        "cron": "30 9 * * mon-fri",
        "normalized": "30 9 * * MON-FRI",
        "description": "At 09:30 on Monday through Friday",
        "tz": "Europe/Paris",
        "dst": {"gap": "after", "fold": "first"},
        "task": "report",
        "payload": None,
        "queue": "default",
        "priority": 0,
        "overlap": "skip",
        "catchup": "latest",
        "catchup_window": "1d",
        "catchup_max": 100,
        "paused": False,
        "owner": "api",
        "created_at": "2026-11-20T11:04:05.000000Z",
        "updated_at": "2026-11-20T11:04:05.000000Z",
        "next_fires": [
            "2026-11-23T08:30:00.000000Z",
            "2026-11-24T08:30:00.000000Z",
            "2026-11-25T08:30:00.000000Z",
            "2026-11-26T08:30:00.000000Z",
            "2026-11-27T08:30:00.000000Z",
        ],
        "counters": {"fired": 0, "missed": 0, "overlap_skipped": 0, "buffered": 0},
        "runs": {
            "completed": 0,
            "failed": 0,
            "cancelled": 0,
            "expired": 0,
            "failed_in_row": 0,
            "last": [],
        },
        "health": "ok",
        "warnings": [],
        "effect": "created",
    }
    assert {**(await world.get("/v1/schedules/daily")).json(), "effect": "created"} == reply.json()


async def test_the_same_put_changes_nothing_and_another_one_replaces_the_schedule(
    world: World,
) -> None:
    first = await world.put("/v1/schedules/daily", DAILY)
    same = await world.put("/v1/schedules/daily", DAILY)
    other = await world.put("/v1/schedules/daily", {**DAILY, "cron": "@daily"})

    assert (same.status, same.json()) == (200, {**first.json(), "effect": "unchanged"})
    assert (other.status, other.json()["normalized"]) == (200, "0 0 * * *")
    assert other.json()["effect"] == "changed"


async def test_a_unique_key_of_a_schedule_is_refused(world: World) -> None:
    reply = await world.put("/v1/schedules/s", {"every": "90s", "task": "a", "unique": "k"})

    assert (reply.status, reply.code) == (422, "invalid")
    assert reply.json()["errors"] == [{"pointer": "/unique", "detail": "there is no such field"}]
    assert (await world.get("/v1/schedules/s")).status == 404


async def test_every_field_of_a_schedule_is_accepted(world: World) -> None:
    asked: dict[str, Any] = {
        "every": "90s",
        "task": "a",
        "payload": {"x": 1},
        "queue": "q",
        "priority": -2,
        "retry": {"max_attempts": 2, "initial": "1s", "until": "2027-01-01T00:00:00Z"},
        "timeout": "10s",
        "expires_in": "1h",
        "delivery": "at_most_once",
        "tags": ["t"],
        "meta": {"m": [1]},
        "overlap": "buffer_one",
        "catchup": "all",
        "catchup_window": "2h",
        "catchup_max": 5,
        "jitter": "10s",
        "start_at": "2026-11-21T00:00:00Z",
        "end_at": "2026-12-21T00:00:00Z",
        "paused": True,
    }

    answer = (await world.put("/v1/schedules/s", asked)).json()
    once = (await world.put("/v1/schedules/o", {"at": "2027-01-01T00:00:00Z", "task": "a"})).json()

    for name in ("every", "payload", "queue", "priority", "timeout", "expires_in", "delivery"):
        assert answer[name] == {"timeout": "10s"}.get(name, asked[name])
    assert answer["retry"]["until"] == "2027-01-01T00:00:00.000000Z"
    assert (answer["paused"], answer["next_fires"]) == (True, [])
    assert once["next_fires"] == ["2027-01-01T00:00:00.000000Z"]
    for name in ("s", "o"):
        assert await put_as_it_is(world, name) == "unchanged"


async def put_as_it_is(world: World, name: str) -> str:
    """Put the fields of a schedule that a request may have, as they were read."""
    record = (await world.get(f"/v1/schedules/{name}")).json()
    fields = {each: record[each] for each in ScheduleRequest.__struct_fields__ if each in record}
    return str((await world.put(f"/v1/schedules/{name}", fields)).json()["effect"])


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"cron": "* * * *"}, "/cron"),
        ({"cron": "0 0 31 2 *"}, "/cron"),
        ({"cron": "*/0 * * * *"}, "/cron"),
        ({"cron": "*/1000000000 * * * *"}, "/cron"),
        ({"cron": ",".join(["0-59"] * 20_000) + " * * * *"}, "/cron"),
        ({"cron": ",".join(["1"] * 10_000) + " * * * *"}, "/cron"),
        ({"cron": "L W # ? *"}, "/cron"),
        ({"cron": "\u0665 * * * *"}, "/cron"),
        ({"cron": "0" * 257}, "/cron"),
        ({"cron": ""}, "/cron"),
        ({"cron": 5}, "/cron"),
        ({"tz": "EST"}, "/tz"),
        ({"tz": "../../etc/passwd"}, "/tz"),
        ({"tz": "Mars/Phobos"}, "/tz"),
        ({"tz": "x" * 10_000}, "/tz"),
        ({"cron": "CRON_TZ=Asia/Tokyo 0 0 * * *"}, "/tz"),
        ({"every": "1h"}, "/cron"),
        ({"task": "../x"}, "/task"),
        ({"overlap": "maybe"}, "/overlap"),
        ({"catchup_max": 0}, "/catchup_max"),
        ({"catchup_window": "forever"}, "/catchup_window"),
        ({"start_at": "2027-01-02T00:00:00Z", "end_at": "2027-01-01T00:00:00Z"}, "/end_at"),
        ({"dst": {"gap": "both"}}, "/dst/gap"),
        ({"expires_at": "2027-01-01T00:00:00Z"}, "/expires_at"),
        ({"delay": "5s"}, "/delay"),
        ({"jitter": -1}, "/jitter"),
    ],
    ids=lambda value: repr(value)[:60],
)
async def test_a_bad_schedule_is_refused_by_its_field(
    world: World, change: dict[str, Any], pointer: str
) -> None:
    reply = await world.put("/v1/schedules/s", {**DAILY, **change})

    assert (reply.status, reply.code) == (422, "invalid")
    assert reply.json()["errors"][0]["pointer"] == pointer
    assert (await world.get("/v1/schedules/s")).code == "not-found"


@pytest.mark.parametrize("every", ["0s", "-1s", 0, "101000d", "nonsense"])
async def test_a_bad_interval_of_a_schedule_is_refused(world: World, every: object) -> None:
    reply = await world.put("/v1/schedules/s", {"every": every, "task": "a"})

    assert reply.json()["errors"][0]["pointer"] == "/every"


@pytest.mark.parametrize(
    "name", ["-x", ".", "..", "a b", "x" * 129, "a\u202eb", "\uff41", "a\n", "..%2f", "~"]
)
async def test_a_bad_name_of_a_schedule_is_refused(world: World, name: str) -> None:
    reply = await world.put(f"/v1/schedules/{name}", DAILY)

    assert reply.status == 422
    assert reply.json()["errors"][0]["pointer"] == "/name"
    assert (await world.get(f"/v1/schedules/{name}")).status == 422


async def test_a_schedule_is_triggered_paused_resumed_and_deleted(world: World) -> None:
    await world.put("/v1/schedules/s", {"every": "60s", "task": "a", "overlap": "allow"})
    await world.clock.run_until(world.engine, T0 + 120 * SECOND)

    fired = (await world.get("/v1/schedules/s")).json()
    paused = (await world.post("/v1/schedules/s:pause", {"note": "holiday"})).json()
    resumed = (await world.post("/v1/schedules/s:resume")).json()
    decisions = (await world.get("/v1/schedules/s/decisions?limit=1")).json()["items"]
    jobs = (await world.get("/v1/jobs?schedule=s")).json()["items"]

    assert fired["counters"]["fired"] == 2
    assert fired["last_job"] == jobs[0]["id"]
    assert (paused["paused"], paused["note"], paused["next_fires"]) == (True, "holiday", [])
    assert (resumed["paused"], "note" in resumed) == (False, False)
    assert [decision["decision"] for decision in decisions] == ["fired"]
    assert [(job["schedule"], job["trigger"]) for job in jobs] == [("s", "schedule")] * 2
    assert (await world.send("DELETE", "/v1/schedules/s")).status == 204
    assert (await world.send("DELETE", "/v1/schedules/s")).code == "not-found"


async def test_a_trigger_makes_a_run_or_names_the_job_that_prevents_it(world: World) -> None:
    await world.put("/v1/schedules/s", {"every": "1h", "task": "a"})

    first = await world.post("/v1/schedules/s:trigger")
    second = await world.post("/v1/schedules/s:trigger", {})
    third = await world.post("/v1/schedules/s:trigger", {"overlap": "allow"})

    assert (first.status, first.json()["job"]["schedule"]) == (201, "s")
    assert first.json()["job"]["trigger"] == "manual"
    assert second.status == 200
    assert second.json() == {"skipped_overlap": True, "blocking_job": first.json()["job"]["id"]}
    assert third.status == 201
    assert (await world.post("/v1/schedules/none:trigger")).code == "not-found"
    keyed = await world.post("/v1/schedules/s:trigger", {}, [("idempotency-key", "k")])
    assert keyed.code == "bad-request"


@pytest.mark.parametrize(
    ("rule", "warning"),
    [
        (
            {"at": "2026-11-20T11:04:04Z"},
            "it will not fire again: its instant, 2026-11-20T11:04:04.000000Z, has passed",
        ),
        (
            {"at": "2026-11-20T11:04:04Z", "paused": True},
            "it will not fire again: its instant, 2026-11-20T11:04:04.000000Z, has passed",
        ),
        (
            {"every": "60s", "end_at": "2026-11-20T11:04:04Z"},
            "it will not fire again: no instant of it comes before its end,"
            " 2026-11-20T11:04:04.000000Z",
        ),
    ],
    ids=["passed", "passed and paused", "ended"],
)
async def test_a_schedule_that_will_not_fire_again_has_a_warning(
    world: World, rule: dict[str, Any], warning: str
) -> None:
    reply = await world.put("/v1/schedules/s", {"task": "a", **rule})

    assert (reply.status, reply.json()["warnings"]) == (201, [warning])
    assert (await world.get("/v1/schedules/s")).json()["warnings"] == [warning]


@pytest.mark.parametrize(
    ("cron", "dst", "is_warned"),
    [
        ("*/15 2 * * *", {"gap": "after", "fold": "last"}, True),
        ("0 */2 * * *", {"gap": "skip"}, True),
        ("*/15 2 * * *", {}, False),
        ("*/15 2 * * *", {"gap": "skip", "fold": "both"}, False),  # what it does
        ("30 2 * * *", {"gap": "skip", "fold": "last"}, False),
    ],
)
async def test_a_choice_for_clock_changes_that_means_nothing_to_the_rule_has_a_warning(
    world: World, *, cron: str, dst: dict[str, str], is_warned: bool
) -> None:
    warning = (
        "dst has no effect, because the minutes or the hours begin with *: nothing fires for times"
        " that do not exist, and times that exist twice fire both times"
    )
    rule = {"cron": cron, "tz": "Europe/Paris", "dst": dst}

    put = await world.put("/v1/schedules/s", {"task": "a", **rule})
    explained = await world.post("/v1/cron:explain", rule)

    assert put.json()["warnings"] == explained.json()["warnings"] == [warning] * is_warned


async def test_schedules_are_listed_by_name_in_pages(world: World) -> None:
    for name in ("b", "a", "c"):
        await world.put(f"/v1/schedules/{name}", DAILY)

    first = (await world.get("/v1/schedules?limit=2")).json()
    second = (await world.get(f"/v1/schedules?limit=2&cursor={first['next_cursor']}")).json()

    assert [item["name"] for item in first["items"]] == ["a", "b"]
    assert [item["name"] for item in second["items"]] == ["c"]
    reply = await world.get(f"/v1/jobs?cursor={first['next_cursor']}")
    assert reply.code == "bad-request"


async def test_a_cron_expression_is_explained(world: World) -> None:
    answer = (await world.post("/v1/cron:explain", {"cron": "0 12 * * *", "tz": "UTC"})).json()
    every = (await world.post("/v1/cron:explain", {"cron": "@every 90s"})).json()

    assert answer["normalized"] == "0 12 * * *"
    assert answer["description"] == "At 12:00 every day"
    assert answer["next_fires"][0] == "2026-11-20T12:00:00.000000Z"
    assert (every["every"], every["description"]) == ("90s", "Every 90s")
    assert (await world.post("/v1/cron:explain", {"cron": "61 * * * *"})).code == "invalid"
    assert (await world.post("/v1/cron:explain", {})).code == "invalid"


async def test_limits_of_a_queue_can_be_set_and_removed(world: World) -> None:
    await world.submit(queue="q")

    changed = await world.patch("/v1/queues/q", {"concurrency": 2, "priority_step": "2m"})
    unset = await world.patch("/v1/queues/q", {"concurrency": None})

    assert changed.json() == {
        "name": "q",
        "concurrency": 2,
        "paused": False,
        "weight": 1,
        "priority_step": "2m",
        "running": 0,
        "waiting": {"queued": 1},
        "counted_at": "2026-11-20T11:04:05.000000Z",
        "oldest_due_at": "2026-11-20T11:04:05.000000Z",
    }
    assert unset.json()["concurrency"] is None
    assert unset.json()["priority_step"] == "2m"
    assert (await world.get("/v1/queues")).json()["items"] == [unset.json()]


async def test_a_paused_queue_starts_nothing(world: World) -> None:
    world.attach_worker()
    paused = await world.post("/v1/queues/q:pause")
    await world.submit(queue="q")
    await world.engine.flush()

    assert paused.json()["paused"] is True
    assert world.worker.leases == []
    assert (await world.post("/v1/queues/q:resume")).json()["paused"] is False
    assert (await world.worker.first()).queue == "q"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"concurrency": 0},
        {"concurrency": 1.5},
        {"concurrency": 100_001},
        {"weight": 0},
        {"weight": None},
        {"priority_step": "2d"},
        {"priority_step": None},
        {"paused": True},
    ],
)
async def test_bad_limits_of_a_queue_are_refused(world: World, body: object) -> None:
    assert (await world.patch("/v1/queues/q", body)).code == "invalid"
    assert (await world.patch("/v1/queues/-q", {"weight": 2})).code == "invalid"
    assert (await world.get("/v1/queues")).json()["items"] == []
