"""GET /v1/schedules/{name}/fires."""

from __future__ import annotations

import pytest

from tests.web.world import World

BERLIN = {"cron": "30 2 * * *", "tz": "Europe/Berlin", "task": "t"}


async def test_the_fires_of_a_day_are_listed(world: World) -> None:
    await world.put("/v1/schedules/nightly", {"cron": "0 */6 * * *", "task": "t"})

    found = (await world.get("/v1/schedules/nightly/fires")).json()

    assert found == {
        "items": [
            {"at": "2026-11-20T12:00:00.000000Z"},
            {"at": "2026-11-20T18:00:00.000000Z"},
            {"at": "2026-11-21T00:00:00.000000Z"},
            {"at": "2026-11-21T06:00:00.000000Z"},
        ],
        "count": 4,
        "tz": "UTC",
        "paused": False,
    }


async def test_a_clock_change_is_marked_and_a_pause_is_said(world: World) -> None:
    await world.put("/v1/schedules/nightly", BERLIN)
    await world.post("/v1/schedules/nightly:pause", {})

    url = "/v1/schedules/nightly/fires?from=2027-03-28T00:00:00Z&to=2027-03-28T12:00:00Z"
    found = (await world.get(url)).json()

    assert found["paused"] is True
    [fire] = found["items"]
    assert fire["clock_change"].startswith("clocks go forward")


async def test_a_dense_schedule_lists_its_first_fires_and_counts_the_others(world: World) -> None:
    await world.put("/v1/schedules/fast", {"every": "1s", "task": "t", "jitter": "500ms"})

    found = (await world.get("/v1/schedules/fast/fires")).json()

    assert len(found["items"]) == 500
    assert found["count"] == 10_000
    assert all(fire["jitter"].endswith(("us", "ms")) for fire in found["items"])


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("from=yesterday", "from"),
        ("from=2027-01-02T00:00:00Z&to=2027-01-01T00:00:00Z", "to"),
        ("from=2027-01-01T00:00:00Z&to=2028-01-03T00:00:00Z", "to"),
    ],
)
async def test_a_wrong_range_is_named(world: World, query: str, parameter: str) -> None:
    await world.put("/v1/schedules/nightly", BERLIN)

    reply = await world.get(f"/v1/schedules/nightly/fires?{query}")

    assert reply.status == 400
    assert reply.json()["errors"][0]["parameter"] == parameter


async def test_an_unknown_schedule_has_no_fires(world: World) -> None:
    assert (await world.get("/v1/schedules/nosuch/fires")).status == 404
