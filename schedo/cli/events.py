"""`schedo events`: prints what happens on the server, as it happens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import click

from schedo.cli.connection import as_json, connected
from schedo.cli.escapes import escape
from schedo.cli.names import JOB, SCHEDULE
from schedo.cli.times import read_now, render_time
from schedo.client.events import Event
from schedo.client.messages import Record
from schedo.client.sync import Client
from schedo.protocol.events import TOPICS
from schedo.protocol.times import render_instant

_BY_DEFAULT = tuple(topic for topic in TOPICS if topic != "tick")
_MISSING = "events are missing: what they would have shown must be read again"


@click.command()
@click.option(
    "--topic",
    "topics",
    multiple=True,
    type=click.Choice(TOPICS),
    help="Only this topic; may be repeated.  [default: all but tick]",
)
@click.option("--job", metavar="ID", type=JOB, help="Only changes of this job.")
@click.option("--schedule", type=SCHEDULE, help="Only runs of this schedule.")
@click.option("--last-id", metavar="ID", help="Go on after the event with this id.")
@as_json
@connected
def events(
    client: Client,
    topics: tuple[str, ...],
    job: str | None,
    schedule: str | None,
    last_id: str | None,
    is_json: bool,
) -> None:
    """Print what happens on the server, until Ctrl-C; with --json, one object on each line.

    After a broken connection it continues where it was, and says so if events are missing.
    """
    wanted = topics or (None if job or schedule else _BY_DEFAULT)
    with suppress(KeyboardInterrupt):
        for event in client.events(topics=wanted, job=job, schedule=schedule, last_id=last_id):
            if is_json:
                line = {"id": event.id, "event": event.name, "data": event.data}
                click.echo(json.dumps(line))
            else:
                _print(event)


def _print(event: Event) -> None:
    now = read_now()
    at = render_time(render_instant(now), now).partition(" ")[0]
    for text in _DESCRIBE.get(event.name, _describe_missing)(event.data):
        click.echo(escape(f"{at}  {event.name:<9}  {text}"))


def _describe_tick(data: Record) -> Iterator[str]:
    yield f"{data['running']} of {data['slots']} slots busy  {data['verdict']['text']}"


def _describe_jobs(data: Record) -> Iterator[str]:
    if "jobs" not in data:
        states = "   ".join(f"{state} {count:,}" for state, count in data["states"].items())
        yield f"{data['count']:,} changes: {states}"
    for job in data.get("jobs", ()):
        worker = f"  on {job['worker']}" if "worker" in job else ""
        yield f"{job['id']}  {job['state']:<9}  {job['task']}  {job['queue']}{worker}"


def _describe_schedules(data: Record) -> Iterator[str]:
    if data.get("deleted"):
        yield f"{data['deleted']:,} deleted"
    if "schedules" not in data:
        yield f"{data['count']:,} changed"
    for schedule in data.get("schedules", ()):
        state = "paused" if schedule["paused"] else f"next {_render(schedule['next_fire'])}"
        yield f"{schedule['name']}  {state}"


def _describe_queues(data: Record) -> Iterator[str]:
    if "queues" not in data:
        yield f"{data['count']:,} changed"
    for queue in data.get("queues", ()):
        limit = "no limit" if queue["concurrency"] is None else f"at most {queue['concurrency']}"
        yield f"{queue['name']}  {'paused' if queue['paused'] else 'not paused'}  {limit}"


def _describe_workers(data: Record) -> Iterator[str]:
    for worker in data["workers"]:
        health = f"  {worker['health']}" if worker.get("health") else ""
        busy = f"{worker['running']} of {worker['slots']} slots busy"
        yield f"{worker['name']}  {worker['state']}  {busy}{health}"
    for name in data["gone"]:
        yield f"{name}  gone"


def _describe_job(data: Record) -> Iterator[str]:
    return _describe_jobs({"jobs": [data]})


def _describe_progress(data: Record) -> Iterator[str]:
    percent = f"{data['percent']:g} %  " if "percent" in data else ""
    yield f"{data['id']}  attempt {data['attempt']}  {percent}{data.get('message', '')}".rstrip()


def _describe_schedule(data: Record) -> Iterator[str]:
    return _describe_schedules({"schedules": [data]})


def _describe_missing(data: Record) -> Iterator[str]:
    yield _MISSING


def _render(at: Any) -> str:
    return render_time(at, read_now()) if at else "never"


_DESCRIBE = {
    "tick": _describe_tick,
    "jobs": _describe_jobs,
    "schedules": _describe_schedules,
    "queues": _describe_queues,
    "workers": _describe_workers,
    "job": _describe_job,
    "progress": _describe_progress,
    "schedule": _describe_schedule,
}
