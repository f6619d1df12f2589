"""The responses for the jobs of one request, as JSON; most of them are rendered from a template.

New jobs of a batch usually differ in their ids and payloads only. So the text around these is made
once for all jobs with the same task, queue, instants and options: that takes a fifth of the time.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import orjson

from schedo.core.built_in import show_payload
from schedo.core.ids import render_id
from schedo.core.model import Job, Options, Trigger
from schedo.core.states import State
from schedo.protocol.jobs import job_fields

_TEMPLATES_MAX = 64
_ID_FROM, _ID_TO = 7, 20  # the place of the id in a job: {"id":"0CR5KPDD15T00",...
_GAP = b"\0"  # no JSON text has this byte


class _Template(NamedTuple):
    """The text of a job before its payload, from its id on, and after it."""

    before: bytes
    after: bytes
    options: Options  # keeps its id from being used again


class JobTexts:
    """Renders jobs in one turn, without payloads and results above `inline_bytes_max`."""

    def __init__(self, inline_bytes_max: int) -> None:
        self._inline_bytes_max = inline_bytes_max
        self._templates: dict[tuple[object, ...], _Template] = {}

    def render(self, job: Job) -> bytes:
        """Return a job as JSON, as job_fields has it."""
        payload = job.payload
        if (
            payload is None
            or len(payload) > self._inline_bytes_max
            or job.attempt
            or job.ended_at is not None
            or job.unique_key is not None
            or job.trigger is not Trigger.SUBMIT
        ):
            return orjson.dumps(job_fields(job, inline_bytes_max=self._inline_bytes_max))
        key = (
            job.task,
            job.queue,
            job.state,
            job.priority,
            job.created_at,
            job.due_at,
            job.expires_at,
            id(job.options),
        )
        template = self._templates.get(key)
        if template is None:
            template = _make_template(job)
            if len(self._templates) < _TEMPLATES_MAX:
                self._templates[key] = template
        before, after, _ = template
        return b'{"id":"%b%b%b%b' % (
            render_id(job.id).encode(),
            before,
            show_payload(job.task, payload),
            after,
        )


def render_brief(job: Job) -> bytes:
    """Return the job as JSON, as a minimal response has it."""
    return b'{"id":"%b%b' % (
        render_id(job.id).encode(),
        _render_brief_rest(job.state, job.task, job.queue),
    )


@lru_cache(maxsize=1_024)  # thousands of jobs share a few
def _render_brief_rest(state: State, task: str, queue: str) -> bytes:
    return b'",%b' % orjson.dumps({"state": state, "task": task, "queue": queue})[1:]


def _make_template(job: Job) -> _Template:
    fields = job_fields(job)
    fields["payload"] = orjson.Fragment(_GAP)
    before, _, after = orjson.dumps(fields).partition(_GAP)
    assert before[_ID_FROM:_ID_TO] == fields["id"].encode(), "a job's response begins with its id"
    return _Template(before[_ID_TO:], after, job.options)
