"""What has ended, by task, queue and schedule: what counts, what survives, what is bounded."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from schedo.core.changes import Changes
from schedo.core.ends import RETRIED
from schedo.core.job_filter import JobFilter
from schedo.core.leases import Completed, Failed, Lost, Outcome, Released, Snoozed
from schedo.core.limits import DAY, HOUR, MILLISECOND, MINUTE, SECOND
from schedo.core.loads import Load, LoadJob
from schedo.core.model import ONCE, Failure
from schedo.core.sketch import find_quantiles
from schedo.core.states import State
from schedo.core.tallies import (
    DAYS_KEPT,
    HOURS_KEPT,
    NAMES_MAX,
    OTHER,
    ROW_BYTES_MAX,
    Dimension,
    Period,
    Tallies,
    Tally,
    TallyFilter,
)
from schedo.engine.ends import Ends
from schedo.engine.run_times import RunTimes
from schedo.errors import StoreError
from schedo.store.sqlite.store import SqliteStore
from tests.engine.world import T0, THRICE, World, recovered, running

FAILED = Failed(Failure("boom", "it broke"))
LAST = T0 + 1000 * DAY


async def read(world: World, by: str = "task", text: str = "") -> Tallies:
    found = await world.engine.read_tallies(TallyFilter(Dimension(by), 0, LAST, text=text))
    return found.get(0, {})


async def read_parts(
    world: World, per: Period = Period.HOUR, by: str = "task"
) -> dict[int, Tallies]:
    return await world.engine.read_tallies(TallyFilter(Dimension(by), 0, LAST, per))


def counts(tally: Tally) -> dict[str, int]:
    return {name: count for name, count in tally.counts.items() if count}


async def run(world: World, outcome: Outcome | None = None, **fields: object) -> None:
    """Let a job run for a second and end."""
    await world.submit(**fields)
    world.clock.stall(SECOND)
    world.worker.end(outcome)
    await world.engine.flush()


async def test_ends_count_by_task_queue_and_schedule(path: Path) -> None:
    async with running(path) as world:
        await run(world, queue="mail")
        await run(world, FAILED, queue="mail", retry=ONCE)
        await run(world, FAILED, retry=THRICE)
        waiting = await world.submit(delay_us=DAY)
        await world.engine.cancel(waiting.id)

        by_task, by_queue = await read(world), await read(world, "queue")

        assert counts(by_task["work"]) == {
            "completed": 1,
            "failed": 1,
            "cancelled": 1,
            "retried": 1,
        }
        assert counts(by_queue["mail"]) == {"completed": 1, "failed": 1}
        assert counts(by_queue["default"]) == {"cancelled": 1, "retried": 1}
        assert by_task["work"].ended == 3
        assert sum(by_task["work"].run.values()) == 3
        assert await read(world, "schedule") == {}
        assert list(await read(world, "queue", text="AI")) == ["mail"]


async def test_the_times_of_attempts_are_kept_within_five_percent(path: Path) -> None:
    async with running(path) as world:
        await world.submit()
        world.clock.stall(40 * SECOND)
        world.worker.end()
        await world.engine.pause_queue("default")
        await world.submit()
        world.clock.stall(8 * SECOND)
        await world.engine.resume_queue("default")
        await world.engine.flush()
        world.worker.end()
        await world.engine.flush()

        tally = (await read(world))["work"]

        assert find_quantiles(tally.run, [1]) == [pytest.approx(40 * SECOND, rel=0.05)]
        assert find_quantiles(tally.late, [1]) == [pytest.approx(8 * SECOND, rel=0.05)]


async def test_a_time_that_says_nothing_is_not_counted(path: Path) -> None:
    async with running(path) as world:
        await run(world, Lost("it died"), retry=THRICE)
        lost = (await read(world))["work"]
        assert (counts(lost), lost.run, sum(lost.late.values())) == ({"retried": 1}, {}, 1)

        for outcome in (Released(), Snoozed(SECOND)):  # of attempts that continue the first one
            world.worker.end(outcome)
            await world.engine.flush()

        again = (await read(world))["work"]
        assert counts(again) == {"retried": 1}
        assert (sum(again.run.values()), sum(again.late.values())) == (2, 1)


async def test_an_end_counts_in_the_hour_in_which_it_came(path: Path) -> None:
    async with running(path) as world:
        await run(world)
        world.clock.stall(HOUR)
        await run(world)

        by_hour = await read_parts(world)
        by_day = await read_parts(world, Period.DAY)

        assert {at: counts(each["work"]) for at, each in by_hour.items()} == {
            T0: {"completed": 1},
            T0 + HOUR: {"completed": 1},
        }
        assert {at: counts(each["work"]) for at, each in by_day.items()} == {
            T0 - T0 % DAY: {"completed": 2}
        }


async def test_a_restart_within_an_hour_loses_nothing(path: Path) -> None:
    for at in (T0, T0 + MINUTE, T0 + 2 * MINUTE):
        async with running(path, now=at) as world:
            await run(world)

    async with running(path, now=T0 + HOUR) as world:
        by_hour = await read_parts(world)

        assert {at: counts(each["work"]) for at, each in by_hour.items()} == {T0: {"completed": 3}}


async def test_a_server_that_is_replaced_saves_what_has_ended(path: Path) -> None:
    async with running(path) as world:
        await world.submit()
        world.worker.end()  # its result is applied by the last turn of the freeze

        await world.engine.freezing.freeze("next")

        await world.engine.freezing.reopen()
        assert counts((await read(world))["work"]) == {"completed": 1}
        rows = await world.store.load_tallies(Dimension.TASK, Period.HOUR, 0, LAST, 9)
        assert '"completed":1' in rows[0][1]


async def test_each_minute_is_saved_so_that_a_kill_loses_less_than_two(path: Path) -> None:
    async with running(path) as world:
        await run(world)
        world.engine.series.sample()
        world.clock.stall(MINUTE)
        world.engine.series.sample()
        await world.engine.series.stop()
        await run(world)
        row = await world.store.load_tallies(Dimension.TASK, Period.HOUR, 0, LAST, 9)

        assert [at for at, _ in row] == [T0]
        assert '"completed":1' in row[0][1]
        assert counts((await read(world))["work"]) == {"completed": 2}


async def test_ends_that_cannot_be_saved_stay_for_the_next_time(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise StoreError("it flickered")

    async with running(path) as world:
        await run(world)
        book = world.engine._loop.monitor.ends
        with monkeypatch.context() as patch:
            patch.setattr(world.store, "add_tallies", fail, raising=False)
            await book.save(world.engine.store, T0)

        await run(world)

        assert counts((await read(world))["work"]) == {"completed": 2}


@pytest.mark.parametrize("is_durable", [False, True])
async def test_an_end_counts_once_although_its_commit_failed_or_only_seemed_to_fail(
    path: Path, is_durable: bool
) -> None:
    async with running(path) as world:
        await world.submit()
        fail = world.store.fail_after if is_durable else world.store.fail_next
        fail(StoreError("the session is lost"))
        world.worker.end()
        await recovered(world)
        await world.engine.flush()

        assert counts((await read(world))["work"]) == {"completed": 1}


async def test_the_ends_of_a_commit_whose_outcome_stays_unknown_do_not_count(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another server has the job that could tell."""
    async with running(path) as world:
        job = await world.submit(delay_us=DAY)
        load = world.store.load

        async def load_no_job(wanted: Load) -> object:
            return None if isinstance(wanted, LoadJob) else await load(wanted)

        monkeypatch.setattr(world.store, "load", load_no_job)
        world.store.fail_after(StoreError("the session is lost behind the commit"))
        with pytest.raises(StoreError):
            await world.engine.cancel(job.id)
        await recovered(world)

        assert await read(world) == {}


