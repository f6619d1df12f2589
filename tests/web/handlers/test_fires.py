"""GET /v1/schedules/{name}/fires and GET /v1/fires."""

from __future__ import annotations

from typing import Any

import pytest

from tests.web.world import World

BERLIN_CRON = {"cron": "30 2 * * *", "tz": "Europe/Berlin"}
BERLIN = {**BERLIN_CRON, "task": "t"}


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


async def all_fires(world: World, query: str = "") -> Any:
    reply = await world.get(f"/v1/fires?{query}")
    assert reply.status == 200, reply
    return reply.json()


async def test_the_fires_of_all_schedules_are_listed_by_rule(world: World) -> None:
    await world.put("/v1/schedules/hourly", {"cron": "0 * * * *", "task": "t"})
    await world.put("/v1/schedules/again", {"cron": "0 * * * *", "task": "t"})
    await world.put("/v1/schedules/paused", {"cron": "0 * * * *", "task": "t", "paused": True})
    await world.put("/v1/schedules/second", {"every": "1s", "task": "t", "jitter": "900ms"})

    found = await all_fires(world, "hours=2&bucket=1h&from=2027-01-15T08:20:00Z")

    hourly, second = found["items"]
    assert (found["from"], found["to"]) == (
        "2027-01-15T08:00:00.000000Z",
        "2027-01-15T10:00:00.000000Z",
    )
    assert (found["bucket"], found["schedules"], found["complete"]) == ("1h", 3, True)
    assert (found["together"], found["together_at"]) == ([3, 3], [0, 3_600])
    assert found["busiest"][0] == {
        "at": "2027-01-15T08:00:00.000000Z",
        "schedules": 3,
        "names": ["hourly", "again", "second"],
    }
    assert hourly == {
        "names": ["hourly", "again"],
        "schedules": 2,
        "rule": "At the start of every hour",
        "tz": "UTC",
        "count": 2,
        "seconds": [0, 3_600],
    }
    assert (second["counts"], second["jitter"]) == ([3_600, 3_600], "900ms")
    assert found["has_more"] is False


async def test_a_fire_that_the_clock_moves_is_marked_among_all(world: World) -> None:
    await world.put("/v1/schedules/nightly", BERLIN)

    found = await all_fires(world, "from=2027-03-28T00:00:00Z")

    [item] = found["items"]
    assert item["seconds"] == [3_600]
    assert item["clock_changes"][0]["at"] == "2027-03-28T01:00:00.000000Z"


async def test_all_fires_are_computed_once_a_minute(world: World) -> None:
    before = await all_fires(world, "bucket=1h")
    await world.put("/v1/schedules/hourly", {"cron": "0 * * * *", "task": "t"})

    assert await all_fires(world, "bucket=1h") == before
    assert (await all_fires(world, "bucket=2h"))["schedules"] == 1
    for hours in range(1, 5):
        await all_fires(world, f"hours={hours}")
    await world.clock.run_until(world.engine, world.clock.now() + 60_000_000)
    assert (await all_fires(world, "bucket=1h"))["schedules"] == 1


async def test_the_range_begins_with_the_present_bucket(world: World) -> None:
    found = await all_fires(world)

    assert (found["from"], found["bucket"]) == ("2026-11-20T11:00:00.000000Z", "5m")
    assert found["together"] == [0] * 288


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("from=yesterday", "from"),
        ("from=9999-12-31T12:00:00Z", "from"),
        ("hours=0", "hours"),
        ("hours=169", "hours"),
        ("bucket=59s", "bucket"),
        ("bucket=90.5s", "bucket"),
        ("bucket=25h", "bucket"),
        ("hours=168&bucket=5m", "bucket"),
        ("limit=501", "limit"),
        ("names=a", "names"),
    ],
)
async def test_a_wrong_parameter_of_all_fires_is_named(
    world: World, query: str, parameter: str
) -> None:
    reply = await world.get(f"/v1/fires?{query}")

    assert reply.status == 400
    assert reply.json()["errors"][0]["parameter"] == parameter


