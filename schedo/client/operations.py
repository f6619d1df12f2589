"""The calls of the HTTP API as Operations, which both clients share.

A submit carries an Idempotency-Key, so that sending it twice makes one job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypedDict

from schedo.client.errors import NotSchedo, build_error, parse_problem
from schedo.client.messages import HttpResponse, Operation, Record
from schedo.client.metrics import Scrape, parse_metrics
from schedo.client.options import Duration, Instant, render_options, render_value
from schedo.client.rest import (
    JSON,
    Page,
    check_fields,
    encode,
    encode_batches,
    get,
    items_with,
    list_with,
    page_with,
    post,
    quote_part,
    read_nothing,
    read_record,
    record_with,
    render_query,
    submit_headers,
)
from schedo.errors import SchedoError

PAGE_JOBS = 100
# The longest wait of one request for the end of a job. Proxies allow an idle request more time.
POLL_S = 20.0
BACKUP_S = 3_600.0  # the server answers when the copy is complete
INVOKE_WAIT_S = 30.0
NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})
_JOB_FAILED = frozenset({502})
_MINIMAL = {"Prefer": "return=minimal"}
_SQLITE = "application/vnd.sqlite3"
_read_job = record_with("id", "state")
_read_jobs = items_with("id", "state")
_read_batch = items_with()
_read_named = record_with("name")
_read_pauses = record_with("pauses")


class JobFilters(TypedDict, total=False):
    """The filter of a list of jobs.

    state: one, or several with commas. q: a text in the task, payload, error or a tag. payload:
    values by their paths, as in {"order.id": 9781}. late_over: it started later than this. order:
    "newest" or "oldest" first.
    """

    state: str | None
    queue: str | None
    task: str | None
    schedule: str | None
    tag: str | None
    unique_key: str | None
    created_after: Instant | None
    created_before: Instant | None
    ended_after: Instant | None
    ended_before: Instant | None
    error: str | None
    worker: str | None
    q: str | None
    payload: Mapping[str, str | float | bool | None] | None
    late_over: Duration | None
    order: str | None


def render_job(task: str, payload: object, options: Mapping[str, Any]) -> Record:
    """Return the request for one job."""
    return {"task": task, "payload": payload, **render_options(options)}


def render_request(job: Mapping[str, Any]) -> Record:
    """Return the request for one job of a batch; if it has no task, the server refuses it alone."""
    payload = job.get("payload")
    request = render_options(job if payload is None else {**job, "payload": None})
    request["payload"] = payload
    return request


def _pauses(response: HttpResponse) -> list[Record]:
    pauses: list[Record] = _read_pauses(response)["pauses"]
    return pauses


def _job(job_id: str) -> str:
    return f"/v1/jobs/{quote_part(job_id)}"


def _queue(name: str) -> str:
    return f"/v1/queues/{quote_part(name)}"


def _worker(name: str) -> str:
    return f"/v1/workers/{quote_part(name)}"


# Jobs.


def submit(request: Record, idempotency_key: str | None = None) -> Operation[Record]:
    """Submit one job."""
    headers = submit_headers(idempotency_key)
    return Operation("POST", "/v1/jobs", _read_job, encode(request), headers, is_repeatable=True)


def submit_many(
    requests: Sequence[Record], idempotency_key: str | None = None
) -> list[Operation[list[Record | SchedoError]]]:
    """Submit many jobs: up to a thousand and 8 MiB in one operation, with results in their order.

    Each record has the id, the state, the task and the queue of a job, which takes the server and
    the client half the time of whole records.
    """
    return [
        Operation(
            *("POST", "/v1/jobs:batch", _batch, body),
            submit_headers(idempotency_key and f"{idempotency_key}/{start}") | _MINIMAL,
            is_repeatable=True,
        )
        for start, body in encode_batches(requests)
    ]


def _batch(response: HttpResponse) -> list[Record | SchedoError]:
    items = _read_batch(response)
    if not all(isinstance(item.get("problem") or item.get("job"), dict) for item in items):
        raise NotSchedo.because("its answer has neither jobs nor problems")
    return [
        build_error({"status": item.get("status"), **item["problem"]})
        if item.get("problem")
        else item["job"]
        for item in items
    ]


def broadcast(
    request: Record, idempotency_key: str | None = None
) -> Operation[list[Record | SchedoError]]:
    """Submit one job for each connected worker that may run the task."""
    body = encode({**request, "broadcast": True})
    headers = submit_headers(idempotency_key)
    return Operation("POST", "/v1/jobs", _batch, body, headers, is_repeatable=True)


def get_job(job_id: str) -> Operation[Record]:
    """Return the current record of the job."""
    return get(_job(job_id), _read_job)


def list_jobs(
    filters: Mapping[str, Any], limit: int = PAGE_JOBS, cursor: str | None = None
) -> Operation[Page]:
    """Return one page of jobs, newest first; it can be short, because a search is bounded."""
    wanted = {**filters, **_payload_parameters(filters.get("payload")), "payload": None}
    return get(
        f"/v1/jobs{render_query({**wanted, 'limit': limit, 'cursor': cursor})}",
        page_with("id", "state"),
    )


def _payload_parameters(values: Mapping[str, Any] | None) -> dict[str, str]:
    return {
        f"payload.{path}": value if isinstance(value, str) else encode(value).decode()
        for path, value in (values or {}).items()
    }


def wait_job(
    job_id: str, timeout_s: float | None, clock: Callable[[], float]
) -> Iterator[Operation[Record]]:
    """Wait for the end of a job in requests of limited length; the caller ends at a final state."""
    end = None if timeout_s is None else clock() + timeout_s
    while True:
        left = POLL_S if end is None else end - clock()
        held = max(0.0, min(left, POLL_S))
        # Rounded up to a microsecond; a float like 1e-07 would not be a duration on the wire.
        yield get(f"{_job(job_id)}/wait{render_query({'timeout': f'{held:.6f}'})}", _read_job, held)
        if end is not None and clock() >= end:
            return


def why_job(job_id: str) -> Operation[Record]:
    """Return the reason why the job waits."""
    return get(f"{_job(job_id)}/why", record_with("why"))


def get_history(job_id: str) -> Operation[Record]:
    """Return what happened to the job and when."""
    return get(f"{_job(job_id)}/history", list_with("at"))


def list_attempts(job_id: str) -> Operation[list[Record]]:
    """Return the attempts that did not complete the job."""
    return get(f"{_job(job_id)}/attempts", items_with("attempt"))


def list_progress(job_id: str) -> Operation[list[Record]]:
    """Return the latest progress reports of the running attempt, oldest first."""
    return get(f"{_job(job_id)}/progress", items_with("at", "attempt"))


def list_outputs(job_id: str) -> Operation[list[Record]]:
    """Return every captured stream as text."""
    return get(f"{_job(job_id)}/output", items_with("attempt", "stream"))


def cancel_job(job_id: str) -> Operation[Record]:
    """Cancel a waiting job, or request a running one to stop."""
    return post(f"{_job(job_id)}:cancel", None, _read_job, is_repeatable=True)


def retry_job(job_id: str) -> Operation[Record]:
    """Run a failed, cancelled or expired job again."""
    return post(f"{_job(job_id)}:retry", None, _read_job)


def run_job_now(job_id: str) -> Operation[Record]:
    """Make a waiting job due now."""
    return post(f"{_job(job_id)}:run", None, _read_job)


def delete_job(job_id: str) -> Operation[Record]:
    """Delete an ended job with its output. It is not repeatable: a second request gets a 404."""

    def read(response: HttpResponse) -> Record:
        read_nothing(response)
        return {"id": job_id, "state": "deleted"}

    return Operation("DELETE", _job(job_id), read)


def reschedule_job(job_id: str, changes: Mapping[str, Any]) -> Operation[Record]:
    """Change a waiting job's run_at or delay, or its priority."""
    body = encode(render_options(changes))
    return Operation("PATCH", _job(job_id), _read_job, body, JSON)


