"""The commands of the scheduler, as values: one class for each change.

`Command[R]` has a reply of type R: `Scheduler.apply` returns it, or raises a SchedoError and has
changed nothing. An AttemptResult (core/leases.py) is itself a command; its reply is the job.

Jobs and schedules in a reply are the records in memory; who keeps one beyond the turn copies it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from collections.abc import Set as AbstractSet
from enum import StrEnum
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import msgspec

from schedo.core.changes import IdempotencyRecord
from schedo.core.leases import Lease, Released, Snoozed, StopRequest
from schedo.core.model import (
    Job,
    JobSpec,
    LeaseKey,
    Overlap,
    Queue,
    ReadyKey,
    Schedule,
    ScheduleSpec,
)
from schedo.core.worker_messages import PollRequest, Reservation, WorkerStatus
from schedo.core.worker_pool import WorkerSpec
from schedo.errors import SchedoError

R = TypeVar("R")


class Command(msgspec.Struct, Generic[R], frozen=True, gc=False):
    """The base of all commands."""

    # False: the command changes nothing that the store keeps, so its reply waits for no commit.
    is_durable: ClassVar[bool] = True
    makes_due: ClassVar[bool] = True  # False: nothing can start because of it before its commit


# Jobs.


class Accepted(msgspec.Struct, frozen=True, gc=False):
    """The reply to one spec: the new job, or the job that already holds its unique key."""

    job: Job
    is_conflict: bool


class Submit(Command[list[Accepted | SchedoError]], frozen=True):
    """Make jobs in one step; the reply has one entry for each spec, in their order.

    may_replace: whether a job of this queue and task may lose its unique key; None: any may.
    """

    makes_due: ClassVar[bool] = False  # it only makes jobs, which must be durable first
    specs: Sequence[JobSpec]
    may_replace: Callable[[str, str], bool] | None = None
    home_shards: Collection[int] = ()  # in a cluster, the shards that must belong to this server


class JobCommand(Command[Job], frozen=True):
    """The base of the commands on one job. Raises NotFound, or IllegalTransition by its state."""

    job_id: int


class Cancel(JobCommand, frozen=True):
    """End a waiting job, or request its worker to stop a running one. It may be repeated."""


class RetryJob(JobCommand, frozen=True):
    """Queue an ended job again and reset its counts of failures and losses.

    due_at: let it wait for this instant first.
    """

    due_at: int | None = None


class RunNow(JobCommand, frozen=True):
    """Make a scheduled or retrying job due now."""


class Reschedule(JobCommand, frozen=True):
    """Change the due instant (or the delay from now) or the priority of a waiting job."""

    due_at: int | None = None
    delay_us: int | None = None
    priority: int | None = None


# Schedules.


class PutEffect(StrEnum):
    """What a put or a declaration did to a schedule."""

    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    KEPT = "kept"  # it was changed by hand, and its owner declares what it declared before
    REMOVED = "removed"


class PutSchedule(Command[tuple[Schedule, PutEffect]], frozen=True):
    """Create a schedule or change it to the spec, by hand: its owner stays."""

    spec: ScheduleSpec


class Declared(NamedTuple):
    """What a declaration did to one schedule; before: a copy of the earlier record."""

    effect: PutEffect
    schedule: Schedule
    before: Schedule | None


class DeclareSchedules(Command[list[Declared]], frozen=True):
    """Put the schedules that an owner declares, and delete some that it owned, in one commit.

    The owner takes over a schedule of another owner. removed: names; a schedule of another owner
    stays. keeps_edits: a schedule that was changed by hand stays as it is while the owner declares
    what it declared before. check: raises Forbidden for a record that the caller may not "replace"
    or "delete", which is its first argument.
    """

    owner: str
    specs: Sequence[ScheduleSpec]
    removed: Sequence[str] = ()
    keeps_edits: bool = False
    check: Callable[[str, Schedule], None] | None = None


class ScheduleCommand(Command[R], frozen=True):
    """The base of the commands on one schedule that exists. Raises NotFound."""

    name: str


class DeleteSchedule(ScheduleCommand[None], frozen=True):
    """Delete the schedule. Its jobs stay, and a blocked run is unblocked."""


class PauseSchedule(ScheduleCommand[Schedule], frozen=True):
    """Pause the schedule until it is resumed. A manual trigger still works."""

    note: str | None = None


class ResumeSchedule(ScheduleCommand[Schedule], frozen=True):
    """Fire again from now on, or from an earlier instant by the catch-up policy."""

    resume_from: int | None = None


class ResetSchedule(ScheduleCommand[tuple[Schedule, PutEffect]], frozen=True):
    """Undo the changes by hand: put what the owner declared last. Raises Conflict."""


class Triggered(NamedTuple):
    """The reply to a manual trigger: the new job, or the id of the run that prevented it."""

    job: Job | None
    skipped_by: int | None


class TriggerSchedule(ScheduleCommand[Triggered], frozen=True):
    """Make a run now, by the given overlap policy or else that of the schedule."""

    overlap: Overlap | None = None


# Queues.


class ConfigureQueue(Command[Queue], frozen=True):
    """Set the given fields of a queue's limits. Jobs that already wait keep their rank."""

    name: str
    fields: dict[str, Any]


# Workers.


