"""Claims about records that no job depends on: minutes, tallies, the key of sessions, the log."""

from __future__ import annotations

from itertools import count

from schedo.core.action_log import LogEntry, LogFilter
from schedo.core.changes import Changes
from schedo.core.limits import DAY, HOUR, MINUTE
from schedo.core.tallies import HOURS_KEPT, Dimension, Period, Tallies, Tally, decode_row
from schedo.store.base import Store

batches = count(1)


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


def tallies(name: str = "mail", completed: int = 1) -> Tallies:
    found = Tally()
    found.counts["completed"] = completed
    found.run[7] = completed
    return {name: found}


class TallyClaims:
    async def test_tallies_of_an_hour_add_up(self, store: Store) -> None:
        await store.add_tallies({(Dimension.TASK, HOUR): tallies()}, HOUR, next(batches))
        await store.add_tallies(
            {(Dimension.TASK, HOUR): tallies(completed=2) | tallies("resize")}, HOUR, next(batches)
        )

        [(at, text)] = await store.load_tallies(Dimension.TASK, Period.HOUR, 0, DAY, 9)
        found = decode_row(text)
        assert at == HOUR
        assert {name: tally.counts["completed"] for name, tally in found.items()} == {
            "mail": 3,
            "resize": 1,
        }
        assert (found["mail"].run, found["mail"].late) == ({7: 3}, {})

    async def test_tallies_that_are_added_again_count_once(self, store: Store) -> None:
        first, last = next(batches), next(batches)
        for batch in (first, first, last, last):
            await store.add_tallies({(Dimension.TASK, HOUR): tallies()}, HOUR, batch)

        [(_, text)] = await store.load_tallies(Dimension.TASK, Period.HOUR, 0, DAY, 9)
        assert decode_row(text)["mail"].ended == 2

    async def test_tallies_are_read_in_order_between_two_instants(self, store: Store) -> None:
        for hour in (3, 1, 4, 2):
            await store.add_tallies(
                {(Dimension.QUEUE, hour * HOUR): tallies()}, 4 * HOUR, next(batches)
            )
        await store.add_tallies({(Dimension.TASK, 2 * HOUR): tallies()}, 4 * HOUR, next(batches))

        async def load(after: int, before: int, limit: int) -> list[int]:
            where = Dimension.QUEUE, Period.HOUR
            found = await store.load_tallies(*where, after * HOUR, before * HOUR, limit)
            return [at // HOUR for at, _ in found]

        assert await load(0, 9, 9) == [1, 2, 3, 4]
        assert await load(1, 4, 9) == [2, 3]
        assert await load(1, 9, 1) == [2]

    async def test_an_hour_without_room_is_added_to_its_day(self, store: Store) -> None:
        for hour in range(HOURS_KEPT + 30):
            await store.add_tallies(
                {(Dimension.TASK, hour * HOUR): tallies()}, hour * HOUR, next(batches)
            )

        hours = await store.load_tallies(Dimension.TASK, Period.HOUR, 0, 99 * DAY, 1_000)
        days = await store.load_tallies(Dimension.TASK, Period.DAY, -1, 99 * DAY, 1_000)
        assert [at // HOUR for at, _ in hours] == [*range(30, HOURS_KEPT + 30)]
        assert [at // DAY for at, _ in days] == [0, 1]
        assert [decode_row(text)["mail"].ended for _, text in days] == [24, 6]

    async def test_hours_of_a_wrong_clock_give_way_to_those_next_to_now(self, store: Store) -> None:
        for hour in range(9_000, 9_000 + HOURS_KEPT):
            await store.add_tallies(
                {(Dimension.TASK, hour * HOUR): tallies()}, hour * HOUR, next(batches)
            )

        for hour in range(100, 105):
            await store.add_tallies(
                {(Dimension.TASK, hour * HOUR): tallies()}, hour * HOUR, next(batches)
            )

        hours = await store.load_tallies(Dimension.TASK, Period.HOUR, 0, 9_000 * HOUR, 1_000)
        assert [at // HOUR for at, _ in hours] == [*range(100, 105)]


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
