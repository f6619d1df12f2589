"""The ends of attempts and of jobs, which are noted with the changes of their commit.

They count from that commit on; see core/tallies.py.
"""

from __future__ import annotations

from schedo.core.limits import REQUEUE_BOOST_US
from schedo.core.model import Job, Trigger
from schedo.core.states import State

RETRIED = "retried"  # the attempt failed or was lost, and its job is tried again
REQUEUED = "requeued"  # the attempt was released, or snoozed: its job runs again, too

# Task, queue and schedule of the job; the outcome: a final state, RETRIED or REQUEUED; when it
# ended; how long the attempt ran, and how long after it was due it started, in microseconds. None:
# no attempt has ended, or the time says nothing. It is a plain tuple, because one is made per job.
End = tuple[str, str, str | None, str, int, int | None, int | None]

# The hour, the task, the queue, the schedule and the outcome of ends that are alike.
Kind = tuple[int, str, str, str | None, str]

# Access to an enum member through its class costs as much as a small call, and happens per job.
_RUNNING, _SCHEDULE, _CATCHUP = State.RUNNING, Trigger.SCHEDULE, Trigger.CATCHUP


def end_of(job: Job, outcome: str, offset_us: int, now: int, *, is_lost: bool = False) -> End:
    """Return the end of the job, or of its attempt; the job is still in the state before it.

    is_lost: the attempt ended unseen, so its run time is unknown. The lateness is unknown for a run
    that catches up, and for an attempt that continues after a lost worker or a drain: these were
    due long before a server could start them.
    """
    run_us = late_us = None
    if job.state is _RUNNING and (began_at := job.started_at) is not None:
        if not is_lost:
            run_us = now - began_at
        due_at = job.due_at
        # One that was requeued at the front may have got another priority there.
        if job.attempt == 1 or job.rank > due_at - offset_us - REQUEUE_BOOST_US // 2:
            # A client may submit a job with a past due time: it is late from its creation.
            if due_at < job.created_at and job.trigger is not _SCHEDULE:
                due_at = job.created_at
            if job.trigger is not _CATCHUP:
                late_us = began_at - due_at
    return job.task, job.queue, job.options.schedule, outcome, now, run_us, late_us


class Alike:
    """Ends that are alike: how many, and the times of their attempts in microseconds."""

    __slots__ = ("count", "late_us", "run_us")

    def __init__(self) -> None:
        self.count = 0
        self.run_us: list[int] = []
        self.late_us: list[int] = []
