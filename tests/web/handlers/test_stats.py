"""GET /v1/stats: what ended, by name and over time, and its bounds."""

from __future__ import annotations

from typing import Any

import pytest

from schedo.core.leases import AttemptResult, Completed, Failed, Outcome
from schedo.core.model import Failure
from tests.web.world import SECOND, World

HOUR = 3_600 * SECOND
AGO = "2026-11-{:02}T11:04:05Z"  # T0 is on the 20th


async def read(world: World, query: str = "") -> Any:
    reply = await world.get(f"/v1/stats{query}")
    assert reply.status == 200, reply
    return reply.json()


async def run(world: World, outcome: Outcome, **fields: object) -> None:
    """Let a job run for two seconds and end."""
    await world.submit(**fields)
    await world.engine.flush()
    world.clock.stall(2 * SECOND)
    world.engine.report(AttemptResult(world.worker.leases[-1].key, outcome))
    await world.engine.flush()


@pytest.fixture
async def busy(world: World) -> World:
    """A world in which jobs of three tasks have ended within two hours."""
    world.attach_worker()
    for task in ("mail", "mail", "resize"):
        await run(world, Completed(), task=task)
    world.clock.stall(HOUR)
    failed = Failed(Failure("Error", "no"))
    await run(world, failed, task="mail", retry={"max_attempts": 1})
    await run(world, failed, task="charge", retry={"max_attempts": 3})
    return world


async def test_the_ends_of_seven_days_are_counted_by_task(busy: World) -> None:
    found = await read(busy)

    assert (found["by"], found["has_more"]) == ("task", False)
    assert [item["name"] for item in found["items"]] == ["mail", "resize", "charge"]
    mail, _, charge = found["items"]
    assert (mail["completed"], mail["failed"], mail["failed_share"]) == (2, 1, 0.333333)
    assert (charge["retried"], charge["failed"], charge["failed_share"]) == (1, 0, None)
    assert (found["total"]["completed"], found["total"]["retried"]) == (3, 1)
    assert mail["run"]["count"] == 3
    assert mail["run"]["p99_us"] == pytest.approx(2 * SECOND, rel=found["relative_error"])
    assert mail["lateness"]["max_us"] == 100
    assert "points" not in mail


async def test_points_are_hours_or_days(busy: World) -> None:
    hours = await read(busy, "?per=hour&name=AI")
    days = await read(busy, "?per=day&by=queue")

    [mail] = hours["items"]
    points = [(point["at"], point["completed"], point["failed"]) for point in mail["points"]]
    assert points == [("2026-11-20T11:00:00.000000Z", 2, 0), ("2026-11-20T12:00:00.000000Z", 0, 1)]
    [queue] = days["items"]
    assert (queue["name"], days["since"]) == ("default", "2026-11-13T00:00:00.000000Z")
    assert [point["at"] for point in queue["points"]] == ["2026-11-20T00:00:00.000000Z"]


async def test_the_points_of_all_items_together_are_those_of_each_added_up(busy: World) -> None:
    found = await read(busy, "?per=hour&limit=1")

    assert len(found["items"]) == 1
    points = [(point["completed"], point["failed"], point["retried"]) for point in found["points"]]
    assert points == [(3, 0, 0), (0, 1, 1)]


async def test_one_name_can_be_wanted_exactly(busy: World) -> None:
    await run(busy, Completed(), task="mail-digest")

    found = await read(busy, "?exact_name=mail&per=day")

    assert [item["name"] for item in found["items"]] == ["mail"]
    assert found["points"] == found["items"][0]["points"]
    assert (await read(busy, "?exact_name=MAIL"))["items"] == []


async def test_a_range_begins_and_ends_with_an_hour(busy: World) -> None:
    first = await read(busy, "?until=2026-11-20T12:00:00Z")
    second = await read(busy, "?since=2026-11-20T12:01:00Z")

    assert (first["total"]["completed"], first["total"]["failed"]) == (3, 0)
    assert (second["total"]["completed"], second["total"]["failed"]) == (0, 1)
    assert second["since"] == "2026-11-20T12:00:00.000000Z"


async def test_only_the_first_names_are_listed(busy: World) -> None:
    found = await read(busy, "?limit=1")

    assert [item["name"] for item in found["items"]] == ["mail"]
    assert found["has_more"]
    assert found["total"]["completed"] == 3


async def test_without_ends_there_is_nothing(world: World) -> None:
    found = await read(world, "?by=schedule")

    assert found["items"] == []
    assert found["total"]["run"] is None


@pytest.mark.parametrize(
    ("query", "parameter", "words"),
    [
        ("by=worker", "by", "one of task, queue, schedule"),
        ("per=week", "per", "one of hour, day"),
        ("since=7d", "since", ""),
        (f"since={AGO.format(21)}", "since", "before the end"),
        (f"since={AGO.format(10)}&per=hour", "since", "add per=day"),
        (f"since={AGO.format(13)}&per=hour&limit=500", "limit", "at most 59"),
        ("limit=0", "limit", "from 1"),
        ("name=", "name", "1 to 128"),
        ("exact_name=", "exact_name", "1 to 128"),
        ("task=mail", "task", "no such parameter"),
    ],
)
async def test_a_bad_parameter_is_named(
    world: World, query: str, parameter: str, words: str
) -> None:
    reply = await world.get(f"/v1/stats?{query}")

    assert reply.status == 400
    [error] = reply.json()["errors"]
    assert error["parameter"] == parameter
    assert words in error["detail"]
