"""A real server sends spans and metrics to a real collector, which decodes them."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tests.e2e.server import Server, serving
from tests.telemetry.collector import Collector, collecting, values

pytestmark = pytest.mark.e2e

TRACE_ID, CALLER_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CALLER = f"00-{TRACE_ID}-{CALLER_ID}-01"
UNSAMPLED = f"00-{TRACE_ID}-{CALLER_ID}-00"
ROOT = Path(__file__).parents[2]


def environment(collector: Collector, **others: str) -> dict[str, str]:
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_BSP_SCHEDULE_DELAY": "50",
        "OTEL_METRIC_EXPORT_INTERVAL": "100",
        "PYTHONPATH": str(ROOT),
        **others,
    }


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as running:
        yield running


@pytest.fixture(scope="module")
def shared() -> Iterator[Collector]:
    with collecting() as running:
        yield running


@pytest.fixture(scope="module")
def server(shared: Collector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    named = environment(
        shared, OTEL_SERVICE_NAME="jobs", OTEL_EXPORTER_OTLP_HEADERS="api-key=secret"
    )
    arguments = ("tests.telemetry.server_app:app", "--processes", "1", "--allow-shell", "--otel")
    with serving(tmp_path_factory.mktemp("server"), *arguments, **named) as running:
        yield running


def submit(server: Server, traceparent: str | None, **job: Any) -> str:
    headers = {"content-type": "application/json"}
    if traceparent is not None:
        headers["traceparent"] = traceparent
    request = urllib.request.Request(f"{server.url}/v1/jobs", json.dumps(job).encode(), headers)
    with urllib.request.urlopen(request, timeout=20) as reply:
        return str(json.loads(reply.read())["id"])


def of_job(collector: Collector, job_id: str, name: str, count: int = 1) -> list[Span]:
    """Return the spans of the job with this name, once there are `count` of them."""

    def find() -> list[Span]:
        spans = collector.named(name)
        return [s for s in spans if values(s.attributes).get("messaging.message.id") == job_id]

    collector.wait(lambda: len(find()) >= count)
    return find()


def test_a_job_is_one_trace_from_its_caller_to_its_command(
    server: Server, shared: Collector
) -> None:
    job = submit(server, CALLER, task="shell", payload={"command": 'echo "$TRACEPARENT"'})
    server.ended(job)

    (submitted,) = of_job(shared, job, "submit shell")
    (run,) = of_job(shared, job, "run shell")

    assert {submitted.trace_id.hex(), run.trace_id.hex()} == {TRACE_ID}
    assert submitted.parent_span_id.hex() == CALLER_ID
    assert run.parent_span_id == submitted.span_id
    assert server.output(job).strip() == f"00-{TRACE_ID}-{run.span_id.hex()}-01"
    assert submitted.start_time_unix_nano <= submitted.end_time_unix_nano
    assert run.start_time_unix_nano < run.end_time_unix_nano
    attributes = values(run.attributes)
    assert attributes["schedo.outcome"] == "completed"
    assert attributes["schedo.worker"] == server.ask("GET", f"/v1/jobs/{job}")[1]["worker"]
    assert attributes["schedo.lateness_s"] >= 0
    assert server.ask("GET", f"/v1/jobs/{job}")[1]["traceparent"] == CALLER


def test_a_handler_in_a_child_process_continues_the_span_of_its_attempt(
    server: Server, shared: Collector
) -> None:
    job = submit(server, None, task="tell")
    given, current = server.ended(job)["result"]

    (run,) = of_job(shared, job, "run tell")
    (submitted,) = of_job(shared, job, "submit tell")

    assert given == f"00-{run.trace_id.hex()}-{run.span_id.hex()}-01"
    assert current.split("-")[1] == run.trace_id.hex()
    assert current.split("-")[2] != run.span_id.hex()
    assert (submitted.trace_id, submitted.parent_span_id) == (run.trace_id, b"")


def test_each_attempt_is_a_span_with_its_error(server: Server, shared: Collector) -> None:
    retry = {"max_attempts": 2, "backoff": "fixed", "initial": "1ms"}
    job = submit(server, None, task="shell", payload={"command": "exit 3"}, retry=retry)
    assert server.ended(job)["state"] == "failed"

    runs = of_job(shared, job, "run shell", 2)

    assert [values(run.attributes)["schedo.attempt"] for run in runs] == [1, 2]
    assert len({run.span_id for run in runs}) == 2
    assert {run.trace_id for run in runs} == {runs[0].trace_id}
    for run in runs:
        (event,) = run.events
        assert run.status.code == Status.STATUS_CODE_ERROR
        assert values(run.attributes)["schedo.outcome"] == "failed"
        assert values(event.attributes)["exception.type"] == "exit-code"


def test_a_job_of_an_unsampled_trace_has_no_spans(server: Server, shared: Collector) -> None:
    command = {"command": 'echo "$TRACEPARENT"'}
    unsampled = submit(server, UNSAMPLED, task="shell", payload=command)
    server.ended(unsampled)
    after = submit(server, None, task="shell", payload=command)
    server.ended(after)
    of_job(shared, after, "run shell")

    assert not [
        s for s in shared.spans if values(s.attributes)["messaging.message.id"] == unsampled
    ]
    assert server.output(unsampled).strip().startswith(f"00-{TRACE_ID}-")
    assert server.output(unsampled).strip().endswith("-00")


def test_a_decision_of_a_schedule_begins_the_trace_of_its_run(
    server: Server, shared: Collector
) -> None:
    schedule = {"task": "shell", "payload": {"command": "true"}, "every": "1h", "paused": True}
    assert server.ask("PUT", "/v1/schedules/nightly", schedule)[0] == 201
    status, run = server.ask("POST", "/v1/schedules/nightly:trigger", {})
    assert status == 201, run
    job = run["job"]["id"]
    server.ended(job)

    (decided,) = of_job(shared, job, "schedule nightly")
    (submitted,) = of_job(shared, job, "submit shell")
    (ran,) = of_job(shared, job, "run shell")

    assert values(decided.attributes)["schedo.decision"] == "manual"
    assert decided.parent_span_id == b""
    assert submitted.parent_span_id == decided.span_id
    assert ran.parent_span_id == submitted.span_id
    assert {decided.trace_id, submitted.trace_id} == {ran.trace_id}


def test_the_metrics_arrive_as_they_are_at_the_scrape(server: Server, shared: Collector) -> None:
    job = submit(server, None, task="shell", payload={"command": "true"})
    server.ended(job)
    before = shared.requests
    shared.wait(lambda: shared.requests > before + 4)

    with urllib.request.urlopen(f"{server.url}/metrics", timeout=20) as reply:
        page = reply.read().decode()

    scraped = {line.split()[2] for line in page.splitlines() if line.startswith("# TYPE")}
    assert scraped <= shared.metrics.keys()
    ended = shared.metrics["schedo_jobs_ended_total"].sum
    assert ended.is_monotonic
    counts = {values(p.attributes)["state"]: p.as_int for p in ended.data_points}
    assert f'schedo_jobs_ended_total{{state="completed"}} {counts["completed"]}' in page
    commits = shared.metrics["schedo_commit_seconds"]
    (point,) = commits.histogram.data_points
    assert (commits.unit, sum(point.bucket_counts)) == ("s", point.count)
    assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
    assert point.count > 0
    assert point.start_time_unix_nano < point.time_unix_nano


def test_the_collector_learns_the_name_of_the_service_and_gets_the_headers(
    server: Server, shared: Collector
) -> None:
    shared.wait(lambda: bool(shared.headers))

    assert {each["service.name"] for each in shared.resources} == {"jobs"}
    assert {each["api-key"] for each in shared.headers} == {"secret"}


def test_a_retry_after_a_crash_is_in_the_same_trace(collector: Collector, tmp_path: Path) -> None:
    arguments = ("--allow-shell", "--otel")
    with serving(tmp_path, *arguments, **environment(collector)) as server:
        flag = tmp_path / "ran"
        command = f"test -e {flag} || {{ touch {flag}; sleep 60; }}"
        job = submit(server, None, task="shell", payload={"command": command})
        (submitted,) = of_job(collector, job, "submit shell")
        while not flag.exists():
            server.ask("GET", "/readyz")
        server.kill()
        server.start()
        assert server.ended(job)["state"] == "completed"

        lost, ran = of_job(collector, job, "run shell", 2)

    assert values(lost.attributes)["schedo.outcome"] == "lost"
    assert lost.status.code == Status.STATUS_CODE_ERROR
    assert values(ran.attributes)["schedo.outcome"] == "completed"
    assert {lost.trace_id, ran.trace_id} == {submitted.trace_id}
    assert {lost.parent_span_id, ran.parent_span_id} == {submitted.span_id}


def test_a_stop_sends_what_waits(collector: Collector, tmp_path: Path) -> None:
    slow = environment(
        collector, OTEL_BSP_SCHEDULE_DELAY="60000", OTEL_METRIC_EXPORT_INTERVAL="60000"
    )
    with serving(tmp_path, "--allow-shell", "--otel", **slow) as server:
        job = submit(server, None, task="shell", payload={"command": "true"})
        server.ended(job)
        assert server.terminate() == 0

    assert [span.name for span in collector.spans] == ["submit shell", "run shell"]
    assert "schedo_ready" in collector.metrics


def test_a_collector_that_hangs_delays_no_job_and_no_stop(
    collector: Collector, tmp_path: Path
) -> None:
    small = environment(
        collector,
        OTEL_BSP_MAX_QUEUE_SIZE="4",
        OTEL_METRICS_EXPORTER="none",
        OTEL_EXPORTER_OTLP_TIMEOUT="60",  # so that the first request hangs until the stop
    )
    collector.is_free.clear()
    with serving(tmp_path, "--allow-shell", "--otel", **small) as server:
        first = submit(server, None, task="shell", payload={"command": "true"})
        assert server.ended(first)["state"] == "completed"
        collector.wait(lambda: collector.requests > 0)
        for _ in range(10):
            job = submit(server, None, task="shell", payload={"command": "true"})
            assert server.ended(job)["state"] == "completed"
        with urllib.request.urlopen(f"{server.url}/metrics", timeout=20) as reply:
            page = reply.read().decode()
        assert server.terminate() == 0

    (line,) = (each for each in page.splitlines() if each.startswith("schedo_otel_dropped_total "))
    assert int(line.split()[1]) >= 20 - 4
    assert "the last spans are lost" in server.log()
    assert collector.metrics == {}


def test_a_collector_that_refuses_is_logged_once(collector: Collector, tmp_path: Path) -> None:
    collector.status = 400
    with serving(tmp_path, "--allow-shell", "--otel", **environment(collector)) as server:
        for _ in range(3):
            before = collector.requests
            submit(server, None, task="shell", payload={"command": "true"})
            collector.wait(lambda before=before: collector.requests > before)  # type: ignore[misc]
        assert server.terminate() == 0

    warnings = [line for line in server.log().splitlines() if "warning" in line]
    (told,) = (line for line in warnings if "does not take spans" in line)
    assert f"the OpenTelemetry collector at {collector.url} does not take spans: " in told
    assert "code: 400, reason: Bad Request; " in told
    assert len(warnings) <= 2, warnings
