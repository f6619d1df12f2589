"""Work in steps, taken one after the other."""

from __future__ import annotations

from typing import TypeVar

from schedo.protocol.reading import Steps

T = TypeVar("T")


def take(steps: Steps[T]) -> T:
    """Return what the steps return."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value
