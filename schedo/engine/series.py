"""The recorder of series: a row of figures a second, for 15 minutes, and one a minute, for a day.

It reads the counters that the engine keeps anyway. The store has the rows of minutes as well, so
that a restart shows as a gap and not as an empty day.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain

import msgspec

from schedo.core.lateness import START_KINDS, quantile_us
from schedo.core.limits import DAY, MINUTE, SECOND
from schedo.core.minutes import StoredMinute
from schedo.core.series import (
    COUNTS,
    FIGURE_MAX,
    GAUGES,
    QUEUE_FIGURES,
    SUMMED,
    UNKNOWN,
    Ring,
    Row,
    lateness_of,
    merge,
    merge_queue,
)
from schedo.core.states import State
from schedo.engine.database_watch import DatabaseWatch
from schedo.engine.gauges import count_waiting
from schedo.engine.loop import EngineLoop
from schedo.engine.metrics import OTHER_QUEUES, QUEUES_NAMED_MAX, Metrics
from schedo.errors import SchedoError
from schedo.store.base import Store

log = logging.getLogger("schedo.engine")

SECONDS_KEPT = 900
RECENT_SECONDS = 300
MINUTES_KEPT = 1_440
_SECONDS_IN_A_MINUTE = 60
_ENDED = (State.COMPLETED, State.FAILED, State.CANCELLED, State.EXPIRED)  # as in COUNTS
_FAILED = ("failed", "timeout", "lost")  # outcomes of attempts


class Recorder:
    """The series of one engine."""

    def __init__(self, loop: EngineLoop, store: Store) -> None:
        self._loop = loop
        self._store = store
        self._metrics = loop.monitor.metrics
        self.seconds, self.minutes = Ring(SECONDS_KEPT, RECENT_SECONDS), Ring(MINUTES_KEPT)
        self.queues: list[str] = []  # those that are measured by name, and "other"; they stay
        self._before = [0] * SUMMED  # the counters at the end of the last second
        self._commits_before: Sequence[int] = self._metrics.commit_time.counts.copy()
        self._queues_before: dict[str, tuple[int, list[int]]] = {}  # at the end of the last minute
        self._minute: Row | None = None  # the part of the present minute that has passed
        self._loading = asyncio.Lock()
        self._is_loaded = False
        self.store_bytes = 0  # as of the last minute
        self.database = DatabaseWatch()
        self._saving: asyncio.Task[None] | None = None
        self._counting: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Record a row at the end of each second of the clock, until it is cancelled.

        The rows of the last day follow at the end of the first second: to read them takes the loop
        for tens of milliseconds, and in a take-over these belong to the jobs that became due. If a
        client asks for them before that, its request reads them.
        """
        await self._end_of_second()
        await self.load()
        await self._adopt_minutes()
        while True:
            try:
                self.sample()
            except Exception:
                log.exception("a second of the series is missing after an internal error")
            await self._end_of_second()

    async def _end_of_second(self) -> None:
        """Wait until a second of the clock ends, at least half a second."""
        wait_us = SECOND - self._loop.clock.now() % SECOND
        await asyncio.sleep((wait_us if wait_us > SECOND // 2 else wait_us + SECOND) / SECOND)

    async def stop(self) -> None:
        """Save the part of the present minute."""
        for task in (self._counting, self._saving):
            if task is not None:
                await asyncio.wait([task])
        if self._minute is not None:
            await self._save(self._end_minute(self._minute))

    # The past.

    def sums_of_day(self) -> Sequence[int]:
        """Return the counts of the last 24 hours, in the order of COUNTS and of the lateness."""
        if self._minute is None:
            return self.minutes.sums
        return [a + b for a, b in zip(self.minutes.sums, self._minute.counts, strict=True)]

    async def load(self) -> None:
        """Read the rows of the last day, unless that was done or tried before."""
        async with self._loading:
            if not self._is_loaded:
                await self._load()
                self._is_loaded = True

    async def _load(self) -> None:
        now = self._loop.clock.now()
        try:
            found = await self._store.load_minutes(now - DAY)
            self.store_bytes = await self._store.size_bytes()
            await self.database.look(self._store)
        except SchedoError as error:
            log.warning("the series of the last day cannot be read: %s", error)
            return
        for count, (at, text) in enumerate(found):
            if at <= now:
                self.minutes.add(self._decode(at // MINUTE, text))
            if count % 64 == 0:
                await asyncio.sleep(0)

    async def _adopt_minutes(self) -> None:
        """Count the minutes of servers that are gone, which belong to the day of the cluster."""
        if self._loop.adopt_minutes is None:
            return
        try:
            while found := await self._loop.adopt_minutes():
                for at, text in found:
                    if at <= self._loop.clock.now():
                        self.minutes.replace(self._decode(at // MINUTE, text))
        except SchedoError as error:
            log.debug("the minutes of servers that are gone are not read now: %s", error)

    def _decode(self, number: int, text: str) -> Row:
        stored = msgspec.json.decode(text, type=StoredMinute)
        figures = [stored.counts.get(name, 0) for name in COUNTS]
        for kind in START_KINDS:
            figures += stored.lateness.get(kind) or lateness_of([0] * SUMMED, kind)
        figures += [stored.gauges.get(name, UNKNOWN) for name in GAUGES]
        by_name = {
            name: [queue.get(figure, 0) for figure in QUEUE_FIGURES]
            for name, queue in stored.queues.items()
        }
        return Row(number, [*figures, *self._place_queues(by_name)])

    async def _save(self, row: Row) -> None:
        await self._loop.monitor.ends.save(self._store, self._loop.clock.now())
        try:
            await self._store.save_minute(row.number * MINUTE, self._encode(row), DAY)
            self.store_bytes = await self._store.size_bytes()
            await self.database.look(self._store)
        except SchedoError as error:
            log.debug("a minute of the series was not saved: %s", error)

    def _encode(self, row: Row) -> str:
        by_name = dict(zip(COUNTS, row.counts, strict=False))
        gauges = dict(zip(GAUGES, row.gauges, strict=True))
        queues = {
            name: dict(zip(QUEUE_FIGURES, figures, strict=True))
            for place, name in enumerate(self.queues)
            if (figures := row.queue(place)) and any(figures)
        }
        lateness = {kind: list(row.lateness(kind)) for kind in START_KINDS}
        stored = StoredMinute(
            {name: count for name, count in by_name.items() if count},
            {name: value for name, value in gauges.items() if value != UNKNOWN},
            {kind: counts for kind, counts in lateness.items() if any(counts)},
            queues,
        )
        return msgspec.json.encode(stored).decode()

    # The present.

    def sample(self) -> None:
        """Record the second that has just ended."""
        number = (self._loop.clock.now() + SECOND // 2) // SECOND - 1
        counters = _read_counters(self._metrics)
        counts = [
            min(now - then, FIGURE_MAX) for now, then in zip(counters, self._before, strict=True)
        ]
        self._before = counters
        second = self.seconds.add(Row(number, [*counts, *self._read_gauges()]))
        minute = number // _SECONDS_IN_A_MINUTE
        if self._minute is not None and self._minute.number != minute:
            self._save_later(self._end_minute(self._minute))
        figures = [*counts, *second.gauges]
        if self._minute is not None:
            figures = merge(self._minute.figures, figures)
        self._minute = Row(minute, figures)

    def _end_minute(self, minute: Row) -> Row:
        """Add the minute to its ring and return it as it is there."""
        self._minute = None
        queues = self._place_queues(self._read_queues())
        return self.minutes.add(Row(minute.number, [*minute.figures, *queues]))

    def _save_later(self, row: Row) -> None:
        if self._saving is None or self._saving.done():  # else the store does not answer
            self._saving = asyncio.ensure_future(self._save_and_adopt(row))

    async def _save_and_adopt(self, row: Row) -> None:
        await self._save(row)
        await self._adopt_minutes()

    def _read_gauges(self) -> list[int]:
        due = later = running = slots = UNKNOWN
        if self._loop.failure is None:
            scheduler = self._loop.scheduler
            if scheduler.waiting.is_complete:
                waiting = scheduler.waiting.by_state
                due = waiting[State.QUEUED]
                later = sum(waiting.values()) - due
            else:
                self._count_later()
            slots, running = scheduler.slots()
        commits, before = self._metrics.commit_time.counts, self._commits_before
        self._commits_before = commits.copy()
        taken = [now - then for now, then in zip(commits, before, strict=True)]
        lag_us = min(self._loop.monitor.lag_us, FIGURE_MAX)
        return [due, later, running, slots, lag_us, quantile_us(taken, 0.99) or 0]

    def _count_later(self) -> None:
        """Let the store finish its count of waiting jobs, as a request for them would."""
        if self._counting is None or self._counting.done():
            self._counting = asyncio.ensure_future(self._count())

    async def _count(self) -> None:
        with suppress(SchedoError):  # readiness reports that the store fails
            await count_waiting(self._loop, self._store)

    def _read_queues(self) -> dict[str, Sequence[int]]:
        """Return the figures of the queues since the last call."""
        found: dict[str, Sequence[int]] = {}
        is_known = self._loop.failure is None and self._loop.scheduler.waiting.is_complete
        waiting = self._loop.scheduler.waiting.by_queue if is_known else {}
        for name, times in self._metrics.queues.items():
            submitted, delays = sum(times.commit_wait.counts), times.start_delay.counts.copy()
            submitted_before, delays_before = self._queues_before.get(name, (0, [0] * len(delays)))
            self._queues_before[name] = submitted, delays
            counts = [now - then for now, then in zip(delays, delays_before, strict=True)]
            due = waiting.get(name, {}).get(State.QUEUED, 0) if is_known else UNKNOWN
            delay_us = quantile_us(counts, 0.99) or 0
            found[name] = [submitted - submitted_before, sum(counts), due, delay_us]
        if OTHER_QUEUES in found and is_known:
            of_all = self._loop.scheduler.waiting.by_state[State.QUEUED]
            named = sum(figures[2] for name, figures in found.items() if name != OTHER_QUEUES)
            found[OTHER_QUEUES] = [
                *found[OTHER_QUEUES][:2],
                max(0, of_all - named),
                found[OTHER_QUEUES][3],
            ]
        return found

    def _place_queues(self, by_name: Mapping[str, Sequence[int]]) -> list[int]:
        """Return the figures in the order of self.queues; what is beyond them counts as other."""
        by_place: dict[int, Sequence[int]] = {}
        for name, figures in by_name.items():
            place = self._place(name)
            by_place[place] = merge_queue(by_place.get(place, ()), figures)
        nothing = [0] * len(QUEUE_FIGURES)
        return [*chain.from_iterable(by_place.get(p, nothing) for p in range(len(self.queues)))]

    def _place(self, name: str) -> int:
        named = len(self.queues) - (OTHER_QUEUES in self.queues)
        if name not in self.queues and named >= QUEUES_NAMED_MAX:
            name = OTHER_QUEUES
        if name not in self.queues:
            self.queues.append(name)
        return self.queues.index(name)


def _read_counters(metrics: Metrics) -> list[int]:
    """Return all counts since the start, in the order of COUNTS and of the lateness."""
    ended, attempts = metrics.ended, metrics.unsuccessful
    late = metrics.start_lateness
    return [
        sum(sum(times.commit_wait.counts) for times in metrics.queues.values()),
        metrics.starts,
        *(ended[state] for state in _ENDED),
        sum(attempts[outcome] for outcome in _FAILED),
        sum(metrics.commit_time.counts),
        metrics.commit_time.total,
        *chain.from_iterable(late[kind].counts for kind in START_KINDS),
    ]
