"""Claims about the names that a store knows."""

from __future__ import annotations

from schedo.core.model import Options
from schedo.store.base import Store
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

    async def test_an_empty_store_knows_no_names(self, store: Store) -> None:
        assert await store.list_names(9, 9) == ([], [])
