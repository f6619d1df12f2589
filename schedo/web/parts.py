"""Long lists, described in parts, so that timers and other requests come in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")

_PART = 16  # a schedule with its next fires takes 0.1 to 0.2 ms, all else less


async def describe_each(describe: Callable[[T], U], items: Iterable[T]) -> list[U]:
    """Return what `describe` makes of each item; let the loop turn after each part."""
    described = []
    for count, item in enumerate(items, start=1):
        described.append(describe(item))
        if count % _PART == 0:
            await asyncio.sleep(0)
    return described
