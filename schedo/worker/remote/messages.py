"""The worker's side of the protocol messages: parses responses, renders requests. Without I/O.

docs/protocol.md describes the messages. Unknown fields of a response are ignored, so that a newer
server can add some.
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
    """One attempt to run; with `offer`, one to accept or reject first."""

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
        """Return the lease for a runner; raise ValueError or Invalid for a bad field."""
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
    """An attempt to stop."""

    lease: str
    reason: str = "cancel"

    @property
    def why(self) -> StopReason:
        return StopReason.TIMEOUT if self.reason == "timeout" else StopReason.CANCEL


class Refused(msgspec.Struct, frozen=True):
    """A result that came too late: the attempt has ended, or another worker has the job."""

    lease: str
    detail: str = ""


class WorkAnswer(msgspec.Struct, frozen=True):
    """The response to a request; durations are seconds."""

    leases: list[GivenLease] = []
    stop: list[GivenStop] = []
    revoked: list[str] = []
    refused: list[Refused] = []
    heartbeat: float = 10.0
    drain: bool = False


class Message(NamedTuple):
    """One entry of a list in a request: `field` names the list, `body` is the entry's JSON."""

    field: str  # "results", "progress", "accept" or "reject"
    lease: str
    body: bytes


_answers = msgspec.json.Decoder(WorkAnswer)


def parse_answer(body: bytes) -> WorkAnswer:
    """Return the response in a body; raise SchedoError if there is none."""
    try:
        return _answers.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SchedoError(
            f"the response is not one of a schedo server to a worker: {error}"
        ) from None


def render_messages(messages: list[Message]) -> Record:
    """Return the lists of a request that carry the messages."""
    lists: dict[str, list[msgspec.Raw]] = {}
    for message in messages:
        lists.setdefault(message.field, []).append(msgspec.Raw(message.body))
    return dict(lists)


def render_request(request: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(request)


def render_result(lease: str, result: AttemptResult) -> Message:
    """Return the entry of `results` for an attempt that has ended."""
    fields = {"lease": lease, **_render_outcome(result.outcome)}
    if result.output:
        fields["output"] = [_render_capture(capture) for capture in result.output]
    return Message("results", lease, msgspec.json.encode(fields))


def render_failure(lease: str, kind: str, message: str) -> Message:
    """Return the entry of `results` for a failure that a retry cannot mend."""
    outcome = _render_outcome(Failed(Failure(kind, message), retryable=False))
    return Message("results", lease, msgspec.json.encode({"lease": lease, **outcome}))


def render_progress(lease: str, said: Said) -> Message:
    """Return the entry of `progress` for a running attempt."""
    fields = {
        "percent": said.percent,
        "message": said.message,
        "log": said.log,
        "stdout": said.output,
    }
    known = {name: _clean(value) for name, value in fields.items() if value is not None}
    return Message("progress", lease, msgspec.json.encode({"lease": lease, **known}))


def render_accept(lease: str) -> Message:
    """Return the entry of `accept` for an offer."""
    return Message("accept", lease, msgspec.json.encode(lease))


def render_reject(lease: str, reason: str) -> Message:
    """Return the entry of `reject` for an offer."""
    return Message("reject", lease, msgspec.json.encode({"lease": lease, "reason": reason}))


def _render_outcome(outcome: Outcome) -> Record:
    match outcome:
        case Completed(None):
            return {"outcome": "completed"}
        case Completed(result):
            return {"outcome": "completed", "result": msgspec.Raw(result or b"null")}
        case Failed(failure, retryable, retry_in_us):
            fields: Record = {"outcome": "failed", "error": _render_failure(failure)}
            if not retryable:
                fields["retryable"] = False
            if retry_in_us is not None:
                fields["retry_in"] = retry_in_us / SECOND
            return fields
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
    fields: Record = msgspec.to_builtins(failure)
    return {name: _clean(value) for name, value in fields.items()}


def _clean(value: object) -> object:
    """Replace U+0000 in a text: the server refuses it."""
    return value.replace("\0", "\ufffd") if isinstance(value, str) else value


def _render_capture(capture: CapturedOutput) -> Record:
    data = capture.head + capture.tail
    fields: Record = {"stream": capture.stream, "total_bytes": capture.total_bytes}
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    # A text cannot hold U+0000, and a text full of escapes is longer than its base64.
    if "\0" in text or len(msgspec.json.encode(text)) > 2 * len(data) + 2:
        return {**fields, "base64": base64.b64encode(data).decode()}
    return {**fields, "text": text}
