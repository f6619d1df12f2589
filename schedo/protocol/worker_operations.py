"""The operations about workers, invocations and reservations."""

from __future__ import annotations

from schedo.protocol import schemas, worker_shapes
from schedo.protocol.invocations import CommitRequest, InvokeRequest, ReserveRequest
from schedo.protocol.operation import AnswerKind, Operation
from schedo.protocol.schedules import EmptyRequest
from schedo.protocol.work import WorkAnswer, WorkRequest

_JOB_OR_JOBS = (schemas.JobAnswer, worker_shapes.JobsAnswer)
_PLACED: dict[int, AnswerKind] = {200: _JOB_OR_JOBS, 201: _JOB_OR_JOBS, 202: _JOB_OR_JOBS}

WORKER_OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "work",
        "POST",
        "/v1/work",
        "The worker protocol: report results, send heartbeats and poll for leases.",
        {200: WorkAnswer},
        request=WorkRequest,
        is_large=True,
        may_wait=True,
    ),
    Operation(
        "list_workers",
        "GET",
        "/v1/workers",
        "List workers: their state, slots, labels, resources and health.",
        {200: worker_shapes.WorkerPage},
    ),
    Operation(
        "get_worker",
        "GET",
        "/v1/workers/{name}",
        "Read a worker.",
        {200: worker_shapes.WorkerAnswer},
    ),
    Operation(
        "cordon_worker",
        "POST",
        "/v1/workers/{name}:cordon",
        "Give the worker no new work; its attempts go on.",
        {200: worker_shapes.WorkerAnswer},
        request=EmptyRequest,
    ),
    Operation(
        "uncordon_worker",
        "POST",
        "/v1/workers/{name}:uncordon",
        "Give the worker new work again.",
        {200: worker_shapes.WorkerAnswer},
        request=EmptyRequest,
    ),
    Operation(
        "drain_worker",
        "POST",
        "/v1/workers/{name}:drain",
        "Tell the worker to finish its attempts and leave.",
        {200: worker_shapes.WorkerAnswer},
        request=EmptyRequest,
    ),
    Operation(
        "invoke",
        "POST",
        "/v1/invoke",
        "Run a job on a worker right now, or fail at once if no worker accepts it.",
        _PLACED,
        request=InvokeRequest,
        may_wait=True,
    ),
    Operation(
        "reserve",
        "POST",
        "/v1/reservations",
        "Reserve slots for a short time: all of them or none.",
        {201: worker_shapes.ReservationAnswer},
        request=ReserveRequest,
    ),
    Operation(
        "commit_reservation",
        "POST",
        "/v1/reservations/{id}:commit",
        "Run jobs on the reserved slots.",
        _PLACED,
        request=CommitRequest,
        takes_nonce=True,
        may_wait=True,
    ),
    Operation(
        "release_reservation",
        "POST",
        "/v1/reservations/{id}:release",
        "Release the reserved slots.",
        {204: ""},
        request=EmptyRequest,
        takes_nonce=True,
    ),
    Operation(
        "get_progress",
        "GET",
        "/v1/jobs/{id}/progress",
        "Read the progress of a running attempt.",
        {200: worker_shapes.ProgressPage},
    ),
)
