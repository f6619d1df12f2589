"""Declarations over HTTP: all schedules of an owner in one commit, and the settings of queues."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from schedo.core import expectation_table
from schedo.tasks.built_in import payload_checks
from schedo.web.settings import WebSettings
from tests.web.test_secrets import SECRET, SIGNED
from tests.web.world import Reply, World

DAILY = {"cron": "30 9 * * mon-fri", "tz": "Europe/Paris", "task": "report"}
FILE = "file:jobs.toml"


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with World(WebSettings(payload_checks=payload_checks())) as made:
        yield made


async def declare(world: World, *schedules: dict[str, Any], **fields: Any) -> Reply:
    named = [{**DAILY, **schedule} for schedule in schedules]
    return await world.post("/v1/declarations", {"owner": FILE, "schedules": named, **fields})


def effects(reply: Reply, kind: str = "schedules") -> dict[str, str]:
    assert reply.status == 200, reply.body
    return {each["name"]: each["effect"] for each in reply.json()[kind]}


async def names(world: World) -> list[str]:
    return [each["name"] for each in (await world.get("/v1/schedules")).json()["items"]]


async def test_a_declaration_creates_changes_and_keeps_schedules(world: World) -> None:
    first = await declare(world, {"name": "a"}, {"name": "b"})
    second = await declare(world, {"name": "a"}, {"name": "b", "tz": "UTC"}, {"name": "c"})

    assert effects(first) == {"a": "created", "b": "created"}
    assert effects(second) == {"a": "unchanged", "b": "changed", "c": "created"}
    assert second.json()["schedules"][1]["changes"] == [
        {"field": "tz", "before": "Europe/Paris", "after": "UTC"}
    ]
    assert (await world.get("/v1/schedules/a")).json()["owner"] == FILE


async def test_a_dry_run_responds_likewise_and_changes_nothing(world: World) -> None:
    await declare(world, {"name": "a"}, {"name": "old"})
    wanted = [{"name": "a", "tz": "UTC"}, {"name": "b"}]
    queues = [{"name": "mail", "concurrency": 4}]

    dry = await declare(world, *wanted, queues=queues, prune=True, dry_run=True)

    assert effects(dry) == {"a": "changed", "b": "created", "old": "removed"}
    assert await names(world) == ["a", "old"]
    assert (await world.get("/v1/queues")).json()["items"] == []
    real = await declare(world, *wanted, queues=queues, prune=True)
    assert real.json() == dry.json()
    assert await names(world) == ["a", "b"]


async def test_only_the_owners_schedules_are_pruned_and_others_are_named(world: World) -> None:
    await world.put("/v1/schedules/by-hand", DAILY)
    await world.put("/v1/schedules/other?owner=file:x", DAILY)
    await declare(world, {"name": "a"}, {"name": "old"})

    kept = await declare(world, {"name": "a"})
    pruned = await declare(world, {"name": "a"}, prune=True)

    assert (effects(kept), kept.json()["undeclared"]) == ({"a": "unchanged"}, ["old"])
    assert effects(pruned) == {"a": "unchanged", "old": "removed"}
    assert pruned.json()["undeclared"] == []
    assert await names(world) == ["a", "by-hand", "other"]


async def test_one_bad_entry_refuses_all_and_every_bad_field_is_named(world: World) -> None:
    reply = await declare(
        world,
        {"name": "good"},
        {"name": "a", "cron": "61 * * * *"},
        {"name": "b", "task": "shell", "payload": {"command": "x"}},
        {"name": "good"},
        {"name": "c d"},
        queues=[{"name": "q", "priority_step": "2d"}, {"name": "r"}, {"name": "r"}],
    )

    assert reply.status == 422
    assert [each["pointer"] for each in reply.json()["errors"]] == [
        *("/schedules/1/cron", "/schedules/2", "/schedules/3/name", "/schedules/4/name"),
        *("/queues/0/priority_step", "/queues/2/name"),
    ]
    assert await names(world) == []


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"owner": "api"}, "/owner"),
        ({"schedules": [{"name": "a", "task": "t", "every": 1, "taks": 1}]}, "/schedules/0/taks"),
        ({"schedules": [{"task": "t", "every": 1}]}, "/schedules/0/name"),
        ({"queues": [{"name": "q", "weight": 0}]}, "/queues/0/weight"),
        ({"queues": [{"name": "q", "paused": "no"}]}, "/queues/0/paused"),
        ({"prune": 1}, "/prune"),
    ],
)
async def test_a_bad_field_is_named(world: World, fields: dict[str, Any], pointer: str) -> None:
    reply = await world.post("/v1/declarations", {"owner": FILE, **fields})

    assert (reply.status, reply.json()["errors"][0]["pointer"]) == (422, pointer)


async def test_a_change_by_hand_is_undone_unless_it_is_to_be_kept(world: World) -> None:
    await declare(world, {"name": "a"})
    await world.put("/v1/schedules/a", {**DAILY, "tz": "UTC"})

    kept = await declare(world, {"name": "a"}, keep_edits=True)
    undone = await declare(world, {"name": "a"})

    assert effects(kept) == {"a": "kept"}
    assert kept.json()["schedules"][0]["warnings"] == [
        "tz: changed by hand; this stays until file:jobs.toml declares the schedule differently,"
        " or until a reset"
    ]
    assert effects(undone) == {"a": "changed"}


async def test_what_the_store_has_of_a_schedule_with_event_jobs_is_what_was_declared(
    world: World,
) -> None:
    alert = {"task": "report", "payload": {"a": 1}}
    schedule = {"name": "a", "expect": {"within": "1h", "on_miss": alert, "on_back": "report"}}
    await declare(world, schedule)
    await world.post("/v1/schedules/a:pause", {})  # a paused one is read from the store

    same = await declare(world, schedule, dry_run=True)

    assert effects(same) == {"a": "unchanged"}


async def test_a_pause_by_hand_stays_and_is_named(world: World) -> None:
    await declare(world, {"name": "a"})
    await world.post("/v1/schedules/a:pause", {})

    same = await declare(world, {"name": "a"})
    paused = await declare(world, {"name": "a", "paused": True})
    open_again = await declare(world, {"name": "a"})

    assert effects(same) == effects(paused) == {"a": "unchanged"}
    assert same.json()["schedules"][0]["warnings"] == [
        "it was paused by hand and stays paused until it is resumed"
    ]
    assert effects(open_again) == {"a": "changed"}
    assert open_again.json()["schedules"][0]["changes"] == [
        {"field": "paused", "before": True, "after": False}
    ]
    assert not (await world.get("/v1/schedules/a")).json()["paused"]


async def test_a_takeover_is_named(world: World) -> None:
    await world.put("/v1/schedules/a?owner=code:shop:app", DAILY)

    dry = await declare(world, {"name": "a"}, dry_run=True)
    reply = await declare(world, {"name": "a"})

    assert dry.json()["schedules"][0]["warnings"] == [
        "it would belong to file:jobs.toml then; now code:shop:app declares it"
    ]
    assert reply.json()["schedules"][0]["warnings"] == [
        "it now belongs to file:jobs.toml; before, code:shop:app declared it"
    ]


async def test_a_payload_with_another_order_of_its_keys_is_the_same(world: World) -> None:
    await declare(world, {"name": "a", "payload": {"x": 1, "y": {"p": 2, "q": 3}}})

    same = await declare(world, {"name": "a", "payload": {"y": {"q": 3, "p": 2}, "x": 1}})
    other = await declare(world, {"name": "a", "payload": {"y": {"q": 3, "p": 2}, "x": True}})

    assert (effects(same), effects(other)) == ({"a": "unchanged"}, {"a": "changed"})


async def test_the_mask_of_a_secret_stands_for_the_stored_secret(world: World) -> None:
    await declare(world, {"name": "hook", **SIGNED})
    masked = {**SIGNED["payload"], "secret": "***"}  # type: ignore[dict-item]

    same = await declare(world, {"name": "hook", **SIGNED, "payload": masked})
    moved = {**masked, "url": "https://example.org/new"}
    other = await declare(world, {"name": "hook", **SIGNED, "payload": moved})

    assert (effects(same), effects(other)) == ({"hook": "unchanged"}, {"hook": "changed"})
    assert SECRET.encode() not in other.body
    stored = await world.engine.get_schedule("hook")
    assert SECRET.encode() in stored.spec.job.payload
    assert b"/new" in stored.spec.job.payload


async def test_the_mask_of_a_secret_in_on_failure_stands_for_the_stored_secret(
    world: World,
) -> None:
    await declare(world, {"name": "a", "on_failure": SIGNED})
    shown = (await world.get("/v1/schedules/a")).json()["on_failure"]

    assert shown["payload"]["secret"] == "***"
    assert effects(await declare(world, {"name": "a", "on_failure": shown})) == {"a": "unchanged"}


async def test_a_mask_without_a_stored_secret_is_refused(world: World) -> None:
    masked = {"url": "https://example.org", "secret": "***"}

    reply = await declare(world, {"name": "hook", "task": "http", "payload": masked})

    assert reply.status == 422
    assert await names(world) == []


async def test_a_queue_gets_exactly_the_declared_limits(world: World) -> None:
    await world.patch("/v1/queues/mail", {"concurrency": 4, "weight": 3})
    await world.post("/v1/queues/mail:pause", {})

    first = await declare(world, queues=[{"name": "mail", "concurrency": 5}])
    same = await declare(world, queues=[{"name": "mail", "concurrency": 5}])
    resumed = await declare(world, queues=[{"name": "mail", "paused": False}])

    assert first.json()["queues"] == [
        {
            "name": "mail",
            "effect": "changed",
            "changes": [
                {"field": "concurrency", "before": 4, "after": 5},
                {"field": "weight", "before": 3, "after": 1},
            ],
            "warnings": [],
        }
    ]
    assert effects(same, "queues") == {"mail": "unchanged"}
    assert effects(resumed, "queues") == {"mail": "changed"}
    [queue] = (await world.get("/v1/queues")).json()["items"] or [None]
    assert queue is None or (queue["concurrency"], queue["paused"]) == (None, False)


async def test_a_queue_gets_the_declared_keep(world: World) -> None:
    keep = {"completed": "0s", "failed": "30d"}

    first = await declare(world, queues=[{"name": "mail", "keep": keep}])
    same = await declare(world, queues=[{"name": "mail", "keep": keep}])
    back = await declare(world, queues=[{"name": "mail"}])

    (changed,) = first.json()["queues"]
    assert changed["changes"] == [{"field": "keep", "before": None, "after": keep}]
    assert effects(same, "queues") == {"mail": "unchanged"}
    assert effects(back, "queues") == {"mail": "changed"}


async def test_a_large_declaration_is_accepted(world: World) -> None:
    many = [{"name": f"s{n}", "payload": "x" * 3_000} for n in range(200)]

    reply = await declare(world, *many)

    assert len(effects(reply)) == 200
    bad = await declare(world, *many[:-1], {"name": "last", "cron": 1})
    assert bad.json()["errors"][0]["pointer"] == "/schedules/199/cron"


LAPTOP = {"name": "laptop", "every": "1d", "within": "2h", "on_miss": SIGNED}


async def declare_expectations(world: World, *expectations: Any, **fields: Any) -> Reply:
    request = {"owner": FILE, "expectations": expectations, **fields}
    return await world.post("/v1/declarations", request)


async def test_expectations_are_declared_like_schedules(world: World) -> None:
    dry = await declare_expectations(world, LAPTOP, dry_run=True)
    assert (await world.get("/v1/expectations")).json()["items"] == []
    first = await declare_expectations(world, LAPTOP, {**LAPTOP, "name": "old"})
    shown = (await world.get("/v1/expectations/laptop")).json()
    masked = {n: shown[n] for n in ("name", "every", "within", "on_miss")}
    same = await declare_expectations(world, masked)
    longer = {**masked, "within": "3h"}
    preview = await declare_expectations(world, longer, prune=True, dry_run=True)
    pruned = await declare_expectations(world, longer, prune=True)

    assert effects(dry, "expectations") == {"laptop": "created"}
    assert effects(first, "expectations") == {"laptop": "created", "old": "created"}
    assert (shown["owner"], shown["on_miss"]["payload"]["secret"]) == (FILE, "***")
    assert effects(same, "expectations") == {"laptop": "unchanged"}
    assert same.json()["undeclared_expectations"] == ["old"]
    assert preview.json() == pruned.json()
    assert effects(pruned, "expectations") == {"laptop": "changed", "old": "removed"}
    assert pruned.json()["expectations"][0]["changes"] == [
        {"field": "within", "before": "2h", "after": "3h"}
    ]
    assert pruned.json()["undeclared_expectations"] == []
    (kept,) = world.engine.expectations.named()
    assert kept.expect.on_miss is not None
    assert SECRET.encode() in kept.expect.on_miss.payload


async def test_only_the_owners_expectations_are_pruned_and_a_takeover_is_warned_of(
    world: World,
) -> None:
    hand = {"every": "1d", "within": "2h"}
    await world.put("/v1/expectations/by-hand", hand)
    await declare_expectations(world, {"name": "theirs", **hand}, owner="file:other")
    pruned = await declare_expectations(world, prune=True)
    both = ({"name": "theirs", **hand}, {"name": "by-hand", **hand})
    taken = await declare_expectations(world, *both)

    assert pruned.json()["expectations"] == []
    assert effects(taken, "expectations") == {"theirs": "unchanged", "by-hand": "unchanged"}
    warnings = [each["warnings"] for each in taken.json()["expectations"]]
    assert warnings == [[f"it now belongs to {FILE}; before, file:other declared it"], []]
    again = await world.put("/v1/expectations/theirs", {**hand, "within": "3h"})
    assert (again.json()["effect"], again.json()["owner"]) == ("changed", FILE)


async def test_a_bad_expectation_changes_nothing(world: World) -> None:
    reply = await declare_expectations(
        world,
        LAPTOP,
        LAPTOP,
        {"name": "a", "every": "1d", "cron": "@daily", "within": "1h"},
        {"name": "b", "every": "1d", "within": "1h", "on_back": {"task": "http", "payload": {}}},
        schedules=[{**DAILY, "name": "s"}],
    )

    assert (reply.status, reply.code) == (422, "invalid")
    pointers = [each["pointer"] for each in reply.json()["errors"]]
    assert pointers[:2] == ["/expectations/1/name", "/expectations/2"]
    assert pointers[2].startswith("/expectations/3/on_back")
    assert await names(world) == []
    assert world.engine.expectations.named() == []


async def test_the_room_for_expectations_is_checked_before_the_first_change(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expectation_table, "EXPECTATIONS_MAX", 1)

    reply = await declare_expectations(
        world, LAPTOP, {**LAPTOP, "name": "b"}, schedules=[{**DAILY, "name": "s"}]
    )

    assert (reply.status, reply.code) == (409, "conflict")
    assert await names(world) == []
    assert world.engine.expectations.named() == []