async def test_fires_are_listed_up_to_the_last_days_of_the_year_9999(world: World) -> None:
    await world.put("/v1/schedules/nightly", BERLIN)

    found = await world.get("/v1/schedules/nightly/fires?from=9999-12-29T00:00:00Z")
    after = await world.get("/v1/schedules/nightly/fires?from=9999-12-31T23:30:00Z")
    of_all = await world.get("/v1/fires?from=9999-12-30T12:00:00Z")
    explained = await explain(world, **BERLIN_CRON, **{"from": "9999-12-29T00:00:00Z"})
    reply = await world.post("/v1/cron:explain", {**BERLIN_CRON, "from": "9999-12-31T23:30:00Z"})

    assert found.json()["count"] == 1
    assert explained["next_fires"] == ["9999-12-29T01:30:00.000000Z"]
    assert (after.status, after.json()["errors"][0]["parameter"]) == (400, "from")
    assert (of_all.status, of_all.json()["errors"][0]["parameter"]) == (400, "from")
    assert (reply.status, reply.json()["errors"][0]["pointer"]) == (422, "/from")


async def explain(world: World, **fields: Any) -> Any:
    reply = await world.post("/v1/cron:explain", fields)
    assert reply.status == 200, reply
    return reply.json()


async def test_an_expression_is_explained_for_a_range(world: World) -> None:
    spring = {"from": "2027-03-27T00:00:00Z", "to": "2027-03-30T00:00:00Z"}
    rule = {"cron": "30 2 * * *", "tz": "Europe/Berlin", "count": 500}

    found = await explain(world, **rule, **spring)
    skipped = await explain(world, **rule, **spring, dst={"gap": "skip"})

    assert [at[5:16] for at in found["next_fires"]] == ["03-27T01:30", "03-28T01:00", "03-29T00:30"]
    assert [change["at"][5:16] for change in found["clock_changes"]] == ["03-28T01:00"]
    assert [at[5:16] for at in skipped["next_fires"]] == ["03-27T01:30", "03-29T00:30"]
    assert "together" not in found


async def test_an_expression_is_explained_from_now_on(world: World) -> None:
    found = await explain(world, cron="4 11 20 11 *")

    assert found["next_fires"][0].startswith("2027-11-20T11:04")
    assert len(found["next_fires"]) == 5


async def test_the_other_schedules_that_fire_then_are_counted(world: World) -> None:
    await world.put("/v1/schedules/hourly", {"cron": "0 * * * *", "task": "t"})
    await world.put("/v1/schedules/spread", {"cron": "0 * * * *", "task": "t", "jitter": "1m"})
    await world.put("/v1/schedules/mine", {"cron": "0 12 * * *", "task": "t"})

    found = await explain(world, cron="0,30 12 * * *", name="mine", coincidences=True, count=9)

    assert len(found["next_fires"]) == 9
    assert found["together"][:2] == [
        {"at": "2026-11-20T12:00:00.000000Z", "schedules": 1, "names": ["hourly"]},
        {"at": "2026-11-20T12:30:00.000000Z", "schedules": 0, "names": []},
    ]
    assert len(found["together"]) == 5


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"count": 501}, "/count"),
        ({"from": "soon"}, "/from"),
        ({"from": "2027-01-02T00:00:00Z", "to": "2027-01-01T00:00:00Z"}, "/to"),
        ({"dst": {"gap": "jump"}}, "/dst/gap"),
    ],
)
async def test_a_wrong_field_of_an_explanation_is_named(
    world: World, fields: dict[str, Any], pointer: str
) -> None:
    reply = await world.post("/v1/cron:explain", {"cron": "0 * * * *", **fields})

    assert reply.status == 422
    assert reply.json()["errors"][0]["pointer"] == pointer
