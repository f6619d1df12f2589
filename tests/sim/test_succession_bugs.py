"""Bugs planted in the succession of servers; the simulation finds each within a few seeds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from schedo.core.model import Job, LeaseKey
from schedo.core.worker_session import PreviousServer
from schedo.engine.loop import EngineLoop
from schedo.store.base import Snapshot
from tests.sim.checkers import check
from tests.sim.disk import Disk, Faults, ServerStore
from tests.sim.plan import STARTS, Plan
from tests.sim.simulator import run
from tests.sim.trace import Froze, Kept, Opened, Reopened

SEEDS = 12
DRAIN_S = 90.0
PLAN = Plan(
    has_operations=False,
    start=STARTS[0],
    minutes=4,
    window=16,
    faults=Faults(delay_s=0.4),
    crash_every_s=12.0,
    action_every_s=0.5,
    schedules=3,
    handover_every_s=20.0,
    remote_workers=2,
    has_standby=True,
)
# A server that is killed ends the wait for the lock.
WITHOUT_KILLS = dataclasses.replace(PLAN, crash_every_s=0.0, minutes=2)
Plant = Callable[[pytest.MonkeyPatch], None]


def continue_any_attempt(patch: pytest.MonkeyPatch) -> None:
    """A new server goes on with each attempt that a worker lists, whatever became of its job."""

    def may_have_started(self: PreviousServer, key: LeaseKey, job: Job) -> bool:
        return not job.is_final and key != job.key

    patch.setattr(PreviousServer, "may_have_started", may_have_started)


def release_replies_after_the_freeze(patch: pytest.MonkeyPatch) -> None:
    """A frozen server confirms what the last commit did not carry."""

    async def freeze(self: EngineLoop, worker: str) -> None:
        async def confirm_only() -> None:
            replies, self._unanswered.replies = self._unanswered.replies, []
            for reply, value in replies:
                if not reply.done():
                    reply.set_result(value)
            self.scheduler.take_changes()

        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(self._committer, "round", confirm_only)
            await honest(self, worker)

    honest = EngineLoop.freeze
    patch.setattr(EngineLoop, "freeze", freeze)


def read_the_store_before_the_lock(patch: pytest.MonkeyPatch) -> None:
    """A standby reads all but the epoch while the server before it still commits."""
    prepared: dict[Disk, Snapshot] = {}

    async def open_(self: ServerStore) -> Snapshot:
        opening = await honest(self)
        before = prepared.get(self._disk, opening)
        prepared[self._disk] = opening
        return dataclasses.replace(before, epoch=opening.epoch)

    honest = ServerStore.open
    patch.setattr(ServerStore, "open", open_)


def keep_the_lock_while_draining(patch: pytest.MonkeyPatch) -> None:
    """The old process of a handover keeps its lock as long as it drains."""

    async def open_(self: ServerStore) -> Snapshot:
        if any(not store.is_dead for store in passed):
            await self._disk.loop.pass_time(DRAIN_S)
        return await honest(self)

    def pass_on(self: ServerStore) -> None:
        passed.append(self)
        leave(self)

    passed: list[ServerStore] = []
    honest, leave = ServerStore.open, ServerStore.pass_on
    patch.setattr(ServerStore, "open", open_)
    patch.setattr(ServerStore, "pass_on", pass_on)


# Each with the seed that is tried first: one that finds it, as the code is. Others follow.
BUGS = {
    continue_any_attempt: 10,
    release_replies_after_the_freeze: 0,
    read_the_store_before_the_lock: 1,
    keep_the_lock_while_draining: 0,
}


@pytest.mark.parametrize(("plant", "first"), BUGS.items())
def test_a_planted_bug_of_the_succession_is_found(
    plant: Plant, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)

    plan = WITHOUT_KILLS if plant is keep_the_lock_while_draining else PLAN
    assert any(check(run(seed, plan)) for seed in (first, *range(SEEDS)))


def test_without_a_planted_bug_no_violation_is_found() -> None:
    traces = [run(seed, PLAN) for seed in (0, 1, 5, 6)]  # they have all kinds of events

    assert [finding for trace in traces for finding in check(trace)] == []
    kinds = {type(event) for trace in traces for event in trace}
    assert {Froze, Kept, Opened, Reopened} <= kinds
