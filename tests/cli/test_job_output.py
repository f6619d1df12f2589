"""`schedo jobs output` of a job that has none."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Call
from tests.client.server import JOB_ID, FakeServer, job_record

JOB = f"/v1/jobs/{JOB_ID}"


def test_an_attempt_that_ended_without_output_is_not_said_to_run(
    server: FakeServer, schedo: Call
) -> None:
    server.on("GET", f"{JOB}/output", 200, {"items": []})
    server.on("GET", JOB, 200, job_record(state="scheduled", attempt=1))

    assert schedo("jobs", "output", JOB_ID).stderr == (
        "schedo: no output is kept of an attempt that has ended; --follow prints output now\n"
    )


@pytest.mark.parametrize("which", [("--stream", "stderr"), ("--attempt", "2")], ids=str)
def test_a_stream_or_attempt_without_output_is_not_taken_for_a_job_without_output(
    server: FakeServer, schedo: Call, which: tuple[str, str]
) -> None:
    kept = {"attempt": 1, "stream": "stdout", "text": "hello\n", "total_bytes": 6}
    server.on("GET", f"{JOB}/output", 200, {"items": [kept]})
    server.on("GET", JOB, 200, job_record(state="completed"))

    result = schedo("jobs", "output", JOB_ID, *which)

    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "schedo: the job has output, but none of this stream or attempt\n"
