"""The messages of the worker protocol as JSON."""

from __future__ import annotations

import json
from typing import Any

import msgspec
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
    StopReason,
)
from schedo.core.model import Failure, LeaseKey, Trigger
from schedo.errors import Invalid, SchedoError
from schedo.protocol.leases import StopResponse
from schedo.protocol.results import ResultRequest
from schedo.protocol.work import parse_response
from tests.worker.remote.server import LEASE, answer_of, lease_of

KEY = LeaseKey(33, 1, 7)


def rendered(outcome: Outcome, *output: CapturedOutput) -> dict[str, Any]:
    entry = ResultRequest.of(LEASE, AttemptResult(KEY, outcome, output))
    result: dict[str, Any] = json.loads(msgspec.json.encode(entry))
    assert result.pop("lease") == LEASE
    return result


OUTCOMES: dict[str, tuple[Outcome, dict[str, Any]]] = {
    "nothing": (Completed(), {"outcome": "completed"}),
    "a result": (Completed(b'{"n":1}'), {"outcome": "completed", "result": {"n": 1}}),
    "an error": (
        Failed(Failure("exit-code", "it ended with 3", exit_code=3)),
        {
            "outcome": "failed",
            "error": {"type": "exit-code", "message": "it ended with 3", "exit_code": 3},
        },
    ),
    "an error without a retry": (
        Failed(Failure("discarded", "no\0pe"), retryable=False, retry_in_us=1_500_000),
        {
            "outcome": "failed",
            "error": {"type": "discarded", "message": "no\ufffdpe"},
            "retryable": False,
            "retry_in": 1.5,
        },
    ),
    "a snooze": (Snoozed(90_000_000), {"outcome": "snoozed", "delay": 90.0}),
    "a stop": (Stopped(), {"outcome": "stopped"}),
    "given back": (Released(), {"outcome": "released"}),
    "a loss": (
        Lost("its process died", Blame.SHARED),
        {
            "outcome": "lost",
            "blame": "shared",
            "error": {"type": "lost", "message": "its process died"},
        },
    ),
}


@pytest.mark.parametrize(("outcome", "expected"), OUTCOMES.values(), ids=list(OUTCOMES))
def test_an_outcome_of_each_kind_is_rendered(outcome: Outcome, expected: dict[str, Any]) -> None:
    assert rendered(outcome) == expected


def test_how_long_an_attempt_ran_is_sent_in_seconds_and_read_back() -> None:
    result = AttemptResult(KEY, Completed(), (), 1_250_000)

    entry = ResultRequest.of(LEASE, result)

    assert json.loads(msgspec.json.encode(entry))["ran"] == 1.25
    assert entry.to_result("/results/0") == result


def test_output_is_base64_only_if_it_cannot_be_text() -> None:
    result = rendered(
        Completed(),
        CapturedOutput("stdout", b"caf\xc3", b"\xa9", 5),
        CapturedOutput("stderr", b"a\0", b"", 2),
        CapturedOutput("body", b"\xff", b"", 9),
    )

    assert result["output"] == [
        {"stream": "stdout", "total_bytes": 5, "text": "café"},
        {"stream": "stderr", "total_bytes": 2, "base64": "YQA="},
        {"stream": "body", "total_bytes": 9, "base64": "/w=="},
    ]


def test_every_field_of_a_lease_is_read() -> None:
    body = json.dumps(
        answer_of(
            leases=[
                lease_of(
                    payload={"Num": 1},
                    trigger="catchup",
                    missed_count=3,
                    schedule="nightly",
                    failures=2,
                    max_attempts=4,
                    timeout=1.5,
                    tags=["a"],
                    meta={"k": 1},
                    traceparent="00-1-2-3",
                    at_most_once=True,
                    suspect=True,
                )
            ]
        )
    ).encode()

    (given,) = parse_response(body).leases
    lease = given.read("w1", 9)

    assert lease.key == KEY
    assert (lease.worker, lease.task, lease.queue) == ("w1", "work", "default")
    assert lease.is_suspect
    assert (lease.failures, lease.max_attempts, lease.started_at) == (2, 4, 9)
    assert lease.options.schedule == "nightly"
    assert (lease.payload, lease.trigger, lease.missed_count) == (
        b'{"Num": 1}',
        Trigger.CATCHUP,
        3,
    )
    options = lease.options
    assert (options.timeout_us, options.at_most_once) == (1_500_000, True)
    assert (options.tags, options.meta, options.traceparent) == (("a",), {"k": 1}, "00-1-2-3")


@pytest.mark.parametrize("name", sorted(lease_of()))
def test_a_lease_without_a_promised_field_is_an_error(name: str) -> None:
    given = lease_of()
    del given[name]

    with pytest.raises(SchedoError, match=f"missing required field `{name}`"):
        parse_response(json.dumps(answer_of(leases=[given])).encode())


@pytest.mark.parametrize("text", ["", "x", "0000000000011.1", "0000000000011.-1.7", "U.1.2"])
def test_a_malformed_lease_is_refused(text: str) -> None:
    (given,) = parse_response(json.dumps(answer_of(leases=[lease_of(lease=text)])).encode()).leases

    with pytest.raises(Invalid, match="no lease"):
        given.read("w1", 9)


@pytest.mark.parametrize(
    ("reason", "expected"),
    [("cancel", StopReason.CANCEL), ("timeout", StopReason.TIMEOUT), ("?", StopReason.CANCEL)],
)
def test_every_reason_of_a_stop_is_read_and_an_unknown_one_means_cancel(
    reason: str, expected: StopReason
) -> None:
    assert StopResponse(LEASE, reason).read_reason() is expected


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"drain": 3}', b"[" * 5_000], ids=len)
def test_a_malformed_response_is_an_error(body: bytes) -> None:
    with pytest.raises(SchedoError, match="the response is not one of a schedo server"):
        parse_response(body)
