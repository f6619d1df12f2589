"""The conditions that select jobs, for a list of jobs and for an operation on many jobs."""

from __future__ import annotations

import re
from enum import StrEnum
from itertools import product
from typing import Any

import msgspec
import orjson

from schedo.core.built_in import SECRETS, show_payload
from schedo.core.ids import first_id, prefix_range
from schedo.core.limits import INTEGER_MAX, PAYLOAD_INLINE_BYTES_MAX
from schedo.core.model import Job
from schedo.core.states import State

_LOWER = str.maketrans({letter: letter.lower() for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"})
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?")
_CONSTANTS = {"true": True, "false": False, "null": None}


class Order(StrEnum):
    """The order of a list of jobs, by their creation. It is no condition."""

    NEWEST = "newest"
    OLDEST = "oldest"


class PayloadCondition(msgspec.Struct, frozen=True):
    """A value that a payload must have: names of fields or numbers in arrays, and the value."""

    path: tuple[str, ...]
    value: str  # the text, or the number, true, false or null as JSON has it

    @property
    def number(self) -> int | float | None:
        """The value as a number, if it is one."""
        if not _NUMBER.fullmatch(self.value):
            return None
        try:
            return _fit(orjson.loads(self.value))
        except orjson.JSONDecodeError:  # such as 1e309
            return None

    @property
    def paths(self) -> list[tuple[str | int, ...]]:
        """The path in each meaning: a part of digits can be a place in an array, or a name."""
        parts: list[tuple[str | int, ...]] = [
            (int(part), part) if part.isdecimal() else (part,) for part in self.path
        ]
        return [*product(*parts)]

    @property
    def hides_in(self) -> tuple[str, ...]:
        """The tasks whose payloads have a secret here; a search never finds it."""
        return tuple(task for task, secret in SECRETS.items() if secret == self.path[0])

    def matches(self, task: str, payload: bytes) -> bool:
        """Return whether the task's payload, which is JSON, has the value."""
        if task in self.hides_in:
            return False
        whole = orjson.loads(payload)
        return any(self._is_value(_find(whole, path)) for path in self.paths)

    def _is_value(self, found: Any) -> bool:
        if isinstance(found, str):
            return found == self.value
        if found is None or isinstance(found, bool):
            return self.value in _CONSTANTS and _CONSTANTS[self.value] is found
        return isinstance(found, int | float) and _fit(found) == self.number


def _fit(number: int | float) -> int | float:
    """Return a number as SQLite has it: as a float if it has more than 63 bits."""
    return number if abs(number) <= INTEGER_MAX else float(number)


_ABSENT = object()


def _find(value: Any, path: tuple[str | int, ...]) -> Any:
    for part in path:
        if isinstance(part, int):
            value = value[part] if isinstance(value, list) and part < len(value) else _ABSENT
        else:
            value = value.get(part, _ABSENT) if isinstance(value, dict) else _ABSENT
    return value


class JobFilter(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The conditions that a job must meet, all of them; None means any.

    Times of creation are compared by id. A job that has not ended meets no condition on its end,
    and a job without an error none on its error. Payloads above PAYLOAD_INLINE_BYTES_MAX meet no
    condition on payloads.
    """

    state: str | None = None
    queue: str | None = None
    task: str | None = None
    schedule_id: int | None = None
    tag: str | None = None
    unique_key: str | None = None
    created_after: int | None = None  # inclusive
    created_before: int | None = None  # exclusive
    ended_after: int | None = None  # inclusive
    ended_before: int | None = None  # exclusive
    error: str | None = None  # a part of the error's type or message
    states: tuple[State, ...] = ()  # one of these, if there are any
    worker: str | None = None  # of the last attempt
    text: str | None = None  # a part of the id (its beginning), task, error, payload or a tag
    payload: tuple[PayloadCondition, ...] = ()
    late_over_us: int | None = None  # it started later than that, or waits for longer
    late_at: int = 0  # the instant up to which waiting counts

    def matches(self, job: Job) -> bool:
        """Return whether the job meets all conditions."""
        return (
            self.state in (None, job.state.value)
            and (not self.states or job.state in self.states)
            and self.queue in (None, job.queue)
            and self.task in (None, job.task)
            and self.schedule_id in (None, job.schedule_id)
            and self.unique_key in (None, job.unique_key)
            and self.worker in (None, job.worker)
            and (self.tag is None or self.tag in job.options.tags)
            and (self.created_after is None or job.id >= first_id(self.created_after))
            and (self.created_before is None or job.id < first_id(self.created_before))
            and self._matches_end(job)
            and self._is_late(job)
            and self._matches_contents(job)
        )

    def _matches_end(self, job: Job) -> bool:
        at, failure = job.ended_at, job.failure
        after, before, text = self.ended_after, self.ended_before, self.error
        return (
            (after is None or (at is not None and at >= after))
            and (before is None or (at is not None and at < before))
            and (
                text is None
                or (failure is not None and (text in failure.type or text in failure.message))
            )
        )

    def _is_late(self, job: Job) -> bool:
        if self.late_over_us is None:
            return True
        at = job.started_at
        if at is None and job.ended_at is None:
            at = self.late_at
        return at is not None and at - job.due_at > self.late_over_us

    def _matches_contents(self, job: Job) -> bool:
        payload = job.payload
        if payload is None or len(payload) > PAYLOAD_INLINE_BYTES_MAX:
            payload = b""
        if self.payload and not payload:
            return False
        if not all(condition.matches(job.task, payload) for condition in self.payload):
            return False
        return self.text is None or self._has_text(job, payload)

    def _has_text(self, job: Job, payload: bytes) -> bool:
        assert self.text is not None
        wanted, failure = lower(self.text), job.failure
        texts = [job.task, show_payload(job.task, payload).decode(), *job.options.tags]
        if failure is not None:
            texts += [failure.type, failure.message]
        low, high = prefix_range(self.text)
        return low <= job.id <= high or any(wanted in lower(text) for text in texts)


def lower(text: str) -> str:
    """Return the text with the letters A to Z in lower case, as SQLite compares texts."""
    return text.translate(_LOWER)
