"""The recorder: what it counts, what survives a restart, and what becomes a gap."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from schedo.core.leases import Failed
from schedo.core.limits import DAY, MINUTE, SECOND
from schedo.core.model import Failure
from schedo.core.series import COUNTS, FIGURE_MAX, GAUGES, QUEUE_FIGURES, UNKNOWN, Row
from schedo.engine import series
from schedo.engine.metrics import OTHER_QUEUES, QUEUES_NAMED_MAX
from schedo.engine.series import Recorder
from schedo.errors import StoreError
from tests.engine.world import T0, THRICE, World, running


def counts(row: Row | None) -> dict[str, int]:
    """The counts above 0, without how long commits took."""
    assert row is not None
    found = dict(zip(COUNTS, row.counts, strict=False))
    return {name: n for name, n in found.items() if n and not name.startswith("commit")}


def gauges(row: Row | None) -> dict[str, int]:
    assert row is not None
    return dict(zip(GAUGES, row.gauges, strict=True))


def queue(world: World, row: Row, name: str) -> dict[str, int]:
    figures = row.queue(world.engine.series.queues.index(name))
    assert figures is not None
    return dict(zip(QUEUE_FIGURES, figures, strict=True))


def pass_second(world: World, seconds: int = 1) -> None:
    """Let seconds pass, and record the last of them."""
    world.clock.stall(seconds * SECOND)
    world.engine.series.sample()


async def test_a_second_has_what_happened_in_it(path: Path) -> None:
    async with running(path) as world:
        pass_second(world)
        await world.submit(queue="mail")
        await world.submit(queue="mail", delay_us=DAY, retry=THRICE)
        world.worker.end()
        await world.submit(retry=THRICE)
        world.worker.end(Failed(Failure("boom", "it broke")))
        await world.submit()
        await world.engine.flush()

        pass_second(world)

        last = world.engine.series.seconds.last
        assert counts(last) == {"submitted": 4, "started": 3, "completed": 1, "attempts_failed": 1}
        assert last is not None
        assert (sum(last.lateness("submit")), sum(last.lateness("timer"))) == (3, 0)
        found = gauges(last)
        assert (found["due"], found["later"]) == (0, 2)
        assert (found["running"], found["slots"]) == (1, 10)
        pass_second(world)
        assert counts(world.engine.series.seconds.last) == {}


async def test_the_gauges_are_unknown_until_the_store_has_counted(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(path) as world:
        await world.submit(delay_us=DAY)
    async with running(path) as world:
        pass_second(world)
        assert gauges(world.engine.series.seconds.last)["later"] == UNKNOWN
        await world.engine.gauges()

        pass_second(world)

        assert gauges(world.engine.series.seconds.last)["later"] == 1


async def test_a_minute_adds_up_its_seconds_and_measures_each_queue(path: Path) -> None:
    async with running(path) as world:
        pass_second(world)
        await world.submit(queue="mail", delay_us=SECOND)
        pass_second(world)
        await world.submit(queue="mail")
        await world.engine.pause_queue("default")
        await world.submit()
        pass_second(world)
        assert len(world.engine.series.minutes) == 0

        pass_second(world, 60)

        [minute] = world.engine.series.minutes.since(0)
        assert minute.number == T0 // MINUTE
        assert counts(minute) == {"submitted": 3, "started": 2}
        assert queue(world, minute, "mail")["started"] == 2
        assert queue(world, minute, "default")["submitted"] == 1
        assert queue(world, minute, "default")["due"] == 1
        assert world.engine.series.sums_of_day()[COUNTS.index("started")] == 2


async def test_minutes_survive_a_restart_and_seconds_do_not(path: Path) -> None:
    async with running(path) as world:
        await world.submit(queue="mail")
        pass_second(world)
        await world.submit(queue="mail")
        pass_second(world)

    async with running(path, now=T0 + 2 * SECOND) as world:
        await loaded(world)
        pass_second(world)
        await world.submit(queue="other one")
        pass_second(world)
        assert len(world.engine.series.seconds) == 2
        assert counts(next(world.engine.series.minutes.since(0)))["submitted"] == 2
        pass_second(world, 60)

        [minute] = world.engine.series.minutes.since(0)
        assert counts(minute)["submitted"] == 3
        assert queue(world, minute, "mail")["submitted"] == 2
        assert queue(world, minute, "other one")["submitted"] == 1

    async with running(path, now=T0 + DAY + 5 * MINUTE) as world:
        await loaded(world)
        assert len(world.engine.series.minutes) == 0


async def test_the_minutes_of_the_last_day_are_read_after_the_first_second(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(path) as world:
        await world.submit()
        pass_second(world)
    has_passed, second = asyncio.Event(), asyncio.Event()

    async def end_of_second(self: Recorder) -> None:
        await has_passed.wait()
        if self._is_loaded:
            second.set()
            await asyncio.Event().wait()

    monkeypatch.setattr(Recorder, "_end_of_second", end_of_second)
    async with running(path) as world:
        await world.submit()
        await world.engine.flush()
        assert len(world.engine.series.minutes) == 0

        has_passed.set()
        await second.wait()

        assert len(world.engine.series.minutes) == 1


async def test_the_minutes_of_the_last_day_are_read_once_for_all_requests_before_that(
    path: Path,
) -> None:
    async with running(path) as world:
        await world.submit()
        pass_second(world)

    async with running(path) as world:
        series = world.engine.series
        await asyncio.gather(series.load(), series.load())

        assert len(series.minutes) == 1


async def test_a_minute_that_cannot_be_saved_or_read_does_no_harm(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: object) -> None:
        raise StoreError("the disk is full")

    async with running(path) as world:
        monkeypatch.setattr(world.store, "save_minute", fail, raising=False)
        pass_second(world)

    async with running(path) as world:
        monkeypatch.setattr(world.store, "load_minutes", fail, raising=False)
        await world.engine.series.load()
        assert "the series of the last day cannot be read: the disk is full" in caplog.text


async def test_a_commit_that_takes_hours_is_counted_up_to_the_bound(path: Path) -> None:
    async with running(path) as world:
        world.engine.metrics.commit_time.observe(2 * FIGURE_MAX)
        pass_second(world)

        last = world.engine.series.seconds.last
        assert last is not None
        assert last.counts[COUNTS.index("commit_us")] == FIGURE_MAX


async def test_an_error_costs_one_second_and_not_all_later_ones(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(path) as world:
        failed = asyncio.Event()

        def fail() -> None:
            failed.set()
            raise RuntimeError("a bug")

        monkeypatch.setattr(series, "SECOND", 1)
        monkeypatch.setattr(world.engine.series, "sample", fail)
        recording = asyncio.create_task(world.engine.series.run())
        for _ in range(2):
            await failed.wait()
            failed.clear()
        recording.cancel()

        assert "a second of the series is missing" in caplog.text


async def test_queues_beyond_the_first_are_one_series(path: Path) -> None:
    async with running(path) as world:
        world.clock.stall(SECOND)
        await world.engine.gauges()
        for number in range(QUEUES_NAMED_MAX + 3):
            await world.submit(queue=f"q{number}")
        world.engine.series.sample()
        pass_second(world, 60)

        [minute] = world.engine.series.minutes.since(0)
        assert len(world.engine.series.queues) == QUEUES_NAMED_MAX + 1
        assert queue(world, minute, OTHER_QUEUES) == {
            "submitted": 3,
            "started": 0,  # the others have taken all slots
            "due": 3,
            "delay_p99_us": 0,
        }


def test_a_stored_minute_of_another_version_is_readable() -> None:
    text = '{"counts":{"started":2,"unheard_of":1},"queues":{"mail":{"submitted":1}},"more":[]}'
    recorder = object.__new__(series.Recorder)
    recorder.queues = []

    row = recorder._decode(7, text)

    assert counts(row) == {"started": 2}
    assert set(row.gauges) == {UNKNOWN}
    assert row.queue(0) == [1, 0, 0, 0]


async def loaded(world: World) -> None:
    """Let the recorder read the minutes of the store now, not after its first second."""
    await world.engine.series.load()
