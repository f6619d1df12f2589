"""Computes percentiles of durations and draws a histogram. All values are in microseconds."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

from schedo.cli.times import render_span
from schedo.core.limits import MILLISECOND, SECOND

_PERCENTILES = (("p50", 50), ("p95", 95), ("p99", 99))
# 10 us, 20 us, 50 us, 100 us … 500,000 s
_BOUNDS_US = tuple(digit * 10**power for power in range(1, 12) for digit in (1, 2, 5))
_BAR_WIDTH = 40
_EIGHTHS = " ▏▎▍▌▋▊▉"


def summarize(values: Sequence[int]) -> dict[str, int]:
    """Return p50, p95, p99 and max; an empty dict if there is no value."""
    if not values:
        return {}
    ordered = sorted(values)
    last = len(ordered) - 1
    found = {name: ordered[min(last, len(ordered) * share // 100)] for name, share in _PERCENTILES}
    return {**found, "max": ordered[-1]}


def render_us(us: int) -> str:
    """Return a duration with up to three digits: "85µs", "1.25ms", "2.41s"."""
    if us < MILLISECOND:
        return f"{us}µs"
    if us < SECOND:
        return f"{us / MILLISECOND:.3g}ms" if us < 100 * MILLISECOND else f"{us // MILLISECOND}ms"
    return f"{us / SECOND:.3g}s" if us < 100 * SECOND else render_span(us)


def count_buckets(values: Sequence[int]) -> list[tuple[int, int]]:
    """Return (upper bound, number of values) of each bucket, in order, without empty ends."""
    found = Counter(bisect_left(_BOUNDS_US, value) for value in values)
    span = range(min(found), max(found) + 1) if found else range(0)
    return [(_BOUNDS_US[min(place, len(_BOUNDS_US) - 1)], found[place]) for place in span]


def render_histogram(values: Sequence[int]) -> list[str]:
    """Return a line with a bar for each bucket."""
    buckets = count_buckets(values)
    most = max((count for _, count in buckets), default=0)
    width = len(str(most))
    lines = (
        f"  <= {render_us(bound):>6}  {count:>{width}}  {_bar(count, most)}"
        for bound, count in buckets
    )
    return [line.rstrip() for line in lines]


def _bar(count: int, most: int) -> str:
    """Return a bar, exact to an eighth of a character, and never empty for a count above 0."""
    eighths = max(count * _BAR_WIDTH * 8 // most, 1) if count else 0
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
