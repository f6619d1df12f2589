"""`schedo bench`: its requests, its table of times and its errors."""

from __future__ import annotations

import json
import re
import signal
import threading
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from click.testing import CliRunner

from schedo.cli.main import cli
from tests.cli.conftest import Call
from tests.client.server import FakeServer, Reply, Request, job_record, problem

JOBS = "/v1/jobs"
BATCH = "/v1/jobs:batch"


def ended(job_id: str, state: str = "completed", **fields: Any) -> dict[str, Any]:
    """Return a job that started 1 ms after it was due and ended 2 ms later."""
    times = {
        "started_at": "2026-11-20T11:00:00.001000Z",
        f"{state}_at": "2026-11-20T11:00:00.003000Z",
    }
    return job_record(id=job_id, state=state, **{**times, **fields})


def accept(server: FakeServer, *job_ids: str) -> None:
    for job_id in job_ids:
        server.on("POST", JOBS, 201, job_record(id=job_id))


def list_jobs_as(server: FakeServer, *records: dict[str, Any], cursor: str | None = None) -> None:
    page = {"items": list(records)}
    server.on("GET", JOBS, 200, {**page, "next_cursor": cursor} if cursor else page)


def requests_to(server: FakeServer, method: str, path: str) -> list[Request]:
    return [
        each
        for each in server.requests
        if (each.method, urlsplit(each.target).path) == (method, path)
    ]


def query(request: Request) -> dict[str, list[str]]:
    return parse_qs(urlsplit(request.target).query)


def test_all_jobs_carry_one_tag_that_the_list_is_filtered_by(
    server: FakeServer, schedo: Call
) -> None:
    accept(server, "a", "b")
    list_jobs_as(server, ended("b"), ended("a"))

    result = schedo("bench", "-n", "2", "--command", "echo hello")

    first, second = (request.json for request in requests_to(server, "POST", JOBS))
    (look,) = requests_to(server, "GET", JOBS)
    assert result.exit_code == 0
    assert first == second
    assert first["task"] == "shell"
    assert first["payload"] == {"command": "echo hello"}
    assert query(look) == {"tag": first["tags"], "limit": ["500"]}


def test_a_task_is_submitted_with_its_payload_delay_and_queue(
    server: FakeServer, schedo: Call
) -> None:
    accept(server, "a")
    list_jobs_as(server, ended("a"))

    schedo(
        *("bench", "-n", "1", "--task", "email.send", "--payload", '{"to": "ada"}'),
        *("--delay", "5s", "--queue", "mail"),
    )

    (request,) = requests_to(server, "POST", JOBS)
    job = request.json
    del job["tags"]
    assert job == {"task": "email.send", "payload": {"to": "ada"}, "delay": "5s", "queue": "mail"}
    assert "idempotency-key" not in request.headers


def test_each_batch_is_full_and_the_last_one_holds_the_rest(
    server: FakeServer, schedo: Call
) -> None:
    two = [{"status": 201, "job": job_record(id=each)} for each in ("a", "b")]
    server.on("POST", BATCH, 200, {"items": two})
    accept(server, "c")
    list_jobs_as(server, ended("c"), ended("b"), ended("a"))

    result = schedo("bench", "-n", "3", "--batch", "2", "--concurrency", "1", "--task", "t")

    assert [len(request.json) for request in requests_to(server, "POST", BATCH)] == [2]
    assert len(requests_to(server, "POST", JOBS)) == 1
    assert result.stdout.endswith("\n3 of 3 jobs completed\n")


def test_start_and_end_times_come_from_the_servers_clock(server: FakeServer, schedo: Call) -> None:
    accept(server, "a", "b")
    late = {"completed_at": "2026-11-20T11:00:00.500000Z"}
    list_jobs_as(server, ended("b", **late), ended("a"))

    found = json.loads(schedo("bench", "-n", "2", "--task", "t", "--json").stdout)

    assert (found["jobs"], found["accepted"], found["completed"], found["lost"]) == (2, 2, 2, 0)
    assert (found["ended_us"], found["ended_per_second"]) == (500_000, 4.0)
    assert found["latency_us"]["started"] == {"p50": 1000, "p95": 1000, "p99": 1000, "max": 1000}
    assert found["latency_us"]["finished"]["max"] == 500_000
    assert found["histogram_us"]["started"] == {"1000": 2}
    assert sum(found["histogram_us"]["accepted"].values()) == 2


