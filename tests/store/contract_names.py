"""Claims about the names and the rules that a store knows."""

from __future__ import annotations

from schedo.core.limits import SCHEDULE_PAGE_PAYLOADS_BYTES_MAX, SECOND
from schedo.core.model import JobSpec, Options, Rule
from schedo.store.base import ClockMark, Store
from tests.factories import make_job, make_schedule
from tests.store.steps import of_schedules, put


class NameClaims:
    async def test_the_first_schedules_and_tags_are_listed_in_order(self, store: Store) -> None:
        names = ("c", "a", "b")
        schedules = [make_schedule(id=n, name=name) for n, name in enumerate(names, 1)]
        await store.commit(of_schedules(*schedules))
        await put(
            store,
            make_job(id=256, options=Options(tags=("red", "blue"))),
            make_job(id=512, options=Options(tags=("red", "green"))),
        )

        assert await store.list_names(9, 9) == (["a", "b", "c"], ["blue", "green", "red"])
        assert await store.list_names(2, 1) == (["a", "b"], ["blue"])

    async def test_a_store_keeps_the_number_that_identifies_it(self, store: Store) -> None:
        first, second = await store.snapshot(), await store.snapshot()

        assert first.store_id == second.store_id != 0

    async def test_an_empty_store_knows_no_names(self, store: Store) -> None:
        assert await store.list_names(9, 9) == ([], [])

    async def test_the_rules_of_schedules_are_listed_unless_paused(self, store: Store) -> None:
        cron, every = Rule(cron="0 3 * * *", tz="Europe/Paris"), Rule(every_us=7 * SECOND)
        await store.commit(
            of_schedules(
                make_schedule(id=1, name="b", rule=cron),
                make_schedule(id=2, name="c", rule=every, phase_us=5),
                make_schedule(id=3, name="d", rule=every, paused=True),
                make_schedule(id=4, name="a", rule=every),
            )
        )
        await store.save_clock(ClockMark(offset_us=9))

        moved = Rule(every_us=7 * SECOND, phase_us=14)
        assert await store.list_rules(0, 2) == [(1, "b", cron), (2, "c", moved)]
        assert await store.list_rules(2, 2) == [(4, "a", Rule(every_us=7 * SECOND, phase_us=9))]
        assert await store.list_rules(4, 2) == []

    async def test_large_payloads_do_not_keep_rules_from_the_list(self, store: Store) -> None:
        job = JobSpec(task="t", payload=b"1" * SCHEDULE_PAGE_PAYLOADS_BYTES_MAX)
        schedules = [make_schedule(id=n, name=f"s{n}", job=job) for n in (1, 2)]
        await store.commit(of_schedules(*schedules))

        found = await store.list_rules(0, 9)
        found += await store.list_rules(found[-1].id, 9) if len(found) == 1 else []

        assert [each.name for each in found] == ["s1", "s2"]
