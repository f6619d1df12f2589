"""Tallies: what has ended in an hour or a day, by task, by queue and by schedule.

A tally has counts and two sketches, so that the tallies of hours add up to those of
days. A row of tallies has those of all tasks, queues or schedules in one hour or day, and a fixed
number of bytes at most.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

import msgspec

from schedo.core.ends import RETRIED
from schedo.core.limits import DAY, HOUR
from schedo.core.sketch import Sketch, add_sketch, pack_sketch, unpack_sketch

OUTCOMES = ("completed", "failed", "cancelled", "expired", RETRIED)  # REQUEUED is not counted
OTHER = "(other)"  # no name is like this

NAMES_MAX = 200  # in memory, of each dimension; what has other names counts as OTHER
ROW_BYTES_MAX = 65_536
# The rows of each dimension. So the table has at most 3 * (193 + 90) * 64 KiB = 54 MiB.
HOURS_KEPT = 8 * 24 + 1  # of 8 days, and the one that has begun
DAYS_KEPT = 90


class Dimension(StrEnum):
    """By which names tallies are kept."""

    TASK = "task"
    QUEUE = "queue"
    SCHEDULE = "schedule"


class Period(StrEnum):
    """How long the time of a tally is; it begins at a multiple of its length, in UTC."""

    HOUR = "hour"
    DAY = "day"

    @property
    def length_us(self) -> int:
        """The length in microseconds."""
        return HOUR if self is Period.HOUR else DAY


class Tally:
    """The ends of one task, queue or schedule."""

    __slots__ = ("counts", "late", "run")

    def __init__(self) -> None:
        self.counts = dict.fromkeys(OUTCOMES, 0)
        self.run: Sketch = {}  # of the time from the start of an attempt to its end
        self.late: Sketch = {}  # from when the attempt was due to its start

    def add(self, other: Tally) -> None:
        """Add the ends of another tally."""
        for outcome, count in other.counts.items():
            self.counts[outcome] += count
        add_sketch(self.run, other.run)
        add_sketch(self.late, other.late)

    @property
    def ended(self) -> int:
        """The number of jobs that ended."""
        return sum(self.counts.values()) - self.counts[RETRIED]

    @property
    def weight(self) -> int:
        """How much happened: jobs and attempts that ended."""
        return sum(self.counts.values()) + sum(self.run.values())


Tallies = dict[str, Tally]  # by name
HourTallies = Mapping[tuple[Dimension, int], Tallies]  # by when the hour begins


def add_tallies(into: Tallies, other: Mapping[str, Tally]) -> None:
    """Add tallies by name."""
    for name, tally in other.items():
        into.setdefault(name, Tally()).add(tally)


class TallyFilter(NamedTuple):
    """Which tallies are wanted: those of `start` and later, before `end`.

    per: in parts of this length; None: all together. text: a part of the names, in any case.
    name: the only one that is wanted; None: any.
    """

    dimension: Dimension
    start: int
    end: int
    per: Period | None = None
    text: str = ""
    name: str | None = None

    def add(self, found: dict[int, Tallies], at: int, tallies: Mapping[str, Tally]) -> None:
        """Add the tallies that begin at the instant, as far as they are wanted."""
        if self.start <= at < self.end:
            part = self.start if self.per is None else at - at % self.per.length_us
            wanted = {name: tally for name, tally in tallies.items() if self._includes(name)}
            add_tallies(found.setdefault(part, {}), wanted)

    def _includes(self, name: str) -> bool:
        return self.name in (None, name) and self.text.lower() in name.lower()


def encode_row(tallies: Mapping[str, Tally]) -> str:
    """Return the row as JSON of ROW_BYTES_MAX at most.

    If all names need more, the tallies of those with which the least happened become OTHER.
    """
    kept = dict(tallies)
    while len(text := _encode(kept)) > ROW_BYTES_MAX:
        named = sorted((name for name in kept if name != OTHER), key=lambda name: kept[name].weight)
        other = Tally()
        for name in named[: len(named) // 8 + 1]:
            other.add(kept.pop(name))
        other.add(kept.get(OTHER, _NOTHING))
        kept[OTHER] = other
    return text.decode()


def extend_row(stored: str | None, tallies: Tallies) -> str:
    """Return the row with these tallies added; None: there is no row yet."""
    if stored is None:
        return encode_row(tallies)
    known = decode_row(stored)
    add_tallies(known, tallies)
    return encode_row(known)


def decode_row(text: str) -> Tallies:
    """Return the tallies of a row."""
    return {name: _unpack(packed) for name, packed in _decode(text).items()}


_NOTHING = Tally()
_Packed = tuple[dict[str, int], list[int], list[int]]
_decode = msgspec.json.Decoder(dict[str, _Packed]).decode


def _encode(tallies: Mapping[str, Tally]) -> bytes:
    return msgspec.json.encode({name: _pack(tally) for name, tally in tallies.items()})


def _pack(tally: Tally) -> _Packed:
    counts = {outcome: count for outcome, count in tally.counts.items() if count}
    return counts, pack_sketch(tally.run), pack_sketch(tally.late)


def _unpack(packed: _Packed) -> Tally:
    tally = Tally()
    counts, run, late = packed
    tally.counts |= counts
    tally.run, tally.late = unpack_sketch(run), unpack_sketch(late)
    return tally
