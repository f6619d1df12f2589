"""Claims about the figures of minutes, and the key of sessions."""

from __future__ import annotations

from schedo.core.limits import MINUTE
from schedo.store.base import Store


class MinuteClaims:
    async def test_minutes_are_read_in_order(self, store: Store) -> None:
        for minute in (3, 1, 2):
            await store.save_minute(minute * MINUTE, f'{{"n":{minute}}}', 60 * MINUTE)

        found = await store.load_minutes(MINUTE)

        assert found == [(2 * MINUTE, '{"n":2}'), (3 * MINUTE, '{"n":3}')]

    async def test_a_minute_that_is_saved_again_replaces_the_earlier_figures(
        self, store: Store
    ) -> None:
        await store.save_minute(MINUTE, "1", 60 * MINUTE)
        await store.save_minute(MINUTE, "2", 60 * MINUTE)

        assert await store.load_minutes(0) == [(MINUTE, "2")]

    async def test_old_minutes_are_deleted(self, store: Store) -> None:
        for minute in range(1, 9):
            await store.save_minute(minute * MINUTE, "{}", 3 * MINUTE)

        assert [at // MINUTE for at, _ in await store.load_minutes(0)] == [6, 7, 8]


class SessionKeyClaims:
    async def test_the_key_of_sessions_stays_the_same(self, store: Store) -> None:
        first = await store.session_key()

        assert len(first) == 32
        assert await store.session_key() == first
