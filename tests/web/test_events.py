"""The hub of events: what becomes a frame, for whom, and what a client learns that missed some."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import orjson
import pytest

from schedo.core.ids import parse_id, render_id
from schedo.core.leases import AttemptResult, Completed
from schedo.core.model import JobSpec, Overlap
from schedo.core.progress import ProgressUpdate
from schedo.core.worker_messages import Progress
from schedo.errors import StoreError, Unavailable
from schedo.protocol import events as protocol
from schedo.protocol.events import RECORDS_MAX, RETRY, TOPICS
from schedo.web import events
from schedo.web.events import STREAM_BYTES_MAX, STREAMS_MAX, EventHub, Stream
from tests.factories import make_spec
from tests.web.world import World


class Event(NamedTuple):
    ident: str
    name: str
    data: Any


def parse(text: bytes) -> list[Event]:
    """The events of a piece of a stream."""
    found = []
    for part in text.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in part.splitlines() if ": " in line)
        if "event" in fields:
            found.append(Event(fields["id"], fields["event"], orjson.loads(fields["data"])))
    return found


@pytest.fixture
async def hub(world: World, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[EventHub]:
    monkeypatch.setattr(events, "FRAME_S", 3_600.0)  # only the test renders
    hub = EventHub(world.engine, lambda: ({"n": 1}, []))
    yield hub
    hub.close()


def names(stream: Stream) -> list[str]:
    return [event.name for event in parse(stream.take())]


async def test_a_submitted_job_is_an_event(world: World, hub: EventHub) -> None:
    stream = hub.open({"jobs"}, None)
    job = await world.submit(queue="mail")
    hub.render(with_tick=False)

    [event] = parse(stream.take())

    assert event.name == "jobs"
    assert event.data["count"] == 1
    [shown] = event.data["jobs"]
    assert (shown["id"], shown["state"], shown["queue"]) == (job["id"], "queued", "mail")
    assert "payload" not in shown
    assert stream.take() == b""


async def test_a_job_that_changes_several_times_is_shown_once(world: World, hub: EventHub) -> None:
    world.attach_worker()
    stream = hub.open({"jobs"}, None)
    await world.submit()
    lease = await world.worker.first()
    world.engine.report(AttemptResult(lease.key, Completed()))
    await world.engine.flush()
    hub.render(with_tick=False)

    [event] = parse(stream.take())

    [shown] = event.data["jobs"]
    assert (shown["state"], shown["attempt"]) == ("completed", 1)
    assert shown["ended_at"] >= shown["picked_at"]


async def test_of_many_changed_jobs_there_are_only_counts(world: World, hub: EventHub) -> None:
    stream = hub.open({"jobs"}, None)
    await world.engine.submit([JobSpec(task="t")] * (RECORDS_MAX + 1))
    hub.render(with_tick=False)

    [event] = parse(stream.take())

    assert event.data == {"count": RECORDS_MAX + 1, "states": {"queued": RECORDS_MAX + 1}}


async def test_what_is_gathered_is_bounded(world: World, hub: EventHub) -> None:
    stream = hub.open({"jobs"}, None)
    for _ in range(4):
        await world.engine.submit([JobSpec(task="t")] * 90)
    assert len(hub._gathered.jobs) == 180
    hub.render(with_tick=False)

    assert parse(stream.take())[0].data["count"] == 360


async def test_the_runs_of_a_schedule_are_bounded(world: World, hub: EventHub) -> None:
    schedule, _ = await world.engine.put_schedule(make_spec(name="nightly"))
    stream = hub.open({f"schedule:{schedule.id}"}, None)
    for _ in range(RECORDS_MAX + 1):
        await world.engine.trigger_schedule("nightly", Overlap.ALLOW)
    hub.render(with_tick=False)

    [runs, _] = parse(stream.take())
    assert runs.data["count"] == RECORDS_MAX


async def test_a_stream_gets_its_topics_only(world: World, hub: EventHub) -> None:
    every, queues = hub.open(TOPICS, None), hub.open({"queues"}, None)
    await world.submit()
    await world.engine.put_schedule(make_spec(name="nightly"))
    await world.engine.pause_queue("mail")
    world.attach_worker()
    await world.engine.flush()

    hub.render(with_tick=True)

    assert names(every) == ["jobs", "schedules", "queues", "tick", "workers"]
    [event] = parse(queues.take())
    assert event.data["queues"] == [{"name": "mail", "paused": True, "concurrency": None}]


async def test_the_queues_whose_jobs_have_changed_are_counted_once_a_second(world: World) -> None:
    hub = EventHub(world.engine, lambda: ({}, world.engine.summary(10_000).queues))
    stream = hub.open({"queues"}, None)
    job = await world.submit(queue="mail", delay="1h")
    await world.engine.gauges()  # waits until the store has counted

    hub.render(with_tick=True)
    [event] = parse(stream.take())
    hub.render(with_tick=True)
    assert stream.take() == b""
    await world.engine.cancel(parse_id(job["id"]))
    await world.engine.flush()
    hub.render(with_tick=True)
    [gone] = parse(stream.take())
    hub.close()

    limits = {"name": "mail", "paused": False, "concurrency": None}
    assert event.data["queues"] == [{**limits, "running": 0, "waiting": {"scheduled": 1}}]
    assert gone.data["queues"] == [{**limits, "running": 0, "waiting": {}}]


async def test_schedules_and_workers_are_shown_with_what_has_changed(
    world: World, hub: EventHub
) -> None:
    stream = hub.open({"schedules", "workers"}, None)
    await world.engine.put_schedule(make_spec(name="nightly"))
    world.attach_worker(slots=3)
    await world.engine.flush()
    hub.render(with_tick=True)
    schedules, workers = parse(stream.take())
    assert [each["name"] for each in schedules.data["schedules"]] == ["nightly"]
    [seen] = workers.data["workers"]
    assert (seen["name"], seen["slots"], seen["running_tasks"]) == ("hands", 3, {})

    hub.render(with_tick=True)
    assert stream.take() == b""
    await world.submit(task="sweep")
    await world.worker.first()
    hub.render(with_tick=True)
    [workers] = parse(stream.take())
    assert workers.data["workers"][0]["running_tasks"] == {"sweep": 1}

    world.engine.detach("hands", "it left")
    await world.engine.delete_schedule("nightly")
    hub.render(with_tick=True)

    schedules, workers = parse(stream.take())
    assert schedules.data == {"count": 0, "deleted": 1, "schedules": []}
    assert workers.data == {"workers": [], "gone": ["hands"]}


async def test_one_job_can_be_followed(world: World, hub: EventHub) -> None:
    world.attach_worker()
    followed = await world.submit(delay="1h")
    stream = hub.open({f"job:{parse_id(followed['id'])}"}, None)
    await world.submit()
    hub.render(with_tick=True)
    assert stream.take() == b""
    await world.engine.cancel(parse_id(followed["id"]))
    hub.render(with_tick=False)

    [event] = parse(stream.take())

    assert event.name == "job"
    assert (event.data["id"], event.data["state"]) == (followed["id"], "cancelled")


async def test_the_progress_of_a_followed_job_is_told_once(world: World, hub: EventHub) -> None:
    world.attach_worker()
    job, other = await world.submit(), await world.submit()
    await world.engine.flush()
    keys = {render_id(lease.key.job_id): lease.key for lease in world.worker.leases}
    stream = hub.open({f"job:{parse_id(job['id'])}"}, None)
    for key in keys.values():
        world.engine.note_progress(Progress(key, ProgressUpdate(message="begun")))
    world.engine.note_progress(Progress(keys[job["id"]], ProgressUpdate(40.0, log="a line")))
    for _ in range(2):
        hub.render(with_tick=True)

    [event] = parse(stream.take())

    assert event.name == "progress"
    assert event.data.pop("at") >= job["created_at"]
    assert event.data == {"id": job["id"], "attempt": 1, "percent": 40.0}
    world.engine.note_progress(Progress(keys[job["id"]], ProgressUpdate(message="half")))
    hub.render(with_tick=False)
    [event] = parse(stream.take())
    assert event.data["message"] == "half"
    assert other["id"] in keys


async def test_one_schedule_can_be_followed_with_its_runs(world: World, hub: EventHub) -> None:
    schedule, _ = await world.engine.put_schedule(make_spec(name="nightly"))
    await world.engine.put_schedule(make_spec(name="other"))
    stream = hub.open({f"schedule:{schedule.id}"}, None)

    await world.engine.trigger_schedule("nightly")
    await world.engine.trigger_schedule("other")
    await world.engine.pause_schedule("nightly")
    hub.render(with_tick=True)

    runs, changed = parse(stream.take())
    assert (runs.name, runs.data["count"]) == ("jobs", 1)
    assert runs.data["jobs"][0]["schedule_id"] == render_id(schedule.id)
    assert (changed.name, changed.data["name"], changed.data["paused"]) == (
        "schedule",
        "nightly",
        True,
    )


async def test_nothing_is_gathered_or_rendered_without_streams(world: World) -> None:
    hub = EventHub(world.engine, lambda: ({}, []))
    assert world.engine.metrics.listeners == []

    stream = hub.open({"queues"}, None)
    await world.submit()
    hub.render(with_tick=True)
    assert hub.newest == 0  # no stream has the topics of these events
    await stream.aclose()
    hub.close()

    assert world.engine.metrics.listeners == []


async def test_an_error_in_the_events_fails_no_commit(
    world: World, hub: EventHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(job: object) -> None:
        raise RuntimeError("a bug")

    hub.open({"jobs"}, None)
    monkeypatch.setattr(protocol, "job_data", fail)
    await world.submit()

    assert (await world.get("/readyz")).status == 200
    assert world.engine.health().epoch == 1


async def test_a_client_continues_after_the_last_event_that_it_has(
    world: World, hub: EventHub
) -> None:
    first = hub.open({"tick"}, None)
    for _ in range(3):
        hub.render(with_tick=True)
    seen = parse(first.take())

    again = hub.open({"tick"}, seen[0].ident)

    assert parse(again.take()) == seen[1:]


@pytest.mark.parametrize("last_id", ["", "1", "0-1", "1-99", "1-x", "1-" + "9" * 5_000, "1-²"])
async def test_a_client_with_an_id_that_cannot_be_followed_reads_everything_again(
    hub: EventHub, last_id: str
) -> None:
    hub.open({"tick"}, None)
    hub.render(with_tick=True)

    stream = hub.open({"tick"}, last_id)

    assert parse(stream.take()) == [Event("1-1", "reset", {})]
    hub.render(with_tick=True)
    assert names(stream) == ["tick"]


async def test_a_client_that_comes_back_in_an_outage_of_the_store_reads_everything_again(
    world: World, hub: EventHub
) -> None:
    world.engine._loop.failure = StoreError("the store is away")
    first = hub.open({"tick"}, None)
    hub.render(with_tick=True)
    [tick] = parse(first.take())

    assert names(hub.open({"tick"}, tick.ident)) == ["reset"]
    assert names(hub.open({"tick"}, "0-0")) == ["reset"]


async def test_a_recovery_resets_all_streams(world: World, hub: EventHub) -> None:
    stream = hub.open({"tick"}, None)
    hub.render(with_tick=True)
    [tick] = parse(stream.take())
    world.engine._loop.fail_and_recover(RuntimeError("a bug"))
    hub.render(with_tick=True)

    assert names(stream) == ["reset"]
    assert names(hub.open({"tick"}, tick.ident)) == ["reset"]


async def test_a_client_that_is_too_far_behind_learns_how_many_events_it_has_missed(
    hub: EventHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "FRAMES_MAX", 10)
    slow, slower = hub.open({"tick"}, None), hub.open({"tick"}, None)
    hub._read_second = lambda: ({"text": "x" * (STREAM_BYTES_MAX // 4)}, [])
    for _ in range(5):
        hub.render(with_tick=True)

    assert parse(slow.take()) == [Event("1-5", "gap", {"dropped": 5})]
    for _ in range(10):
        hub.render(with_tick=True)

    assert parse(slower.take()) == [Event("1-15", "gap", {"dropped": 15})]
    assert slower.take() == b""
    assert len(hub._frames) == 10


async def test_the_frames_are_bounded_in_bytes(
    hub: EventHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "FRAMES_BYTES_MAX", 1_000)
    hub.open({"tick"}, None)
    hub._read_second = lambda: ({"text": "x" * 300}, [])
    for _ in range(9):
        hub.render(with_tick=True)

    assert sum(len(frame.data) for frame in hub._frames) == hub._bytes <= 1_000


async def test_there_are_at_most_256_streams(hub: EventHub) -> None:
    streams = [hub.open({"tick"}, None) for _ in range(STREAMS_MAX)]
    with pytest.raises(Unavailable, match="256 event streams"):
        hub.open({"tick"}, None)

    await streams[0].aclose()
    await streams[0].aclose()

    assert hub.open({"tick"}, None)
    assert hub.streams == STREAMS_MAX


async def test_a_stream_ends_at_the_drain_and_says_when_to_come_back(hub: EventHub) -> None:
    stream = hub.open({"tick"}, None)
    pieces = [await anext(stream)]
    hub.close()
    pieces += [piece async for piece in stream]

    assert pieces == [RETRY, RETRY]
    assert hub.streams == 0
    with pytest.raises(Unavailable, match="stopping"):
        hub.open({"tick"}, None)


async def test_the_hub_stops_some_time_after_the_last_stream(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "FRAME_S", 0.0)
    monkeypatch.setattr(events, "LINGER_S", 0.01)
    hub = EventHub(world.engine, lambda: ({}, []))
    stream = hub.open({"tick"}, None)
    await anext(stream)
    last = parse(await anext(stream))[-1].ident
    task = hub._task
    assert task is not None
    await stream.aclose()
    await task

    assert world.engine.metrics.listeners == []
    assert names(hub.open({"tick"}, last)) == ["reset"]  # what happened meanwhile is unknown
    hub.close()


async def test_a_quiet_stream_has_comments(hub: EventHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "COMMENT_S", 0.0)
    hub.render(with_tick=True)
    stream = hub.open({"queues"}, None)
    assert await anext(stream) == RETRY

    assert await anext(stream) == b":\n\n"
