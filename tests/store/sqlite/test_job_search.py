"""The search for listed jobs looks at a bounded number of them, and loses none between parts."""

from __future__ import annotations

import itertools
import os
import random
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from schedo.core.job_filter import JobFilter, Order, PayloadCondition
from schedo.core.model import Failure, Options
from schedo.core.states import State
from schedo.store.sqlite import job_search, read_connection
from schedo.store.sqlite.store import SqliteStore
from tests.factories import make_job
from tests.store.model import ModelStore
from tests.store.steps import all_jobs, ids, listed, put

CHOICES: dict[str, list[Any]] = {
    "state": ["queued", "scheduled", "retrying", "failed", "completed"],
    "queue": ["default", "mail"],
    "task": ["a", "b"],
    "schedule_id": [7],
    "tag": ["red"],
    "created_after": [3],
    "created_before": [60],
    "ended_after": [40],
    "ended_before": [70],
    "error": ["oops"],
    "states": [(State.QUEUED, State.FAILED), (State.FAILED, State.RETRYING, State.EXPIRED)],
    "worker": ["w"],
    "text": ["oo"],
}


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_connection, "SEARCH_S", 60.0)  # so a page ends with its parts
    monkeypatch.setattr(job_search, "LOOKED_AT_ONCE", 3)
    monkeypatch.setattr(job_search, "LOOKED_AT_ALONE", 9)
    monkeypatch.setattr(read_connection, "LOOKED_AT_MAX", 6)


@pytest.mark.usefixtures("small_parts")
async def test_each_combination_of_filters_lists_what_a_scan_finds(path: Path) -> None:
    draw = random.Random(1)
    store, model = SqliteStore(path), ModelStore()
    stores: tuple[Any, ...] = (store, model)
    for each in stores:
        await each.open()
    for number in range(1, 80):
        job = make_job(
            id=number * 256,
            state=draw.choice([*State]),
            queue=draw.choice(["default", "default", "mail"]),
            task=draw.choice("aab"),
            schedule_id=draw.choice([None, None, 7]),
            ended_at=draw.choice([None, number]),
            failure=draw.choice([None, Failure("E", "oops")]),
            worker=draw.choice([None, "w"]),
            options=Options(tags=draw.choice([(), (), ("red",), ("red", "blue")])),
        )
        for each in stores:
            job.is_new = True
            await put(each, job)

    for fields in itertools.chain(*(itertools.combinations(CHOICES, n) for n in range(4))):
        for values in itertools.product(*(CHOICES[field] for field in fields)):
            which = dict(zip(fields, values, strict=True))
            expected = ids(await all_jobs(model, **which))
            assert ids(await all_jobs(store, **which)) == expected, which
            assert ids(await all_jobs(store, Order.OLDEST, **which)) == expected[::-1], which
    await store.close()


