"""All calls of the HTTP API as Operations, which both clients share.

A submit carries an Idempotency-Key, so that sending it twice makes one job.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypedDict
from urllib.parse import quote, urlencode

from schedo.client.errors import build_error
from schedo.client.messages import HttpResponse, Operation, Record
from schedo.client.metrics import Scrape, parse_metrics
from schedo.client.options import Instant, render_options, render_value
from schedo.core import limits
from schedo.errors import Invalid, SchedoError

PAGE_JOBS = 100
# The longest wait of one request for the end of a job. Proxies allow an idle request more time.
POLL_S = 20.0
BACKUP_S = 3_600.0  # the server answers when the copy is complete
_JSON = {"Content-Type": "application/json"}


class JobFilters(TypedDict, total=False):
    """The filter of a list of jobs."""

    state: str | None
    queue: str | None
    task: str | None
    schedule: str | None
    tag: str | None
    unique_key: str | None
    created_after: Instant | None
    created_before: Instant | None


class Page(TypedDict):
    """Some records, and the cursor of the next page if there is one."""

    items: list[Record]
    next_cursor: str | None


def render_job(task: str, payload: object, options: Mapping[str, Any]) -> Record:
    """Return the request for one job."""
    return {"task": task, "payload": payload, **render_options(options)}


def render_request(job: Mapping[str, Any]) -> Record:
    """Return the request for one job of a batch; if it has no task, the server refuses it alone."""
    options = {key: value for key, value in job.items() if key != "payload"}
    return {**render_options(options), "payload": job.get("payload")}


def _body(value: object) -> bytes:
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        return text.encode()
    except UnicodeEncodeError:
        raise Invalid("the request holds text that is not UTF-8") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise Invalid(f"the request cannot be written as JSON: {error}") from error


def _record(response: HttpResponse) -> Record:
    value = response.json()
    if not isinstance(value, dict):
        raise SchedoError("this is not a schedo server: it did not answer with a JSON object")
    return value


def _page(response: HttpResponse) -> Page:
    record = _record(response)
    return {"items": record.get("items", []), "next_cursor": record.get("next_cursor")}


def _items(response: HttpResponse) -> list[Record]:
    return _page(response)["items"]


def _pauses(response: HttpResponse) -> list[Record]:
    pauses: list[Record] = _record(response).get("pauses", [])
    return pauses


def _nothing(response: HttpResponse) -> None:
    return None


def _query(values: Mapping[str, object]) -> str:
    plain = render_options(values)
    try:
        return f"?{urlencode(plain)}" if plain else ""
    except UnicodeEncodeError:
        raise Invalid("the request holds text that is not UTF-8") from None


def _part(name: str) -> str:
    """Return a name as a part of a path."""
    try:
        return quote(name, safe="")
    except UnicodeEncodeError:
        raise Invalid(f"{name!a} is not UTF-8 text") from None


def _get(target: str, parse: Callable[[HttpResponse], Any], held_s: float = 0.0) -> Operation[Any]:
    return Operation("GET", target, parse, is_repeatable=True, held_s=held_s)


def _act(
    target: str, options: Mapping[str, object] | None = None, *, is_repeatable: bool = False
) -> Operation[Record]:
    body = _body(render_options(options or {}))
    return Operation("POST", target, _record, body, _JSON, is_repeatable)


def _key_header(key: str | None) -> dict[str, str]:
    key = uuid.uuid4().hex if key is None else key
    if not key or not all(" " <= character <= "~" for character in key):
        raise Invalid("an idempotency key is visible ASCII")
    quoted = key.replace("\\", "\\\\").replace('"', '\\"')
    return {**_JSON, "Idempotency-Key": f'"{quoted}"'}


def _job(job_id: str) -> str:
    return f"/v1/jobs/{_part(job_id)}"


def _schedule(name: str) -> str:
    return f"/v1/schedules/{_part(name)}"


def _queue(name: str) -> str:
    return f"/v1/queues/{_part(name)}"


def _worker(name: str) -> str:
    return f"/v1/workers/{_part(name)}"


# Jobs.


def submit(request: Record, idempotency_key: str | None = None) -> Operation[Record]:
    """Submit one job."""
    headers = _key_header(idempotency_key)
    return Operation("POST", "/v1/jobs", _record, _body(request), headers, is_repeatable=True)


def submit_many(
    requests: Sequence[Record], idempotency_key: str | None = None
) -> Iterator[Operation[list[Record | SchedoError]]]:
    """Submit many jobs: one operation per thousand, with results in the order of the requests."""
    for start in range(0, len(requests), limits.BATCH_JOBS_MAX):
        part = list(requests[start : start + limits.BATCH_JOBS_MAX])
        headers = _key_header(idempotency_key and f"{idempotency_key}/{start}")
        yield Operation("POST", "/v1/jobs:batch", _batch, _body(part), headers, is_repeatable=True)


def _batch(response: HttpResponse) -> list[Record | SchedoError]:
    return [
        build_error({"status": item.get("status"), **item["problem"]})
        if item.get("problem")
        else item["job"]
        for item in _items(response)
    ]


def broadcast(
    request: Record, idempotency_key: str | None = None
) -> Operation[list[Record | SchedoError]]:
    """Submit one job for each connected worker that may run the task."""
    body = _body({**request, "broadcast": True})
    headers = _key_header(idempotency_key)
    return Operation("POST", "/v1/jobs", _batch, body, headers, is_repeatable=True)


def get_job(job_id: str) -> Operation[Record]:
    """Return the current record of the job."""
    return _get(_job(job_id), _record)


def list_jobs(
    filters: Mapping[str, Any], limit: int = PAGE_JOBS, cursor: str | None = None
) -> Operation[Page]:
    """Return one page of jobs, newest first."""
    return _get(f"/v1/jobs{_query({**filters, 'limit': limit, 'cursor': cursor})}", _page)


def wait_job(
    job_id: str, timeout_s: float | None, clock: Callable[[], float]
) -> Iterator[Operation[Record]]:
    """Wait for the end of a job in requests of limited length; the caller ends at a final state."""
    end = None if timeout_s is None else clock() + timeout_s
    while True:
        left = POLL_S if end is None else end - clock()
        held = max(0.0, min(left, POLL_S))
        # Rounded up to a microsecond; a float like 1e-07 would not be a duration on the wire.
        yield _get(f"{_job(job_id)}/wait{_query({'timeout': f'{held:.6f}'})}", _record, held)
        if end is not None and clock() >= end:
            return


def why_job(job_id: str) -> Operation[Record]:
    """Return the reason why the job waits."""
    return _get(f"{_job(job_id)}/why", _record)


def list_attempts(job_id: str) -> Operation[list[Record]]:
    """Return the attempts that did not complete the job."""
    return _get(f"{_job(job_id)}/attempts", _items)


def list_progress(job_id: str) -> Operation[list[Record]]:
    """Return the latest progress reports of the running attempt, oldest first."""
    return _get(f"{_job(job_id)}/progress", _items)


def list_outputs(job_id: str) -> Operation[list[Record]]:
    """Return every captured stream as text."""
    return _get(f"{_job(job_id)}/output", _items)


def cancel_job(job_id: str) -> Operation[Record]:
    """Cancel a waiting job, or request a running one to stop."""
    return _act(f"{_job(job_id)}:cancel", is_repeatable=True)


def retry_job(job_id: str) -> Operation[Record]:
    """Run a failed, cancelled or expired job again."""
    return _act(f"{_job(job_id)}:retry")


def run_job_now(job_id: str) -> Operation[Record]:
    """Make a waiting job due now."""
    return _act(f"{_job(job_id)}:run")


def reschedule_job(job_id: str, changes: Mapping[str, Any]) -> Operation[Record]:
    """Change a waiting job's run_at or delay, or its priority."""
    body = _body(render_options(changes))
    return Operation("PATCH", _job(job_id), _record, body, _JSON)


