"""The tallies of one server: what has ended since they were saved, and what the store has.

Once a minute they are added to the rows of the store, and at the end of a server after its last
commit. So a server that is killed loses the ends of its last minute from the tallies, and nothing
else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator, Mapping, Sequence
from random import getrandbits
from typing import NamedTuple

from schedo.core.ends import REQUEUED, Alike, Kind
from schedo.core.limits import HOUR
from schedo.core.sketch import add_values
from schedo.core.tallies import (
    HOURS_KEPT,
    NAMES_MAX,
    OTHER,
    Dimension,
    HourTallies,
    Period,
    Tallies,
    Tally,
    TallyFilter,
    decode_row,
)
from schedo.engine.sharing import in_steps
from schedo.errors import SchedoError
from schedo.store.base import Store

log = logging.getLogger("schedo.engine")

_ROWS_AT_ONCE = 24  # other reads run between two parts
_NAMES_AGE_US = HOURS_KEPT * HOUR  # a name that is not seen for so long can give its place away
_NAME_BITS = 62  # of a batch


class _Batch(NamedTuple):
    """The arguments of Store.add_tallies."""

    tallies: HourTallies
    now: int
    name: int


class TallyBook:
    """The tallies that are not saved yet, by dimension and hour."""

    def __init__(self) -> None:
        self._unsaved: dict[tuple[Dimension, int], Tallies] = {}
        self._batch: _Batch | None = None  # one that the store has not confirmed
        # When each name with tallies of its own was seen last.
        self._names: dict[Dimension, dict[str, int]] = {each: {} for each in Dimension}
        self._saving = asyncio.Lock()  # also held while the tallies are read

    def add(self, kinds: Mapping[Kind, Alike]) -> None:
        """Add ends to the tallies by name."""
        for (hour, task, queue, schedule, outcome), alike in kinds.items():
            ends = Tally()
            if outcome != REQUEUED:
                ends.counts[outcome] = alike.count
            add_values(ends.run, alike.run_us)
            add_values(ends.late, alike.late_us)
            for dimension, name in zip(Dimension, (task, queue, schedule), strict=True):
                if name is not None:
                    self._find(dimension, name, hour * HOUR).add(ends)

    def _find(self, dimension: Dimension, name: str, at: int) -> Tally:
        tallies = self._unsaved.setdefault((dimension, at), {})
        known = self._names[dimension]
        if name not in known and len(known) >= NAMES_MAX:
            for old in [old for old, seen in known.items() if abs(seen - at) > _NAMES_AGE_US]:
                del known[old]
        if name in known or len(known) < NAMES_MAX:
            known[name] = at
        else:
            name = OTHER
        return tallies.setdefault(name, Tally())

    async def save(self, store: Store, now: int) -> None:
        """Add all tallies to the store, if it takes them; else they stay for the next time."""
        async with self._saving:
            if await self._save_batch(store) and self._unsaved:
                self._batch = _Batch(self._unsaved, now, getrandbits(_NAME_BITS))
                self._unsaved = {}
                await self._save_batch(store)

    async def _save_batch(self, store: Store) -> bool:
        """Save the batch that was begun, unless the store has it; return whether none is left.

        If this fails, it may have taken effect. So the same batch is saved again later.
        """
        if self._batch is not None:
            try:
                await store.add_tallies(*self._batch)
            except SchedoError as error:
                log.debug("tallies were not saved: %s", error)
                return False
            self._batch = None
        return True

    async def read(self, store: Store, wanted: TallyFilter) -> dict[int, Tallies]:
        """Return the tallies of all ends whose commit is durable, by when each part begins.

        Raise the errors of the store.
        """
        found: dict[int, Tallies] = {}
        async with self._saving:
            await self._save_batch(store)
            begun = self._batch.tallies if self._batch is not None else {}
            for (dimension, at), tallies in (*begun.items(), *self._unsaved.items()):
                if dimension is wanted.dimension:
                    wanted.add(found, at, tallies)
            for period in Period if wanted.per is not Period.HOUR else (Period.HOUR,):
                after = wanted.start - 1
                while rows := await store.load_tallies(
                    wanted.dimension, period, after, wanted.end, _ROWS_AT_ONCE
                ):
                    await in_steps(_add_rows(wanted, found, rows))
                    after = rows[-1][0]
        return found


def _add_rows(
    wanted: TallyFilter, found: dict[int, Tallies], rows: Sequence[tuple[int, str]]
) -> Generator[None, None, None]:
    for at, text in rows:
        wanted.add(found, at, decode_row(text))
        yield
