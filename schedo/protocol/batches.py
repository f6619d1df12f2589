"""The answer for a batch of jobs."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from schedo.protocol.jobs import JobAnswer
from schedo.protocol.problems import ProblemAnswer


class BatchItem(Struct, forbid_unknown_fields=True):
    """The result for one job of a batch."""

    status: int
    job: JobAnswer | UnsetType = UNSET
    problem: ProblemAnswer | UnsetType = UNSET


class BatchAnswer(Struct, forbid_unknown_fields=True):
    """The results for a batch, in order."""

    items: list[BatchItem]