# Schedules.


def put_schedule(name: str, spec: Mapping[str, Any]) -> Operation[tuple[Record, bool]]:
    """Create or replace a schedule; return it, and whether it is new. `payload` stays unchanged."""
    payload = {"payload": spec["payload"]} if "payload" in spec else {}
    body = _body({**render_options(spec), **payload})
    return Operation(
        "PUT",
        _schedule(name),
        lambda response: (_record(response), response.status == 201),
        body,
        _JSON,
        is_repeatable=True,
    )


def get_schedule(name: str) -> Operation[Record]:
    """Return the schedule with its next fires and counters."""
    return _get(_schedule(name), _record)


def list_schedules(limit: int = PAGE_JOBS, cursor: str | None = None) -> Operation[Page]:
    """Return one page of schedules by name."""
    return _get(f"/v1/schedules{_query({'limit': limit, 'cursor': cursor})}", _page)


def list_decisions(name: str) -> Operation[list[Record]]:
    """Return the decisions on the latest due instants."""
    return _get(f"{_schedule(name)}/decisions", _items)


def delete_schedule(name: str) -> Operation[None]:
    """Delete the schedule; its jobs stay. It is not repeatable: a second request gets a 404."""
    return Operation("DELETE", _schedule(name), _nothing)


def pause_schedule(name: str, note: str | None = None) -> Operation[Record]:
    """Pause the schedule: it does not fire until it is resumed."""
    return _act(f"{_schedule(name)}:pause", {"note": note}, is_repeatable=True)


