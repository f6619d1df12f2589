"""The limits of the values that workers report."""

from __future__ import annotations

import pytest

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
)
from schedo.core.model import Failure, LeaseKey
from schedo.core.strict_json import CheckedJson
from schedo.core.value_limits import fit_report, fit_text

KEY = LeaseKey(1, 1, 1)
CENTURY_US = 100 * 366 * 86_400 * 1_000_000


def refused(kind: str, message: str) -> Failed:
    return Failed(Failure(kind, message), retryable=False)


@pytest.mark.parametrize(
    ("outcome", "wanted"),
    [
        (Completed(None), Completed(None)),
        (Completed(b"null"), Completed(None)),
        (Completed(b'{"a":1}'), Completed(b'{"a":1}')),
        (Stopped(), Stopped()),
        (Released(), Released()),
        (Lost("gone\0", Blame.SHARED), Lost("gone\ufffd", Blame.SHARED)),
        (Snoozed(5), Snoozed(5)),
        (Snoozed(-5), Snoozed(0)),
        (Snoozed(2**64), Snoozed(CENTURY_US)),
        (Failed(Failure("e", "m"), True, -1), Failed(Failure("e", "m"), True, 0)),
        (Failed(Failure("e", "m"), True, 10**30), Failed(Failure("e", "m"), True, CENTURY_US)),
        (
            Failed(Failure("", "\ud800" * 3_000, 2**63, "S" * 200, -(2**63), "\ud800" * 20_000)),
            Failed(Failure("error", "?" * 2_048, None, "S" * 128, None, "?" * 14_336)),
        ),
        (
            Failed(Failure("e", "m", 3_221_225_477, None, 599)),
            Failed(Failure("e", "m", 3_221_225_477, None, 599)),
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_outcome_is_cut_to_the_limits(outcome: Outcome, wanted: Outcome) -> None:
    assert fit_report(AttemptResult(KEY, outcome)) == AttemptResult(KEY, wanted)


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        (b"", "result-not-json"),
        (b"no json", "result-not-json"),
        (b"[1,", "result-not-json"),
        (b"NaN", "result-not-json"),
        (b"1 2", "result-not-json"),
        (b'"\xff"', "result-not-json"),
        (b"[" * 100_000 + b"]" * 100_000, "result-not-json"),
        (b"[" * 65 + b"]" * 65, "result-not-json"),
        (b'{"a":"\\u0000"}', "result-not-json"),
        (b"[9223372036854775808]", "result-not-json"),
        (b'{"a":1,"a":2}', "result-not-json"),
        (b'"' + b"x" * 1_048_575 + b'"', "result-too-large"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_a_result_that_cannot_be_stored_fails_the_job_without_a_retry(
    result: bytes, kind: str
) -> None:
    outcome = fit_report(AttemptResult(KEY, Completed(result))).outcome

    assert isinstance(outcome, Failed)
    assert (outcome.failure.type, outcome.retryable) == (kind, False)


@pytest.mark.parametrize(
    ("captures", "wanted"),
    [
        ([CapturedOutput("stdout", b"ab", b"cd", 4)], [CapturedOutput("stdout", b"ab", b"cd", 4)]),
        ([CapturedOutput("stdout", b"ab", b"", 0)], [CapturedOutput("stdout", b"ab", b"", 2)]),
        ([CapturedOutput("body", b"ab", b"", -(2**70))], [CapturedOutput("body", b"ab", b"", 2)]),
        ([CapturedOutput("body", b"", b"", 2**63)], [CapturedOutput("body", b"", b"", 2**53 - 1)]),
        (
            [CapturedOutput("stdout", b"a", b"", 1), CapturedOutput("stdout", b"b", b"", 1)],
            [CapturedOutput("stdout", b"b", b"", 1)],
        ),
        (
            [CapturedOutput("stderr", b"a" * 2_000_000, b"b", 5)],
            [CapturedOutput("stderr", b"a" * 524_288, b"b", 2_000_001)],
        ),
    ],
    ids=["fits", "too few", "negative", "too many", "twice", "too long"],
)
def test_captured_output_is_cut_to_the_limits(
    captures: list[CapturedOutput], wanted: list[CapturedOutput]
) -> None:
    report = fit_report(AttemptResult(KEY, Stopped(), tuple(captures)))

    assert list(report.output) == wanted


@pytest.mark.parametrize(
    ("text", "keep_end", "wanted"),
    [
        ("plain", False, "plain"),
        ("0123456789", False, "01234567"),
        ("0123456789", True, "23456789"),
        ("a\0b\ud800c", False, "a\ufffdb?c"),
        ("\U0001f600" * 9, False, "\U0001f600" * 8),
    ],
)
def test_a_text_is_cut_and_cleaned(text: str, keep_end: bool, wanted: str) -> None:
    assert fit_text(text, 8, keep_end=keep_end) == wanted


def test_a_result_that_is_already_checked_is_not_checked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("it was read again")

    monkeypatch.setattr("schedo.core.value_limits.decode_strictly", refuse)

    report = fit_report(AttemptResult(KEY, Completed(CheckedJson(b"[1]"))))

    assert report.outcome == Completed(b"[1]")
    assert isinstance(report.outcome, Completed)
    assert type(report.outcome.result) is bytes
