"""Claims about records that no job depends on: minutes, the key of sessions, the log."""

from __future__ import annotations

from schedo.core.action_log import LogEntry, LogFilter
from schedo.core.changes import Changes
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


def entry(at: int, target: str = "jobs/A", who: str = "ada") -> LogEntry:
    return LogEntry(at, who, "cli", "::1", "retry_job", target, "queued", None, True)


class LogClaims:
    async def test_entries_of_the_log_are_listed_newest_first(self, store: Store) -> None:
        entries = [entry(at) for at in (1, 2, 3)]
        await store.commit(Changes(log=entries[:2]))
        await store.commit(Changes(log=entries[2:]))

        first = await store.list_log(LogFilter(), None, 2)
        rest = await store.list_log(LogFilter(), first[-1].number, 2)

        assert [each.entry for each in (*first, *rest)] == entries[::-1]

    async def test_the_log_is_filtered(self, store: Store) -> None:
        await store.commit(Changes(log=[entry(1), entry(2, "queues/a"), entry(3, who="bob")]))

        async def find(**which: str | int) -> list[int]:
            found = await store.list_log(LogFilter(**which), None, 9)  # type: ignore[arg-type]
            return [each.entry.at for each in found]

        assert await find(who="ada") == [2, 1]
        assert await find(target="jobs/A") == [3, 1]
        assert await find(action="retry_job", before=3) == [2, 1]
        assert await find(action="cancel_job") == []
