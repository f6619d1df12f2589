"""What a schedule shows can be put again, and changes nothing."""

from __future__ import annotations

import pytest

from schedo.core.retry import PRESETS
from tests.web.world import World


@pytest.mark.parametrize("preset", PRESETS)
async def test_the_retry_of_a_preset_says_its_name(world: World, preset: str) -> None:
    reply = await world.put("/v1/schedules/s", {"every": "90s", "task": "a", "retry": preset})

    assert reply.json()["retry"]["preset"] == preset


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once"])
async def test_a_delivery_is_shown_as_it_was_put(world: World, delivery: str) -> None:
    await world.put("/v1/schedules/s", {"every": "90s", "task": "a", "delivery": delivery})

    assert (await world.get("/v1/schedules/s")).json()["delivery"] == delivery
