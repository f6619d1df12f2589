"""Renders jobs, schedules, queues and their parts as JSON responses.

Fields without a value are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import orjson

from schedo.core.changes import AttemptRecord
from schedo.core.ids import render_id
from schedo.core.model import (
    DecisionRecord,
    Job,
    Options,
    Queue,
    Retry,
    Rule,
    Schedule,
    Trigger,
    Unique,
)
from schedo.core.states import State
from schedo.protocol.requirements import route_fields
from schedo.protocol.times import render_duration, render_instant

_ENDED_AT = {
    State.COMPLETED: "completed_at",
    State.FAILED: "failed_at",
    State.CANCELLED: "cancelled_at",
    State.EXPIRED: "expired_at",
}
_SHORT_INSTANTS = ("scheduled_at", "picked_at", "started_at", *_ENDED_AT.values())
_MASK = msgspec.Raw(b'"***"')
_NULL = msgspec.Raw(b"null")
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])  # which are not read
Names = Mapping[int, str]  # schedule id: name
_NO_NAMES: Names = {}


def job_fields(
    job: Job, names: Names = _NO_NAMES, inline_bytes_max: int | None = None
) -> dict[str, Any]:
    """Return the fields of a job, without a payload or result above `inline_bytes_max`."""
    created_at = render_instant(job.created_at)
    answer: dict[str, Any] = {
        "id": render_id(job.id),
        "state": job.state,
        "task": job.task,
        "queue": job.queue,
        "priority": job.priority,
        "attempt": job.attempt,
        "failures": job.failures,
        "losses": job.losses,
        "created_at": created_at,
        "scheduled_at": created_at if job.due_at == job.created_at else render_instant(job.due_at),
    }
    if job.payload is not None and _fits(job.payload, inline_bytes_max):
        answer["payload"] = show_payload(job.task, job.payload)
    if job.options.retry is not None:
        answer["max_attempts"] = job.options.retry.max_attempts
    if job.expires_at is not None:
        answer["expires_at"] = render_instant(job.expires_at)
    if job.unique_key is not None:
        answer["unique_key"] = job.unique_key
    if job.schedule_id is not None:
        answer |= _origin_fields(job, names)
    elif job.trigger is Trigger.INVOKE:
        answer["trigger"] = job.trigger
    if job.attempt or job.ended_at is not None:
        answer |= _progress_fields(job)
        if job.result is not None and _fits(job.result, inline_bytes_max):
            answer["result"] = orjson.Fragment(job.result)
    answer |= _option_fields(job.options)
    return answer


def show_payload(task: str, payload: bytes) -> orjson.Fragment:
    """Return a payload as it was sent, with the signing secret of an http job masked."""
    # A key may also be written with escapes, so a backslash calls for an exact look.
    if task == "http" and (b'"secret"' in payload or b"\\" in payload):
        try:
            members = _MEMBERS.decode(payload)
        except msgspec.ValidationError:  # no object
            members = {}
        if members.get("secret", _NULL) != _NULL:
            members["secret"] = _MASK
            return orjson.Fragment(msgspec.json.encode(members))
    return orjson.Fragment(payload)


def _origin_fields(job: Job, names: Names) -> dict[str, Any]:
    assert job.schedule_id is not None
    answer: dict[str, Any] = {
        "schedule": names.get(job.schedule_id) or render_id(job.schedule_id),
        "trigger": job.trigger.value,
    }
    if job.scheduled_for is not None:
        answer["scheduled_for"] = render_instant(job.scheduled_for)
    if job.missed_count:
        answer["missed_count"] = job.missed_count
    return answer


def _progress_fields(job: Job) -> dict[str, Any]:
    """Return the fields of a job that was picked or has ended."""
    answer: dict[str, Any] = {
        "picked_at": _instant(job.picked_at),
        "started_at": _instant(job.started_at),
        "cancel_requested_at": _instant(job.cancel_requested_at),
        "worker": job.worker,
        "error": job.failure and msgspec.to_builtins(job.failure),
    }
    if job.state in _ENDED_AT:
        answer[_ENDED_AT[job.state]] = _instant(job.ended_at)
    return _without_nulls(answer)


def _option_fields(options: Options) -> dict[str, Any]:
    """Return the options that the request set."""
    fields: dict[str, Any] = {}
    if options.at_most_once:
        fields["delivery"] = "at_most_once"
    if options.timeout_us is not None:
        fields["timeout"] = render_duration(options.timeout_us)
    if options.tags:
        fields["tags"] = options.tags
    if options.meta is not None:
        fields["meta"] = options.meta
    if options.traceparent is not None:
        fields["traceparent"] = options.traceparent
    if options.tracestate is not None:
        fields["tracestate"] = options.tracestate
    if options.requirements is not None:
        fields.update(route_fields(options.requirements))
    return fields


def _without_nulls(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that have a value."""
    return {name: value for name, value in answer.items() if value is not None}


def render_job(job: Job, names: Names = _NO_NAMES) -> bytes:
    """Return a job as JSON."""
    return orjson.dumps(job_fields(job, names))


def job_id_in(body: bytes) -> str:
    """Return the id in a rendered job; job_fields puts it first, so nothing needs to be parsed."""
    assert body.startswith(b'{"id":"'), "a job's answer begins with its id"
    return body[7:20].decode()


def short_fields(job: Job) -> dict[str, Any]:
    """Return the fields of the short form: the state of a command."""
    fields = job_fields(job)
    answer = {"task_id": fields["id"], "status": fields["state"]}
    command = _read_member(job.payload, _COMMAND)
    if command is not None:
        answer["command"] = command
    answer |= {name: fields[name] for name in _SHORT_INSTANTS if name in fields}
    exit_code = _read_member(job.result, _EXIT_CODE)
    if exit_code is not None:
        answer["exit_code"] = exit_code
    if job.failure is not None:
        answer["error"] = job.failure.message
        if job.failure.exit_code is not None:
            answer["exit_code"] = job.failure.exit_code
    return answer


