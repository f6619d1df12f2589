"""The responses for a batch of jobs: whole, and minimal."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from schedo.core.states import State
from schedo.protocol.fields import Id
from schedo.protocol.jobs import JobResponse
from schedo.protocol.problems import ProblemResponse


class BatchItem(Struct, forbid_unknown_fields=True):
    """The result for one job of a batch."""

    status: int
    job: JobResponse | UnsetType = UNSET
    problem: ProblemResponse | UnsetType = UNSET


class BatchResponse(Struct, forbid_unknown_fields=True):
    """The results for a batch, in order."""

    items: list[BatchItem]


class BriefJob(Struct, forbid_unknown_fields=True):
    """The fields of a job in a minimal response."""

    id: Id
    state: State
    task: str
    queue: str
    conflict: bool | UnsetType = UNSET


class BriefBatchItem(Struct, forbid_unknown_fields=True):
    """The minimal result for one job of a batch."""

    status: int
    job: BriefJob | UnsetType = UNSET
    problem: ProblemResponse | UnsetType = UNSET


class BriefBatchResponse(Struct, forbid_unknown_fields=True):
    """The minimal results for a batch, in order: the response to `Prefer: return=minimal`."""

    items: list[BriefBatchItem]
