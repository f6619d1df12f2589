"""Which jobs a filter selects; tests/store/contract_search.py compares it with the stores."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from schedo.core.ids import prefix_range, render_id
from schedo.core.job_filter import JobFilter, PayloadCondition
from schedo.core.limits import PAYLOAD_INLINE_BYTES_MAX
from schedo.core.model import Failure, Options
from schedo.core.states import State
from tests.factories import make_job

JOB = make_job(
    id=2**62,
    task="charge",
    queue="mail",
    worker="eu-1",
    state=State.FAILED,
    due_at=10,
    started_at=30,
    ended_at=50,
    unique_key="k",
    schedule_id=7,
    payload=b'{"order": 9781, "list": [1, "x"], "vip": false, "big": 18446744073709551615}',
    failure=Failure("Timeout", "no answer"),
    options=Options(tags=("red",)),
)


def value(path: str, text: str) -> dict[str, Any]:
    return {"payload": (PayloadCondition(tuple(path.split(".")), text),)}


@pytest.mark.parametrize(
    ("which", "is_met"),
    [
        ({}, True),
        ({"state": "failed", "queue": "mail", "task": "charge", "worker": "eu-1"}, True),
        ({"worker": "eu-2"}, False),
        ({"states": (State.FAILED, State.QUEUED)}, True),
        ({"states": (State.QUEUED,)}, False),
        ({"tag": "red", "unique_key": "k", "schedule_id": 7}, True),
        ({"tag": "blue"}, False),
        ({"created_after": 2**54, "created_before": 2**54 + 1}, True),
        ({"created_after": 2**54 + 1}, False),
        ({"created_before": 2**54}, False),
        ({"ended_after": 50, "ended_before": 51}, True),
        ({"ended_after": 51}, False),
        ({"ended_before": 50}, False),
        ({"error": "answer"}, True),
        ({"error": "Time"}, True),
        ({"error": "time"}, False),
        ({"late_over_us": 19}, True),
        ({"late_over_us": 20}, False),
        ({"text": "NO ANSWER"}, True),
        ({"text": "timeo"}, True),
        ({"text": "RED"}, True),
        ({"text": "9781"}, True),
        ({"text": render_id(2**62)[:5]}, True),
        ({"text": "nowhere"}, False),
        (value("order", "9781"), True),
        (value("order", "97810e-1"), True),
        (value("order", "true"), False),
        (value("order.x", "1"), False),
        (value("order.0", "1"), False),
        (value("list.1", "x"), True),
        (value("list.2", "x"), False),
        (value("list", "x"), False),
        (value("vip", "false"), True),
        (value("vip", "null"), False),
        (value("vip", "0"), False),
        (value("big", "18446744073709551615"), True),
        (value("big", "1e309"), False),
    ],
    ids=str,
)
def test_a_job_meets_all_conditions_of_a_filter(which: dict[str, Any], is_met: bool) -> None:
    assert JobFilter(**which).matches(JOB) is is_met


def test_a_waiting_job_is_late_as_long_as_it_waits() -> None:
    waiting = make_job(id=1, due_at=10)

    assert JobFilter(late_over_us=5, late_at=16).matches(waiting)
    assert not JobFilter(late_over_us=5, late_at=15).matches(waiting)
    assert not JobFilter(ended_after=0).matches(waiting)
    assert not JobFilter(error="x").matches(waiting)
    assert not JobFilter(text="answer").matches(waiting)


def test_a_job_that_never_started_was_not_late() -> None:
    cancelled = make_job(id=1, due_at=10, state=State.CANCELLED, ended_at=90)

    assert not JobFilter(late_over_us=5, late_at=99).matches(cancelled)


@pytest.mark.parametrize("payload", [None, b'"%b"' % (b"9781" * PAYLOAD_INLINE_BYTES_MAX)])
def test_a_large_payload_is_not_searched(payload: bytes | None) -> None:
    job = make_job(id=1, payload=payload)

    assert not JobFilter(text="9781").matches(job)
    assert not JobFilter(**value("order", "9781")).matches(job)


def test_a_filter_of_a_later_version_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        msgspec.json.decode(b'{"queue": "mail", "colour": "red"}', type=JobFilter)


@pytest.mark.parametrize("text", ["", "0CR", "ZZZZ", "0CR6U", "0CR6HNYEM0YGF0", "0C R6"])
def test_no_id_begins_with_such_a_text(text: str) -> None:
    first, last = prefix_range(text)

    assert last < first


def test_the_ids_of_a_prefix_are_a_range() -> None:
    first, last = prefix_range("0cr6hn")

    assert render_id(first) == "0CR6HN0000000"
    assert render_id(last) == "0CR6HNZZZZZZZ"
