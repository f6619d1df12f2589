"""Every field of a job's request is kept, whichever interface submits the job.

EXAMPLES has a value for each field of the request. A field that is added without one, or that one
of the ways in does not take, fails here.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, get_type_hints

import msgspec
import pytest
from click.testing import CliRunner

from schedo.app.options import JobOptions as TypedOptions
from schedo.app.options import ScheduleOptions, TaskOptions, make_job, make_schedule
from schedo.cli.job_options import SHARED_FIELDS, SINGLE_FIELDS
from schedo.cli.main import cli
from schedo.client import operations
from schedo.client.aio import AsyncClient
from schedo.client.sync import Client
from schedo.core.ids import parse_id
from schedo.core.model import JobSpec
from schedo.protocol.decode import decode_checked
from schedo.protocol.jobs import JobRequest
from schedo.protocol.options import JobFields
from schedo.worker.process import frames
from tests.client.server import FakeServer, fake_server
from tests.web.world import World

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
EXAMPLES: dict[str, Any] = {
    "queue": "gpu",
    "priority": 3,
    "retry": {"max_attempts": 4, "initial": "1s"},
    "timeout": "30s",
    "expires_in": "1h",
    "unique": {"key": "k", "for": "10m"},
    "delivery": "at_most_once",
    "tags": ["red", "blue"],
    "meta": {"owner": "ada"},
    "requires": {"labels": {"gpu": "a100"}, "resources": {"cpu": 3}, "worker": "w1"},
    "prefer": [{"zone": "lhr"}, {}],
    "delay": "5m",
    "run_at": "2999-01-01T00:00:00Z",
    "expires_at": "2999-01-02T00:00:00Z",
    "traceparent": TRACE,
    "tracestate": "a=b",
    "broadcast": True,
}
FIELDS = set(JobRequest.__struct_fields__) - {"task", "payload"}
SCHEDULE_FIELDS = set(JobFields.__struct_fields__) - {"task", "payload"}
# A request has one of each pair, and a broadcast has no unique key and is answered otherwise.
ALTERNATIVES = {"run_at": "delay", "expires_at": "expires_in"}
FIRST = {name: EXAMPLES[name] for name in EXAMPLES if name not in {*ALTERNATIVES, "broadcast"}}
SECOND = {name: EXAMPLES[name] for name in ALTERNATIVES}


def meaning(fields: dict[str, Any]) -> JobSpec:
    """Return the job's spec that the server makes from a request with these fields."""
    request = {"task": "t", "payload": {}, **fields}
    return decode_checked(json.dumps(request).encode(), JobRequest).to_spec()


def options(kind: Any) -> set[str]:
    return set(get_type_hints(kind))


def test_there_is_an_example_of_every_field() -> None:
    assert set(EXAMPLES) == FIELDS


@pytest.mark.parametrize("name", sorted(FIELDS - {"broadcast"}))
def test_each_field_changes_the_spec(name: str) -> None:
    assert meaning({name: EXAMPLES[name]}) != meaning({})


@pytest.mark.parametrize("fields", [FIRST, SECOND], ids=["first", "second"])
async def test_every_field_of_a_request_over_http_is_kept(fields: dict[str, Any]) -> None:
    spec = meaning(fields)
    async with World() as world:
        created = await world.post("/v1/jobs", {"task": "t", "payload": {}, **fields})

        job = await world.engine.get(parse_id(created.json()["id"]))

    assert created.status == 201
    assert (job.queue, job.priority) == (spec.queue, spec.priority)
    assert msgspec.structs.replace(job.options, retry=spec.options.retry) == spec.options
    assert spec.options.retry in (None, job.options.retry)  # an absent retry gets the default
    assert job.due_at == (spec.run_at or job.created_at + spec.delay_us)
    assert job.expires_at == (spec.expires_at or job.created_at + (spec.expires_in_us or 0))


def test_the_typed_options_are_the_fields_of_the_request() -> None:
    in_python = {"retry": "retries"}  # it does not count the first attempt
    wanted = {in_python.get(name, name) for name in FIELDS - {"broadcast"}}

    assert options(TypedOptions) == wanted
    assert options(operations.JobOptions) == FIELDS - {"broadcast"}
    shared = {in_python.get(name, name) for name in SCHEDULE_FIELDS}
    assert shared - {"unique"} == options(TaskOptions)
    assert shared <= options(ScheduleOptions)


@pytest.mark.parametrize("fields", [FIRST, SECOND], ids=["first", "second"])
def test_an_application_sends_every_field_and_submits_every_field(fields: dict[str, Any]) -> None:
    template = make_job("t", fields)

    (request,) = template.make_requests([b"{}"])
    (spec,) = template.make_specs([b"{}"])

    assert spec == meaning(fields)
    assert meaning({name: value for name, value in request.items() if name != "task"}) == spec


@pytest.mark.parametrize("fields", [FIRST, SECOND], ids=["first", "second"])
def test_a_child_process_sends_every_field_to_its_server(fields: dict[str, Any]) -> None:
    ask = frames.BackendRequest(1, "submit", specs=[meaning(fields)])

    (received,) = frames.child_frames().feed(frames.encode_frame(ask))

    assert isinstance(received, frames.BackendRequest)
    assert received.specs == [meaning(fields)]


