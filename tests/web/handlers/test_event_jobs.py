"""The jobs that `on_failure` names, over HTTP: what is shown, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from schedo.protocol.roles import Role
from schedo.tasks.built_in import payload_checks
from schedo.web.permissions import TokenPermission, digest
from schedo.web.settings import WebSettings
from tests.web.placing import PlacingWorld
from tests.web.world import Reply, World

HOOK = {"task": "http", "payload": {"url": "https://hooks.test/x"}}
OPERATOR = "operator-token-0123456789abcdef"
WORKER = "worker-token-0123456789abcdef"


@pytest.mark.parametrize(
    ("on_failure", "pointer", "detail"),
    [
        ({"payload": {}}, "/on_failure/task", "this field is required"),
        ({"task": "-x"}, "/on_failure/task", "does not begin with a hyphen"),
        ("-x", "/on_failure/task", "does not begin with a hyphen"),
        ({"task": "a", "payload": [1]}, "/on_failure/payload", "Expected object"),
        ({"task": "a", "unique": "k"}, "/on_failure/unique", "there is no such field"),
        ({"task": "a", "on_failure": "b"}, "/on_failure/on_failure", "there is no such field"),
        ({"task": "a", "timeout": "soon"}, "/on_failure/timeout", "soon"),
        ({"task": "a", "payload": {"x": "y" * 4_100}}, "/on_failure", "at most 4096 bytes"),
        ({"task": "http", "payload": {}}, "/on_failure/payload/url", "field is required"),
        (
            {"task": "http", "payload": {"url": "ftp://x"}},
            "/on_failure/payload/url",
            "http:// or https://",
        ),
        (7, "/on_failure", "Expected"),
    ],
)
@pytest.mark.parametrize("door", ["job", "schedule", "batch"])
async def test_a_wrong_event_job_is_refused_with_its_place(
    on_failure: Any, pointer: str, detail: str, door: str
) -> None:
    fields = {"task": "t", "on_failure": on_failure}
    settings = WebSettings(payload_checks=payload_checks(), permissions={"allow_shell"})
    async with World(settings) as world:
        if door == "batch":
            reply = await world.post("/v1/jobs:batch", [fields])
            problem = reply.json()["items"][0]["problem"]
        else:
            reply = (
                await world.post("/v1/jobs", fields)
                if door == "job"
                else await world.put("/v1/schedules/s", {"every": "1h", **fields})
            )
            problem = reply.json()

    assert problem["status"] == 422
    assert problem["errors"][0]["pointer"].startswith(pointer)
    assert detail in problem["errors"][0]["detail"]


async def test_the_bytes_of_an_event_job_are_counted_as_they_are_sent() -> None:
    async with World() as world:
        job = await world.submit(on_failure={"task": "a", "payload": {"x": "y" * 3_900}})

    assert len(job["on_failure"]["payload"]["x"]) == 3_900


async def test_the_name_of_a_task_is_enough() -> None:
    async with World() as world:
        job = await world.submit(on_failure="alert")

    assert job["on_failure"] == {"task": "alert"}


async def test_the_secret_of_an_event_job_is_masked() -> None:
    secret = {**HOOK["payload"], "secret": "whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0"}  # type: ignore[dict-item]
    async with World() as world:
        job = await world.submit(on_failure={**HOOK, "payload": secret})
        put = await world.put(
            "/v1/schedules/s",
            {"every": "1h", "task": "t", "on_failure": {**HOOK, "payload": secret}},
        )

    assert job["on_failure"]["payload"]["secret"] == "***"
    assert put.json()["on_failure"]["payload"]["secret"] == "***"


async def test_a_command_in_an_event_job_needs_the_permission_for_commands() -> None:
    shell = {"task": "shell", "payload": {"command": "true"}}
    async with World(WebSettings()) as world:
        reply = await world.post("/v1/jobs", {"task": "t", "on_failure": shell})

    assert (reply.status, reply.code) == (403, "shell-disabled")


def secured(role: Role, token: str, **restrictions: Any) -> WebSettings:
    return WebSettings(
        tokens={digest(token): TokenPermission(role, "it", **restrictions)},
        anyone=None,
        permissions={"allow_shell"},
        payload_checks=payload_checks(),
    )


async def test_a_restricted_token_names_only_its_own_tasks_and_queues_for_failures() -> None:
    settings = secured(
        Role.OPERATOR, OPERATOR, tasks=frozenset({"send", "alert"}), queues=frozenset({"mail"})
    )
    headers = [("authorization", f"Bearer {OPERATOR}")]
    replies = []
    async with World(settings) as world:
        for on_failure in (
            {"task": "alert", "queue": "mail"},
            {"task": "alert"},
            {"task": "shell", "queue": "mail", "payload": {"command": "true"}},
        ):
            fields = {"task": "send", "queue": "mail", "on_failure": on_failure}
            replies.append(await world.post("/v1/jobs", fields, headers))

    assert [reply.status for reply in replies] == [201, 403, 403]


async def poll(role: Role, on_failure: Any, **restrictions: Any) -> Reply:
    async with PlacingWorld(secured(role, WORKER, **restrictions)) as world:
        fields = {"worker": "w1", "task_defaults": {"resize": {"on_failure": on_failure}}}
        return await world.post("/v1/work", fields, [("authorization", f"Bearer {WORKER}")])


@pytest.mark.parametrize(
    ("role", "on_failure", "status"),
    [
        (Role.WORKER, "alert", 200),
        (Role.WORKER, {"task": "alert", "meta": {"team": "images"}}, 200),
        (Role.WORKER, HOOK, 403),
        (Role.WORKER, {"task": "shell", "payload": {"command": "true"}}, 403),
        (Role.ADMIN, HOOK, 200),
        (Role.ADMIN, {"task": "http", "payload": {}}, 422),
    ],
)
async def test_a_worker_names_commands_and_requests_for_failures_only_with_more_rights(
    role: Role, on_failure: Any, status: int
) -> None:
    assert (await poll(role, on_failure)).status == status


async def test_a_worker_names_only_jobs_that_its_token_covers() -> None:
    covered = {"tasks": frozenset({"resize", "alert"}), "queues": frozenset({"images"})}

    assert (await poll(Role.WORKER, {"task": "alert", "queue": "images"}, **covered)).status == 200
    assert (await poll(Role.WORKER, {"task": "alert", "queue": "other"}, **covered)).status == 403
    assert (await poll(Role.WORKER, {"task": "pay", "queue": "images"}, **covered)).status == 403


async def test_the_error_of_a_workers_event_job_names_its_place() -> None:
    reply = await poll(Role.ADMIN, {"task": "http", "payload": {"url": "x"}})

    (error,) = reply.json()["errors"]
    assert error["pointer"] == "/task_defaults/resize/on_failure/payload/url"