class _Command(msgspec.Struct):
    value: str | None = msgspec.field(default=None, name="command")


class _ExitCode(msgspec.Struct):
    value: int | None = msgspec.field(default=None, name="exit_code")


_COMMAND = msgspec.json.Decoder(_Command)
_EXIT_CODE = msgspec.json.Decoder(_ExitCode)


def _read_member(
    text: bytes | None, decoder: msgspec.json.Decoder[_Command] | msgspec.json.Decoder[_ExitCode]
) -> str | int | None:
    """Return one member of an object without decoding the others; None if it is absent."""
    try:
        return decoder.decode(text or b"null").value
    except msgspec.ValidationError:
        return None


def schedule_fields(
    schedule: Schedule,
    fires: Iterable[int] = (),
    description: str | None = None,
    warnings: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the answer for a schedule; fires are its next instants, description is in words."""
    spec = schedule.spec
    answer: dict[str, Any] = {
        "name": spec.name,
        **_rule_fields(spec.rule, spec.cron_source),
        "description": description,
        "task": spec.job.task,
        "payload": show_payload(spec.job.task, spec.job.payload),
        "queue": spec.job.queue,
        "priority": spec.job.priority,
        "retry": _retry_fields(spec.job.options.retry),
        "expires_in": _duration(spec.job.expires_in_us),
        "unique": _unique_fields(spec.job.options.unique),
        **_option_fields(spec.job.options),
        "overlap": spec.overlap.value,
        "catchup": spec.catchup.value,
        "catchup_window": render_duration(spec.catchup_window_us),
        "catchup_max": spec.catchup_max,
        "paused": schedule.paused,
        "note": schedule.note,
        "created_at": render_instant(schedule.created_at),
        "updated_at": render_instant(schedule.updated_at),
        "next_fires": [render_instant(fire) for fire in fires],
        "last_fired_at": _instant(schedule.last_fired_at),
        "last_job": None if schedule.last_job_id is None else render_id(schedule.last_job_id),
        "counters": {
            "fired": schedule.fired,
            "missed": schedule.missed,
            "overlap_skipped": schedule.overlap_skipped,
            "buffered": schedule.buffered,
        },
        "warnings": list(warnings),
    }
    return {name: value for name, value in answer.items() if value is not None}


def _rule_fields(rule: Rule, source: str | None) -> dict[str, Any]:
    is_cron = rule.cron is not None
    return {
        "cron": source or rule.cron,
        "normalized": rule.cron,
        "every": _duration(rule.every_us),
        "at": _instant(rule.at),
        "tz": rule.tz,
        "dst": {"gap": rule.gap, "fold": rule.fold} if is_cron else None,
        "jitter": _duration(rule.jitter_us or None),
        "start_at": _instant(rule.start_at),
        "end_at": _instant(rule.end_at),
    }


def _retry_fields(retry: Retry | None) -> dict[str, Any] | None:
    if retry is None:
        return None
    answer: dict[str, Any] = {
        "max_attempts": retry.max_attempts,
        "backoff": retry.backoff,
        "initial": render_duration(retry.initial_us),
        "factor": retry.factor,
        "max": render_duration(retry.max_us),
        "jitter": retry.jitter,
    }
    if retry.ladder_us:
        answer["ladder"] = [render_duration(step_us) for step_us in retry.ladder_us]
    if retry.until_at is not None:
        answer["until"] = render_instant(retry.until_at)
    return answer


def _unique_fields(unique: Unique | None) -> dict[str, Any] | None:
    if unique is None:
        return None
    answer: dict[str, Any] = {
        "key": unique.key,
        "while": unique.states,
        "on_conflict": unique.on_conflict,
    }
    if unique.for_us is not None:
        answer["for"] = render_duration(unique.for_us)
    return answer


def queue_fields(
    queue: Queue, running: int, waiting: Mapping[str, int], counted_at: int
) -> dict[str, Any]:
    """Return the answer for a queue; a concurrency of null means as many as there are slots."""
    return {
        "name": queue.name,
        "concurrency": queue.concurrency,
        "paused": queue.paused,
        "weight": queue.weight,
        "priority_step": render_duration(queue.priority_step_us),
        "running": running,
        "waiting": dict(waiting),
        "counted_at": render_instant(counted_at),
    }


def decision_fields(decision: DecisionRecord) -> dict[str, Any]:
    """Return the answer for a decision about one instant of a schedule."""
    answer: dict[str, Any] = {
        "scheduled_for": render_instant(decision.scheduled_for),
        "decided_at": render_instant(decision.decided_at),
        "decision": decision.decision.value,
        "count": decision.count,
    }
    if decision.job_id is not None:
        answer["job"] = render_id(decision.job_id)
    return answer


def attempt_fields(attempt: AttemptRecord) -> dict[str, Any]:
    """Return the answer for an ended attempt."""
    answer: dict[str, Any] = {
        "attempt": attempt.attempt,
        "outcome": attempt.outcome,
        "worker": attempt.worker,
        "started_at": _instant(attempt.started_at),
        "ended_at": render_instant(attempt.ended_at),
        "error": attempt.failure and msgspec.to_builtins(attempt.failure),
    }
    return {name: value for name, value in answer.items() if value is not None}


def _fits(text: bytes, bytes_max: int | None) -> bool:
    return bytes_max is None or len(text) <= bytes_max


def _instant(us: int | None) -> str | None:
    return None if us is None else render_instant(us)


def _duration(us: int | None) -> str | None:
    return None if us is None else render_duration(us)