def test_the_histogram_option_draws_a_histogram(server: FakeServer, schedo: Call) -> None:
    accept(server, "a")
    list_jobs_as(server, ended("a"))

    result = schedo("bench", "-n", "1", "--task", "t", "--histogram")

    assert "started: due to start, server's clock\n  <=    1ms  1  ████" in result.stdout
    assert "submitted" not in result.stderr, "a progress bar is for a terminal"


def test_a_histogram_is_ascii_if_the_encoding_lacks_block_characters(
    server: FakeServer, schedo: Call
) -> None:
    accept(server, "a")
    list_jobs_as(server, ended("a", started_at="2026-11-20T11:00:00.000085Z"))

    arguments = ["bench", "-n", "1", "--task", "t", "--histogram"]
    result = CliRunner(charset="ascii").invoke(cli, arguments, prog_name="schedo")

    assert result.exit_code == 0, result.output
    assert "  <=  100us  1  " + "#" * 40 + "\n" in result.stdout
    assert re.search("^started +85us +85us ", result.stdout, re.MULTILINE)


def test_the_table_fits_into_80_columns(server: FakeServer, schedo: Call) -> None:
    accept(server, "a")
    times = {"started_at": "2026-11-20T14:45:00Z", "completed_at": "2026-11-20T14:45:00Z"}
    list_jobs_as(server, ended("a", **times))

    result = schedo("bench", "-n", "1", "--task", "t")

    assert re.search("^finished +3h45m .* due to end, server's clock$", result.stdout, re.MULTILINE)
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_the_delay_is_not_part_of_the_measured_time(server: FakeServer, schedo: Call) -> None:
    accept(server, "a")
    due = {"created_at": "2026-11-20T10:59:55Z", "scheduled_at": "2026-11-20T11:00:00Z"}
    list_jobs_as(server, ended("a", **due))

    found = json.loads(schedo("bench", "-n", "1", "--task", "t", "--delay", "5s", "--json").stdout)

    assert (found["ended_us"], found["latency_us"]["finished"]["max"]) == (3_000, 3_000)


def test_a_page_whose_jobs_have_ended_is_not_requested_again(
    server: FakeServer, schedo: Call
) -> None:
    accept(server, "a", "b")
    list_jobs_as(server, job_record(id="b", state="running"), cursor="older")
    list_jobs_as(server, ended("a"))
    server.on("GET", f"{JOBS}/b/wait", 200, ended("b"))
    list_jobs_as(server, ended("b"), cursor="older")

    result = schedo("bench", "-n", "2", "--task", "t")

    cursors = [query(look).get("cursor") for look in requests_to(server, "GET", JOBS)]
    assert cursors == [None, ["older"], None]
    assert result.exit_code == 0


def test_a_submit_answered_with_429_is_sent_again(server: FakeServer, schedo: Call) -> None:
    server.on("POST", JOBS, 429, problem(429, "overloaded", "try again soon"))
    accept(server, "a")
    list_jobs_as(server, ended("a"))

    result = schedo("bench", "-n", "1", "--task", "t")

    assert len(requests_to(server, "POST", JOBS)) == 2
    assert result.exit_code == 0


def test_a_failed_job_ends_the_command_with_exit_code_1(server: FakeServer, schedo: Call) -> None:
    accept(server, "a", "b")
    list_jobs_as(server, ended("b", "failed"), ended("a"))

    result = schedo("bench", "-n", "2", "--task", "t")

    assert result.exit_code == 1
    assert "\n1 of 2 jobs completed, 1 not completed; see: schedo jobs ls --tag bench-" in (
        result.stdout
    )


def test_an_unfinished_job_counts_as_lost_after_the_idle_timeout(
    server: FakeServer, schedo: Call
) -> None:
    accept(server, "a", "b")
    list_jobs_as(server, ended("a"))

    result = schedo("bench", "-n", "2", "--task", "t", "--idle-timeout", "0s")

    assert result.exit_code == 1
    assert "\n1 of 2 jobs completed, 1 lost; see: " in result.stdout


def test_a_refused_job_is_reported_with_exit_code_1(server: FakeServer, schedo: Call) -> None:
    server.on("POST", JOBS, 403, problem(403, "shell-disabled", "commands are not allowed"))
    list_jobs_as(server)

    result = schedo("bench", "-n", "1", "--command", "true")

    assert result.exit_code == 1
    assert result.stderr.splitlines()[1:] == ["schedo: refused: commands are not allowed"]
    assert result.stdout.endswith(": 0/s\n\n0 of 1 jobs completed, 1 refused\n"), "no table"


