"""Output is printed as it comes, each byte once."""

from __future__ import annotations

from typing import Any

import pytest

from schedo.client import operations
from tests.cli.conftest import Call
from tests.client.server import JOB_ID, FakeServer, job_record

JOB = f"/v1/jobs/{JOB_ID}"


def report(stdout: str, end: int, attempt: int = 1) -> dict[str, Any]:
    return {
        "at": "2026-11-20T11:00:00.000000Z",
        "attempt": attempt,
        "stdout": stdout,
        "stdout_bytes": end,
    }


def stored(text: str, total: int | None = None, attempt: int = 1) -> dict[str, Any]:
    return {
        "attempt": attempt,
        "stream": "stdout",
        "text": text,
        "total_bytes": len(text) if total is None else total,
        "truncated": total is not None,
    }


def follow(
    server: FakeServer, schedo: Call, reports: list[dict[str, Any]], output: dict[str, Any]
) -> tuple[str, str]:
    """Return what is printed of a job whose progress is one report after another."""
    server.on("GET", JOB, 200, job_record(state="running", task="shell"))
    for _ in reports:
        server.on("GET", f"{JOB}/wait", 200, job_record(state="running", task="shell"))
    server.on("GET", f"{JOB}/wait", 200, job_record(state="completed", task="shell"))
    for each in reports:
        server.on("GET", f"{JOB}/progress", 200, {"items": [each]})
    server.on("GET", f"{JOB}/output", 200, {"items": [output]})

    result = schedo("jobs", "output", JOB_ID, "--follow")

    assert result.exit_code == 0
    return result.stdout, result.stderr


@pytest.mark.parametrize(
    ("reports", "whole"),
    [
        ([], "all of it"),
        ([report("one ", 4), report("one two ", 8)], "one two three"),
        ([report("one ", 4), report("two ", 8)], "one two three"),
        ([report("one ", 4), report("one ", 4)], "one two"),
        ([report("one ", 4), report("three ", 14)], "one two three four"),
        ([report("\ufffd", 1)], "in another encoding"),
        ([report("é", 2), report("éa", 3)], "éab"),
        ([report("first", 5), report("2nd ", 4, attempt=2)], "2nd try"),
    ],
    ids=[
        *("nothing before the end", "the same start", "only the end", "nothing new"),
        *("a gap", "not text", "not ascii", "a new attempt"),
    ],
)
def test_each_byte_of_the_last_attempt_is_printed_once(
    server: FakeServer, schedo: Call, reports: list[dict[str, Any]], whole: str
) -> None:
    attempt = reports[-1]["attempt"] if reports else 1
    output = stored(whole, attempt=attempt)

    shown, noted = follow(server, schedo, reports, {**output, "total_bytes": len(whole.encode())})

    assert shown == ("first" if attempt == 2 else "") + whole
    assert noted == ("schedo: attempt 2 begins\n" if attempt == 2 else "")


HALF = 524_288


@pytest.mark.parametrize(
    ("printed", "total", "rest"),
    [
        (4, HALF * 3, "a" * (HALF - 4) + "[...]" + "z" * HALF),
        (HALF + 4, HALF * 3, f"\n[... {HALF - 4} bytes left out ...]\n" + "z" * HALF),
        (HALF * 2 + 4, HALF * 3, "z" * (HALF - 4)),
    ],
    ids=["within the start", "within the gap", "within the end"],
)
def test_the_rest_of_a_long_output_follows_on_what_was_printed(
    server: FakeServer, schedo: Call, printed: int, total: int, rest: str
) -> None:
    ends = [report("x" * printed, printed)]
    output = stored("a" * HALF + "[...]" + "z" * HALF, total)

    shown, _ = follow(server, schedo, ends, output)

    assert shown == "x" * printed + rest


@pytest.mark.parametrize("command", [("output", "--follow"), ("wait",), ("wait", "--json")])
def test_ctrl_c_leaves_the_job_running_and_says_so(
    schedo: Call, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(operations, "wait_job", interrupted)

    result = schedo("jobs", command[0], JOB_ID, *command[1:])

    assert (result.exit_code, result.stdout) == (130, "")
    assert result.stderr == f"schedo: interrupted; job {JOB_ID} continues\n"


def test_follow_prints_all_streams_as_they_are(schedo: Call) -> None:
    result = schedo("jobs", "output", JOB_ID, "--follow", "--json")

    assert result.exit_code == 2
    assert "--follow prints all streams" in result.stderr


def test_the_output_of_a_running_job_hints_at_follow(server: FakeServer, schedo: Call) -> None:
    server.on("GET", f"{JOB}/output", 200, {"items": []})
    server.on("GET", JOB, 200, job_record(state="running"))

    assert "--follow prints output now" in schedo("jobs", "output", JOB_ID).stderr


def test_a_job_that_is_due_and_does_not_start_says_what_it_waits_for(
    server: FakeServer, schedo: Call
) -> None:
    server.on("GET", JOB, 200, job_record(state="queued"))
    for _ in range(6):
        server.on("GET", f"{JOB}/wait", 200, job_record(state="queued"))
    server.on("GET", f"{JOB}/wait", 200, job_record(state="completed"))
    server.on("GET", f"{JOB}/why", 200, {"why": "the server is paused"})
    server.on("GET", f"{JOB}/progress", 200, {"items": []})
    server.on("GET", f"{JOB}/output", 200, {"items": []})

    result = schedo("jobs", "wait", JOB_ID)

    assert result.stderr == f"schedo: job {JOB_ID} waits: the server is paused\n"
    assert [r.target for r in server.requests].count(f"{JOB}/why") == 2
