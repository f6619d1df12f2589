"""Decides from paired runs whether one commit is slower than another.

Each round runs two pairs: the old commit beside the new one, and the old commit beside itself. The
two of a pair run at the same time, so that what else the machine does slows both alike: on a busy
machine, the ratios of processor times within pairs spread by half as much as those of runs one
after the other. The ratios of the second pairs are the noise during this comparison.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, combinations_with_replacement
from typing import NamedTuple

NEW, AGAIN = PAIRS = (("old", "new"), ("old", "old again"))
ROUNDS_MIN = 9  # with fewer, the interval is too wide to show anything
TAIL = 0.0025  # of each side of an interval; a comparison has a dozen of them
LEAST_CHANGE = 0.02  # a smaller change is not reported: where code lies in memory makes as much


class Sample(NamedTuple):
    """What one run of a row took, in microseconds a job."""

    cpu: float
    wall: float


class Interval(NamedTuple):
    """The middle of some ratios, and the bounds between which the true one probably lies."""

    low: float
    median: float
    high: float


class Finding(NamedTuple):
    """The comparison of one measure of one row."""

    row: str
    measure: str  # a field of Sample
    old: float  # median, beside the new commit
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


Pair = tuple[str, str]
Samples = tuple[Sample, Sample]  # of a pair
Rounds = dict[str, list[dict[Pair, Samples]]]  # the rounds of each row


def alternate(rows: Sequence[str], rounds: int, run: Callable[[Pair, str], Samples]) -> Rounds:
    """Call `run(pair, row)` for each pair and row in each round.

    The order of the pairs and the order within them alternate, so that none is always the first.
    """
    samples: Rounds = {row: [] for row in rows}
    for number in range(rounds):
        for row in rows:
            found: dict[Pair, Samples] = {}
            for pair in PAIRS if number % 2 else PAIRS[::-1]:
                if number % 4 < 2:
                    found[pair] = run(pair, row)
                else:
                    second, first = run(pair[::-1], row)
                    found[pair] = first, second
            samples[row].append(found)
    return samples


def compare(samples: Rounds) -> Iterator[Finding]:
    """Yield the finding for each measure of each row."""
    for row, rounds in samples.items():
        for at, measure in enumerate(Sample._fields):
            values = {
                pair: [(first[at], second[at]) for first, second in (each[pair] for each in rounds)]
                for pair in PAIRS
            }
            yield Finding(
                row,
                measure,
                statistics.median(old for old, _ in values[NEW]),
                statistics.median(new for _, new in values[NEW]),
                *(find_interval([b / a for a, b in values[pair]]) for pair in PAIRS),
            )


def find_interval(values: Sequence[float]) -> Interval:
    """Return the estimate of Hodges and Lehmann and its interval, by Wilcoxon's signed ranks.

    The bounds are two of the means of all pairs of values. They assume only that values spread to
    both sides alike; a few odd runs hardly move them. Of fewer than 9 values they span all.
    """
    means = sorted((a + b) / 2 for a, b in combinations_with_replacement(values, 2))
    outside = _outside(len(values))
    return Interval(means[outside], statistics.median(means), means[-1 - outside])


def _outside(count: int) -> int:
    """Return how many means to leave out on each side.

    If the sign of each value is a matter of chance, the ranks of the positive ones sum to less than
    that with a probability of at most TAIL.
    """
    ways = [1]  # how many sets of ranks have each sum
    for rank in range(1, count + 1):
        longer = ways + [0] * rank
        for total, number in enumerate(ways):
            longer[total + rank] += number
        ways = longer
    below = list(accumulate(number / 2**count for number in ways))
    return sum(share <= TAIL for share in below)
