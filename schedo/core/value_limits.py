"""Limits for the values that workers report, so that the store and the API can hold them.

A command, the receiver of a webhook or a handler can return anything: numbers that no column holds,
text that is not UTF-8, results that are not JSON. Text that is too long is cut, and a number out of
range is omitted. A result that cannot be stored fails the job without a retry, because the next
attempt would return it again. A result must be JSON by the rules of the API (core/strict_json.py).

The engine applies these limits once to every result before it changes a job (engine/loop.py). A
worker in another process applies them before it sends a result, so that none is refused.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

from schedo.core import limits
from schedo.core.leases import (
    STREAMS,
    AttemptResult,
    CapturedOutput,
    Completed,
    Failed,
    Lost,
    Outcome,
    Snoozed,
)
from schedo.core.model import Failure
from schedo.core.strict_json import CheckedJson, decode_strictly
from schedo.errors import BadJson

MESSAGE_CHARACTERS_MAX = 2_048
TRACEBACK_CHARACTERS_MAX = limits.ERROR_BYTES_MAX - MESSAGE_CHARACTERS_MAX
NOTE_CHARACTERS_MAX = 1_000  # of a progress message, or of the reason for a rejected offer
LOG_CHARACTERS_MAX = 16_384
PARTIAL_CHARACTERS_MAX = 65_536  # of the output so far

_NOTHING = Completed()
_HALF_BYTES = limits.OUTPUT_BYTES_MAX // 2

_SHORT_BYTES = 64
_SHORT_RESULTS_KEPT = 1_024

UNFIT = "unfit-report"


def fit_text(text: str, characters_max: int, *, keep_end: bool = False) -> str:
    """Return the start or the end of the text, without lone surrogates and U+0000."""
    if len(text) > characters_max:
        text = text[-characters_max:] if keep_end else text[:characters_max]
    if text.isascii() and "\0" not in text:
        return text
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def fit_count(count: int) -> int:
    """Return the count, limited to 0 and the largest number that all JSON readers keep exactly."""
    return min(max(count, 0), limits.COUNT_MAX)


def fit_report(result: AttemptResult) -> AttemptResult:
    """Return the result within the limits, or a result that fails the job without a retry."""
    outcome = result.outcome
    if not result.output and type(outcome) is Completed:
        value = outcome.result
        if value is None:
            return result
        if type(value) is bytes and len(value) <= _SHORT_BYTES and _can_be_kept(value):
            return result
    try:
        fitted, output = _fit_outcome(outcome), _fit_captures(result.output)
        return AttemptResult(result.key, fitted, output, result.ran_us)
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        return refused(result, f"it holds a value of another type ({error})")


@lru_cache(_SHORT_RESULTS_KEPT)
def _can_be_kept(value: bytes) -> bool:
    """Return whether the result can be stored unchanged; cached, because most results repeat."""
    return fit_result(value) == Completed(value)


def refused(result: AttemptResult, reason: str) -> AttemptResult:
    """Return a result in place of one that cannot be stored: it fails the job without a retry."""
    message = fit_text(f"the worker's report cannot be stored: {reason}", MESSAGE_CHARACTERS_MAX)
    outcome = Failed(Failure(UNFIT, message), retryable=False)
    return AttemptResult(result.key, outcome, ran_us=result.ran_us)


def is_refused(result: AttemptResult) -> bool:
    """Return whether the result was made by `refused`."""
    return isinstance(result.outcome, Failed) and result.outcome.failure.type == UNFIT


def _fit_outcome(outcome: Outcome) -> Outcome:
    match outcome:
        case Completed(result):
            return fit_result(result)
        case Failed(failure, retryable, retry_in_us):
            delay_us = None if retry_in_us is None else fit_delay(retry_in_us)
            return Failed(fit_failure(failure), retryable, delay_us)
        case Snoozed(delay_us):
            return Snoozed(fit_delay(delay_us))
        case Lost(message, blame):
            return Lost(fit_text(message, MESSAGE_CHARACTERS_MAX), blame)
        case _:
            return outcome


def fit_delay(delay_us: int) -> int:
    """Return the delay in microseconds, limited to 0 and DURATION_MAX; raise TypeError."""
    _check_type(delay_us, int)
    return min(max(delay_us, 0), limits.DURATION_MAX)


def fit_result(result: bytes | None) -> Outcome:
    """Return the outcome of an attempt that completed with this result, which should be JSON."""
    if result is None or result == b"null":
        return _NOTHING
    if not isinstance(result, CheckedJson):
        _check_type(result, bytes)
    if len(result) > limits.RESULT_BYTES_MAX:
        return refuse_result(
            "result-too-large",
            f"takes {len(result)} bytes as JSON; at most {limits.RESULT_BYTES_MAX} are stored",
        )
    if isinstance(result, CheckedJson):
        return Completed(bytes(result))
    try:
        decode_strictly(result, "it")
    except BadJson as error:
        return refuse_result("result-not-json", f"cannot be stored as JSON: {error}")
    return Completed(result)


def _check_type(value: object, expected: type) -> None:
    if type(value) is not expected:
        raise TypeError(f"{type(value).__name__} is not {expected.__name__}")


def refuse_result(kind: str, why: str) -> Failed:
    """Return the outcome for a result that cannot be stored; `why` completes the message."""
    message = fit_text(f"the task ran, but its result {why}", MESSAGE_CHARACTERS_MAX)
    return Failed(Failure(kind, message), retryable=False)


def fit_failure(failure: Failure) -> Failure:
    """Return the failure with its texts cut and without numbers that are out of range."""
    return Failure(
        type=fit_text(failure.type, limits.NAME_CHARACTERS_MAX) or "error",
        message=fit_text(failure.message, MESSAGE_CHARACTERS_MAX),
        exit_code=_fit_number(failure.exit_code),
        signal=failure.signal and fit_text(failure.signal, limits.NAME_CHARACTERS_MAX),
        http_status=_fit_number(failure.http_status),
        traceback=failure.traceback
        and fit_text(failure.traceback, TRACEBACK_CHARACTERS_MAX, keep_end=True),
    )


def _fit_number(number: int | None) -> int | None:
    return None if number is None or abs(number) > limits.COUNT_MAX else number


def _fit_captures(captures: Collection[CapturedOutput]) -> tuple[CapturedOutput, ...]:
    if not captures:
        return ()
    by_stream = {capture.stream: capture for capture in captures}  # at most one capture per stream
    return tuple(_fit_capture(capture) for capture in by_stream.values())


def _fit_capture(capture: CapturedOutput) -> CapturedOutput:
    head, tail = capture.head, capture.tail
    if capture.stream not in STREAMS:
        raise ValueError("an output stream with an unknown name")
    for part in (head, tail):
        _check_type(part, bytes)
    _check_type(capture.total_bytes, int)
    total = fit_count(max(capture.total_bytes, len(head) + len(tail)))
    if len(head) + len(tail) > limits.OUTPUT_BYTES_MAX:
        head, tail = head[:_HALF_BYTES], tail[-_HALF_BYTES:]
    return CapturedOutput(capture.stream, head, tail, total)
