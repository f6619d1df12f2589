"""The table of everything the HTTP API can do; routes and openapi.json are made from it."""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from schedo.wire import shapes
from schedo.wire.jobs import JobPatch, JobRequest, ShortRequest
from schedo.wire.queues import QueuePatch
from schedo.wire.schedules import (
    CronRequest,
    Nothing,
    PauseRequest,
    ResumeRequest,
    ScheduleRequest,
    TriggerRequest,
)

BODY_BYTES_MAX = 1_048_576
BATCH_BYTES_MAX = 16_777_216

JSON_TYPE = "application/json"
LINES_TYPE = "application/x-ndjson"


class Operation(NamedTuple):
    """One method on one path."""

    name: str
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    summary: str
    answers: dict[int, type[msgspec.Struct] | str]  # by status: the shape of JSON, or a media type
    request: type[msgspec.Struct] | None = None
    is_batch: bool = False
    query: tuple[str, ...] = ()
    takes_key: bool = False  # honours Idempotency-Key

    @property
    def tag(self) -> str:
        """Return the chapter of the documentation that it belongs to."""
        if self.name.startswith("short_"):
            return "short forms"
        chapters = ("jobs", "schedules", "queues")
        part = self.path.removeprefix("/v1/").partition("/")[0].partition(":")[0]
        return part if part in chapters else "schedules" if part == "cron" else "server"

    @property
    def body_bytes_max(self) -> int:
        return BATCH_BYTES_MAX if self.is_batch else BODY_BYTES_MAX

    @property
    def media_types(self) -> tuple[str, ...]:
        return (JSON_TYPE, LINES_TYPE) if self.is_batch else (JSON_TYPE,)

    @property
    def body_is_optional(self) -> bool:
        """Say whether the request may be empty: when none of its fields is required."""
        if self.request is None or self.is_batch:
            return False
        return not any(field.required for field in msgspec.structs.fields(self.request))


