"""The log lines of failed and lost attempts."""

from __future__ import annotations

import json
import logging

import pytest

from schedo.core.ids import render_id
from schedo.core.limits import MINUTE, SECOND
from schedo.core.model import Failure
from schedo.core.outcomes import NEXT_RUN_FIRST, FailedAttempt
from schedo.core.states import State
from schedo.engine.failure_log import LINES_MAX, TASKS_MAX, FailureLog
from schedo.log_format import JsonFormatter

T0 = 1_800_000_000 * SECOND
JOB = render_id(7 << 6)


def failed(
    task: str = "report", *, payload: bytes | None = b"null", **changes: object
) -> FailedAttempt:
    attempt = FailedAttempt(
        job_id=7 << 6,
        task=task,
        attempt=2,
        outcome="failed",
        failure=Failure("KeyError", "'missing'"),
        failures=2,
        failures_max=6,
        state=State.RETRYING,
        due_at=T0 + 6 * SECOND,
        payload=payload,
    )
    return attempt._replace(**changes)  # type: ignore[arg-type]


def line(caplog: pytest.LogCaptureFixture, attempt: FailedAttempt) -> str:
    """Return what is logged about the attempt."""
    caplog.clear()
    FailureLog().note([attempt], T0)
    [record] = caplog.records
    return f"{record.levelname} {record.getMessage()}"


def test_a_failed_attempt_is_logged_with_its_error_and_what_comes_next(
    caplog: pytest.LogCaptureFixture,
) -> None:
    text = line(caplog, failed())

    assert text == (
        f"WARNING job {JOB} of task report: attempt 2 failed: KeyError: 'missing';"
        " it runs again in 6 s (failure 2 of 6)"
    )


def test_a_run_names_its_schedule_and_a_short_wait_is_not_zero(
    caplog: pytest.LogCaptureFixture,
) -> None:
    text = line(caplog, failed(schedule="nightly", due_at=T0 + SECOND // 5))

    assert text.startswith(f"WARNING job {JOB} of task report, schedule nightly: attempt 2 failed:")
    assert "it runs again in 200 ms" in text
    members = json.loads(JsonFormatter().format(caplog.records[0]))
    assert (members["schedule"], members["retry_in_s"]) == ("nightly", 0.2)


def test_a_job_that_is_given_up_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    text = line(caplog, failed(state=State.FAILED, failures=6))

    assert text.startswith(f"ERROR job {JOB} of task report: attempt 2 failed: KeyError")
    assert text.endswith("; it is not repeated (failure 6 of 6)")


def test_a_lost_attempt_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    lost = Failure("lost", "worker w1 is lost: it sent no request for 10 s")
    text = line(caplog, failed(outcome="lost", failure=lost, state=State.QUEUED))

    assert text.endswith(
        "attempt 2 was lost: worker w1 is lost: it sent no request for 10 s;"
        " it runs again as soon as a worker has room"
    )


def test_the_json_line_has_a_member_for_each_fact(caplog: pytest.LogCaptureFixture) -> None:
    line(caplog, failed())

    text = JsonFormatter().format(caplog.records[0])
    assert f'"job":"{JOB}","task":"report","attempt":2,"failures":2,"failures_max":6' in text
    assert '"error":"KeyError: \'missing\'"' in text
    assert '"retry_in_s":6' in text


@pytest.mark.parametrize(
    ("payload", "message", "shown"),
    [
        (b'{"to":"ada@x.org"}', "no such user: ada@x.org", "no such user: [payload]"),
        (b'["a",["hush-1","hush-12"]]', "hush-12, hush-1, a", "[payload], [payload], a"),
        (
            b'{"card":4111111,"n":12}',
            "4111111 was refused 12 times",
            "[payload] was refused 12 times",
        ),
        (b'"secret"', "x" * 190 + " secret and more", "x" * 190 + " [payload]"),
    ],
)
def test_the_log_shows_no_text_of_the_payload(
    caplog: pytest.LogCaptureFixture, payload: bytes, message: str, shown: str
) -> None:
    text = line(caplog, failed(payload=payload, failure=Failure("E", message)))

    assert f"failed: E: {shown}; it runs" in text


def test_without_the_payload_in_memory_only_the_type_of_the_error_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert "failed: KeyError; it runs" in line(caplog, failed(payload=None))


def test_a_refused_job_of_sql_is_logged_without_the_reason_which_may_quote_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    refused = Failure("refused", "/payload/url: 'ftp://secret' is wrong")
    text = line(caplog, failed(attempt=0, failure=refused, payload=None, state=State.FAILED))

    job_id = text.split()[2]
    assert text.endswith(f"is refused and never runs; schedo jobs show {job_id} says why")
    assert "secret" not in JsonFormatter().format(caplog.records[0])


def test_the_log_shows_no_output_of_a_command(caplog: pytest.LogCaptureFixture) -> None:
    failure = Failure("exit-code", "the command ended with exit code 4: hush")

    text = line(caplog, failed(failure=failure))

    assert "failed: exit-code: the command ended with exit code 4; it runs" in text


def test_a_failure_that_is_not_retried_for_the_next_run_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    message = f"the command ended with exit code 4: hush{NEXT_RUN_FIRST}"
    attempt = failed(failure=Failure("exit-code", message), state=State.FAILED, failures=1)

    text = line(caplog, attempt)

    assert text.endswith(
        "exit-code: the command ended with exit code 4; it is not retried, because the next run"
        " of its schedule comes first (failure 1 of 6)"
    )


def test_a_storm_of_failures_is_counted_after_some_lines(caplog: pytest.LogCaptureFixture) -> None:
    lines = FailureLog()

    for number in range(LINES_MAX + 5):
        lines.note([failed()], T0 + number)
    lines.note([failed("mail")], T0 + 1)
    lines.end_windows(T0 + MINUTE - 1)
    assert len(caplog.records) == LINES_MAX + 1

    lines.end_windows(T0 + MINUTE + 1)
    assert caplog.messages[-1] == (
        "task report: 5 further failed attempts were not logged within a minute; see schedo jobs ls"
    )
    lines.note([failed()], T0 + MINUTE + 2)
    assert len(caplog.records) == LINES_MAX + 3


def test_a_clock_that_is_set_back_ends_the_window(caplog: pytest.LogCaptureFixture) -> None:
    lines = FailureLog()
    for _ in range(LINES_MAX + 1):
        lines.note([failed()], T0)

    lines.end_windows(T0 - MINUTE)

    assert caplog.messages[-1].startswith("task report: 1 further failed attempt was")


def test_the_number_of_tasks_with_own_lines_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    lines = FailureLog()

    for number in range(TASKS_MAX + 50):
        lines.note([failed(f"task-{number}")], T0)
    caplog.set_level(logging.WARNING)
    lines.end_windows(T0 + MINUTE)

    assert caplog.messages == [
        "other tasks: 40 further failed attempts were not logged within a minute;"
        " see schedo jobs ls"
    ]