# Right now.


def invoke(request: Record, wait_s: float) -> Operation[list[Record]]:
    """Run jobs on workers right now; the response comes at their end, or after the wait."""
    body = encode({**request, "wait": wait_s})
    return Operation(
        *("POST", "/v1/invoke", _placed, body, JSON), held_s=wait_s, handled_statuses=_JOB_FAILED
    )


def dry_run(request: Record) -> Operation[Record]:
    """Return whether the jobs would start now, and what each worker says."""
    body = encode({**request, "dry_run": True})
    read = record_with("would_start")
    return Operation("POST", "/v1/invoke", read, body, JSON, is_repeatable=True)


def reserve(options: Mapping[str, Any]) -> Operation[Record]:
    """Reserve slots; return {"id", "nonce", "workers", "expires_at"}."""
    return post("/v1/reservations", options, record_with("id", "nonce"))


def commit_reservation(slots: Record, request: Record, wait_s: float) -> Operation[list[Record]]:
    """Run jobs on the reserved slots, and wait as `invoke` does."""
    target = f"/v1/reservations/{quote_part(slots['id'])}:commit"
    body = encode({**request, "wait": wait_s})
    return Operation(
        *("POST", target, _placed, body, _nonce(slots)),
        held_s=wait_s,
        handled_statuses=_JOB_FAILED,
    )


