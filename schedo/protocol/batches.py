"""The response for a batch of jobs."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

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