async def test_an_attempt_that_ends_while_its_start_is_committed_counts_once(path: Path) -> None:
    async with running(path) as world:
        times = RunTimes()
        world.engine.metrics.listeners.append(times.note)
        await world.engine.pause_queue("default")
        job = await world.submit()
        world.store.hold()
        resuming = asyncio.ensure_future(world.engine.resume_queue("default"))
        await world.store.wait_held()  # with the start of the job

        world.worker.end()
        while (await world.engine.get(job.id)).state is not State.COMPLETED:
            await world.store.load_minutes(0)  # meanwhile the turn runs
        world.store.release()
        await resuming
        await world.engine.flush()

        assert sum(times.by_task["work"].counts) == 1
        assert counts((await read(world))["work"]) == {"completed": 1}


async def test_a_clock_that_is_set_back_does_no_harm(path: Path) -> None:
    async with running(path) as world:
        await run(world)
    async with running(path, now=T0 - 3 * DAY) as world:
        await run(world)
        await world.submit()
        world.clock.step(-HOUR)
        await world.submit(delay_us=DAY)
        world.worker.end()
        await world.engine.flush()
    async with running(path, now=T0 + MINUTE) as world:
        await run(world)

        by_hour = await read_parts(world)

        assert {at - T0: tallies["work"].ended for at, tallies in by_hour.items()} == {
            0: 2,
            -3 * DAY: 1,
            -3 * DAY - HOUR: 1,
        }


