"""Lateness: the buckets it is counted in, and the objective for it.

The objective is a bound that TARGET of the starts keep. The bound is one of the buckets' bounds, so
that the counts of the buckets alone say how many starts kept it, also for the past and after the
objective has changed. What may be later, one start of a thousand, is the error budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from schedo.core.limits import MILLISECOND

# fmt: off
DURATION_BOUNDS_US = (
    50, 100, 200, 500,
    1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000,
    1_000_000, 2_000_000, 5_000_000, 10_000_000,
)
# fmt: on
BUCKETS = len(DURATION_BOUNDS_US) + 1

# What made a job due: a timer, or the submit of a job that was due at once.
START_KINDS = ("timer", "submit")

OBJECTIVE_US = 10 * MILLISECOND  # unless the settings say otherwise
TARGET = 0.999


class Budget(NamedTuple):
    """The starts of a window, how many of them kept the objective, and what may still be later."""

    starts: int
    within: int

    @property
    def share_within(self) -> float:
        """The share of the starts that kept the objective; 1 without starts."""
        return self.within / self.starts if self.starts else 1.0

    @property
    def left(self) -> float:
        """The part of the error budget that is left; 0: used up, negative: overdrawn."""
        allowed = self.starts * (1 - TARGET)
        return 1 - (self.starts - self.within) / allowed if self.starts else 1.0

    @property
    def is_met(self) -> bool:
        """Whether the objective is met."""
        return self.starts - self.within <= self.starts * (1 - TARGET)


def count_within(counts: Sequence[int], objective_us: int) -> Budget:
    """Return how many starts kept the objective, by the counts of the buckets."""
    buckets = DURATION_BOUNDS_US.index(objective_us) + 1
    return Budget(sum(counts), sum(counts[:buckets]))


def quantile_us(counts: Sequence[int], share: float) -> int | None:
    """Return a quantile such as 0.99 in microseconds; None without observations.

    Values are taken as evenly spread within a bucket. What is above the last bound counts as it.
    """
    rank, below, lower = share * sum(counts), 0, 0
    if not rank:
        return None
    for bound, count in zip(DURATION_BOUNDS_US, counts, strict=False):
        if count and below + count >= rank:
            return lower + round((bound - lower) * (rank - below) / count)
        below, lower = below + count, bound
    return DURATION_BOUNDS_US[-1]
