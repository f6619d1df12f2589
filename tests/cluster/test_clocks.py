"""How far the clocks of the servers of a cluster are off is measured, shown and logged."""

from __future__ import annotations

import pytest

from schedo.core.limits import SECOND
from schedo.testing.clock import VirtualClock
from tests.cluster.conftest import Cluster
from tests.web.handlers.test_metrics import scrape, values


async def test_a_clock_of_a_machine_that_is_off_is_shown_everywhere_and_logged_there(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    monkeypatch.setattr(first.engine.clock, "ahead_us", lambda: 3 * SECOND)
    for _ in range(2):
        for each in (first, second):
            await each.router.look()

    apart_us = first.engine.clock.now() - second.engine.clock.now()  # they follow no database
    seen = [(await each.get("/v1/cluster")).json()["members"] for each in (first, second)]
    assert [each["clock_ahead_us"] for each in seen[0]] == [3 * SECOND, -apart_us]
    assert [each["clock_ahead_us"] for each in seen[1]] == [3 * SECOND + apart_us, 0]
    assert [each.getMessage() for each in caplog.records if "clock" in each.getMessage()] == [
        "the clock of this machine is 3.0 s ahead of that of the database; jobs follow that of the"
        " database, and the times in this log do not"
    ]
    families = await scrape(second)
    ahead = values(families["schedo_cluster_clock_ahead_seconds"])
    assert ahead == {("host 1",): 3 + apart_us / SECOND, ("host 2",): 0}


async def test_the_clock_of_a_server_of_an_earlier_version_is_compared(cluster: Cluster) -> None:
    """It follows the clock of its machine."""
    _, first, second = cluster
    clock = first.engine.clock
    assert isinstance(clock, VirtualClock)
    clock.stall(3 * SECOND)

    await second.router.look()

    theirs, _ = (await second.get("/v1/cluster")).json()["members"]
    assert theirs["clock_ahead_us"] == first.engine.clock.now() - second.engine.clock.now()


async def test_a_server_whose_clock_is_far_off_is_unreachable_and_the_reason_is_said(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    clock = first.engine.clock
    assert isinstance(clock, VirtualClock)
    clock.stall(90 * SECOND)
    await second.router.look()

    theirs, _ = (await second.get("/v1/cluster")).json()["members"]

    assert not theirs["reachable"]
    assert "the clock of this server is 90 s ahead of that" in theirs["problem"]
