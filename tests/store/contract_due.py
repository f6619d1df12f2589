"""Claims about the list of the jobs that wait for an instant."""

from __future__ import annotations

import pytest

from schedo.core.ids import first_id
from schedo.core.job_filter import JobFilter
from schedo.core.limits import HOUR
from schedo.core.model import Failure, Job, Options
from schedo.core.paged_index import Pair
from schedo.core.states import State
from schedo.store.base import ClockMark, Reader, Store
from tests.factories import make_job
from tests.store.steps import LARGE, ids, put

AT = 1_000 * HOUR


def timed(job_id: int, due_at: int, **other: object) -> Job:
    return make_job(**{"id": job_id, "state": State.SCHEDULED, "due_at": due_at, **other})


async def all_due(store: Reader, limit: int, **which: object) -> list[Job]:
    """Return all jobs of the filter that wait for an instant, from pages of this size."""
    jobs: list[Job] = []
    after: Pair | None = None
    while True:
        page, after, _ = await store.list_due(JobFilter(**which), after, limit)  # type: ignore[arg-type]
        assert len(page) <= limit
        jobs += page
        if after is None:
            return jobs


class DueClaims:
    @pytest.mark.parametrize("limit", [1, 2, 3, 100])
    async def test_the_jobs_that_wait_for_an_instant_are_listed_the_soonest_first(
        self, store: Store, limit: int
    ) -> None:
        await put(
            store,
            timed(1, AT + 30),
            timed(2, AT + 10, state=State.RETRYING),
            timed(3, AT + 20),
            timed(4, AT + 10),
            timed(5, AT - 5),
            *(
                make_job(id=10 + n, state=state, due_at=AT)
                for n, state in enumerate(State)
                if state not in (State.SCHEDULED, State.RETRYING)
            ),
        )

        found = await all_due(store, limit)

        assert ids(found) == [5, 2, 4, 3, 1]
        assert [job.due_at for job in found] == [AT - 5, AT + 10, AT + 10, AT + 20, AT + 30]

    @pytest.mark.parametrize("limit", [1, 2, 100])
    async def test_many_jobs_may_be_due_in_the_same_microsecond(
        self, store: Store, limit: int
    ) -> None:
        await put(store, *(timed(n, AT) for n in range(1, 8)), timed(8, AT - 1), timed(9, AT + 1))

        assert ids(await all_due(store, limit)) == [8, 1, 2, 3, 4, 5, 6, 7, 9]

    @pytest.mark.parametrize(
        ("which", "expected"),
        [
            ({}, [6, 5, 4, 3, 2, 1]),
            ({"state": "retrying"}, [5, 2]),
            ({"state": "scheduled"}, [6, 4, 3, 1]),
            ({"states": (State.SCHEDULED, State.RETRYING)}, [6, 5, 4, 3, 2, 1]),
            ({"state": "queued"}, []),
            ({"queue": "mail"}, [4, 3]),
            ({"task": "b"}, [6, 3]),
            ({"tag": "red"}, [6, 1]),
            ({"tag": "red", "task": "b"}, [6]),
            ({"schedule_id": 7}, [2]),
            ({"unique_key": "k"}, [4]),
            ({"error": "Timeout"}, [5]),
            ({"text": "timeout"}, [5]),
            ({"created_after": 2, "created_before": 4}, [3, 2]),
            ({"worker": "missing"}, []),
        ],
        ids=str,
    )
    async def test_it_has_only_the_jobs_of_its_filter(
        self, store: Store, which: dict[str, object], expected: list[int]
    ) -> None:
        def job(number: int, **other: object) -> Job:
            return timed(first_id(number), AT - number, **other)

        await put(
            store,
            job(1, options=Options(tags=("red", "blue"))),
            job(2, schedule_id=7, state=State.RETRYING),
            job(3, queue="mail", task="b"),
            job(4, queue="mail", unique_key="k"),
            job(5, state=State.RETRYING, failure=Failure("Timeout", "5 s")),
            job(6, task="b", options=Options(tags=("red",))),
        )

        for limit in (1, 100):
            found = await all_due(store, limit, **which)
            assert ids(found) == [first_id(number) for number in expected]

    @pytest.mark.parametrize("step", [HOUR, -HOUR], ids=["forward", "back"])
    @pytest.mark.parametrize("limit", [1, 100])
    async def test_it_has_one_order_after_the_clock_was_set(
        self, store: Store, step: int, limit: int
    ) -> None:
        await put(
            store,
            timed(1, AT),
            timed(2, AT, due_elapsed=True),
            timed(3, AT + step, due_elapsed=False),
            timed(4, AT + 1, due_elapsed=True),
            timed(5, AT + step + 1),
        )
        await store.save_clock(ClockMark(offset_us=step))

        found = await all_due(store, limit)

        expected = sorted(
            [(AT, 1), (AT + step, 2), (AT + step, 3), (AT + step + 1, 4), (AT + step + 1, 5)]
        )
        assert [(job.due_at, job.id) for job in found] == expected

    async def test_it_has_no_large_payloads(self, store: Store) -> None:
        await put(store, timed(1, AT, payload=LARGE))

        assert [job.payload for job in await all_due(store, 9)] == [None]