def resume_schedule(name: str, resume_from: Instant | None = None) -> Operation[Record]:
    """Resume a paused schedule; instants since `resume_from` count as missed runs."""
    return _act(f"{_schedule(name)}:resume", {"resume_from": resume_from}, is_repeatable=True)


def trigger_schedule(name: str, overlap: str | None = None) -> Operation[Record]:
    """Fire once now; return {"job"} or {"skipped_overlap", "blocking_job"}."""
    return _act(f"{_schedule(name)}:trigger", {"overlap": overlap})


# The server.


def get_readiness() -> Operation[Record]:
    """Return whether the server is ready, and the reasons if not."""
    handled_statuses = frozenset({503})
    return Operation(
        "GET", "/readyz", _record, is_repeatable=True, handled_statuses=handled_statuses
    )


def pause_server(options: Mapping[str, Any]) -> Operation[list[Record]]:
    """Pause the server; return all its pauses."""
    body = _body(render_options(options))
    return Operation("POST", "/v1/server:pause", _pauses, body, _JSON, is_repeatable=True)


def resume_server(scopes: Sequence[str]) -> Operation[list[Record]]:
    """Resume the server; return the pauses that are left."""
    body = _body({"scopes": [*scopes]})
    return Operation("POST", "/v1/server:resume", _pauses, body, _JSON, is_repeatable=True)


def create_backup() -> Operation[str]:
    """Copy the store: the body is the file, the result the instant that it shows."""
    return Operation(
        *("POST", "/v1/backup", lambda response: response.headers.get("schedo-instant", "")),
        held_s=BACKUP_S,
    )


def get_metrics() -> Operation[Scrape]:
    """Return the metrics of the server."""
    return _get("/metrics", lambda response: parse_metrics(response.body))


# Queues.


def list_queues() -> Operation[list[Record]]:
    """Return the queues with their limits and counts of waiting jobs."""
    return _get("/v1/queues", _items)


def set_queue(name: str, changes: Mapping[str, Any]) -> Operation[Record]:
    """Change limits of a queue; None is sent, because it lifts the limit."""
    plain = {key: render_value(value) for key, value in changes.items()}
    return Operation("PATCH", _queue(name), _record, _body(plain), _JSON, is_repeatable=True)


def pause_queue(name: str) -> Operation[Record]:
    """Pause the queue: it starts no new jobs."""
    return _act(f"{_queue(name)}:pause", is_repeatable=True)


def resume_queue(name: str) -> Operation[Record]:
    """Resume a paused queue."""
    return _act(f"{_queue(name)}:resume", is_repeatable=True)


# Workers.


def list_workers() -> Operation[list[Record]]:
    """Return the workers with their specs and load."""
    return _get("/v1/workers", _items)


def get_worker(name: str) -> Operation[Record]:
    """Return the status of the worker."""
    return _get(_worker(name), _record)


def cordon_worker(name: str) -> Operation[Record]:
    """Give the worker no new jobs; its running attempts continue."""
    return _act(f"{_worker(name)}:cordon", is_repeatable=True)


def uncordon_worker(name: str) -> Operation[Record]:
    """Give a cordoned worker new jobs again."""
    return _act(f"{_worker(name)}:uncordon", is_repeatable=True)


def drain_worker(name: str) -> Operation[Record]:
    """Request the worker to finish its attempts and to stop."""
    return _act(f"{_worker(name)}:drain", is_repeatable=True)