def submit_blocking(url: str, fields: dict[str, Any]) -> None:
    with Client(url) as client:
        client.submit("t", {}, **fields)


def submit_many_blocking(url: str, fields: dict[str, Any]) -> None:
    with Client(url) as client:
        client.submit_many([{"task": "t", "payload": {}, **fields}])


CLIENTS: list[tuple[str, Callable[[str, dict[str, Any]], None]]] = [
    ("/v1/jobs", submit_blocking),
    ("/v1/jobs:batch", submit_many_blocking),
]


@pytest.mark.parametrize("fields", [FIRST, SECOND], ids=["first", "second"])
@pytest.mark.parametrize(("path", "submit"), CLIENTS, ids=["one", "many"])
def test_the_client_sends_every_field(
    path: str, submit: Callable[[str, dict[str, Any]], None], fields: dict[str, Any]
) -> None:
    with fake_server() as server:
        job = {"id": "1", "state": "queued"}
        server.on("POST", "/v1/jobs", 201, job)
        server.on("POST", "/v1/jobs:batch", 200, {"items": [{"status": 201, "job": job}]})

        submit(server.url, fields)

        sent = server.requests[0].json
    sent = sent[0] if isinstance(sent, list) else sent
    assert sent == {"task": "t", "payload": {}, **fields}


@pytest.mark.parametrize("fields", [FIRST, SECOND], ids=["first", "second"])
async def test_the_async_client_sends_every_field(fields: dict[str, Any]) -> None:
    with fake_server() as server:
        server.on("POST", "/v1/jobs", 201, {"id": "1", "state": "queued"})
        async with AsyncClient(server.url) as client:
            await client.submit("t", {}, **fields)

        assert server.requests[0].json == {"task": "t", "payload": {}, **fields}


async def test_both_clients_broadcast() -> None:
    with fake_server() as server:
        items = [{"status": 201, "job": {"id": "1"}}, {"status": 201, "job": {"id": "2"}}]
        server.on("POST", "/v1/jobs", 200, {"items": items})
        with Client(server.url) as client:
            blocking = client.broadcast("t", {}, requires=EXAMPLES["requires"])
        async with AsyncClient(server.url) as client:
            awaited = await client.broadcast("t", {}, requires=EXAMPLES["requires"])

        first, second = (request.json for request in server.requests)

    assert [job.id for job in blocking] == [job.id for job in awaited] == ["1", "2"]  # type: ignore[union-attr]
    assert first == second
    assert first == {
        "task": "t",
        "payload": {},
        "requires": EXAMPLES["requires"],
        "broadcast": True,
    }


FLAGS = {"tags": "--tag", "delay": "--in", "run_at": "--at"}


def as_arguments(fields: dict[str, Any]) -> list[str]:
    arguments = []
    for name, value in fields.items():
        flag = FLAGS.get(name, "--" + name.replace("_", "-"))
        if name == "broadcast":
            arguments.append(flag)
            continue
        for item in value if name == "tags" else [value]:
            arguments += [flag, item if isinstance(item, str) else json.dumps(item)]
    return arguments


def run(server: FakeServer, *arguments: str) -> Any:
    result = CliRunner().invoke(cli, ["run", "true", "--url", server.url, *arguments])
    assert result.exit_code == 0, result.output
    return server.requests[0].json


def test_the_command_line_has_an_option_for_every_field() -> None:
    assert {*SHARED_FIELDS, *SINGLE_FIELDS} == FIELDS
    assert set(SHARED_FIELDS) == SCHEDULE_FIELDS


@pytest.mark.parametrize("fields", [FIRST, SECOND], ids=["first", "second"])
def test_the_command_line_sends_every_field(fields: dict[str, Any]) -> None:
    with fake_server() as server:
        server.on("POST", "/v1/jobs", 201, {"id": "1", "state": "queued"})

        sent = run(server, *as_arguments(fields))

    assert meaning({k: v for k, v in sent.items() if k in FIELDS}) == meaning(fields)


def test_the_command_line_broadcasts() -> None:
    with fake_server() as server:
        items = [{"status": 201, "job": {"id": "1", "state": "queued"}}]
        server.on("POST", "/v1/jobs", 200, {"items": items})

        assert run(server, "--broadcast")["broadcast"] is True


def test_the_command_line_gives_a_schedule_every_field_that_it_takes() -> None:
    fields = {name: EXAMPLES[name] for name in sorted(SCHEDULE_FIELDS)}
    with fake_server() as server:
        server.on("PUT", "/v1/schedules/s", 201, {"name": "s", "cron": "* * * * *"})

        sent = run(server, "--cron", "* * * * *", "--name", "s", *as_arguments(fields))

    assert meaning({k: v for k, v in sent.items() if k in FIELDS}) == meaning(fields)


def test_the_jobs_of_a_schedule_have_every_field_that_it_takes() -> None:
    fields = {name: EXAMPLES[name] for name in SCHEDULE_FIELDS}
    rule = {"cron": "* * * * *"}

    spec = make_schedule("s", "t", b"{}", rule, fields)

    wanted = meaning(fields)
    assert spec.job == msgspec.structs.replace(wanted, options=spec.job.options)
    assert spec.job.options == wanted.options