def release_reservation(slots: Record) -> Operation[None]:
    """Release the reserved slots."""
    target = f"/v1/reservations/{quote_part(slots['id'])}:release"
    return Operation("POST", target, read_nothing, encode({}), _nonce(slots))


def _nonce(slots: Record) -> dict[str, str]:
    return {**JSON, "Schedo-Lease-Nonce": slots["nonce"]}


def _placed(response: HttpResponse) -> list[Record]:
    """Return the jobs, also those of a problem document that says that a job has failed."""
    if response.status not in _JOB_FAILED:
        if "items" in (record := read_record(response)):  # of a gang
            return _read_jobs(response)
        check_fields(record, ("id", "state"))
        return [record]
    try:
        problem = read_record(response)
    except SchedoError:  # the 502 is that of a proxy
        problem = {}
    jobs: list[Record] = problem.get("jobs", [problem["job"]] if "job" in problem else [])
    if not jobs:
        raise parse_problem(response.status, response.headers, response.body)
    return jobs


# The server.


def get_readiness() -> Operation[Record]:
    """Return whether the server is ready, and the reasons if not."""
    read, handled = record_with("ready"), frozenset({503})
    return Operation("GET", "/readyz", read, is_repeatable=True, handled_statuses=handled)


def pause_server(options: Mapping[str, Any]) -> Operation[list[Record]]:
    """Pause the server; return all its pauses."""
    body = encode(render_options(options))
    return Operation("POST", "/v1/server:pause", _pauses, body, JSON, is_repeatable=True)


def advance_clock(options: Mapping[str, Any]) -> Operation[Record]:
    """Move the clock of a test server; return its time and how many jobs still run."""
    body = encode(render_options(options))
    return Operation("POST", "/v1/clock:advance", record_with("now"), body, JSON)


def resume_server(scopes: Sequence[str]) -> Operation[list[Record]]:
    """Resume the server; return the pauses that are left."""
    body = encode({"scopes": [*scopes]})
    return Operation("POST", "/v1/server:resume", _pauses, body, JSON, is_repeatable=True)


def create_backup() -> Operation[str]:
    """Copy the store: the body is the file, the result the instant that it shows."""
    return Operation(
        *("POST", "/v1/backup", lambda response: response.headers.get("schedo-instant", "")),
        held_s=BACKUP_S,
        content_type=_SQLITE,
    )


def get_metrics() -> Operation[Scrape]:
    """Return the metrics of the server."""
    return get("/metrics", lambda response: parse_metrics(response.body))


# Queues.


def list_queues() -> Operation[list[Record]]:
    """Return the queues with their limits and counts of waiting jobs."""
    return get("/v1/queues", items_with("name"))


def set_queue(name: str, changes: Mapping[str, Any]) -> Operation[Record]:
    """Change limits of a queue; None is sent, because it lifts the limit."""
    plain = {key: render_value(value) for key, value in changes.items()}
    return Operation("PATCH", _queue(name), _read_named, encode(plain), JSON, is_repeatable=True)


def pause_queue(name: str, options: Mapping[str, Any] = NO_OPTIONS) -> Operation[Record]:
    """Pause the queue, with a note and an end if they are given: it starts no new jobs."""
    return post(f"{_queue(name)}:pause", options, _read_named, is_repeatable=True)


def resume_queue(name: str) -> Operation[Record]:
    """Resume a paused queue."""
    return post(f"{_queue(name)}:resume", None, _read_named, is_repeatable=True)


# Workers.


def list_workers() -> Operation[list[Record]]:
    """Return the workers with their specs and load."""
    return get("/v1/workers", items_with("name"))


def get_worker(name: str) -> Operation[Record]:
    """Return the status of the worker."""
    return get(_worker(name), _read_named)


def cordon_worker(name: str) -> Operation[Record]:
    """Give the worker no new jobs; its running attempts continue."""
    return post(f"{_worker(name)}:cordon", None, _read_named, is_repeatable=True)


def uncordon_worker(name: str) -> Operation[Record]:
    """Give a cordoned worker new jobs again."""
    return post(f"{_worker(name)}:uncordon", None, _read_named, is_repeatable=True)


def drain_worker(name: str) -> Operation[Record]:
    """Request the worker to finish its attempts and to stop."""
    return post(f"{_worker(name)}:drain", None, _read_named, is_repeatable=True)
