"""Jobs and schedules whose task no application and no worker has offered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from schedo.core.spec_parts import SPECS_BYTES_MAX
from schedo.web.context import STRICT_AFTER_US
from schedo.web.settings import WebSettings
from tests.passes import one_pass
from tests.web.world import World

HINT = "no application and no worker has a task 'reprot'; did you mean report?"
WARNING = HINT.replace("; did", "; its jobs wait until a worker has it; did")
JOB = {"task": "reprot"}


def knowing_report(settings: WebSettings | None = None) -> World:
    """Return a server that knows one task."""
    world = World(settings, knows_all_tasks=False)
    world.engine.tasks.note(["report"])
    return world


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with knowing_report() as made:
        yield made


@pytest.fixture
async def strict() -> AsyncIterator[World]:
    async with knowing_report(WebSettings(is_strict=True)) as made:
        made.clock.stall(STRICT_AFTER_US + 1)
        yield made


async def test_a_submit_is_accepted_with_a_warning(world: World) -> None:
    key = [("idempotency-key", "k")]
    unknown = await world.post("/v1/jobs", JOB, key)
    again = await world.post("/v1/jobs", JOB, key)
    known = await world.post("/v1/jobs", {"task": "report"})

    assert (unknown.status, unknown.json()["warnings"]) == (201, [WARNING])
    assert again.json() == unknown.json()
    assert "warnings" not in known.json()
    assert "warnings" not in (await world.get(f"/v1/jobs/{unknown.json()['id']}")).json()


async def test_why_names_a_similar_task(world: World) -> None:
    unknown, known = [await world.post("/v1/jobs", job) for job in (JOB, {"task": "report"})]

    answers = [
        (await world.get(f"/v1/jobs/{job.json()['id']}/why")).json() for job in (unknown, known)
    ]

    assert [answer["why"] for answer in answers] == [
        "no worker offers task reprot on queue default; did you mean report?",
        "no worker offers task report on queue default",
    ]


async def test_an_unknown_event_job_is_warned_of(world: World) -> None:
    reply = await world.post("/v1/jobs", {"task": "report", "on_failure": "reprot"})

    assert reply.json()["warnings"] == [WARNING]


async def test_a_batch_has_a_header(world: World) -> None:
    unknown = await world.post("/v1/jobs:batch", [JOB, {"task": "report"}, {"task": "xyz"}])
    known = await world.post("/v1/jobs:batch", [{"task": "report"}])

    assert unknown.headers["schedo-warning"] == (
        f"{HINT}; no application and no worker has a task 'xyz'"
    )
    assert "schedo-warning" not in known.headers


async def test_a_put_of_a_schedule_is_accepted_with_a_warning(world: World) -> None:
    schedule = {"every": "1h", **JOB}
    put = await world.put("/v1/schedules/s", schedule)
    declared = await world.post(
        "/v1/declarations", {"owner": "file:x", "schedules": [{"name": "s", **schedule}]}
    )

    assert (put.status, put.json()["warnings"]) == (201, [WARNING])
    assert declared.json()["schedules"][0]["warnings"] == [WARNING]


async def test_a_task_stays_known_when_its_worker_leaves(world: World) -> None:
    world.attach_worker()  # it runs every task
    await world.engine.flush()

    assert "warnings" not in (await world.post("/v1/jobs", JOB)).json()
    world.engine.detach("hands", "gone")
    assert "warnings" not in (await world.post("/v1/jobs", JOB)).json()


@pytest.mark.parametrize(
    ("path", "request_", "pointer"),
    [
        ("/v1/jobs", JOB, "/task"),
        ("/v1/jobs", {"task": "report", "on_failure": "reprot"}, "/on_failure/task"),
        (
            "/v1/declarations",
            {"owner": "file:x", "schedules": [{"name": "s", "every": 1, **JOB}]},
            "/schedules/0/task",
        ),
    ],
)
async def test_a_strict_server_refuses_it(
    strict: World, path: str, request_: dict[str, Any], pointer: str
) -> None:
    reply = await strict.post(path, request_)

    assert (reply.status, reply.json()["code"]) == (422, "invalid")
    assert reply.json()["errors"] == [{"pointer": pointer, "detail": HINT}]


async def test_a_strict_server_refuses_a_schedule_and_one_job_of_a_batch(strict: World) -> None:
    put = await strict.put("/v1/schedules/s", {"every": "1h", **JOB})
    batch = await strict.post("/v1/jobs:batch", [JOB, {"task": "report"}])

    assert (put.status, put.json()["errors"][0]["pointer"]) == (422, "/task")
    assert [item["status"] for item in batch.json()["items"]] == [422, 201]


async def test_a_strict_server_accepts_it_while_workers_may_be_connecting_again() -> None:
    async with knowing_report(WebSettings(is_strict=True)) as world:
        assert (await world.post("/v1/jobs", JOB)).status == 201
        world.clock.stall(STRICT_AFTER_US + 1)
        assert (await world.post("/v1/jobs", JOB)).status == 422


async def test_a_named_expectation_is_accepted_with_a_warning(world: World) -> None:
    fields = {"every": "1d", "within": "1h", "on_miss": "reprot", "on_back": "report"}
    reply = await world.put("/v1/expectations/e", fields)
    known = await world.put("/v1/expectations/e", {**fields, "on_miss": "report"})
    declaration = {"owner": "file:x", "expectations": [{"name": "e", **fields}]}
    declared = await world.post("/v1/declarations", declaration)

    assert (reply.status, reply.json()["warnings"]) == (201, [WARNING])
    assert "warnings" not in known.json()
    assert declared.json()["expectations"][0]["warnings"] == [WARNING]


def registration(event_task: str) -> dict[str, Any]:
    defaults = {"reprot": {"on_failure": {"task": event_task, "payload": {}}}}
    return {"worker": "w1", "tasks": ["reprot", "shell"], "wait": 0, "task_defaults": defaults}


async def test_a_registration_that_is_refused_makes_no_task_known(strict: World) -> None:
    refused = await strict.post("/v1/work", registration("alret"))

    assert refused.status == 422
    assert refused.json()["errors"][0]["pointer"] == "/task_defaults/reprot/on_failure/task"
    assert (await strict.post("/v1/jobs", JOB)).status == 422
    command = await strict.post("/v1/jobs", {"task": "shell", "payload": {"command": "true"}})
    assert (command.status, command.code) == (403, "shell-disabled")


async def test_a_registration_without_room_makes_no_task_known(strict: World) -> None:
    queues = ["x" * 100 + str(number) for number in range(1_000)]
    for number in range(SPECS_BYTES_MAX // (1_000 * 100)):
        poll = {"worker": f"w{number}", "tasks": ["report"], "wait": 0}
        poll["queues"] = [f"{number}{name}" for name in queues]
        status = (await strict.post("/v1/work", poll)).status
        if status == 429:
            break
    refused = await strict.post("/v1/work", poll | {"tasks": ["reprot", "shell"]})

    assert (status, refused.status) == (429, 429)
    assert (await strict.post("/v1/jobs", JOB)).status == 422
    command = await strict.post("/v1/jobs", {"task": "shell", "payload": {"command": "true"}})
    assert (command.status, command.code) == (403, "shell-disabled")


@pytest.mark.parametrize("event_task", ["reprot", "report", "shell"])
async def test_a_worker_may_name_its_own_tasks_for_failures(strict: World, event_task: str) -> None:
    assert (await strict.post("/v1/work", registration(event_task))).status == 200
    await one_pass()  # in which the engine notes the task; no request comes from outside sooner
    assert (await strict.post("/v1/jobs", JOB)).status == 201


async def test_a_worker_of_any_task_may_name_each_task_for_failures(strict: World) -> None:
    fields = {**registration("unheard-of"), "tasks": None}

    assert (await strict.post("/v1/work", fields)).status == 200
