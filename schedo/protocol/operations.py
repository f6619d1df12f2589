"""The table of all operations of the HTTP API, the source of the routes and of openapi.json."""

from __future__ import annotations

from schedo.protocol import (
    action_log,
    cluster,
    database,
    events,
    expectations,
    failures,
    fires,
    names,
    sessions,
    stats,
    summary,
    timeseries,
)
from schedo.protocol.cron import CronRequest, CronResponse
from schedo.protocol.declarations import DeclarationRequest, DeclarationResponse
from schedo.protocol.invocations import (
    CommitRequest,
    InvokeDryRunResponse,
    InvokeRequest,
    JobsResponse,
    ReservationResponse,
    ReserveRequest,
    ShortRequest,
    ShortResponse,
)
from schedo.protocol.job_operations import JOB_OPERATIONS
from schedo.protocol.jobs import (
    JobResponse,
)
from schedo.protocol.light_pages import LightPage
from schedo.protocol.operation import JSON_TYPE, SQLITE_TYPE, Operation, ResponseKind
from schedo.protocol.problems import ProblemKind
from schedo.protocol.queues import PauseQueueRequest, QueuePage, QueuePatch, QueueResponse
from schedo.protocol.schedule_filters import SCHEDULE_FILTERS
from schedo.protocol.schedules import (
    DecisionPage,
    EmptyRequest,
    PauseRequest,
    ResumeRequest,
    SchedulePage,
    ScheduleRequest,
    ScheduleResponse,
    TriggerRequest,
    TriggerResponse,
)
from schedo.protocol.system import (
    AdvanceRequest,
    ClockResponse,
    HealthResponse,
    InfoResponse,
    PauseServerRequest,
    PausesResponse,
    ReadyResponse,
    ResumeServerRequest,
)
from schedo.protocol.work import WorkRequest, WorkResponse
from schedo.protocol.workers import ProgressPage, WorkerPage, WorkerResponse

_PAGE = ("limit", "cursor")
_JOB_OR_JOBS = (JobResponse, JobsResponse)
_PLACED: dict[int, ResponseKind] = {200: _JOB_OR_JOBS, 201: _JOB_OR_JOBS, 202: _JOB_OR_JOBS}

