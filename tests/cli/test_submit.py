"""`schedo submit`: the payloads it sends, and what --wait prints."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Call
from tests.client.server import JOB_ID, FakeServer, job_record, problem


@pytest.mark.parametrize(
    ("args", "payload"),
    [
        ([], None),
        (["to=ada@example.org", "count=3"], {"to": "ada@example.org", "count": 3}),
        (
            ["a=true", "b=null", "c=[1, 2]", 'd={"x": 1}'],
            {"a": True, "b": None, "c": [1, 2], "d": {"x": 1}},
        ),
        (['text="3"', "empty=", "sum=1=2"], {"text": "3", "empty": "", "sum": "1=2"}),
        (["x=NaN", "y=-Infinity", "z={"], {"x": "NaN", "y": "-Infinity", "z": "{"}),
        (["--payload", "[1, 2]"], [1, 2]),
        (["--payload", "null"], None),
    ],
    ids=["none", "words", "json values", "text", "not json", "payload", "null"],
)
def test_the_payload_is_made_of_the_arguments(
    server: FakeServer, schedo: Call, args: list[str], payload: object
) -> None:
    server.on("POST", "/v1/jobs", 201, job_record())

    result = schedo("submit", "send_email", *args)

    assert (result.exit_code, result.stdout) == (0, f"{JOB_ID}  queued\n")
    assert server.requests[0].json == {"task": "send_email", "payload": payload}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["to"], "'to' is not KEY=VALUE"),
        (["=3"], "'=3' is not KEY=VALUE"),
        (["to=a", "to=b"], "'to' is given twice"),
        (["to=a", "--payload", "{}"], "give either KEY=VALUE or --payload"),
        (["--payload", "{"], "is not JSON"),
        (["--in", "5s", "--at", "18:30"], "give only one of --in and --at"),
        (["--delay", "5s"], "No such option '--delay'. Did you mean '--in'?"),
        (["--run-at", "18:30"], "No such option '--run-at'. Did you mean '--at'?"),
        (["--wait", "--broadcast"], "--wait cannot be used with --broadcast"),
        (["--in", "5 minutes"], """'--in': '5 minutes' is not a duration; write "90s", "1h30m","""),
        (["--timeout", "-5s"], "'--timeout': '-5s' is negative"),
        (["--expires-in", "1mo"], "'--expires-in': '1mo' is not a duration"),
        (["--at", "9pm"], """'--at': '9pm' is not a time; write "18:30", "2026-11-20 18:30" or"""),
        (["--at", "2026-02-30T09:00:00Z"], "'--at': '2026-02-30T09:00:00Z' is not a time: day"),
        (["--expires-at", "2026-02-30"], "'--expires-at': '2026-02-30' is not a time; write"),
        (["--keep", "completed=1 day"], "'--keep': '1 day' is not a duration"),
        (["--priority", "10"], "'--priority': 10 is not in the range"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_arguments_are_refused_before_anything_is_sent(
    server: FakeServer, schedo: Call, args: list[str], message: str
) -> None:
    result = schedo("submit", "send_email", *args)

    assert result.exit_code == 2
    assert message in result.stderr
    assert server.requests == []


def test_the_options_of_a_job_are_sent(server: FakeServer, schedo: Call) -> None:
    server.on("POST", "/v1/jobs", 201, job_record())

    schedo("submit", "report", "--in", "5s", "--queue", "mail", "--retry", "3", "--tag", "x")

    assert server.requests[0].json == {
        "task": "report",
        "payload": None,
        "delay": "5s",
        "queue": "mail",
        "retry": 3,
        "tags": ["x"],
    }


def test_wait_prints_the_result(server: FakeServer, schedo: Call) -> None:
    server.on("POST", "/v1/jobs", 201, job_record())
    done = job_record(state="completed", result=[1, 2])
    server.on("GET", f"/v1/jobs/{JOB_ID}/wait", 200, done)
    server.on("GET", f"/v1/jobs/{JOB_ID}/output", 200, {"items": []})

    result = schedo("submit", "add", "--wait")

    assert (result.exit_code, json.loads(result.stdout)) == (0, [1, 2])


def test_keep_is_written_as_times_or_as_json(server: FakeServer, schedo: Call) -> None:
    server.on("POST", "/v1/jobs", 201, job_record())

    for text in ("completed=0s, failed=30d", '{"completed": "0s", "failed": "30d"}'):
        assert schedo("submit", "t", "--keep", text).exit_code == 0

    keep = {"completed": "0s", "failed": "30d"}
    assert [request.json["keep"] for request in server.requests] == [keep, keep]


def test_a_keep_that_is_not_understood_is_refused(server: FakeServer, schedo: Call) -> None:
    for text in ("1h", "completed=", "{"):
        result = schedo("submit", "t", "--keep", text)

        assert result.exit_code == 2
        assert "--keep" in result.stderr
    assert server.requests == []


def test_a_warning_of_the_server_is_printed(server: FakeServer, schedo: Call) -> None:
    server.on("POST", "/v1/jobs", 201, {**job_record(), "warnings": ["no worker has it"]})

    result = schedo("submit", "send_emial")

    assert (result.exit_code, result.stdout) == (0, f"{JOB_ID}  queued\n")
    assert result.stderr == "schedo: warning: no worker has it\n"


@pytest.mark.parametrize("more", [[], ["--json"]], ids=["text", "json"])
def test_after_a_broken_wait_the_accepted_job_is_named(
    server: FakeServer, schedo: Call, more: list[str]
) -> None:
    server.on("POST", "/v1/jobs", 201, job_record())
    server.on("GET", f"/v1/jobs/{JOB_ID}/wait", 500, problem(500, "internal", "a bug"))

    result = schedo("submit", "add", "--wait", *more)

    told, *_ = result.stderr.splitlines()
    assert result.exit_code == 1
    assert told == (
        f"schedo: job {JOB_ID} was accepted; to wait for its end:  schedo jobs wait {JOB_ID}"
    )
    assert "a bug" in result.stderr


@pytest.mark.parametrize("more", [[], ["--wait"]])
def test_a_job_that_holds_the_unique_key_is_not_taken_for_a_new_one(
    server: FakeServer, schedo: Call, more: list[str]
) -> None:
    existing = job_record(state="completed", conflict=True)
    server.on("POST", "/v1/jobs", 200, existing)
    server.on("GET", f"/v1/jobs/{JOB_ID}/wait", 200, existing)
    server.on("GET", f"/v1/jobs/{JOB_ID}/output", 200, {"items": []})

    result = schedo("submit", "import", "--unique", "nightly", *more)

    assert result.exit_code == 0
    assert result.stderr == "schedo: no job was made: this one has the unique key\n"
