"""Small builders for the tests of schedules on a server."""

from __future__ import annotations

from schedo.core.model import Decision, Schedule
from schedo.core.states import State
from tests.core.builders import make_schedule_spec
from tests.core.server import Server

T1 = 1  # schedules are put just after T0, so that the first instant is one minute


def made(server: Server, **spec: object) -> Schedule:
    """Return a durable schedule of each minute."""
    schedule = server.put(make_schedule_spec(**spec), T1)  # type: ignore[arg-type]
    server.round(T1)
    return schedule


def states(server: Server, schedule: Schedule) -> list[State]:
    return [server.state(job.id) for job in server.runs(schedule.id)]


def kinds(server: Server, schedule: Schedule) -> list[Decision]:
    return [decision for decision, _, _ in server.decisions(schedule.id)]
