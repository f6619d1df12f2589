"""Runs work that is divided into steps."""

from __future__ import annotations

from typing import TypeVar

from schedo.protocol.reading import Steps

T = TypeVar("T")


def take(steps: Steps[T]) -> T:
    """Run all steps and return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: T = end.value
            return value