def test_with_json_the_reason_of_a_refusal_is_on_stderr(server: FakeServer, schedo: Call) -> None:
    server.on("POST", JOBS, 403, problem(403, "shell-disabled", "commands are not allowed"))
    list_jobs_as(server)

    result = schedo("bench", "-n", "1", "--command", "true", "--json")

    assert json.loads(result.stdout)["refused"] == 1
    assert "schedo: refused: commands are not allowed\n" in result.stderr


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("cause", ["interrupt", "server gone"])
def test_an_interrupted_run_prints_its_progress_and_how_to_cancel_the_rest(
    server: FakeServer, schedo: Call, cause: str, as_json: bool
) -> None:
    accept(server, "a", "b")
    list_jobs_as(server, job_record(id="b", state="running"), ended("a"))
    if cause == "interrupt":
        server.on("GET", f"{JOBS}/b/wait", 200, job_record(id="b", state="running"))
        interrupt_on_request(server, f"{JOBS}/b/wait")
    else:
        server.reply("GET", f"{JOBS}/b/wait", Reply(0))

    result = schedo("bench", "-n", "2", "--task", "t", *(["--json"] if as_json else []))

    tag = requests_to(server, "POST", JOBS)[0].json["tags"][0]
    assert result.exit_code == (130 if cause == "interrupt" else 1)
    assert result.stderr.startswith(f"schedo: the tag of the jobs is {tag}\n")
    assert f"schedo: to list the jobs:  schedo jobs ls --tag {tag} --limit 2\n" in result.stderr
    assert f"schedo jobs cancel --tag {tag} --yes\n" in result.stderr
    if as_json:
        counts = {"jobs": 2, "submitted": 2, "ended": 1}
        assert json.loads(result.stdout) == {"tag": tag, "interrupted": True, **counts}
    else:
        assert result.stdout.startswith("interrupted: 2 of 2 jobs were submitted and 1 have ended;")


def interrupt_on_request(server: FakeServer, path: str) -> None:
    """Raise KeyboardInterrupt, as Ctrl-C does, when the server receives this request."""
    answer = server.next_reply

    def next_reply(method: str, target: str) -> Reply:
        if target.startswith(path):
            main = threading.main_thread().ident
            assert main is not None
            signal.pthread_kill(main, signal.SIGINT)  # only there it interrupts the event loop
        return answer(method, target)

    server.next_reply = next_reply  # type: ignore[method-assign]


def test_an_unreachable_server_is_reported_in_one_sentence(schedo: Call) -> None:
    result = schedo("bench", "--url", "http://127.0.0.1:1", "-n", "1", "--task", "t")

    assert result.exit_code == 1
    last = result.stderr.splitlines()[-1]
    assert last.startswith("schedo: cannot reach schedo at http://127.0.0.1:1")


def test_the_help_of_bench_lists_the_defaults(schedo: Call) -> None:
    help_text = " ".join(schedo("bench", "--help").stdout.split())

    for default in ("1000", "0", "1", "16", "60s"):
        assert f"[default: {default}" in help_text


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ([], "give either --command or --task"),
        (["--command", "x", "--task", "y"], "give either --command or --task"),
        (["--command", "x", "--payload", "1"], "--payload requires --task"),
        (["--task", "x", "--payload", "{"], "is not JSON"),
        (["--task", "x", "--delay", "soon"], "'soon'"),
        (["--task", "x", "--idle-timeout", "-1"], "'-1'"),
        (["--task", "x", "--batch", "1001"], "1001 is not in the range"),
        (["--task", "x", "--concurrency", "0"], "0 is not in the range"),
        (["--task", "x", "--rate", "0"], "0.0 is not in the range"),
        (["--task", "x", "--rate", "nan"], "'nan' is not a finite number"),
        (["--task", "x", "--rate", "inf"], "'inf' is not a finite number"),
        (["--task", "x", "-n", "0"], "0 is not in the range"),
        (["--task", "x", "--url", "localhost"], "write it as http://127.0.0.1:8080"),
    ],
    ids=str,
)
def test_wrong_usage_exits_with_2_and_sends_no_request(
    server: FakeServer, schedo: Call, args: list[str], reason: str
) -> None:
    result = schedo("bench", *args)

    assert result.exit_code == 2
    assert reason in " ".join(result.stderr.split())
    assert server.requests == []
