"""Event jobs: the jobs that `on_failure` names. Their payloads have the facts of the event.

A built-in task gets the facts where it can use them: an http job sends them as its body, and a
command has them as environment variables. Any other task gets them as one member of its payload, so
a Python function has a parameter for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from schedo.core.built_in import BUILT_IN
from schedo.core.ids import render_id
from schedo.core.instants import render_instant
from schedo.core.model import Job

_Members = dict[str, msgspec.Raw]
_MEMBERS = msgspec.json.Decoder(_Members | None)  # whose values stay undecoded
_NULL = msgspec.Raw(b"null")
_encode = msgspec.json.Encoder().encode
_SENDS_NO_BODY = (b'"GET"', b'"HEAD"')


class Facts(NamedTuple):
    """What happened, as plain JSON data, under the name that it has in payloads."""

    name: str
    values: Mapping[str, Any]
    path: str  # on the page: the screen of the job or schedule that the facts describe

    def linked(self, page_url: str) -> Facts:
        """Return the facts with the address of their screen; page_url ends without a slash."""
        return self._replace(values={**self.values, "url": page_url + self.path})


def facts_of_failure(job: Job) -> Facts:
    """Return the facts of a job that has just failed.

    They have neither its payload nor its traceback: those can be large and hold secrets.
    """
    failure = job.failure
    error = failure and {
        "type": failure.type,
        "message": failure.message,
        "exit_code": failure.exit_code,
        "signal": failure.signal,
        "http_status": failure.http_status,
    }
    values = {
        "event": "failed",
        "at": job.ended_at and render_instant(job.ended_at),
        "id": render_id(job.id),
        "task": job.task,
        "queue": job.queue,
        "schedule": job.options.schedule,
        "scheduled_for": job.scheduled_for and render_instant(job.scheduled_for),
        "attempt": job.attempt,
        "failures": job.failures,
        "losses": job.losses,
        "created_at": render_instant(job.created_at),
        "error": error and _without_nulls(error),
        "tags": job.options.tags or None,
        "meta": job.options.meta,
    }
    return Facts("failed", _without_nulls(values), f"/jobs/{values['id']}")


def add_facts(task: str, payload: bytes, facts: Facts) -> bytes:
    """Return the payload of an event job, which is null or an object, with the facts."""
    members = _read_members(payload)
    assert members is not None, "the payload of an event job is checked when it is accepted"
    built_in = BUILT_IN.get(task)
    add = _add_member if built_in is None else _ADD[built_in.facts_as]
    add(members, facts)
    return _encode(members)


def _add_member(members: _Members, facts: Facts) -> None:
    members[facts.name] = _raw(facts.values)


def _add_body(members: _Members, facts: Facts) -> None:
    """Send the facts as the body, or as a member of the object that the user wants to send."""
    if "body" not in members:
        if bytes(members.get("method", _NULL)) not in _SENDS_NO_BODY:
            members["body"] = _raw(facts.values)
        return
    fields = _read_members(members["body"])
    if fields is not None:
        _add_member(fields, facts)
        members["body"] = _raw(fields)


def _add_variables(members: _Members, facts: Facts) -> None:
    variables = _read_members(members.get("env", _NULL))
    if variables is not None:  # else the command cannot start, and the task says why
        flat = _flatten(f"SCHEDO_{facts.name}", facts.values)
        members["env"] = _raw({**variables, **dict(flat)})


def _read_members(text: bytes | msgspec.Raw) -> _Members | None:
    """Return the members of an object, none for null, and None for any other value."""
    try:
        return _MEMBERS.decode(text) or {}
    except msgspec.ValidationError:
        return None


def _flatten(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        variable = f"{prefix}_{name}".upper()
        if name == "meta":
            yield variable, _encode(value).decode()
        elif isinstance(value, Mapping):
            yield from _flatten(variable, value)
        else:
            yield variable, ",".join(value) if isinstance(value, tuple) else str(value)


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(_encode(value))


def _without_nulls(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


_ADD: Mapping[str, Callable[[_Members, Facts], None]] = {
    "body": _add_body,
    "variables": _add_variables,
}
