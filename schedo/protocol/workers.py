"""The responses about workers, and the progress of their attempts."""

from __future__ import annotations

from typing import Literal, Self

from msgspec import UNSET, Struct, UnsetType

from schedo.core.ids import render_id
from schedo.core.limits import SECOND
from schedo.core.worker_messages import ProgressLine, Run, WorkerStatus
from schedo.protocol.fields import DurationText, Id, Instant, instant_or_unset, or_unset
from schedo.protocol.requirements import amount_fields
from schedo.protocol.times import render_duration, render_instant


class RunResponse(Struct, forbid_unknown_fields=True):
    """A job that a worker runs."""

    job: Id
    task: str
    started_at: Instant

    @classmethod
    def of(cls, run: Run) -> Self:
        return cls(render_id(run.job_id), run.task, render_instant(run.started_at))


class WorkerResponse(Struct, forbid_unknown_fields=True, kw_only=True):
    """A worker. Without tasks or queues it takes any, without health it is healthy.

    `runs` are at most 64 of its running jobs, the oldest first, and 1,024 in a list of workers.
    """

    name: str
    kind: Literal["remote", "process", "server", "embedded"]
    state: str
    slots: int
    running: int
    free: int
    tasks: list[str] | UnsetType = UNSET
    queues: list[str] | UnsetType = UNSET
    labels: dict[str, str]
    resources: dict[str, int | float]
    resources_used: dict[str, int | float]
    version: str | UnsetType = UNSET
    connected_at: Instant | UnsetType = UNSET
    last_seen_at: Instant | UnsetType = UNSET
    session_timeout: DurationText | UnsetType = UNSET
    health: str | UnsetType = UNSET
    runs: list[RunResponse] = []
    server: str | UnsetType = UNSET  # of a cluster, to which it is connected
    relayed: bool | UnsetType = UNSET  # it polls another server of the cluster

    @classmethod
    def of(cls, seen: WorkerStatus) -> Self:
        return cls(
            name=seen.name,
            kind=seen.kind,
            state=seen.state,
            slots=seen.slots,
            running=seen.running,
            free=max(0, seen.slots - seen.running),
            tasks=UNSET if seen.tasks is None else sorted(seen.tasks),
            queues=UNSET if seen.queues is None else sorted(seen.queues),
            labels=dict(seen.labels),
            resources=amount_fields(seen.resources),
            resources_used=amount_fields(seen.resources_used),
            version=or_unset(seen.version),
            connected_at=instant_or_unset(seen.connected_at),
            last_seen_at=instant_or_unset(seen.last_seen_at),
            session_timeout=UNSET
            if seen.session_timeout_s is None
            else render_duration(round(seen.session_timeout_s * SECOND)),
            health=or_unset(seen.health),
            runs=[RunResponse.of(run) for run in seen.runs],
            relayed=seen.is_relayed or UNSET,
        )


class WorkerPage(Struct, forbid_unknown_fields=True):
    """All known workers."""

    items: list[WorkerResponse]


class ProgressResponse(Struct, forbid_unknown_fields=True):
    """The progress of a running attempt."""

    at: Instant
    attempt: int
    percent: float | UnsetType = UNSET
    message: str | UnsetType = UNSET
    log: str | UnsetType = UNSET
    stdout: str | UnsetType = UNSET
    stderr: str | UnsetType = UNSET
    stdout_bytes: int | UnsetType = UNSET
    stderr_bytes: int | UnsetType = UNSET

    @classmethod
    def of(cls, line: ProgressLine) -> Self:
        key, update = line.progress
        return cls(
            at=render_instant(line.at),
            attempt=key.attempt,
            percent=or_unset(update.percent),
            message=or_unset(update.message),
            log=or_unset(update.log),
            stdout=or_unset(update.stdout),
            stderr=or_unset(update.stderr),
            stdout_bytes=or_unset(update.stdout_bytes),
            stderr_bytes=or_unset(update.stderr_bytes),
        )


class ProgressPage(Struct, forbid_unknown_fields=True):
    """The latest progress of a job, oldest first."""

    items: list[ProgressResponse]