async def test_what_ends_is_counted_as_the_jobs_say(path: Path) -> None:
    random = Random(7)
    outcomes = (Completed(), Completed(), Completed(), FAILED, Snoozed(SECOND))
    async with running(path, window=1_000) as world:
        for task_queue in [("work", queue) for queue in "abc"] * 100:
            await world.submit(task=task_queue[0], queue=task_queue[1])
            if len(world.worker.leases) > 8:
                random.shuffle(world.worker.leases)
                world.clock.stall(random.randrange(20 * MINUTE))
                for _ in range(random.randrange(1, 9)):
                    world.worker.end(random.choice(outcomes))
        await world.engine.flush()

        tallies = await read_parts(world, by="queue")
        expected: Counter[tuple[int, str, str]] = Counter()
        page = await world.engine.store.list_jobs(JobFilter(), None, 500)
        for job in page.jobs:
            if job.ended_at is not None:
                expected[job.ended_at - job.ended_at % HOUR, job.queue, job.state.value] += 1

        assert page.after is None
        assert len({at for at, _, _ in expected}) > 1
        assert expected == Counter(
            {
                (at, name, outcome): count
                for at, by_name in tallies.items()
                for name, tally in by_name.items()
                for outcome, count in counts(tally).items()
                if outcome != RETRIED
            }
        )


async def test_many_names_share_one_tally() -> None:
    store, book = SqliteStore(":memory:"), Ends()
    await store.open()
    everything = TallyFilter(Dimension.TASK, 0, LAST)

    def end(name: str, at: int) -> None:
        book.note(Changes(ends=[(name, "default", None, "completed", at, MILLISECOND, 0)]))

    for number in range(10_000):
        end(f"task-{number}", T0)
    found = (await book.read(store, everything))[0]
    assert len(found) == NAMES_MAX + 1
    assert found[OTHER].ended == 10_000 - NAMES_MAX
    assert found["task-0"].ended == 1

    end("new", T0 + 9 * DAY)
    assert (await book.read(store, everything))[0]["new"].ended == 1
    await store.close()


async def test_the_table_stays_bounded_in_a_year_with_many_names() -> None:
    random, book, store = Random(3), Ends(), SqliteStore(":memory:")
    await store.open()
    ended, since = 0, T0 - T0 % DAY + 300 * DAY
    for hour in range(0, 365 * 24, 6):
        at = T0 + hour * HOUR
        for _ in range(20):
            task, schedule = f"task-{random.randrange(400)}", f"schedule-{random.randrange(400)}"
            times = random.randrange(DAY), random.randrange(DAY)
            end = task, f"queue-{hour % 50}", schedule, "completed", at, *times
            book.note(Changes(ends=[end]))
        await book.save(store, at)
        ended += 20 * (at >= since)

    for dimension in Dimension:
        rows = {
            period: await store.load_tallies(dimension, period, 0, LAST, 1_000) for period in Period
        }
        assert len(rows[Period.HOUR]) == HOURS_KEPT
        assert len(rows[Period.DAY]) == DAYS_KEPT
        assert max(len(text) for each in rows.values() for _, text in each) <= ROW_BYTES_MAX
        last = TallyFilter(dimension, since, LAST)
        [tallies] = (await book.read(store, last)).values()
        assert sum(tally.ended for tally in tallies.values()) == ended
    await store.close()
