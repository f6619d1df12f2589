"""Long work in slices, so that timers and other requests have their turn in between."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")

SLICE_S = 0.004


class Slices:
    """Lets the loop run when the present slice is used up."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = time.perf_counter() + SLICE_S

    async def pause(self) -> None:
        """Let others run, if it is time."""
        if time.perf_counter() > self._until:
            await asyncio.sleep(0)
            self._until = time.perf_counter() + SLICE_S


async def describe_each(describe: Callable[[T], U], items: Iterable[T]) -> list[U]:
    """Return what `describe` makes of each item, in slices."""
    described, slices = [], Slices()
    for item in items:
        described.append(describe(item))
        await slices.pause()
    return described
