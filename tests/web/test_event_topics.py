"""Clients of event streams that come back: what they get, and when they must read all again."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from schedo.core.ids import parse_id, render_id
from schedo.web import event_topics, events
from schedo.web.event_topics import FollowedTopics
from schedo.web.events import EventHub, Stream
from tests.web.test_events import parse
from tests.web.world import World


@pytest.fixture
async def hub(world: World, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[EventHub]:
    monkeypatch.setattr(events, "FRAME_S", 3_600.0)  # only the test renders
    hub = EventHub(world.engine, lambda: ({"n": 1}, []))
    yield hub
    hub.close()


def names(stream: Stream) -> list[str]:
    return [event.name for event in parse(stream.take())]


async def test_a_client_that_was_alone_finds_what_happened_until_it_came_back(
    world: World, hub: EventHub
) -> None:
    ident = parse_id((await world.submit())["id"])
    topics = {"jobs", f"job:{ident}"}
    stream = hub.open(topics, None)
    await world.submit()
    hub.render(with_tick=False)
    [seen] = parse(stream.take())

    await stream.aclose()
    await world.post(f"/v1/jobs/{render_id(ident)}:cancel")
    hub.render(with_tick=False)

    job, jobs = parse(hub.open(topics, seen.ident).take())
    assert (job.name, job.data["id"], job.data["state"]) == ("job", render_id(ident), "cancelled")
    assert jobs.data["jobs"] == [job.data]


async def test_a_client_that_was_away_for_longer_reads_everything_again(
    world: World, hub: EventHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = hub.open({"tick"}, None)
    stream = hub.open({"jobs"}, None)
    await world.submit()
    hub.render(with_tick=True)
    [seen] = parse(stream.take())
    await stream.aclose()
    monkeypatch.setattr(events, "LINGER_S", 0.0)
    hub.render(with_tick=False)
    await world.submit()
    hub.render(with_tick=True)

    assert names(other) == ["tick", "tick"]  # it was not away
    assert names(hub.open({"jobs"}, seen.ident)) == ["reset"]
    assert names(hub.open({"tick"}, seen.ident)) == ["tick", "tick"]


def test_the_topics_of_only_so_many_ended_streams_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_topics, "LEFT_MAX", 2)
    topics = FollowedTopics()
    for topic in ("jobs", "job:7", "tick"):
        topics.add({topic})
        topics.leave({topic}, now=10.0)

    assert topics.end_old(before=9.0, newest=5)

    assert "jobs" not in topics
    assert "tick" in topics
    assert topics.jobs == {7}
    assert [topics.have_gone_on({"jobs", "tick"}, number) for number in (5, 6)] == [False, True]
    assert topics.have_gone_on({"job:7", "tick"}, 0)
    assert not topics.end_old(before=9.0, newest=5)
