"""The response that explains what a job waits for: all checks, and what each worker says."""

from __future__ import annotations

from typing import Self

from msgspec import UNSET, Struct, UnsetType

from schedo.core.explain import Explanation, What
from schedo.core.ids import render_id
from schedo.core.model import Job
from schedo.core.states import State
from schedo.core.worker_obstacles import Obstacle, WorkerReason
from schedo.protocol.fields import Id, or_unset


class CheckResponse(Struct, forbid_unknown_fields=True):
    """One condition of a start; a permanent obstacle does not go away by time alone."""

    what: What
    ok: bool
    permanent: bool
    text: str


class WorkerReasonResponse(Struct, forbid_unknown_fields=True):
    """Whether a worker could take the job now; else the first obstacle, as a code and a text."""

    worker: str
    ok: bool
    permanent: bool
    text: str
    obstacle: Obstacle | UnsetType = UNSET
    server: str | UnsetType = UNSET  # of a cluster, which the worker polls

    @classmethod
    def of(cls, reason: WorkerReason) -> Self:
        return cls(
            reason.worker,
            reason.obstacle is None,
            reason.is_permanent,
            reason.text,
            or_unset(reason.obstacle),
            reason.server or UNSET,
        )


class WhyResponse(Struct, forbid_unknown_fields=True):
    """The reasons why a job waits, as one sentence and one by one; permanent obstacles first.

    `checks` are all conditions of its start, and `workers` what at most 64 workers say.
    """

    id: Id
    state: State
    why: str
    reasons: list[str]
    checks: list[CheckResponse]
    workers: list[WorkerReasonResponse]
    has_more_workers: bool

    @classmethod
    def of(cls, job: Job, explanation: Explanation, suggestion: str = "") -> Self:
        """suggestion: a hint at the task that was probably meant, if no worker offers the task."""
        checks = [
            check._replace(text=check.text + suggestion)
            if check.what == "worker" and not check.is_ok
            else check
            for check in explanation.checks
        ]
        reasons = explanation._replace(checks=checks).reasons
        return cls(
            render_id(job.id),
            job.state,
            "; ".join(reasons),
            reasons,
            [CheckResponse(c.what, c.is_ok, c.is_permanent, c.text) for c in checks],
            [WorkerReasonResponse.of(each) for each in explanation.workers],
            explanation.has_more_workers,
        )
