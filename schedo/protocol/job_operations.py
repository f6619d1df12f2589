"""The operations of the HTTP API on jobs, one at a time or many at once."""

from __future__ import annotations

from schedo.protocol.batches import BatchResponse, BriefBatchResponse
from schedo.protocol.bulk import BulkPage, BulkRequest, BulkResponse, DryRunResponse
from schedo.protocol.history import HistoryResponse
from schedo.protocol.job_filters import JOB_FILTERS
from schedo.protocol.jobs import (
    AttemptPage,
    JobPage,
    JobPatch,
    JobRequest,
    JobResponse,
    OutputPage,
    RetryJobRequest,
)
from schedo.protocol.light_pages import LightPage
from schedo.protocol.operation import Operation
from schedo.protocol.schedules import EmptyRequest
from schedo.protocol.why import WhyResponse

_PAGE = ("limit", "cursor")

JOB_OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "create_job",
        "POST /v1/jobs",
        "Submit a job; the response arrives when the job is on disk.",
        {201: JobResponse, 200: JobResponse, 202: JobResponse, 207: BatchResponse},
        request=JobRequest,
        query=("wait",),
        takes_key=True,
    ),
    Operation(
        "create_jobs",
        "POST /v1/jobs:batch",
        "Submit up to 1,000 jobs in one commit; each has its own result, in order.",
        {200: (BatchResponse, BriefBatchResponse)},
        request=JobRequest,
        is_batch=True,
        takes_key=True,
    ),
    Operation(
        "list_jobs",
        "GET /v1/jobs",
        "List jobs, newest first, after a bounded search; large payloads and results are left out.",
        {200: (JobPage, LightPage(JobPage, JobResponse))},
        query=(*JOB_FILTERS, "order", "fields", *_PAGE),
    ),
    Operation("get_job", "GET /v1/jobs/{id}", "Read a job.", {200: JobResponse}),
    Operation(
        "update_job",
        "PATCH /v1/jobs/{id}",
        "Change when a waiting job runs, or its priority.",
        {200: JobResponse},
        request=JobPatch,
    ),
    Operation(
        "list_attempts",
        "GET /v1/jobs/{id}/attempts",
        "List the ended attempts that did not complete the job.",
        {200: AttemptPage},
    ),
    Operation(
        "get_history",
        "GET /v1/jobs/{id}/history",
        "Read what happened to the job and when: created, durable, due, started, ended.",
        {200: HistoryResponse},
    ),
    Operation(
        "get_output",
        "GET /v1/jobs/{id}/output",
        "Read the captured output; with stream= it is the bare text.",
        {200: OutputPage},
        query=("stream", "attempt"),
    ),
    Operation(
        "wait_for_job",
        "GET /v1/jobs/{id}/wait",
        "Wait for the end of a job: 200, or 202 if the time is up first.",
        {200: JobResponse, 202: JobResponse},
        query=("timeout",),
        may_wait=True,
    ),
    Operation(
        "explain_job",
        "GET /v1/jobs/{id}/why",
        "Explain why the job waits: all checks, and what each worker says.",
        {200: WhyResponse},
    ),
    Operation(
        "cancel_job",
        "POST /v1/jobs/{id}:cancel",
        "Cancel a waiting job, or ask a running one to stop.",
        {200: JobResponse},
        request=EmptyRequest,
    ),
    Operation(
        "retry_job",
        "POST /v1/jobs/{id}:retry",
        "Queue a failed, cancelled or expired job again, now or at an instant.",
        {200: JobResponse},
        request=RetryJobRequest,
    ),
    Operation(
        "run_job",
        "POST /v1/jobs/{id}:run",
        "Queue a scheduled or retrying job now.",
        {200: JobResponse},
        request=EmptyRequest,
    ),
    Operation(
        "delete_job",
        "DELETE /v1/jobs/{id}",
        "Delete an ended job with its attempts and its output.",
        {204: ""},
    ),
    Operation(
        "create_operation",
        "POST /v1/operations",
        "Cancel, retry, run or delete all jobs that match, in the background; or count them.",
        {201: BulkResponse, 200: DryRunResponse},
        request=BulkRequest,
        may_wait=True,
    ),
    Operation(
        "list_operations",
        "GET /v1/operations",
        "List the operations that run and the latest ones that have ended, newest first.",
        {200: BulkPage},
    ),
    Operation(
        "get_operation",
        "GET /v1/operations/{id}",
        "Read an operation: how many jobs it has found and changed.",
        {200: BulkResponse},
    ),
    Operation(
        "cancel_operation",
        "POST /v1/operations/{id}:cancel",
        "Stop an operation; the jobs that it has changed stay changed.",
        {200: BulkResponse},
        request=EmptyRequest,
    ),
    Operation(
        "undo_operation",
        "POST /v1/operations/{id}:undo",
        "Put back the jobs that an operation has changed and to which nothing has happened since.",
        {201: BulkResponse},
        request=EmptyRequest,
    ),
)