@pytest.mark.usefixtures("small_parts")
async def test_a_page_ends_where_its_search_ends(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    # No index has both conditions, and each of them alone is met by many jobs.
    await put(store, make_job(id=1, state=State.FAILED, task="a"))
    await put(store, *(make_job(id=n, state=State.FAILED, task="b") for n in range(2, 60, 2)))
    await put(store, *(make_job(id=n, state=State.COMPLETED, task="a") for n in range(3, 60, 2)))
    which = JobFilter(state="failed", task="a")

    jobs, before, looked_at = await store.list_jobs(which, None, 9)
    pages = 1
    assert (jobs, looked_at) == ([], 6)
    while before is not None:
        page, before, _ = await store.list_jobs(which, before, 9)
        jobs += page
        pages += 1
    await store.close()

    assert ids(jobs) == [1]
    assert pages == 4  # each of 2 parts of 3 entries, and the entry where a part ends


@pytest.mark.parametrize(("step_s", "looked_at"), [(0.0, 2), (60.0, 20)])
async def test_a_step_begins_with_a_small_part_and_goes_on_only_if_that_was_fast(
    path: Path, monkeypatch: pytest.MonkeyPatch, step_s: float, looked_at: int
) -> None:
    store = SqliteStore(path)
    await store.open()
    await put(store, *(make_job(id=n, state=State.FAILED, task="b") for n in range(1, 60)))
    await store.close()
    monkeypatch.setattr(job_search, "LOOKED_AT_FIRST", 2)
    monkeypatch.setattr(job_search, "LOOKED_AT_ONCE", 8)
    monkeypatch.setattr(job_search, "STEP_S", step_s)

    with closing(sqlite3.connect(path)) as connection:
        page = job_search.search(
            connection, 0, JobFilter(worker="w"), job_search.Position(None), 9, looked_max=20
        )

    assert (page.jobs, page.looked_at) == ([], looked_at)


async def test_a_search_from_the_oldest_job_goes_on_where_a_part_ended(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_connection, "SEARCH_S", 60.0)
    monkeypatch.setattr(job_search, "LOOKED_AT_ONCE", 3)
    monkeypatch.setattr(read_connection, "LOOKED_AT_MAX", 6)
    store = SqliteStore(path)
    await store.open()
    await put(store, *(make_job(id=n, task="rare" if n == 20 else "other") for n in range(1, 31)))
    which = JobFilter(payload=(PayloadCondition(("x",), "1"),))

    first = await store.list_jobs(which, None, 9, Order.OLDEST)
    second = await store.list_jobs(which, first.after, 9, Order.OLDEST)
    rare = await store.list_jobs(JobFilter(task="rare"), None, 9, Order.OLDEST)
    await store.close()

    assert (first.jobs, first.after, first.looked_at) == ([], 8, 6)
    assert second.after == 16
    assert (ids(rare.jobs), rare.after) == ([20], None)


async def test_the_rarest_condition_finds_its_jobs_in_one_part(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await put(store, make_job(id=1, state=State.COMPLETED, task="rare"))
    await put(store, *(make_job(id=n, state=State.COMPLETED) for n in range(2, 2_000)))

    page = await store.list_jobs(JobFilter(state="completed", task="rare"), None, 9)
    await store.close()

    assert (ids(page.jobs), page.after) == ([1], None)


async def test_few_jobs_in_one_of_several_states_are_found_below_many_others(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await put(store, make_job(id=1, state=State.FAILED), make_job(id=2, state=State.EXPIRED))
    await put(store, *(make_job(id=n, state=State.COMPLETED) for n in range(3, 2_100)))
    which = JobFilter(states=(State.FAILED, State.CANCELLED, State.EXPIRED))

    page = await store.list_jobs(which, None, 9)
    found = await store.find_job_ids(which, None, 9)
    await store.close()

    assert (ids(page.jobs), page.after) == ([2, 1], None)
    assert found == ([2, 1], None)


async def test_few_waiting_jobs_are_found_below_many_ended_ones(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await put(store, make_job(id=1), make_job(id=2, state=State.SCHEDULED))
    await put(store, *(make_job(id=n, state=State.COMPLETED) for n in range(3, 2_000)))

    queued = await store.list_jobs(JobFilter(state="queued"), None, 9)
    scheduled = await store.list_jobs(JobFilter(state="scheduled"), None, 9)
    await store.close()

    assert (ids(queued.jobs), queued.after) == ([1], None)
    assert (ids(scheduled.jobs), scheduled.after) == ([2], None)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize(("count", "is_whole"), [(9, True), (10, False)])
@pytest.mark.parametrize("state", [State.QUEUED, State.SCHEDULED])
async def test_some_waiting_jobs_are_found_at_once_below_many_newer_ones(
    path: Path, state: State, count: int, *, is_whole: bool
) -> None:
    store = SqliteStore(path)
    await store.open()
    await put(store, *(make_job(id=n, state=state) for n in range(1, count + 1)))
    await put(store, *(make_job(id=n, state=State.COMPLETED) for n in range(20, 60)))

    page = await store.list_jobs(JobFilter(state=state.value), None, 4)
    of_task = await store.list_jobs(JobFilter(state=state.value, worker="w"), None, 4)
    await store.close()

    assert ids(page.jobs) == ([count, count - 1, count - 2, count - 3] if is_whole else [])
    assert of_task.looked_at > 0  # its entries do not say which worker a job had


@pytest.mark.parametrize("state", ["queued", "failed"])
async def test_a_part_does_the_same_work_in_a_store_of_any_size(
    path: Path, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LOOKED_AT_ONCE", "LOOKED_AT_ALONE"):
        monkeypatch.setattr(job_search, name, 500)
    store = SqliteStore(path)
    await store.open()
    await put(store, *(make_job(id=n, state=State(state), task="a") for n in range(1, 8_000, 2)))
    ended = State.COMPLETED
    await put(store, *(make_job(id=n, state=ended, task="b") for n in range(2, 8_000, 2)))
    assert len(await listed(store)) == 100  # so the tables are complete
    await store.close()

    connection = sqlite3.connect(path)
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    connection.set_progress_handler(count, 100)
    which = JobFilter(state=state, task="b")
    jobs, before, _ = job_search.search(
        connection, 0, which, job_search.Position(None), 9, looked_max=500
    )
    connection.close()

    assert jobs == []
    assert before is not None
    assert 6_000 < before < 8_000
    assert steps < 150  # 100 instructions each


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a thread has no niceness of its own")
async def test_all_other_threads_go_before_a_search(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.get_job(1)
    before = niceness_of_threads()
    await listed(store, task="a")
    new = set(niceness_of_threads().items()) - set(before.items())
    await store.close()
    own = os.getpriority(os.PRIO_PROCESS, 0)  # the process may have been started with another one
    assert [niceness for _, niceness in new] == [min(own + 10, 19)]


def niceness_of_threads() -> dict[int, int]:
    threads = map(int, os.listdir("/proc/self/task"))
    return {thread: os.getpriority(os.PRIO_PROCESS, thread) for thread in threads}
