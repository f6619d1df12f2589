"""The owners of schedules, changes by hand, and resets over HTTP."""

from __future__ import annotations

import pytest

from tests.web.world import World

DAILY = {"cron": "30 9 * * mon-fri", "tz": "Europe/Paris", "task": "report"}


async def test_a_declaration_names_its_owner(world: World) -> None:
    declared = await world.put("/v1/schedules/daily?owner=file:jobs.toml", DAILY)
    by_hand = await world.put("/v1/schedules/other", DAILY)

    assert (declared.status, declared.json()["owner"]) == (201, "file:jobs.toml")
    assert (by_hand.status, by_hand.json()["owner"]) == (201, "api")


async def test_a_declaration_says_from_which_other_declaration_it_takes_a_schedule(
    world: World,
) -> None:
    await world.put("/v1/schedules/daily", DAILY)
    first = await world.put("/v1/schedules/daily?owner=file:a", DAILY)
    second = await world.put("/v1/schedules/daily?owner=file:b", DAILY)

    assert (first.json()["effect"], first.json()["warnings"]) == ("unchanged", [])
    assert second.json()["warnings"] == ["it now belongs to file:b; before, file:a declared it"]


async def test_a_change_by_hand_to_a_declared_schedule_is_shown_until_it_is_reset(
    world: World,
) -> None:
    await world.put("/v1/schedules/daily?owner=file:a", {**DAILY, "payload": {"n": 1}})
    put = await world.put("/v1/schedules/daily", {**DAILY, "payload": {"n": 2}, "tz": "UTC"})
    shown = await world.get("/v1/schedules/daily")
    reset = await world.post("/v1/schedules/daily:reset", {})
    again = await world.post("/v1/schedules/daily:reset", {})

    for reply in (put, shown):
        assert reply.json()["owner"] == "file:a"
        assert reply.json()["edited"] == ["payload", "tz"]
        assert reply.json()["warnings"] == [
            "payload, tz: changed by hand; this stays until file:a declares the schedule"
            " differently, or until a reset"
        ]
    assert (reset.json()["effect"], reset.json()["payload"]) == ("changed", {"n": 1})
    assert "edited" not in reset.json()
    assert again.json()["effect"] == "unchanged"


@pytest.mark.parametrize("owner", ["", "api", "file:", "code: x", "owner", f"file:{'x' * 300}"])
async def test_an_owner_must_be_code_a_file_or_a_crontab(world: World, owner: str) -> None:
    reply = await world.put(f"/v1/schedules/daily?owner={owner}", DAILY)

    assert (reply.status, reply.json()["errors"][0]["parameter"]) == (400, "owner")
    assert (await world.get("/v1/schedules/daily")).status == 404


async def test_a_schedule_that_does_not_exist_cannot_be_reset(world: World) -> None:
    assert (await world.post("/v1/schedules/daily:reset", {})).status == 404
