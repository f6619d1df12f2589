"""The words of the worker protocol, as docs/protocol.md writes it down. No I/O here.

A worker reads what it needs of an answer and passes over what it does not know, so that a newer
server can say more.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from schedo.core.leases import (
    AttemptResult,
    CapturedOutput,
    Completed,
    Failed,
    Lease,
    Lost,
    Outcome,
    Released,
    Snoozed,
    Stopped,
    StopReason,
)
from schedo.core.limits import SECOND
from schedo.core.model import Failure, Options, Trigger
from schedo.errors import SchedoError
from schedo.protocol.lease_keys import parse_lease
from schedo.protocol.times import parse_instant
from schedo.tasks.progress import Said

Record = dict[str, Any]


class GivenLease(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt to run, or with `offer` the question whether this worker would."""

    lease: str
    task: str
    queue: str
    scheduled_for: str
    payload: msgspec.Raw = msgspec.Raw(b"null")
    trigger: str = "submit"
    missed_count: int = 0
    timeout: float | None = None  # seconds
    tags: tuple[str, ...] = ()
    meta: dict[str, Any] | None = None
    traceparent: str | None = None
    tracestate: str | None = None
    at_most_once: bool = False
    suspect: bool = False
    offer: bool = False

    def read(self, worker: str) -> Lease:
        """Return the lease as runners take it; raise ValueError or Invalid if it is none."""
        timeout_us = None if self.timeout is None else round(self.timeout * SECOND)
        options = Options(
            timeout_us=timeout_us,
            at_most_once=self.at_most_once,
            tags=self.tags,
            meta=self.meta,
            traceparent=self.traceparent,
            tracestate=self.tracestate,
        )
        known = self.trigger in Trigger._value2member_map_
        return Lease(
            key=parse_lease(self.lease),
            worker=worker,
            task=self.task,
            queue=self.queue,
            payload=bytes(self.payload),
            options=options,
            scheduled_for=parse_instant(self.scheduled_for),
            trigger=Trigger(self.trigger) if known else Trigger.SUBMIT,
            missed_count=self.missed_count,
            is_suspect=self.suspect,
        )


class GivenStop(msgspec.Struct, frozen=True):
    """End this attempt."""

    lease: str
    reason: str = "cancel"

    @property
    def why(self) -> StopReason:
        return StopReason.TIMEOUT if self.reason == "timeout" else StopReason.CANCEL


class Refused(msgspec.Struct, frozen=True):
    """A result that came too late: somebody else has the job, or it has ended."""

    lease: str
    detail: str = ""


class WorkAnswer(msgspec.Struct, frozen=True):
    """What the server says; spans are seconds."""

    leases: list[GivenLease] = []
    stop: list[GivenStop] = []
    revoked: list[str] = []
    refused: list[Refused] = []
    heartbeat: float = 10.0
    drain: bool = False


class Message(NamedTuple):
    """Something to be told: `body` is JSON for the request's list of that name."""

    field: str  # "results", "progress", "accept" or "reject"
    lease: str
    body: bytes


_answers = msgspec.json.Decoder(WorkAnswer)


def parse_answer(body: bytes) -> WorkAnswer:
    """Return the answer; raise SchedoError if it is none."""
    try:
        return _answers.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SchedoError(f"this is no answer of a schedo server to a worker: {error}") from None


def render_words(words: list[Message]) -> Record:
    """Return the lists of a request that carry the words."""
    lists: dict[str, list[msgspec.Raw]] = {}
    for word in words:
        lists.setdefault(word.field, []).append(msgspec.Raw(word.body))
    return dict(lists)


def render_request(request: Mapping[str, Any]) -> bytes:
    """Return the body of a request."""
    return msgspec.json.encode(request)


def render_result(lease: str, report: AttemptResult) -> Message:
    """Return what is told when an attempt has ended."""
    result = {"lease": lease, **_render_outcome(report.outcome)}
    if report.output:
        result["output"] = [_render_capture(capture) for capture in report.output]
    return Message("results", lease, msgspec.json.encode(result))


def render_failure(lease: str, kind: str, message: str) -> Message:
    """Return the result of an attempt that failed for a reason that will not go away."""
    outcome = _render_outcome(Failed(Failure(kind, message), retryable=False))
    return Message("results", lease, msgspec.json.encode({"lease": lease, **outcome}))


def render_progress(lease: str, said: Said) -> Message:
    """Return what is told while an attempt runs."""
    fields = {
        "percent": said.percent,
        "message": said.message,
        "log": said.log,
        "stdout": said.output,
    }
    told = {name: _clean(value) for name, value in fields.items() if value is not None}
    return Message("progress", lease, msgspec.json.encode({"lease": lease, **told}))


def render_accept(lease: str) -> Message:
    """Return the worker's yes to an offer."""
    return Message("accept", lease, msgspec.json.encode(lease))


def render_reject(lease: str, reason: str) -> Message:
    """Return the worker's no to an offer."""
    return Message("reject", lease, msgspec.json.encode({"lease": lease, "reason": reason}))


def _render_outcome(outcome: Outcome) -> Record:
    match outcome:
        case Completed(None):
            return {"outcome": "completed"}
        case Completed(result):
            return {"outcome": "completed", "result": msgspec.Raw(result or b"null")}
        case Failed(failure, retryable, retry_in_us):
            told: Record = {"outcome": "failed", "error": _render_failure(failure)}
            if not retryable:
                told["retryable"] = False
            if retry_in_us is not None:
                told["retry_in"] = retry_in_us / SECOND
            return told
        case Snoozed(delay_us):
            return {"outcome": "snoozed", "delay": delay_us / SECOND}
        case Stopped():
            return {"outcome": "stopped"}
        case Released():
            return {"outcome": "released"}
        case Lost(message, blame):  # pragma: no branch - these are all outcomes
            error = {"type": "lost", "message": _clean(message)}
            return {"outcome": "lost", "blame": blame.value, "error": error}


def _render_failure(failure: Failure) -> Record:
    told: Record = msgspec.to_builtins(failure)
    return {name: _clean(value) for name, value in told.items()}


def _clean(value: object) -> object:
    """Return a value that can be sent: no text on the wire may hold U+0000."""
    return value.replace("\0", "\ufffd") if isinstance(value, str) else value


def _render_capture(capture: CapturedOutput) -> Record:
    data = capture.head + capture.tail
    told: Record = {"stream": capture.stream, "total_bytes": capture.total_bytes}
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    # U+0000 is not allowed, and a text full of escapes is longer than base64.
    if "\0" in text or len(msgspec.json.encode(text)) > 2 * len(data) + 2:
        return {**told, "base64": base64.b64encode(data).decode()}
    return {**told, "text": text}
