"""The blocked runs: which schedules may have one, and how each continues after a recovery.

Memory has no record of a blocked run. It only knows which schedules may have one. When another run
of such a schedule ends, the schedule is loaded with its blocked run.
"""

from __future__ import annotations

from schedo.core.commands import CancelRun, GiveFollowUp, UnblockRun
from schedo.core.limits import BLOCKED_PAGE
from schedo.core.loads import BlockedRun, LoadBlocked
from schedo.core.model import Overlap, Schedule


class BlockedRuns:
    """The schedules with a blocked run, at most `capacity`; if there are more, any may have one."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._schedules: set[int] = set()
        self._are_more = False  # schedules than the capacity
        self._next: LoadBlocked | None = None  # the page after those that are restored

    def may_have(self, schedule_id: int) -> bool:
        """Whether a run of the schedule may be blocked."""
        return schedule_id in self._schedules or self._are_more or self._next is not None

    def add(self, schedule_id: int) -> None:
        """Note that a run of the schedule is blocked."""
        if len(self._schedules) < self._capacity:
            self._schedules.add(schedule_id)
        else:
            self._are_more = self._are_more or schedule_id not in self._schedules

    def discard(self, schedule_id: int) -> None:
        """Note that no run of the schedule is blocked."""
        self._schedules.discard(schedule_id)

    def restore(self) -> LoadBlocked:
        """Return the load of the first page of blocked runs."""
        self._next = LoadBlocked(0, BLOCKED_PAGE)
        return self._next

    def restore_next(self, load: LoadBlocked, page: list[BlockedRun]) -> LoadBlocked | None:
        """Return the load of the page after this one, or None after the last."""
        has_more = load.is_full(page)
        self._next = LoadBlocked(page[-1].job_id, load.limit) if has_more else None
        return self._next


def resolve(schedule: Schedule | None, job_id: int, follow_up: GiveFollowUp, now: int) -> bool:
    """Unblock or cancel the run by the state of its schedule; return whether it stays blocked.

    The run that it waited for may have ended just before a crash; the requests to cancel the
    earlier runs may be lost; or the schedule was deleted: then it is None.
    """
    others = [] if schedule is None else [run for run in schedule.active if run != job_id]
    if schedule is None or not others:
        follow_up(UnblockRun(job_id), now)
        return False
    cancels = schedule.spec.overlap is Overlap.CANCEL_OTHER
    if schedule.blocked is not None and schedule.blocked > job_id:  # a later run replaces it
        if cancels or any(run < job_id for run in others):
            follow_up(CancelRun(job_id), now)
        else:  # it was about to be unblocked when the later run was made
            follow_up(UnblockRun(job_id), now)
        return False
    for other in others if cancels else ():
        if other < job_id:  # a later one was made to run beside it
            follow_up(CancelRun(other), now)
    return True
