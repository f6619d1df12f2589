"""The results in a worker's request, in both directions.

The worker makes them with `of`; the server reads them with `to_result`, and core/value_limits.py
cuts what is too long.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any, Literal, Self, cast

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from schedo.core import limits
from schedo.core.leases import (
    AttemptResult,
    Blame,
    CapturedOutput,
    Completed,
    Failed,
    Lost,
    Outcome,
    Released,
    Snoozed,
    Stopped,
    StreamName,
)
from schedo.core.model import Failure
from schedo.core.strict_json import CheckedJson
from schedo.errors import Invalid
from schedo.protocol import fields
from schedo.protocol.fields import Duration
from schedo.protocol.leases import LeaseText, parse_lease

OutcomeName = Literal["completed", "failed", "snoozed", "stopped", "released", "lost"]
_HALF = limits.OUTPUT_BYTES_MAX // 2
_STREAMS_MAX = 3
_LOST = "the process that ran it on its worker has died"


class ErrorRequest(Struct, omit_defaults=True):
    """The error of a failed or lost attempt."""

    type: str = "error"
    message: str = ""
    exit_code: int | None = None
    signal: str | None = None
    http_status: int | None = None
    traceback: str | None = None

    @classmethod
    def of(cls, failure: Failure) -> Self:
        """Return the failure without U+0000, which the server refuses."""
        values = msgspec.structs.asdict(failure)
        return cls(**{name: without_nul(value) for name, value in values.items()})

    def to_failure(self) -> Failure:
        return Failure(**msgspec.structs.asdict(self))


class OutputRequest(Struct, omit_defaults=True):
    """The captured output of one stream: text, or base64 if it may not be UTF-8."""

    stream: StreamName
    text: str | None = None
    base64: str | None = None
    total_bytes: Annotated[int, Meta(ge=0)] | None = None

    @classmethod
    def of(cls, capture: CapturedOutput) -> Self:
        data = capture.head + capture.tail
        entry = cls(capture.stream, total_bytes=capture.total_bytes)
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = "\0"
        # A text cannot hold U+0000, and a text full of escapes is longer than its base64.
        if "\0" in text or len(msgspec.json.encode(text)) > 2 * len(data) + 2:
            entry.base64 = base64.b64encode(data).decode()
        else:
            entry.text = text
        return entry

    def to_capture(self, pointer: str) -> CapturedOutput:
        """Return the output as a first and a last half."""
        if (self.text is None) == (self.base64 is None):
            raise Invalid.field(pointer, "give text or base64")
        kept = self.text.encode() if self.text is not None else self._decode(pointer)
        total = max(len(kept), self.total_bytes or 0)
        if total == len(kept) <= limits.OUTPUT_BYTES_MAX:
            return CapturedOutput(self.stream, kept[:_HALF], kept[_HALF:], total)
        # If bytes are missing, they are missing in the middle.
        half = min(_HALF, len(kept) // 2)
        return CapturedOutput(self.stream, kept[:half], kept[len(kept) - half :], total)

    def _decode(self, pointer: str) -> bytes:
        try:
            return base64.b64decode(self.base64 or "", validate=True)
        except (binascii.Error, ValueError):
            raise Invalid.field(f"{pointer}/base64", "this is not base64") from None


class ResultRequest(Struct, omit_defaults=True):
    """The result of one attempt."""

    lease: LeaseText
    outcome: OutcomeName
    result: Raw | UnsetType = UNSET
    error: ErrorRequest | None = None
    blame: Literal["sole", "shared", "none"] | None = None
    retryable: bool | None = None
    retry_in: Duration | None = None
    delay: Duration | None = None
    output: Annotated[list[OutputRequest], Meta(max_length=_STREAMS_MAX)] | None = None
    ran: Duration | None = None  # how long the worker itself ran it

    @classmethod
    def of(cls, lease: str, result: AttemptResult) -> Self:
        entry = cls(lease, cast(OutcomeName, result.outcome.__struct_config__.tag))
        entry._set_outcome(result.outcome)
        if result.output:
            entry.output = [OutputRequest.of(capture) for capture in result.output]
        if result.ran_us is not None:
            entry.ran = result.ran_us / limits.SECOND
        return entry

    def _set_outcome(self, outcome: Outcome) -> None:
        match outcome:
            case Completed(result) if result is not None:
                self.result = Raw(result or b"null")
            case Failed(failure, retryable, retry_in_us):
                self.error = ErrorRequest.of(failure)
                self.retryable = None if retryable else False
                self.retry_in = None if retry_in_us is None else retry_in_us / limits.SECOND
            case Snoozed(delay_us):
                self.delay = delay_us / limits.SECOND
            case Lost(message, blame):
                self.blame = blame.value
                self.error = ErrorRequest.of(Failure("lost", message))

    def to_result(self, pointer: str) -> AttemptResult:
        return AttemptResult(
            parse_lease(self.lease, f"{pointer}/lease"),
            self._read_outcome(pointer),
            self._read_output(pointer),
            fields.read_duration_or_none(f"{pointer}/ran", self.ran),
        )

    def _read_output(self, pointer: str) -> tuple[CapturedOutput, ...]:
        output = self.output or []
        if len({each.stream for each in output}) < len(output):
            raise Invalid.field(f"{pointer}/output", "a stream occurs twice")
        return tuple(each.to_capture(f"{pointer}/output/{at}") for at, each in enumerate(output))

    def _read_outcome(self, pointer: str) -> Outcome:
        match self.outcome:
            case "completed":
                return self._read_result()
            case "failed":
                return self._read_failure(pointer)
            case "snoozed":
                if self.delay is None:
                    raise Invalid.field(f"{pointer}/delay", "a snooze needs its delay")
                return Snoozed(fields.read_duration(f"{pointer}/delay", self.delay))
            case "stopped":
                return Stopped()
            case "released":
                return Released()
            case "lost":
                said = (self.error or ErrorRequest()).to_failure().message
                return Lost(said or _LOST, Blame(self.blame or "sole"))

    def _read_result(self) -> Outcome:
        # The whole request was checked strictly, including the result.
        result = None if isinstance(self.result, UnsetType) else CheckedJson(self.result)
        return Completed(result)

    def _read_failure(self, pointer: str) -> Outcome:
        if self.error is None:
            raise Invalid.field(f"{pointer}/error", "a failure needs its error")
        retry_in_us = fields.read_duration_or_none(f"{pointer}/retry_in", self.retry_in)
        return Failed(self.error.to_failure(), self.retryable is not False, retry_in_us)


def without_nul(value: Any) -> Any:
    """Replace U+0000 in a text: the server refuses it."""
    return value.replace("\0", "\ufffd") if isinstance(value, str) else value
