"""The garbage collector of a process that runs jobs."""

from __future__ import annotations

import gc

YOUNG_OBJECTS_MIN = 10_000


def collect_seldom() -> None:
    """Let Python look for reference cycles after 10,000 new objects instead of 700.

    A job has about twenty objects, and leaves no cycle. A program that has chosen a higher number,
    or has switched the collector off, keeps its choice.
    """
    young, *older = gc.get_threshold()
    if 0 < young < YOUNG_OBJECTS_MIN:
        gc.set_threshold(YOUNG_OBJECTS_MIN, *older)
