"""An application whose handlers succeed, fail, wait, or fail without a retry."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from schedo import Discard, Retry, Schedo, Snooze, current_job

LONG_S = 30.0
SOON = Retry(max_attempts=3, backoff="fixed", initial="1ms", jitter=0.0)


@dataclass
class Sum:
    value: int


async def add(a: int, b: int = 1) -> Sum:
    return Sum(a + b)


def double(n: int) -> int:
    return 2 * n


async def fail_until(attempt: int) -> int:
    if current_job().attempt < attempt:
        raise ValueError("not yet")
    return current_job().attempt


async def look_up() -> None:
    raise KeyError("nobody")


async def snooze_once() -> int:
    if current_job().attempt == 1:
        raise Snooze(0.001)
    return current_job().attempt


async def discard() -> Discard:
    return Discard("no use")


class Example:
    """An application with a store file, and an event that is set when `hang` runs."""

    def __init__(self, path: Path) -> None:
        app = self.app = Schedo(path / "jobs.db", grace=0)
        self.running = asyncio.Event()
        self.add = app.task(add)
        self.double = app.task(double)
        self.fail_until = app.task(retries=SOON)(fail_until)
        self.look_up = app.task(no_retry=(KeyError,))(look_up)
        self.snooze_once = app.task(snooze_once)
        self.discard = app.task(discard)
        self.hang = app.task(self._hang)
        self.add_from_thread = app.task(self._add_from_thread)

    async def _hang(self) -> None:
        self.running.set()
        await asyncio.Event().wait()

    def _add_from_thread(self, n: int) -> int:
        async def ask() -> Sum:
            return await (await self.add.enqueue(n)).result()

        return asyncio.run(ask()).value
