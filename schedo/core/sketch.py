"""A sketch of durations: their quantiles within 5 %, in a fixed number of buckets.

The buckets are those of DDSketch (Masson, Rim and Lee, "DDSketch: a fast and fully-mergeable
quantile sketch with relative-error guarantees", VLDB 2019): each bound is larger than the one
before by the same factor. So any two sketches can be added up, and the sum is that of all values.
Here the bounds end at 0.1 ms and at a day, so that no bucket is ever given up.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import ceil

from schedo.core.limits import DAY

RELATIVE_ERROR = 0.05  # of a quantile between the first and the last bound
FIRST_BOUND_US = 100
_GROWTH = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)


def _make_bounds() -> Sequence[int]:
    bounds = [FIRST_BOUND_US]
    while bounds[-1] < DAY:
        bounds.append(int(bounds[-1] * _GROWTH))  # rounded down, so that the error stays below 5 %
    return tuple(bounds)


BOUNDS_US = _make_bounds()  # a bound belongs to the bucket below it
BUCKETS = len(BOUNDS_US) + 1

Sketch = dict[int, int]  # the number of values by bucket, of those that have any


def find_bucket(value_us: int) -> int:
    """Return the bucket of a duration in microseconds."""
    return bisect_left(BOUNDS_US, value_us)


def add_values(into: Sketch, values_us: list[int]) -> None:
    """Add durations in microseconds; this sorts them, and looks at each bucket once."""
    values_us.sort()
    first = 0
    while first < len(values_us):
        bucket = find_bucket(values_us[first])
        last = len(values_us)
        if bucket < len(BOUNDS_US):
            last = bisect_right(values_us, BOUNDS_US[bucket], first)
        into[bucket] = into.get(bucket, 0) + last - first
        first = last


def add_sketch(into: Sketch, other: Mapping[int, int]) -> None:
    """Add the values of another sketch."""
    for bucket, count in other.items():
        into[bucket] = into.get(bucket, 0) + count


def find_quantiles(sketch: Mapping[int, int], shares: Sequence[float]) -> list[int]:
    """Return for each share the least value in us that this share of the values is not above.

    The last bucket counts as its lower bound, and the first one as its upper bound. The sketch must
    have values.
    """
    buckets = sorted(sketch)
    ranks = list(accumulate(sketch[bucket] for bucket in buckets))
    wanted = [max(1, ceil(share * ranks[-1])) for share in shares]
    return [_value_of(buckets[bisect_left(ranks, rank)]) for rank in wanted]


def _value_of(bucket: int) -> int:
    """Return the value of which all values of the bucket are the same share away at most."""
    if bucket == 0:
        return BOUNDS_US[0]
    if bucket == len(BOUNDS_US):
        return BOUNDS_US[-1]
    lower, upper = BOUNDS_US[bucket - 1], BOUNDS_US[bucket]
    return round(2 * lower * upper / (lower + upper))


def pack_sketch(sketch: Mapping[int, int]) -> list[int]:
    """Return the first bucket and the counts from there on; nothing for an empty sketch."""
    if not sketch:
        return []
    first = min(sketch)
    return [first, *(sketch.get(bucket, 0) for bucket in range(first, max(sketch) + 1))]


def unpack_sketch(packed: Sequence[int]) -> Sketch:
    """Return the sketch of pack_sketch."""
    counts = enumerate(packed[1:], packed[0] if packed else 0)
    return {bucket: count for bucket, count in counts if count}
