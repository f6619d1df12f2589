"""How many jobs a round promotes: as many as take about PROMOTING_US."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from schedo.core.changes import Changes
from schedo.core.limits import MILLISECOND, PROMOTED_MAX
from schedo.core.loads import PromoteDue
from schedo.engine.committer import Batch, Committer
from schedo.engine.ends import Ends
from tests.core.builders import make_job
from tests.passes import one_pass


class SlowDisk:
    """A store and its clock: a commit takes 20 ms, a load 1 ms, one after the other."""

    def __init__(self) -> None:
        self.at = 0
        self.limits: list[int] = []
        self._turn = asyncio.Lock()

    def now(self) -> int:
        return self.at

    async def commit(self, _: Changes) -> None:
        async with self._turn:
            await one_pass()
            self.at += 20 * MILLISECOND

    async def load(self, load: PromoteDue) -> int:
        async with self._turn:
            self.at += MILLISECOND
        self.limits.append(load.limit)
        return load.limit


async def test_a_slow_commit_before_it_makes_a_promotion_no_smaller() -> None:
    disk = SlowDisk()
    changes = Changes()
    changes.jobs[1] = make_job(1)

    async def follow() -> None:
        """Do nothing: the clock is not changed."""

    nothing = lambda *_: None  # noqa: E731
    monitor = SimpleNamespace(
        clock=disk,
        observer=None,
        ends=Ends(),
        round_began=nothing,
        round_ended=nothing,
        committed=nothing,
    )
    committer = Committer(
        cast(Any, disk),
        lambda: Batch(changes, [PromoteDue((0, 0), 1)]),
        nothing,
        nothing,
        cast(Any, SimpleNamespace(monitor=monitor, follow=follow)),
    )

    for _ in range(8):
        await committer.round()

    assert disk.limits == sorted(disk.limits)
    assert disk.limits[-1] == PROMOTED_MAX
