"""The conditions that select jobs, for a list of jobs and for an operation on many jobs."""

from __future__ import annotations

import msgspec

from schedo.core.ids import first_id
from schedo.core.model import Job
from schedo.core.states import State


class JobFilter(msgspec.Struct, frozen=True, omit_defaults=True):
    """The conditions that a job must meet, all of them; None means any.

    Times of creation are compared by id. A job that has not ended meets no condition on its end,
    and a job without an error none on its error.
    """

    state: str | None = None
    queue: str | None = None
    task: str | None = None
    schedule_id: int | None = None
    tag: str | None = None
    unique_key: str | None = None
    created_after: int | None = None  # inclusive
    created_before: int | None = None  # exclusive
    ended_after: int | None = None  # inclusive
    ended_before: int | None = None  # exclusive
    error: str | None = None  # a part of the error's type or message
    states: tuple[State, ...] = ()  # one of these, if there are any

    def matches(self, job: Job) -> bool:
        """Return whether the job meets all conditions."""
        return (
            self.state in (None, job.state.value)
            and (not self.states or job.state in self.states)
            and self.queue in (None, job.queue)
            and self.task in (None, job.task)
            and self.schedule_id in (None, job.schedule_id)
            and self.unique_key in (None, job.unique_key)
            and (self.tag is None or self.tag in job.options.tags)
            and (self.created_after is None or job.id >= first_id(self.created_after))
            and (self.created_before is None or job.id < first_id(self.created_before))
            and self._matches_end(job)
        )

    def _matches_end(self, job: Job) -> bool:
        at, failure = job.ended_at, job.failure
        after, before, text = self.ended_after, self.ended_before, self.error
        return (
            (after is None or (at is not None and at >= after))
            and (before is None or (at is not None and at < before))
            and (
                text is None
                or (failure is not None and (text in failure.type or text in failure.message))
            )
        )
