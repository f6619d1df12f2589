"""The pages of a ready index: they grow while workers take jobs faster than pages are read."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from schedo.core.job_table import JobTable
from schedo.core.limits import (
    PAGE_ENTRIES_MAX,
    READY_ENTRIES_MAX,
    READY_PAGE_BYTES_MAX,
    READY_PAGE_MAX,
)
from schedo.core.loads import LoadReady
from schedo.core.model import Job, ReadyKey
from schedo.core.states import State
from tests.core.builders import make_job

WORK = ReadyKey("default", "work")


class Backlog:
    """A job table beside a store with jobs without end."""

    def __init__(self, payload: bytes | None = b"{}", limit: int = READY_ENTRIES_MAX) -> None:
        self.jobs = JobTable(ready_limit=limit, empty=True)
        self.jobs.ready_queues.announce(WORK)
        self._stored = self._make_jobs(payload)

    @staticmethod
    def _make_jobs(payload: bytes | None) -> Iterator[Job]:
        for n in count(1):
            yield make_job(n, state=State.QUEUED, rank=n, payload=payload)

    def load(self) -> int:
        """Load the page that is needed; return its size."""
        [load] = self.jobs.loads()
        assert isinstance(load, LoadReady)
        self.jobs.extend_ready(load, [next(self._stored) for _ in range(load.limit)])
        return load.limit

    def take(self, left: int) -> None:
        """Take the first jobs in memory until this number is left."""
        ready = self.jobs.ready_queues.ready_index(WORK)
        assert ready is not None
        for _, job_id in ready.pop_first(len(ready) - left):
            job = self.jobs.find(job_id)
            assert job is not None
            self.jobs.move(job, State.RUNNING)
        self.jobs.ready_queues.settle(WORK)


def test_the_pages_grow_while_the_index_runs_dry_before_they_come() -> None:
    backlog = Backlog()
    sizes = []
    for _ in range(5):
        sizes.append(backlog.load())
        backlog.take(left=0)

    assert sizes == [PAGE_ENTRIES_MAX, 2 * PAGE_ENTRIES_MAX, *[READY_PAGE_MAX] * 3]


def test_the_pages_keep_their_size_while_they_come_in_time() -> None:
    backlog = Backlog()
    sizes = []
    for left in (0, 1, PAGE_ENTRIES_MAX - 1, 1):
        sizes.append(backlog.load())
        backlog.take(left)

    assert sizes[1:] == [2 * PAGE_ENTRIES_MAX, READY_PAGE_MAX, READY_PAGE_MAX]


def grow(backlog: Backlog) -> None:
    for _ in range(3):
        backlog.load()
        backlog.take(left=0)


def test_the_pages_shrink_while_few_jobs_are_taken() -> None:
    backlog = Backlog()
    grow(backlog)
    backlog.load()
    sizes = []
    for left in (2 * READY_PAGE_MAX - 1, READY_PAGE_MAX - 1, PAGE_ENTRIES_MAX, 0):
        sizes.append(backlog.load())
        backlog.take(left)

    assert sizes == [READY_PAGE_MAX, READY_PAGE_MAX, READY_PAGE_MAX // 2, PAGE_ENTRIES_MAX]


def test_a_page_is_read_while_the_jobs_of_the_two_before_it_start() -> None:
    backlog = Backlog()
    grow(backlog)

    assert [backlog.load(), backlog.load()] == [READY_PAGE_MAX] * 2
    assert not backlog.jobs.needs_loads()
    backlog.take(left=2 * READY_PAGE_MAX - 1)
    assert backlog.jobs.needs_loads()


def test_a_second_large_page_is_not_read_early_if_it_does_not_fit() -> None:
    backlog = Backlog(limit=READY_PAGE_MAX * 3 // 2)
    grow(backlog)
    backlog.load()

    backlog.take(left=READY_PAGE_MAX // 2 + 1)
    assert not backlog.jobs.needs_loads()
    backlog.take(left=READY_PAGE_MAX // 2)
    assert backlog.jobs.needs_loads()


def test_the_pages_of_jobs_with_large_payloads_do_not_grow() -> None:
    backlog = Backlog(payload=b"x" * (READY_PAGE_BYTES_MAX // PAGE_ENTRIES_MAX))
    sizes = []
    for _ in range(3):
        sizes.append(backlog.load())
        backlog.take(left=0)

    assert sizes == [PAGE_ENTRIES_MAX] * 3


def test_a_payload_that_only_the_store_has_takes_no_room_in_a_page() -> None:
    backlog = Backlog(payload=None)
    backlog.load()
    backlog.take(left=0)

    assert backlog.load() == 2 * PAGE_ENTRIES_MAX


def test_an_index_that_opens_again_begins_with_small_pages() -> None:
    backlog = Backlog()
    backlog.load()
    backlog.take(left=0)
    [load] = backlog.jobs.loads()
    assert isinstance(load, LoadReady)
    backlog.jobs.extend_ready(load, [])  # the store has no more: the index is closed

    backlog.jobs.ready_queues.announce(WORK)

    assert (load.limit, backlog.load()) == (2 * PAGE_ENTRIES_MAX, PAGE_ENTRIES_MAX)
