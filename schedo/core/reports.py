"""What a report must be before it may change a job.

A worker is somebody else's program. What it reports goes into rows, and one value that no column
takes would fail the commit of everything beside it.
"""

from __future__ import annotations

import msgspec

from schedo.core.leases import Capture, Completed, Failed, Lost, Outcome, Report, Snoozed
from schedo.core.limits import DURATION_MAX, ERROR_BYTES_MAX, INTEGER_MAX
from schedo.core.model import Failure

UNFIT = "unfit-report"


def find_fault(report: Report) -> str | None:
    """Return what of the report cannot be kept, or None."""
    for capture in report.output:
        fault = _fault_of_capture(capture)
        if fault is not None:
            return fault
    outcome = report.outcome
    if type(outcome) is Completed:  # nearly all of them
        result = outcome.result
        return None if result is None or type(result) is bytes else "its result is not bytes"
    return _fault_of_outcome(outcome)


def refused(report: Report, fault: str) -> Report:
    """Return the report that stands for one that cannot be kept: the job fails, for good."""
    failure = Failure(UNFIT, f"the worker's report cannot be kept: {fault}"[:ERROR_BYTES_MAX])
    return Report(report.key, Failed(failure, retryable=False))


def is_refused(report: Report) -> bool:
    """Return whether the report stands for one that cannot be kept."""
    return isinstance(report.outcome, Failed) and report.outcome.failure.type == UNFIT


def _fault_of_capture(capture: Capture) -> str | None:
    if not _is_count(capture.total_bytes, INTEGER_MAX):
        return "the size of an output is no number of bytes"
    if type(capture.head) is not bytes or type(capture.tail) is not bytes:
        return "an output is not bytes"
    return None if _is_text(capture.stream) else "the name of an output is not text"


def _fault_of_outcome(outcome: Outcome) -> str | None:
    match outcome:
        case Snoozed(delay_us) if not _is_count(delay_us, DURATION_MAX):
            return "it puts the job off by no duration"
        case Failed(retry_in_us=delay) if delay is not None and not _is_count(delay, DURATION_MAX):
            return "it asks for a retry after no duration"
        case Failed(failure):
            try:
                msgspec.json.encode(failure)
            except (ValueError, TypeError, OverflowError) as error:  # also of text that is no UTF-8
                return f"its error cannot be written down ({type(error).__name__})"
        case Lost(message) if not _is_text(message):
            return "its message is not text"
    return None


def _is_count(value: object, most: int) -> bool:
    return type(value) is int and 0 <= value <= most


def _is_text(value: object) -> bool:
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False