class AttachWorker(Command[None], frozen=True):
    """Add a worker that may now get jobs, or replace its spec."""

    is_durable: ClassVar[bool] = False
    spec: WorkerSpec


class DetachWorker(Command[None], frozen=True):
    """Remove the worker. The attempts that it still holds are lost.

    Those that are in `unsent` when it is applied are released: no worker has received them.
    """

    worker: str
    message: str
    unsent: AbstractSet[LeaseKey] = frozenset()


class TransferAttempts(Command[None], frozen=True):
    """Record `worker` as the worker of all attempts that the server's own workers run.

    To the server that opens the store next they are those of a remote worker. The leases that no
    worker has received are released; `unsent`: as for DetachWorker.
    """

    worker: str
    unsent: AbstractSet[LeaseKey] = frozenset()


class CloseWorker(Command[None], frozen=True):
    """Assign no more attempts to the worker. Its running attempts continue."""

    is_durable: ClassVar[bool] = False
    worker: str


class Cordon(Command[WorkerStatus], frozen=True):
    """Stop assigning attempts to the worker, or resume, on behalf of an operator.

    To resume also ends a drain. Raises NotFound.
    """

    worker: str
    is_cordoned: bool


class Drain(Command[WorkerStatus], frozen=True):
    """Cordon the worker, and request that it finishes its attempts and ends; raises NotFound."""

    is_durable: ClassVar[bool] = False
    worker: str


# Remote workers.


class Poll(Command[None], frozen=True):
    """Handle a request of a remote worker; `take_replies` returns its response under the id."""

    id: int
    request: PollRequest


class PollBroken(Command[None], frozen=True):
    """End a poll that can get no response, because its connection broke.

    unsent: the leases of its response, if there is one already, and not all of them are sent;
    outcome: of their attempts. left_at: when the worker's connection to its gateway broke, which
    is another server; None: nothing is known of that.
    """

    id: int
    worker: str
    unsent: Sequence[LeaseKey] = ()
    outcome: Released | Snoozed = Released()
    left_at: int | None = None


class HoldLease(Command[None], frozen=True):
    """Send the lease with the next response to its remote worker."""

    lease: Lease


class HoldStop(Command[None], frozen=True):
    """Send the stop request with the next response to its remote worker."""

    stop: StopRequest


class CompletePolls(Command[None], frozen=True):
    """Complete the open polls of a worker, or of all: None."""

    worker: str | None = None
    keeps_idle: bool = False  # not those of workers that run nothing: a recovery keeps them


# Placement.


class Invoke(Command[list[Job]], frozen=True):
    """Start `count` jobs now, all or none. Raises NoCapacity or Unsatisfiable.

    `take_decided` returns the id when it is decided whether the jobs begin.
    """

    id: str
    spec: JobSpec
    count: int


class Reserve(Command[Reservation], frozen=True):
    """Hold `count` slots, all or none. Raises NoCapacity or Unsatisfiable."""

    is_durable: ClassVar[bool] = False
    id: str
    nonce: str
    ready_key: ReadyKey
    count: int
    ttl_us: int


class CommitReservation(Command[list[Job]], frozen=True):
    """Start one job in each of the reserved slots; `take_decided` as for Invoke.

    Raises NoReservation if it is not open, or if a worker is gone, which ends it; Unsatisfiable if
    a worker does not serve such jobs; NoCapacity if their queue is full or paused.
    """

    id: str
    nonce: str
    spec: JobSpec


class ReleaseReservation(Command[None], frozen=True):
    """Free the reserved slots. Raises NoReservation if the reservation is not open."""

    is_durable: ClassVar[bool] = False
    id: str
    nonce: str


# Other commands.


class KeepIdempotencyRecord(Command[None], frozen=True):
    """Commit the response to a request together with the changes of this step."""

    record: IdempotencyRecord


class ExpireAndTrim(Command[None], frozen=True):
    """Request the jobs that have expired, and evict idle queues. It runs once a second."""


class Flush(Command[None], frozen=True):
    """Change nothing: the reply comes when all earlier changes are durable."""


# Follow-ups: commands that the core gives itself. If the record is gone, they change nothing.


class FollowUp(Command[None], frozen=True):
    """The base of the follow-ups."""


class JobFollowUp(FollowUp, frozen=True):
    """The base of the follow-ups on one job."""

    job_id: int


class CancelRun(JobFollowUp, frozen=True):
    """Cancel a run that has not ended, because a later run takes its place."""


class UnblockRun(JobFollowUp, frozen=True):
    """Queue a blocked run, or schedule it if jitter makes it due later."""


class FailRetry(JobFollowUp, frozen=True):
    """Fail the job if it still waits for the retry after this attempt."""

    key: LeaseKey


class ScheduleFollowUp(FollowUp, frozen=True):
    """The base of the follow-ups on one schedule."""

    schedule_id: int


class CheckRetry(ScheduleFollowUp, frozen=True):
    """Fail the retrying run if its schedule fires before the retry.

    due: the instant of the retry on the elapsed timeline.
    """

    key: LeaseKey
    due: int


class UnblockNext(ScheduleFollowUp, frozen=True):
    """Unblock the schedule's blocked run if no other run of it is active."""


# Gives a follow-up at this instant: it is applied at once, or when its record is loaded.
GiveFollowUp = Callable[[JobFollowUp | ScheduleFollowUp, int], None]
