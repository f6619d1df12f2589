"""Expectations over HTTP: of schedules, and named ones with their beats."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from schedo.errors import StoreError
from schedo.protocol.roles import Role
from schedo.tasks.built_in import payload_checks
from schedo.web.permissions import TokenPermission, digest
from schedo.web.settings import WebSettings
from tests.web.world import SECOND, T0, World

DAILY = {"every": "1d", "within": "2h", "on_miss": {"task": "alert", "payload": {"to": "ada"}}}
TOKEN = "beat-token-0123456789abcdefgh"


async def test_a_named_expectation_is_returned_with_its_state_and_limit(world: World) -> None:
    put = await world.put("/v1/expectations/laptop", DAILY)
    same = await world.put("/v1/expectations/laptop", DAILY)
    other = await world.put("/v1/expectations/laptop", {**DAILY, "within": "1h"})

    assert (put.status, put.headers["location"]) == (201, "/v1/expectations/laptop")
    assert put.json() == {
        "name": "laptop",
        "every": "1d",
        "within": "2h",
        "on_miss": {"task": "alert", "payload": {"to": "ada"}},
        "owner": "api",
        "state": "ok",
        "since": "2026-11-20T11:04:05.000000Z",
        "missed": 0,
        "limit_at": "2026-11-21T13:04:05.000000Z",
        "created_at": "2026-11-20T11:04:05.000000Z",
        "updated_at": "2026-11-20T11:04:05.000000Z",
        "effect": "created",
    }
    assert (same.status, same.json()["effect"]) == (200, "unchanged")
    assert (other.json()["effect"], other.json()["within"]) == ("changed", "1h")


async def test_an_expectation_is_not_called_missing_while_the_store_fails(world: World) -> None:
    await world.put("/v1/expectations/laptop", DAILY)
    world.engine._loop.failure = StoreError("the disk is full")

    shown = await world.get("/v1/expectations/laptop")
    listed = await world.get("/v1/expectations")
    world.engine._loop.failure = None

    assert [(each.status, each.code) for each in (shown, listed)] == [(503, "unavailable")] * 2
    assert (await world.get("/v1/expectations/laptop")).status == 200


async def test_a_beat_moves_the_limit(world: World) -> None:
    rule = {"cron": "0 12 * * *", "tz": "Europe/Paris", "within": "10m"}
    await world.put("/v1/expectations/laptop", rule)

    reply = await world.post("/v1/expectations/laptop/beat", {})

    assert reply.status == 200
    shown = (await world.get("/v1/expectations/laptop")).json()
    assert shown == reply.json()
    assert (shown["cron"], shown["tz"]) == ("0 12 * * *", "Europe/Paris")
    assert shown["last_beat_at"] == "2026-11-20T11:04:05.000000Z"
    assert shown["limit_at"] == "2026-11-21T11:10:00.000000Z"


async def test_expectations_are_listed_by_name_and_deleted(world: World) -> None:
    for name in ("b", "a"):
        await world.put(f"/v1/expectations/{name}", DAILY)

    names = [each["name"] for each in (await world.get("/v1/expectations")).json()["items"]]
    deleted = await world.send("DELETE", "/v1/expectations/a")

    assert (names, deleted.status) == (["a", "b"], 204)
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/beat")):
        reply = await world.send(method, f"/v1/expectations/a{path}")
        assert (reply.status, reply.code) == (404, "not-found")


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"every": "1d"}, "/within"),
        ({"within": "1h"}, ""),
        ({"within": "1h", "every": "1d", "cron": "@daily"}, ""),
        ({"within": "1h", "every": "1ms"}, "/every"),
        ({"within": "0s", "every": "1d"}, "/within"),
        ({"within": "soon", "every": "1d"}, "/within"),
        ({"within": "1h", "cron": "0 25 * * *"}, "/cron"),
        ({"within": "1h", "cron": "@daily", "tz": "Mars/Base"}, "/tz"),
        ({"within": "1h", "every": "1d", "tz": "UTC"}, "/tz"),
        ({"within": "1h", "every": "1d", "on_miss": {"task": "http"}}, "/on_miss/payload"),
        ({"within": "1h", "every": "1d", "on_back": {"task": "-"}}, "/on_back/task"),
        ({"within": "1h", "every": "1d", "max_duration": "1h"}, "/max_duration"),
    ],
)
async def test_a_wrong_named_expectation_is_refused_with_its_place(
    fields: dict[str, Any], pointer: str
) -> None:
    async with World(WebSettings(payload_checks=payload_checks())) as world:
        reply = await world.put("/v1/expectations/e", fields)
        items = (await world.get("/v1/expectations")).json()["items"]

    assert reply.status == 422
    assert reply.json()["errors"][0]["pointer"].startswith(pointer)
    assert items == []


@pytest.mark.parametrize(
    ("expect", "pointer"),
    [
        ({}, "/expect"),
        ({"on_miss": "alert"}, "/expect"),
        ({"within": 0}, "/expect/within"),
        ({"within": "1h", "max_duration": "0s"}, "/expect/max_duration"),
        ({"within": "1h", "on_miss": {"task": "http", "payload": {"url": "x"}}}, "/expect/on_miss"),
        ({"within": "1h", "on_back": {"task": "a", "unique": "k"}}, "/expect/on_back/unique"),
        ({"within": "1h", "on_late": "alert"}, "/expect/on_late"),
    ],
)
async def test_a_wrong_expectation_of_a_schedule_is_refused_with_its_place(
    expect: dict[str, Any], pointer: str
) -> None:
    async with World(WebSettings(payload_checks=payload_checks())) as world:
        fields = {"every": "1h", "task": "t", "expect": expect}
        reply = await world.put("/v1/schedules/s", fields)
        missing = await world.get("/v1/schedules/s")

    assert reply.status == 422
    assert reply.json()["errors"][0]["pointer"].startswith(pointer)
    assert missing.status == 404


async def test_a_schedule_shows_what_is_expected_and_whether_it_is_met(world: World) -> None:
    expect = {"within": "30s", "max_duration": "1h", "on_miss": {"task": "alert"}}
    fields = {"every": "1m", "task": "t", "expect": expect}

    put = (await world.put("/v1/schedules/s", fields)).json()
    await world.clock.run_until(world.engine, T0 + 100 * SECOND)
    await world.engine.flush()
    shown = (await world.get("/v1/schedules/s")).json()
    decisions = (await world.get("/v1/schedules/s/decisions")).json()["items"]
    jobs = (await world.get("/v1/jobs?task=alert")).json()["items"]
    metrics = (await world.get("/metrics")).body.decode()

    assert (put["expect"], put["expectation"]["state"]) == (expect, "ok")
    assert put["expectation"]["limit_at"] == "2026-11-20T11:05:30.000000Z"
    assert shown["expectation"]["state"] == "missed"
    missed = [each for each in decisions if each["decision"] == "expectation_missed"]
    assert [each["scheduled_for"] for each in missed] == ["2026-11-20T11:05:00.000000Z"]
    assert [each["trigger"] for each in jobs] == ["on_miss"]
    assert missed[0]["job"] == jobs[0]["id"]
    assert 'schedo_expectation_missed{expectation="s",kind="schedule"} 1' in metrics
    assert 'schedo_expectations{state="missed"} 1' in metrics


async def test_the_secrets_of_event_jobs_are_masked(world: World) -> None:
    secret = "whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0"
    hook = {"task": "http", "payload": {"url": "https://hooks.test/", "secret": secret}}
    expect = {"within": "1h", "on_miss": hook, "on_back": hook}

    named = await world.put("/v1/expectations/e", {"every": "1d", **expect})
    schedule = await world.put("/v1/schedules/s", {"every": "1d", "task": "t", "expect": expect})

    assert secret.encode() not in named.body + schedule.body
    assert named.json()["on_back"]["payload"]["secret"] == "***"


@pytest.mark.parametrize("door", ["schedule", "named"])
async def test_a_command_in_an_expectation_needs_the_permission_for_commands(door: str) -> None:
    shell = {"task": "shell", "payload": {"command": "true"}}
    expect = {"within": "1h", "on_miss": shell}
    async with World(WebSettings()) as world:
        if door == "schedule":
            fields = {"every": "1d", "task": "t", "expect": expect}
            reply = await world.put("/v1/schedules/s", fields)
        else:
            reply = await world.put("/v1/expectations/e", {"every": "1d", **expect})

    assert (reply.status, reply.code) == (403, "shell-disabled")


async def test_a_token_with_the_role_beat_can_only_beat() -> None:
    settings = WebSettings(
        tokens={digest(TOKEN): TokenPermission(Role.BEAT, "laptop")}, anyone=None
    )
    headers = [("authorization", f"Bearer {TOKEN}")]
    async with World(settings) as world:
        beat = await world.send("POST", "/v1/expectations/e/beat", b"", headers)
        read = await world.send("GET", "/v1/expectations", b"", headers)
        submit = await world.post("/v1/jobs", {"task": "t"}, headers)

    assert (beat.status, read.status, submit.status) == (404, 403, 403)


async def test_a_beat_does_not_show_the_event_jobs_to_a_token_that_reads_no_jobs() -> None:
    tokens = {role: f"{role}-token-0123456789abcdefgh" for role in (Role.BEAT, Role.ADMIN)}
    settings = WebSettings(
        tokens={digest(text): TokenPermission(role, role) for role, text in tokens.items()},
        anyone=None,
    )
    beat, admin = ([("authorization", f"Bearer {text}")] for text in tokens.values())
    async with World(settings) as world:
        expectation = {"every": "1h", "within": "1h", "on_miss": "a", "on_back": "b"}
        await world.send("PUT", "/v1/expectations/e", orjson.dumps(expectation), admin)

        mine = (await world.send("POST", "/v1/expectations/e/beat", b"", beat)).json()
        full = (await world.send("POST", "/v1/expectations/e/beat", b"", admin)).json()

    assert set(full) - set(mine) == {"on_miss", "on_back"}
    assert (mine["name"], mine["state"]) == ("e", "ok")
