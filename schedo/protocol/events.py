"""The events of GET /v1/events: server-sent events whose data is JSON."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from schedo.core.ids import parse_id, render_id
from schedo.core.model import Job, Queue, Schedule
from schedo.core.worker_messages import ProgressLine, WorkerStatus
from schedo.errors import SchedoError
from schedo.protocol.operation import Operation
from schedo.protocol.query import Values, bad_parameter, read_name
from schedo.protocol.times import render_instant

EVENTS_TYPE = "text/event-stream"
TOPICS = ("tick", "jobs", "schedules", "queues", "workers")
JOBS_MAX = 16  # that one stream follows
RECORDS_MAX = 200  # of one event; of more there are only counts
RETRY = b"retry: 2000\n\n"
COMMENT = b":\n\n"
Data = dict[str, Any]


class EventsRequest(NamedTuple):
    """What the parameters ask for: topics, or some jobs, or a schedule."""

    topics: Collection[str]
    job_ids: Sequence[int]
    schedule: str | None

    @classmethod
    def read(cls, values: Values) -> EventsRequest:
        """Return the checked parameters; raise BadRequest."""
        topics, job = values.get("topics"), values.get("job")
        schedule = read_name(values, "schedule")
        is_all = topics is None and job is None and schedule is None
        return cls(TOPICS if is_all else _read_topics(topics), _read_jobs(job), schedule)


def _read_jobs(text: str | None) -> Sequence[int]:
    found = text.split(",") if text is not None else []
    if len(found) > JOBS_MAX:
        raise bad_parameter("job", f"at most {JOBS_MAX} jobs, not {len(found)}")
    try:
        return [parse_id(ident) for ident in found]
    except SchedoError as error:
        raise bad_parameter("job", str(error)) from None


def _read_topics(text: str | None) -> Collection[str]:
    topics = text.split(",") if text is not None else []
    for topic in topics:
        if topic not in TOPICS:
            detail = f"{topic[:40]!r} is no topic; known are: {', '.join(TOPICS)}"
            raise bad_parameter("topics", detail)
    return frozenset(topics)


def render_event(ident: str, name: str, data: object) -> bytes:
    """Return an event with its id; JSON has no line ends of its own."""
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (ident.encode(), name.encode(), orjson.dumps(data))


def jobs_data(jobs: Mapping[int, Data], states: Mapping[str, int]) -> Data:
    """Return the data of `jobs`: the changed jobs, or of too many the states that they got."""
    count = max(len(jobs), sum(states.values()))
    if count > RECORDS_MAX:
        return {"count": count, "states": dict(states)}
    return {"count": len(jobs), "jobs": [*jobs.values()]}


def job_data(job: Job) -> Data:
    """Return what an event shows of a job; never its payload."""
    data: Data = {
        "id": render_id(job.id),
        "state": job.state.value,
        "task": job.task,
        "queue": job.queue,
        "attempt": job.attempt,
        "scheduled_at": render_instant(job.due_at),
    }
    if job.schedule_id is not None:
        data["schedule_id"] = render_id(job.schedule_id)
    if job.worker is not None:
        data["worker"] = job.worker
    for name, at in (("picked_at", job.picked_at), ("ended_at", job.ended_at)):
        if at is not None:
            data[name] = render_instant(at)
    return data


def progress_data(line: ProgressLine) -> Data:
    """Return the data of `progress`: what the latest report says, without log and output."""
    (job_id, attempt), update = line.progress.key[:2], line.progress.update
    data: Data = {"id": render_id(job_id), "at": render_instant(line.at), "attempt": attempt}
    if update.percent is not None:
        data["percent"] = update.percent
    if update.message is not None:
        data["message"] = update.message
    return data


def schedules_data(schedules: Mapping[int, Data], deleted: int) -> Data:
    """Return the data of `schedules`: those that fired or were changed, or only their number."""
    data: Data = {"count": len(schedules), "deleted": deleted}
    if len(schedules) <= RECORDS_MAX:
        data["schedules"] = [*schedules.values()]
    return data


def schedule_data(schedule: Schedule) -> Data:
    """Return what an event shows of a schedule."""
    next_at = schedule.next_fire_at
    return {
        "id": render_id(schedule.id),
        "name": schedule.name,
        "paused": schedule.paused,
        "next_fire": None if next_at is None else render_instant(next_at),
    }


def queues_data(queues: Mapping[str, Queue]) -> Data:
    """Return the data of `queues`: those whose limits or pause were changed."""
    data: Data = {"count": len(queues)}
    if len(queues) <= RECORDS_MAX:
        data["queues"] = [
            {"name": queue.name, "paused": queue.paused, "concurrency": queue.concurrency}
            for queue in queues.values()
        ]
    return data


def counts_data(queues: Iterable[tuple[Queue, int, Mapping[str, int]]]) -> Data:
    """Return the data of `queues` with the running and waiting jobs of each."""
    found = [
        {
            "name": queue.name,
            "paused": queue.paused,
            "concurrency": queue.concurrency,
            "running": running,
            "waiting": waiting,
        }
        for queue, running, waiting in queues
    ]
    return {"count": len(found), "queues": found}


def workers_data(
    changed: Iterable[tuple[WorkerStatus, Mapping[str, int]]], gone: Sequence[str]
) -> Data:
    """Return the data of `workers`: those that have changed, and the names of those that left."""
    workers = [
        {
            "name": w.name,
            "kind": w.kind,
            "state": w.state,
            "slots": w.slots,
            "running": w.running,
            "running_tasks": tasks,
            "health": w.health,
            "relayed": w.is_relayed,
        }
        for w, tasks in changed
    ]
    return {"workers": workers, "gone": list(gone)}


OPERATIONS = (
    Operation(
        "get_events",
        "GET /v1/events",
        "A stream of server-sent events: figures each second, and what has changed.",
        {200: EVENTS_TYPE},
        query=("topics", "job", "schedule"),
        may_wait=True,
        is_stream=True,
    ),
)