OPERATIONS: tuple[Operation, ...] = (
    *JOB_OPERATIONS,
    Operation(
        "work",
        "POST /v1/work",
        "The worker protocol: report results, send heartbeats and poll for leases.",
        {200: WorkResponse},
        request=WorkRequest,
        is_large=True,
        may_wait=True,
    ),
    Operation(
        "list_workers",
        "GET /v1/workers",
        "List workers: their state, slots, labels, resources and health.",
        {200: WorkerPage},
    ),
    Operation("get_worker", "GET /v1/workers/{name}", "Read a worker.", {200: WorkerResponse}),
    Operation(
        "cordon_worker",
        "POST /v1/workers/{name}:cordon",
        "Give the worker no new work; its attempts go on.",
        {200: WorkerResponse},
        request=EmptyRequest,
    ),
    Operation(
        "uncordon_worker",
        "POST /v1/workers/{name}:uncordon",
        "Give the worker new work again.",
        {200: WorkerResponse},
        request=EmptyRequest,
    ),
    Operation(
        "drain_worker",
        "POST /v1/workers/{name}:drain",
        "Tell the worker to finish its attempts and leave.",
        {200: WorkerResponse},
        request=EmptyRequest,
    ),
    Operation(
        "invoke",
        "POST /v1/invoke",
        "Run a job on a worker right now, or fail at once if no worker accepts it.",
        {**_PLACED, 200: (*_JOB_OR_JOBS, InvokeDryRunResponse)},
        request=InvokeRequest,
        may_wait=True,
    ),
    Operation(
        "reserve",
        "POST /v1/reservations",
        "Reserve slots for a short time: all of them or none.",
        {201: ReservationResponse},
        request=ReserveRequest,
    ),
    Operation(
        "commit_reservation",
        "POST /v1/reservations/{id}:commit",
        "Run jobs on the reserved slots.",
        _PLACED,
        request=CommitRequest,
        takes_nonce=True,
        may_wait=True,
    ),
    Operation(
        "release_reservation",
        "POST /v1/reservations/{id}:release",
        "Release the reserved slots.",
        {204: ""},
        request=EmptyRequest,
        takes_nonce=True,
    ),
    Operation(
        "get_progress",
        "GET /v1/jobs/{id}/progress",
        "Read the progress of a running attempt.",
        {200: ProgressPage},
    ),
    Operation(
        "list_schedules",
        "GET /v1/schedules",
        "List schedules by name, all or those that match.",
        {200: (SchedulePage, LightPage(SchedulePage, ScheduleResponse))},
        query=(*SCHEDULE_FILTERS, "fields", *_PAGE),
    ),
    Operation(
        "put_schedule",
        "PUT /v1/schedules/{name}",
        "Create or replace a schedule; the same again changes nothing.",
        {201: ScheduleResponse, 200: ScheduleResponse},
        request=ScheduleRequest,
        query=("owner",),
    ),
    Operation(
        "get_schedule",
        "GET /v1/schedules/{name}",
        "Read a schedule with its next fires, its counters and how its runs ended.",
        {200: ScheduleResponse},
    ),
    Operation(
        "delete_schedule",
        "DELETE /v1/schedules/{name}",
        "Delete a schedule; the jobs it has made stay.",
        {204: ""},
    ),
    Operation(
        "list_decisions",
        "GET /v1/schedules/{name}/decisions",
        "List the decisions on the latest instants, newest first.",
        {200: DecisionPage},
        query=_PAGE,
    ),
    Operation(
        "declare",
        "POST /v1/declarations",
        "Put all schedules of an owner in one commit, and set queues; with dry_run, only compare.",
        {200: DeclarationResponse},
        request=DeclarationRequest,
        is_large=True,
    ),
    Operation(
        "reset_schedule",
        "POST /v1/schedules/{name}:reset",
        "Undo the changes by hand: put what its owner declared last.",
        {200: ScheduleResponse},
        request=EmptyRequest,
    ),
    Operation(
        "pause_schedule",
        "POST /v1/schedules/{name}:pause",
        "Stop firing, with a note that says why.",
        {200: ScheduleResponse},
        request=PauseRequest,
    ),
    Operation(
        "resume_schedule",
        "POST /v1/schedules/{name}:resume",
        "Fire again, from now or from the given instant.",
        {200: ScheduleResponse},
        request=ResumeRequest,
    ),
    Operation(
        "trigger_schedule",
        "POST /v1/schedules/{name}:trigger",
        "Run the schedule's job now; its overlap policy decides unless another is given.",
        {201: TriggerResponse, 200: TriggerResponse},
        request=TriggerRequest,
    ),
    Operation(
        "explain_cron",
        "POST /v1/cron:explain",
        "Explain a cron expression in words, with its next fires.",
        {200: CronResponse},
        request=CronRequest,
    ),
    Operation(
        "list_queues",
        "GET /v1/queues",
        "List queues with their counts of waiting jobs.",
        {200: QueuePage},
    ),
    Operation(
        "update_queue",
        "PATCH /v1/queues/{name}",
        "Set a queue's limits.",
        {200: QueueResponse},
        request=QueuePatch,
    ),
    Operation(
        "pause_queue",
        "POST /v1/queues/{name}:pause",
        "Start no new jobs of this queue until a resume or the given end; running ones go on.",
        {200: QueueResponse},
        request=PauseQueueRequest,
    ),
    Operation(
        "resume_queue",
        "POST /v1/queues/{name}:resume",
        "Start jobs of this queue again.",
        {200: QueueResponse},
        request=EmptyRequest,
    ),
    Operation(
        "short_schedule",
        "POST /schedule",
        "Short form: run a command after some seconds, or a Task right now.",
        {201: ShortResponse, 200: JSON_TYPE},
        request=ShortRequest,
        takes_key=True,
        needs_body=True,
        may_wait=True,
    ),
    Operation(
        "short_status",
        "GET /status",
        "Short form: the state of the command.",
        {200: ShortResponse},
        query=("task_id",),
    ),
    *expectations.OPERATIONS,
    *summary.OPERATIONS,
    *database.OPERATIONS,
    *events.OPERATIONS,
    *failures.OPERATIONS,
    *fires.OPERATIONS,
    *names.OPERATIONS,
    *timeseries.OPERATIONS,
    *stats.OPERATIONS,
    *sessions.OPERATIONS,
    *action_log.OPERATIONS,
    *cluster.OPERATIONS,
    Operation(
        "check_health", "GET /healthz", "Check that the process is alive.", {200: HealthResponse}
    ),
    Operation(
        "check_ready",
        "GET /readyz",
        "Check that the server accepts jobs and fires them on time.",
        {200: ReadyResponse, 503: ReadyResponse},
    ),
    Operation(
        "get_metrics",
        "GET /metrics",
        "The metrics of the server, in the text format of Prometheus.",
        {200: "text/plain"},
    ),
    Operation(
        "get_info", "GET /v1/info", "Versions and limits of this server.", {200: InfoResponse}
    ),
    Operation(
        "pause_server",
        "POST /v1/server:pause",
        "Start no more jobs, fire no schedules, or both, until a resume or the given end.",
        {200: PausesResponse},
        request=PauseServerRequest,
    ),
    Operation(
        "resume_server",
        "POST /v1/server:resume",
        "Start jobs and fire schedules again.",
        {200: PausesResponse},
        request=ResumeServerRequest,
    ),
    Operation(
        "advance_clock",
        "POST /v1/clock:advance",
        "Move the clock of a test server; the response comes when all that is due has happened.",
        {200: ClockResponse},
        request=AdvanceRequest,
        may_wait=True,
    ),
    Operation(
        "create_backup",
        "POST /v1/backup",
        "Copy the store as one file, with every job acknowledged before the request.",
        {200: SQLITE_TYPE},
        request=EmptyRequest,
        may_wait=True,
    ),
    Operation("get_openapi", "GET /openapi.json", "This document.", {200: JSON_TYPE}),
    Operation("get_problem", "GET /problems/{code}", "Explain an error code.", {200: ProblemKind}),
)
