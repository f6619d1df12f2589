"""The options of jobs and schedules in Python, and their conversion to specs.

All options are checked as requests of the HTTP API, so there is one set of rules: a value that the
API rejects is rejected here with the same message, at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from schedo.client.options import (
    Duration,
    Expect,
    Instant,
    Retry,
    RetryOption,
    SharedOptions,
    SingleOptions,
    render_options,
)
from schedo.core.built_in import BUILT_IN
from schedo.core.model import JobSpec, ScheduleSpec
from schedo.errors import Invalid
from schedo.protocol.decode import decode_checked
from schedo.protocol.fields import read_name, read_under
from schedo.protocol.job_templates import JobTemplate
from schedo.protocol.jobs import JobRequest
from schedo.protocol.schedules import ScheduleRequest
from schedo.tasks.arguments import encode
from schedo.tasks.built_in import load_task


class TaskOptions(SharedOptions, total=False):
    """The default options of a task's jobs.

    `retry` is the policy of the HTTP API: a Retry, the name of a preset, or the number of attempts.
    `retries` is the same, but as a number it does not count the first attempt.
    """

    retries: RetryOption | None
    retry: RetryOption | None


class JobOptions(TaskOptions, SingleOptions, total=False):
    """The options of one job; they override those of its task."""


class ScheduleOptions(TaskOptions, total=False):
    """The options of a schedule and of its jobs; they override those of the task."""

    name: str | None
    payload: Mapping[str, Any] | None
    overlap: Literal["skip", "allow", "buffer_one", "cancel_other"] | None
    catchup: Literal["latest", "all", "skip"] | None
    catchup_window: Duration | None
    catchup_max: int | None
    jitter: Duration | None
    start_at: Instant | None
    end_at: Instant | None
    dst: Mapping[str, str] | None
    paused: bool | None
    expect: Expect | None


def make_job(task: str, *layers: Mapping[str, Any]) -> JobTemplate:
    """Return a job without its payload; later layers override earlier ones. Raise Invalid."""
    try:
        request = decode_checked(_render(task, layers), JobRequest)
        if request.broadcast:
            detail = "call the task's method broadcast() instead of enqueue()"
            raise Invalid.field("/broadcast", detail)
        spec = request.to_spec()
        _check_event_job(spec)
    except Invalid as error:
        raise _name_options(f"task {task!r}", error) from None
    return JobTemplate(request, spec)


def make_schedule(name: str, task: str, payload: bytes, *layers: Mapping[str, Any]) -> ScheduleSpec:
    """Return the spec of a schedule; later layers override earlier ones. Raise Invalid."""
    try:
        request = decode_checked(_render(task, layers), ScheduleRequest)
        spec = msgspec.structs.replace(request, payload=msgspec.Raw(payload)).to_spec(name)
        _check_event_job(spec.job)
    except Invalid as error:
        raise _name_options(f"schedule {name!r}", error) from None
    return spec


def read_task_name(name: str) -> str:
    """Return the name of a task; raise Invalid if it is none."""
    try:
        return read_name("/name", name)
    except Invalid as error:
        raise Invalid(f"the name of a task: {error.problems[0].detail}") from None


def _name_options(owner: str, error: Invalid) -> Invalid:
    """Return the error with the names of options, as in "retry.factor", in place of pointers."""
    places = (f"{p.pointer[1:].replace('/', '.')}: {p.detail}" for p in error.problems)
    return Invalid(f"{owner}: {'; '.join(places) or error}", *error.problems)


def _check_event_job(spec: JobSpec) -> None:
    """Check the payload of an event job that is a command or a request, as the server does."""
    on_failure = spec.options.on_failure
    if on_failure is not None and on_failure.task in BUILT_IN:
        check = load_task(on_failure.task).check_payload
        read_under("/on_failure", lambda: check(on_failure.payload))


def _render(task: str, layers: Sequence[Mapping[str, Any]]) -> bytes:
    request: dict[str, Any] = {"task": task}
    for layer in layers:
        fields = {key: value for key, value in layer.items() if value is not None}
        if "retries" in fields:
            if "retry" in fields:
                raise Invalid.field("/retries", "give either retries or retry, not both")
            fields["retry"] = _read_retries(fields.pop("retries"))
        if "keep" in fields and isinstance(request.get("keep"), Mapping):  # each time by itself
            fields["keep"] = {**request["keep"], **_read_keep(fields["keep"])}
        request |= fields
    try:
        return encode(render_options(request))
    except (TypeError, ValueError, OverflowError) as error:
        raise Invalid(f"the options of {task!r} cannot be written as JSON: {error}") from None


def _read_keep(keep: object) -> Mapping[str, object]:
    if not isinstance(keep, Mapping):
        raise Invalid.field("/keep", 'give times by state, such as {"completed": "1h"}')
    return keep


def _read_retries(retries: object) -> object:
    if isinstance(retries, bool) or not isinstance(retries, int | str | Retry | Mapping):
        raise Invalid.field("/retries", "give a number, a Retry or the name of a preset")
    # The API counts attempts, including the first one.
    return retries + 1 if isinstance(retries, int) else retries
