"""Every field of a job's request is kept, whichever interface submits the job.

tests/job_requests.py has an example of each field. A field that is added without one, that one of
the interfaces does not take, or that a response, a worker or a handler does not get fails here.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest
from click.testing import CliRunner

from schedo.app.options import JobOptions as TypedOptions
from schedo.app.options import ScheduleOptions, TaskOptions, make_job, make_schedule
from schedo.cli.job_options import SHARED_FIELDS, SINGLE_FIELDS
from schedo.cli.main import cli
from schedo.client import options as client_options
from schedo.client.aio import AsyncClient
from schedo.client.operations import JobFilters
from schedo.client.options import Retry
from schedo.client.sync import Client
from schedo.core.ids import parse_id
from schedo.core.leases import Lease
from schedo.core.model import LeaseKey, Options, Trigger
from schedo.protocol import frames
from schedo.protocol.leases import LeaseResponse
from schedo.protocol.operations import OPERATIONS
from schedo.protocol.retries import RetryRequest
from schedo.protocol.schedules import ScheduleRequest
from schedo.store.sqlite.store import SqliteStore
from schedo.tasks.current_job import CurrentJob
from schedo.tasks.runner import AttemptContext, StopSignal
from tests.client.server import FakeServer, fake_server
from tests.job_requests import (
    EXAMPLES,
    FIELDS,
    FIRST,
    SCHEDULE_FIELDS,
    SECOND,
    meaning,
)
from tests.web.world import World

(FILTERS,) = (
    {name.removesuffix(".PATH") for name in operation.query} - {"limit", "cursor", "fields"}
    for operation in OPERATIONS
    if operation.name == "list_jobs"
)


def options(kind: Any) -> set[str]:
    return set(get_type_hints(kind))


def test_there_is_an_example_of_every_field() -> None:
    assert set(EXAMPLES) == FIELDS


@pytest.mark.parametrize("name", sorted(FIELDS - {"broadcast"}))
def test_each_field_of_a_request_changes_the_spec(name: str) -> None:
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


async def test_a_job_shows_every_field_of_its_request() -> None:
    elsewhere = {"retry": "max_attempts", "unique": "unique_key", "delay": "scheduled_at"}
    elsewhere |= {"expires_in": "expires_at"}
    async with World() as world:
        job = await world.submit(**FIRST)

    assert set(elsewhere.values()) <= set(job)
    alike = set(FIRST) - set(elsewhere)
    assert {name: job.get(name) for name in alike} == {name: FIRST[name] for name in alike}


async def test_a_server_that_starts_again_knows_every_field(tmp_path: Path) -> None:
    path = tmp_path / "schedo.db"
    async with World(store=SqliteStore(path)) as world:
        submitted = await world.submit(**FIRST)
        job = await world.engine.get(parse_id(submitted["id"]))

    async with World(store=SqliteStore(path)) as world:
        stored = await world.engine.get(parse_id(submitted["id"]))

    assert stored.options == job.options
    assert stored.expires_at == job.expires_at
    assert stored.due_at == job.due_at


async def test_a_schedule_shows_every_field_of_its_request() -> None:
    fields = {name: EXAMPLES[name] for name in SCHEDULE_FIELDS}
    async with World() as world:
        reply = await world.put("/v1/schedules/s", {"task": "t", "every": "1h", **fields})

    assert reply.status == 201
    alike = fields.keys() - {"retry"}
    assert {name: reply.json().get(name) for name in alike} == {n: fields[n] for n in alike}
    assert "retry" in reply.json()


# What only the server needs, and what a worker needs but a handler does not.
FOR_SERVERS = {"retry", "unique", "requirements", "on_failure", "keep"}
FOR_WORKERS = {"timeout_us", "at_most_once", "tracestate"}


def make_lease() -> Lease:
    options = msgspec.structs.replace(
        meaning(FIRST).options, schedule="nightly", **dict.fromkeys(FOR_SERVERS)
    )
    key = LeaseKey(33, 3, 7)
    numbers: dict[str, Any] = {"failures": 2, "max_attempts": 4, "started_at": 9}
    return Lease(key, "w1", "t", "default", b"{}", options, 0, Trigger.SUBMIT, 0, **numbers)


def test_a_remote_worker_gets_every_option_that_is_not_for_the_server_alone() -> None:
    lease = make_lease()

    body = msgspec.json.encode(LeaseResponse.of(lease))

    assert msgspec.json.decode(body, type=LeaseResponse).read("w1", 9) == lease


def test_a_child_process_gets_every_option_that_is_not_for_the_server_alone() -> None:
    lease = make_lease()

    frame = frames.encode_frame(frames.Leases([lease], 0.0))

    assert list(frames.server_frames().feed(frame)) == [frames.Leases([lease], 0.0)]


def test_a_handler_sees_every_option_that_is_not_for_others_alone() -> None:
    lease = make_lease()

    job = CurrentJob(AttemptContext(lease, StopSignal()))

    for name in set(Options.__struct_fields__) - FOR_SERVERS - FOR_WORKERS:
        assert getattr(job, name) == getattr(lease.options, name) != getattr(Options(), name)


def in_python(names: set[str]) -> set[str]:
    """Return the names in an application, where `retries` counts the tries after the first."""
    return names | {"retries"}


def test_the_typed_options_are_the_fields_of_the_request() -> None:
    of_schedules = set(ScheduleRequest.__struct_fields__) - {"task", "cron", "every", "at", "tz"}

    assert options(client_options.JobOptions) == FIELDS - {"broadcast"}
    assert options(TypedOptions) == in_python(FIELDS - {"broadcast"})
    assert options(TaskOptions) == in_python(SCHEDULE_FIELDS)
    assert options(ScheduleOptions) == in_python(of_schedules) | {"name"}
    assert options(JobFilters) == set(FILTERS)


def test_a_retry_policy_in_python_has_the_fields_of_the_request() -> None:
    defaults = msgspec.structs.asdict(RetryRequest())

    assert Retry()._asdict() == defaults


@pytest.mark.parametrize("fields", [FIRST, SECOND], ids=["first", "second"])
def test_an_application_sends_every_field_and_submits_every_field(fields: dict[str, Any]) -> None:
    template = make_job("t", fields)

    request = template.make_request(b"{}")
    spec = template.make_spec(b"{}")

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


async def test_both_clients_can_broadcast() -> None:
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


def test_the_command_line_can_broadcast() -> None:
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
