"""GET /v1/timeseries: the points, their gaps and their bounds."""

from __future__ import annotations

import gzip
import random
from typing import Any

import pytest

from schedo.core.series import FIGURES, Row
from tests.web.world import SECOND, T0, World

MINUTE = 60 * SECOND


async def read(world: World, query: str = "") -> Any:
    reply = await world.get(f"/v1/timeseries{query}")
    assert reply.status == 200, reply
    return reply.json()


def pass_second(world: World, seconds: int = 1) -> None:
    world.clock.stall(seconds * SECOND)
    world.engine.series.sample()


async def test_the_last_quarter_of_an_hour_has_300_points(world: World) -> None:
    world.attach_worker()
    pass_second(world)
    await world.submit()
    await world.worker.first()
    pass_second(world)

    found = await read(world)

    assert (found["window"], found["step"]) == ("15m", 3)
    assert {len(values) for values in found["figures"].values()} == {300}
    started = found["figures"]["started"]
    assert [count for count in started if count] == [1]
    assert started.index(1) in (298, 299)
    timer, submit = found["lateness"]["timer"], found["lateness"]["submit"]
    assert sum(map(sum, filter(None, submit))) == 1
    assert not any(map(sum, filter(None, timer)))
    assert len(found["bounds"]) == 17
    assert found["queues"] == []


async def test_the_time_in_which_no_server_ran_is_a_gap(world: World) -> None:
    pass_second(world, 10)
    pass_second(world, 10)

    found = await read(world, "?points=90&names=started,due")

    assert found["step"] == 10
    assert found["figures"].keys() == {"started", "due"}
    assert "lateness" not in found
    assert found["figures"]["started"].count(0) == 2
    assert found["figures"]["started"].count(None) == 88


async def test_the_figures_of_a_queue_are_those_of_a_day(world: World) -> None:
    await world.engine.series.load()  # as a server does in its first second
    world.attach_worker()
    await world.submit(queue="mail")
    await world.worker.first()
    pass_second(world)
    pass_second(world, 60)

    found = await read(world, "?window=24h&queue=mail")

    assert (found["window"], found["step"], found["queue"]) == ("24h", 300, "mail")
    assert found["figures"].keys() == {"submitted", "started", "due", "delay_p99_us"}
    assert [n for n in found["figures"]["submitted"] if n is not None] == [1]
    assert (await read(world, "?window=24h"))["queues"] == ["mail"]


@pytest.mark.parametrize(
    ("query", "parameter", "text"),
    [
        ("?window=1h", "window", "one of 15m, 24h"),
        ("?points=301", "points", "from 1 to 300"),
        ("?names=started,nosuch", "names", "'nosuch' is not measured here"),
        ("?queue=mail", "queue", "add window=24h"),
        ("?window=24h&queue=nosuch", "queue", "not measured by name; these are: none yet"),
        ("?window=24h&queue=a/b", "queue", "name"),
    ],
)
async def test_a_wrong_parameter_is_named(
    world: World, query: str, parameter: str, text: str
) -> None:
    reply = await world.get(f"/v1/timeseries{query}")

    assert reply.status == 400
    [error] = reply.json()["errors"]
    assert error["parameter"] == parameter
    assert text in error["detail"]


@pytest.mark.parametrize("window", ["15m", "24h"])
async def test_a_full_window_is_small(world: World, window: str) -> None:
    chance = random.Random(1)
    for ring, row_us in (
        (world.engine.series.seconds, SECOND),
        (world.engine.series.minutes, MINUTE),
    ):
        for number in range(T0 // row_us - ring.length, T0 // row_us):
            figures = [chance.randrange(50) if chance.random() < 0.4 else 0 for _ in range(FIGURES)]
            ring.add(Row(number, figures))

    body = (await world.get(f"/v1/timeseries?window={window}")).body

    assert len(gzip.compress(body)) < 20_000
