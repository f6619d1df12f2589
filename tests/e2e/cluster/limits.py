"""Checks the limit of a queue by what the handlers wrote down: how many ran at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from tests.e2e.takeover.evidence import Line

CLOCK_S = 0.0005  # between a handler's end and the line that it writes, and the same at its start


def find_most_at_once(lines: Iterable[Line], prefix: str) -> tuple[int, int]:
    """Return how many attempts of these jobs ran at once at most, and how many were looked at.

    prefix: of their tokens. An attempt that was followed by another one of its job does not count,
    because its lease was revoked; nor does one without an end.
    """
    starts: dict[str, Line] = {}  # the latest of each job
    ends: dict[tuple[str, int, int], float] = {}
    for line in lines:
        if not line.token.startswith(prefix):
            continue
        if line.what == "end":
            ends[line.job, line.attempt, line.epoch] = line.at
        elif line.job not in starts or _order(line) > _order(starts[line.job]):
            starts[line.job] = line
    steps: dict[float, int] = defaultdict(int)
    count = 0
    for start in starts.values():
        end = ends.get((start.job, start.attempt, start.epoch))
        if end is not None and end - CLOCK_S > start.at:
            count += 1
            steps[start.at] += 1
            steps[end - CLOCK_S] -= 1
    running = most = 0
    for at in sorted(steps):
        running += steps[at]
        most = max(most, running)
    return most, count


def _order(line: Line) -> tuple[int, int]:
    return line.attempt, line.epoch
