"""Decides from alternating runs whether one commit is slower than another.

Each round runs the old commit, the new one, and the old one again. The ratios of the two runs of
the old commit are the noise of the machine during this comparison.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

TREES = ("old", "new", "old again")
ROUNDS_MIN = 5  # with fewer, a single odd run decides
TAIL = 0.025  # of each side of an interval
LEAST_CHANGE = 0.02  # a smaller change is not reported: where code lies in memory makes as much


class Sample(NamedTuple):
    """What one run of a row took, in microseconds a job."""

    cpu: float
    wall: float


class Interval(NamedTuple):
    """The median of some ratios, and the bounds between which the true median probably lies."""

    low: float
    median: float
    high: float


class Finding(NamedTuple):
    """The comparison of one measure of one row."""

    row: str
    measure: str  # a field of Sample
    old: float  # median
    new: float  # median
    ratio: Interval  # new / old
    noise: Interval  # old again / old

    @property
    def change(self) -> str:
        """ "slower" or "faster" if the ratio is beyond the noise, else ""."""
        if self.ratio.low > 1 + LEAST_CHANGE and self.ratio.median > self.noise.high:
            return "slower"
        if self.ratio.high < 1 - LEAST_CHANGE and self.ratio.median < self.noise.low:
            return "faster"
        return ""


Rounds = dict[str, list[dict[str, Sample]]]  # the rounds of each row: the sample of each tree


def alternate(rows: Sequence[str], rounds: int, run: Callable[[str, str], Sample]) -> Rounds:
    """Call `run(tree, row)` for each tree and row in each round.

    The order of the trees rotates, so that none is always the first.
    """
    samples: Rounds = {row: [] for row in rows}
    for number in range(rounds):
        first = number % len(TREES)
        order = TREES[first:] + TREES[:first]
        for row in rows:
            samples[row].append({tree: run(tree, row) for tree in order})
    return samples


def compare(samples: Rounds) -> Iterator[Finding]:
    """Yield the finding for each measure of each row."""
    for row, rounds in samples.items():
        for at, measure in enumerate(Sample._fields):
            old, new, again = ([each[tree][at] for each in rounds] for tree in TREES)
            yield Finding(
                row,
                measure,
                statistics.median(old),
                statistics.median(new),
                find_interval([b / a for a, b in zip(old, new, strict=True)]),
                find_interval([b / a for a, b in zip(old, again, strict=True)]),
            )


def find_interval(values: Sequence[float]) -> Interval:
    """Return the median and its interval of at least 95 %; of fewer than 6 values, all of them.

    The bounds are two of the values: each value lies below the true median with probability 1/2,
    whatever the distribution.
    """
    ordered = sorted(values)
    outside, below = 0, 0.5 ** len(ordered)
    while below <= TAIL:
        outside += 1
        below += math.comb(len(ordered), outside) * 0.5 ** len(ordered)
    outside = max(0, outside - 1)
    return Interval(ordered[outside], statistics.median(ordered), ordered[-1 - outside])
