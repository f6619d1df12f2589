"""Describes jobs and schedules in one line: the state, the work, an error, a field."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from typing import NamedTuple

from schedo.cli.escapes import escape
from schedo.cli.times import read_now, render_full, render_time
from schedo.client.messages import Record
from schedo.core.states import State


def describe_state(job: Record) -> str:
    """Return the id and the state of a job in one line, and when it is due if that is later."""
    line = f"{escape(job['id'])}  {escape(job['state'])}"
    if job["state"] == State.SCHEDULED:
        line += f" for {render_time(job.get('scheduled_at'), read_now())}"
    return line


def describe_work(job: Record) -> str:
    """Describe in one line what a job does, or why it failed."""
    error = job.get("error") or {}
    if error and job.get("state") in (State.FAILED, State.RETRYING):
        return describe_error(error)
    payload = job.get("payload")
    built_in = _BUILT_IN.get(str(job.get("task")))
    if built_in is not None and isinstance(payload, dict) and built_in.field in payload:
        return built_in.describe(payload)
    return "" if payload is None else json.dumps(payload, separators=(",", ":"))


def describe_schedule(schedule: Record) -> str:
    """Describe in one line what the runs of a schedule do."""
    work = describe_work(schedule)
    if schedule.get("task") in _BUILT_IN:
        return work
    return " ".join([str(schedule.get("task", "")), *([work] if work != "{}" else [])]).strip()


def _describe_command(payload: Record) -> str:
    command = payload["command"]
    return command if isinstance(command, str) else shlex.join(map(str, command))


def _describe_request(payload: Record) -> str:
    return f"{payload.get('method', 'POST')} {payload['url']}"


class _BuiltIn(NamedTuple):
    """How the payload of a built-in task is described, and the field that it must have."""

    field: str
    describe: Callable[[Record], str]


_BUILT_IN = {
    "shell": _BuiltIn("command", _describe_command),
    "http": _BuiltIn("url", _describe_request),
}


def describe_error(error: Record) -> str:
    """Return the type and the message of an attempt's error in one line."""
    return ": ".join(str(error[name]) for name in ("type", "message") if error.get(name))


def render_fact(name: str, value: object, now: int) -> str:
    """Return one field of a response as text; instants in local time."""
    if isinstance(value, str):
        is_instant = name.endswith("_at") or name in ("scheduled_for", "since")
        return render_full(value, now) if is_instant else value
    if name == "error" and isinstance(value, dict):
        return describe_error(value)
    if name == "counters" and isinstance(value, dict):
        return ", ".join(f"{count} {what.replace('_', ' ')}" for what, count in value.items())
    return json.dumps(value, ensure_ascii=False)


def describe_effect(schedule: Record) -> str:
    """Return in words what the put did that responded with the schedule."""
    effect = str(schedule.get("effect", "stored"))
    return "up to date" if effect == "unchanged" else effect
