"""The response of GET /v1/failures."""

from __future__ import annotations

from typing import Self

from msgspec import Struct

from schedo.core.failure_groups import FailureGroup
from schedo.core.ids import render_id
from schedo.protocol.fields import Id, Instant
from schedo.protocol.operation import Operation
from schedo.protocol.times import render_instant


class FailureGroupResponse(Struct, forbid_unknown_fields=True, kw_only=True):
    """Failed attempts of one task with the same error, but for numbers and ids (`#`).

    `count` are attempts, of which `beyond` may belong to groups that are gone; `failed_jobs` are
    jobs that failed by them. `last_message` is that of `last_job`. `recent` are the attempts of
    the last hour, in 30 counts of 2 minutes each, the oldest first.
    """

    task: str
    type: str
    exit_code: int | None
    message: str
    count: int
    beyond: int
    failed_jobs: int
    first_at: Instant
    last_at: Instant
    last_job: Id
    last_message: str
    recent: list[int]

    @classmethod
    def of(cls, group: FailureGroup, now: int) -> Self:
        return cls(
            **group.key._asdict(),
            count=group.count,
            beyond=group.beyond,
            failed_jobs=group.failed_jobs,
            first_at=render_instant(group.first_at),
            last_at=render_instant(group.last_at),
            last_job=render_id(group.last_job),
            last_message=group.last_message,
            recent=group.recent(now),
        )


class FailuresResponse(Struct, forbid_unknown_fields=True):
    """The groups since the server started, those that failed last first."""

    since: Instant
    items: list[FailureGroupResponse]


OPERATIONS = (
    Operation(
        "list_failures",
        "GET /v1/failures",
        "List what fails, in groups of the same task and error, the last failure first.",
        {200: FailuresResponse},
    ),
)
