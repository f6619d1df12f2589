"""What an operation must remember of its jobs, so that its effect can be undone."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from schedo.core.model import Failure, Job
from schedo.core.states import FINAL, TIMED, State


class JobBefore(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """A job as it was before an operation changed it, at `changed_at`."""

    id: int
    changed_at: int
    state: State
    attempt: int
    due_at: int
    due_elapsed: bool = False
    failures: int = 0
    losses: int = 0
    ended_at: int | None = None
    kept_until: int | None = None
    failure: Failure | None = None
    expires_at: int | None = None
    expires_elapsed: bool = False
    cancel_requested_at: int | None = None
    has_key: bool = False  # it held its unique key

    @classmethod
    def of(cls, job: Job, now: int) -> JobBefore | None:
        """Return the record of a job that is about to change; None if it has started."""
        if job.state is State.RUNNING:
            return None
        failure = job.failure
        if failure is not None and failure.traceback is not None:  # the attempt still has it
            failure = msgspec.structs.replace(failure, traceback=None)
        return cls(
            job.id,
            now,
            job.state,
            job.attempt,
            job.due_at,
            job.due_elapsed,
            job.failures,
            job.losses,
            job.ended_at,
            job.kept_until,
            failure,
            job.expires_at,
            job.expires_elapsed,
            job.cancel_requested_at,
            job.unique_key is not None,
        )

    @property
    def had_ended(self) -> bool:
        return self.state in FINAL

    def is_unchanged(self, job: Job) -> bool:
        """Return whether the job is as the operation left it: nothing has happened to it since.

        A run that was blocked may not wait for others any more, so it cannot be put back. Neither
        can a cancelled job if another one has taken its unique key.
        """
        if job.attempt != self.attempt or self.state is State.BLOCKED:
            return False
        if self.had_ended or (self.state in TIMED and job.state is State.QUEUED):
            return job.state is State.QUEUED and job.due_at == self.changed_at
        if self.has_key and job.unique_key is None:
            return False
        return job.state is State.CANCELLED and job.ended_at == self.changed_at


class BulkStep(NamedTuple):
    """The jobs that a step of an operation has changed; later steps have smaller numbers."""

    operation: int
    number: int
    jobs: tuple[JobBefore, ...]