_JOB_FILTERS = (
    "state",
    "queue",
    "task",
    "schedule",
    "tag",
    "unique_key",
    "created_after",
    "created_before",
)
_PAGE = ("limit", "cursor")

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "create_job",
        "POST",
        "/v1/jobs",
        "Submit a job; the answer comes once it is on disk.",
        {201: shapes.JobAnswer, 200: shapes.JobAnswer, 202: shapes.JobAnswer},
        request=JobRequest,
        query=("wait",),
        takes_key=True,
    ),
    Operation(
        "create_jobs",
        "POST",
        "/v1/jobs:batch",
        "Submit up to 1,000 jobs in one commit; each has its own result, in order.",
        {200: shapes.BatchAnswer},
        request=JobRequest,
        is_batch=True,
        takes_key=True,
    ),
    Operation(
        "list_jobs",
        "GET",
        "/v1/jobs",
        "List jobs, newest first; payloads and results above 4 KiB are left out.",
        {200: shapes.JobPage},
        query=(*_JOB_FILTERS, *_PAGE),
    ),
    Operation("get_job", "GET", "/v1/jobs/{id}", "Read a job.", {200: shapes.JobAnswer}),
    Operation(
        "update_job",
        "PATCH",
        "/v1/jobs/{id}",
        "Change when a waiting job runs, or its priority.",
        {200: shapes.JobAnswer},
        request=JobPatch,
    ),
    Operation(
        "list_attempts",
        "GET",
        "/v1/jobs/{id}/attempts",
        "List the ended attempts that did not complete the job.",
        {200: shapes.AttemptPage},
    ),
    Operation(
        "get_output",
        "GET",
        "/v1/jobs/{id}/output",
        "Read the captured output; with stream= it is the bare text.",
        {200: shapes.OutputPage},
        query=("stream", "attempt"),
    ),
    Operation(
        "wait_for_job",
        "GET",
        "/v1/jobs/{id}/wait",
        "Wait until the job has ended: 200 then, 202 if the time is up first.",
        {200: shapes.JobAnswer, 202: shapes.JobAnswer},
        query=("timeout",),
    ),
    Operation(
        "explain_job",
        "GET",
        "/v1/jobs/{id}/why",
        "Say in one sentence what the job waits for.",
        {200: shapes.WhyAnswer},
    ),
    Operation(
        "cancel_job",
        "POST",
        "/v1/jobs/{id}:cancel",
        "Cancel a waiting job, or ask a running one to stop.",
        {200: shapes.JobAnswer},
        request=Nothing,
    ),
    Operation(
        "retry_job",
        "POST",
        "/v1/jobs/{id}:retry",
        "Queue a failed, cancelled or expired job again.",
        {200: shapes.JobAnswer},
        request=Nothing,
    ),
    Operation(
        "run_job",
        "POST",
        "/v1/jobs/{id}:run",
        "Queue a scheduled or retrying job now.",
        {200: shapes.JobAnswer},
        request=Nothing,
    ),
    Operation(
        "list_schedules",
        "GET",
        "/v1/schedules",
        "List schedules by name.",
        {200: shapes.SchedulePage},
        query=_PAGE,
    ),
    Operation(
        "put_schedule",
        "PUT",
        "/v1/schedules/{name}",
        "Create or replace a schedule; the same again changes nothing.",
        {201: shapes.ScheduleAnswer, 200: shapes.ScheduleAnswer},
        request=ScheduleRequest,
    ),
    Operation(
        "get_schedule",
        "GET",
        "/v1/schedules/{name}",
        "Read a schedule with its next fires and counters.",
        {200: shapes.ScheduleAnswer},
    ),
    Operation(
        "delete_schedule",
        "DELETE",
        "/v1/schedules/{name}",
        "Delete a schedule; the jobs it has made stay.",
        {204: ""},
    ),
    Operation(
        "list_decisions",
        "GET",
        "/v1/schedules/{name}/decisions",
        "List what became of the latest instants, newest first.",
        {200: shapes.DecisionPage},
        query=("limit",),
    ),
    Operation(
        "pause_schedule",
        "POST",
        "/v1/schedules/{name}:pause",
        "Stop firing, with a note that says why.",
        {200: shapes.ScheduleAnswer},
        request=PauseRequest,
    ),
    Operation(
        "resume_schedule",
        "POST",
        "/v1/schedules/{name}:resume",
        "Fire again, from now or from the given instant.",
        {200: shapes.ScheduleAnswer},
        request=ResumeRequest,
    ),
    Operation(
        "trigger_schedule",
        "POST",
        "/v1/schedules/{name}:trigger",
        "Run the schedule's job now; its overlap policy decides unless another is given.",
        {201: shapes.TriggerAnswer, 200: shapes.TriggerAnswer},
        request=TriggerRequest,
    ),
    Operation(
        "explain_cron",
        "POST",
        "/v1/cron:explain",
        "Say in words what a cron expression means, and when it fires next.",
        {200: shapes.CronAnswer},
        request=CronRequest,
    ),
    Operation(
        "list_queues",
        "GET",
        "/v1/queues",
        "List queues with what waits in them.",
        {200: shapes.QueuePage},
    ),
    Operation(
        "update_queue",
        "PATCH",
        "/v1/queues/{name}",
        "Set a queue's limits.",
        {200: shapes.QueueAnswer},
        request=QueuePatch,
    ),
    Operation(
        "pause_queue",
        "POST",
        "/v1/queues/{name}:pause",
        "Start no more jobs of this queue; those that run go on.",
        {200: shapes.QueueAnswer},
        request=Nothing,
    ),
    Operation(
        "resume_queue",
        "POST",
        "/v1/queues/{name}:resume",
        "Start jobs of this queue again.",
        {200: shapes.QueueAnswer},
        request=Nothing,
    ),
    Operation(
        "short_schedule",
        "POST",
        "/schedule",
        "Short form: run a command after some seconds.",
        {201: shapes.ShortAnswer},
        request=ShortRequest,
        takes_key=True,
    ),
    Operation(
        "short_status",
        "GET",
        "/status",
        "Short form: what became of the command.",
        {200: shapes.ShortAnswer},
        query=("task_id",),
    ),
    Operation(
        "check_health", "GET", "/healthz", "Say that the process lives.", {200: shapes.HealthAnswer}
    ),
    Operation(
        "check_ready",
        "GET",
        "/readyz",
        "Say whether jobs are accepted and fired on time.",
        {200: shapes.ReadyAnswer, 503: shapes.ReadyAnswer},
    ),
    Operation(
        "get_metrics",
        "GET",
        "/metrics",
        "What the server measures, in the text format of Prometheus.",
        {200: "text/plain"},
    ),
    Operation(
        "get_info",
        "GET",
        "/v1/info",
        "Versions and limits of this server.",
        {200: shapes.InfoAnswer},
    ),
    Operation("get_openapi", "GET", "/openapi.json", "This document.", {200: JSON_TYPE}),
    Operation("get_docs", "GET", "/docs", "This document as a page.", {200: "text/html"}),
    Operation("get_docs_file", "GET", "/docs/{file}", "A file of that page.", {200: "text/plain"}),
    Operation(
        "get_problem",
        "GET",
        "/problems/{code}",
        "Explain an error code.",
        {200: shapes.ProblemKindAnswer},
    ),
)
