"""Claims about lists of schedules, and how many there are in each health."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from schedo.core.changes import Changes
from schedo.core.limits import SCHEDULE_PAGE_PAYLOADS_BYTES_MAX
from schedo.core.model import JobSpec, Schedule
from schedo.core.run_history import EndedRun
from schedo.core.schedule_filter import ANY_SCHEDULE, Health, ScheduleCounts, ScheduleFilter
from schedo.core.states import State
from schedo.store.base import Store
from tests.factories import make_schedule
from tests.store.steps import Claims, ids, of_schedules

# Each schedule is overdue or not, fails or not, is paused or not, and has ended or not.
KINDS = dict(enumerate(product((True, False), repeat=4), 1))


async def put_kinds(store: Store) -> tuple[int, ...]:
    """Put a schedule of each kind, named by its id; return those that are overdue."""
    schedules = [
        make_schedule(
            id=number, name=f"s{number:02}", paused=paused, next_fire_at=None if ended else 9
        )
        for number, (_, _, paused, ended) in KINDS.items()
    ]
    await store.commit(of_schedules(*schedules))
    runs = [
        EndedRun(number, 100 + number, State.FAILED, 5, 1, None)
        for number, (_, fails, _, _) in KINDS.items()
        if fails
    ]
    await store.commit(Changes(ended_runs=runs))
    return tuple(number for number, (overdue, *_) in KINDS.items() if overdue)


def kinds(overdue: bool | None, fails: bool | None, paused: bool | None, ended: bool | None) -> Any:
    """Return the ids of the schedules of these kinds; None: of both."""
    wanted = (overdue, fails, paused, ended)
    return [
        number
        for number, kind in KINDS.items()
        if all(want in (None, has) for want, has in zip(wanted, kind, strict=True))
    ]


async def listed(
    store: Store, which: ScheduleFilter = ANY_SCHEDULE, after: str | None = None, limit: int = 99
) -> list[int]:
    """Return the ids of the schedules that the store lists in all pages."""
    found: list[Schedule] = []
    while True:
        page = await store.list_schedules(after, limit, which)
        assert len(page.schedules) <= limit
        found += page.schedules
        if page.after is None:
            return ids(found)
        after = page.after


class ScheduleListClaims(Claims):
    async def test_schedules_are_listed_by_name(self, store: Store) -> None:
        names = {1: "b", 2: "a", 3: "c"}
        await store.commit(
            of_schedules(*(make_schedule(id=n, name=name) for n, name in names.items()))
        )

        page = await store.list_schedules(None, 2)

        assert (ids(page.schedules), page.after) == ([2, 1], "b")
        assert await listed(store, limit=1) == [2, 1, 3]
        assert await listed(store, after="b") == [3]

    async def test_an_empty_list_ends(self, store: Store) -> None:
        assert await store.list_schedules(None, 9) == ([], None, 0)
        assert await store.list_schedules("a", 9, ScheduleFilter(("x",))) == ([], None, 0)

    async def test_a_page_ends_when_its_payloads_are_large(self, store: Store) -> None:
        job = JobSpec("shell", b"1" * (SCHEDULE_PAGE_PAYLOADS_BYTES_MAX // 2))
        for number in range(1, 6):
            schedule = make_schedule(id=number, name=f"s{number}", job=job)
            await store.commit(of_schedules(schedule))

        assert await listed(store) == [1, 2, 3, 4, 5]

    @pytest.mark.parametrize("limit", [1, 3, 99])
    async def test_each_schedule_is_listed_in_its_gravest_health(
        self, store: Store, limit: int
    ) -> None:
        overdue = await put_kinds(store)
        expected = {
            Health.OVERDUE: kinds(True, None, None, None),
            Health.FAILING: kinds(False, True, None, None),
            Health.PAUSED: kinds(False, False, True, None),
            Health.ENDED: kinds(False, False, False, True),
            Health.OK: kinds(False, False, False, False),
        }

        for health in Health:
            which = ScheduleFilter(health=health, overdue=overdue)
            assert await listed(store, which, limit=limit) == expected[health]
        assert await store.count_schedules(overdue) == ScheduleCounts(
            16, *(len(expected[health]) for health in Health if health is not Health.OK)
        )

    async def test_failing_and_paused_schedules_are_listed_whatever_their_health(
        self, store: Store
    ) -> None:
        overdue = await put_kinds(store)

        assert await listed(store, ScheduleFilter(failing=True)) == kinds(None, True, None, None)
        for paused in (True, False):
            which = ScheduleFilter(paused=paused)
            assert await listed(store, which) == kinds(None, None, paused, None)
            which = ScheduleFilter(paused=paused, health=Health.FAILING, overdue=overdue)
            assert await listed(store, which, limit=1) == kinds(False, True, paused, None)
            which = ScheduleFilter(paused=paused, failing=True, health=Health.OVERDUE)
            assert await listed(store, which._replace(overdue=overdue)) == kinds(
                True, True, paused, None
            )

    @pytest.mark.parametrize(
        ("words", "found"),
        [
            (("mail",), [1, 2, 3]),
            (("MAIL", "night"), [1]),
            (("d.mail", "slow"), [3]),
            (("mail", "nowhere"), []),
            (("100%",), []),
            (("a_b",), [4]),
            (("\\",), []),
        ],
    )
    async def test_words_are_found_in_the_name_the_task_or_the_queue(
        self, store: Store, words: tuple[str, ...], found: list[int]
    ) -> None:
        await store.commit(
            of_schedules(
                make_schedule(id=1, name="mail.nightly"),
                make_schedule(id=2, name="x", job=JobSpec("shell", queue="Mail")),
                make_schedule(id=3, name="y", job=JobSpec("send.Mail", b'"night"', queue="slow")),
                make_schedule(id=4, name="z.a_b"),
                make_schedule(id=5, name="z.aXb100"),
            )
        )

        assert sorted(await listed(store, ScheduleFilter(words))) == found
        assert sorted(await listed(store, ScheduleFilter(words), limit=1)) == found

    async def test_a_search_for_what_is_not_there_passes_all_schedules(self, store: Store) -> None:
        await store.commit(
            of_schedules(*(make_schedule(id=n, name=f"s{n:04}") for n in range(1, 1_101)))
        )

        assert await listed(store, ScheduleFilter(("nowhere",))) == []
        assert await listed(store, ScheduleFilter(("s1100",)), limit=1) == [1_100]
        assert await listed(store, ScheduleFilter(paused=False), limit=250) == [*range(1, 1_101)]

    async def test_a_deleted_schedule_is_not_listed(self, store: Store) -> None:
        overdue = await put_kinds(store)
        await store.commit(Changes(schedules_deleted=[*KINDS]))

        for health in Health:
            assert await listed(store, ScheduleFilter(health=health, overdue=overdue)) == []
        assert await store.count_schedules(overdue) == ScheduleCounts(0, 0, 0, 0, 0)
