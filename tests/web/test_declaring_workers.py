"""A worker's token with schedules=yes puts the schedules of its application, and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from schedo.client.tokens import check_token
from schedo.core.commands import Declared, DeclareSchedules
from schedo.errors import Invalid
from schedo.protocol.roles import Role
from schedo.web.permissions import TokenPermission, digest, parse_tokens
from schedo.web.settings import WebSettings
from tests.core.builders import make_schedule_spec, make_spec
from tests.web.world import Reply, World

ADMIN = "admin-token-0123456789abcdef"
WORKER = "worker-token-0123456789abcdef"
PLAIN = "plain-token-0123456789abcdef"
LINES = f"""
{ADMIN} role=admin name=ann
{WORKER} role=worker name=gpu tasks=resize,shell schedules=yes
{PLAIN} role=worker name=cpu
"""
CODE = "code:shop:app"
RESIZE = {"name": "s", "every": "1h", "task": "resize"}


@pytest.fixture
async def world() -> AsyncIterator[World]:
    tokens = parse_tokens(LINES, "tokens", "f", check_token)
    async with World(WebSettings(tokens=tokens, anyone=None, permissions={"allow_shell"})) as made:
        yield made


async def declare(world: World, *schedules: Any, token: str = WORKER, **fields: Any) -> Reply:
    request = {"owner": CODE, "schedules": schedules, **fields}
    headers = [("authorization", f"Bearer {token}")]
    return await world.post("/v1/declarations", request, headers)


async def test_it_declares_the_schedules_of_its_tasks(world: World) -> None:
    first = await declare(world, RESIZE, {**RESIZE, "name": "old"})
    second = await declare(world, RESIZE, prune=True, keep_edits=True)

    assert [each["effect"] for each in first.json()["schedules"]] == ["created"] * 2
    assert [each["effect"] for each in second.json()["schedules"]] == ["unchanged", "removed"]


@pytest.mark.parametrize(
    ("schedules", "fields", "reason"),
    [
        ([{**RESIZE, "name": "t", "task": "mail"}], {}, "is not for jobs of the task 'mail'"),
        (
            [{**RESIZE, "name": "t", "task": "shell", "payload": {"command": "x"}}],
            {},
            "task 'shell'",
        ),
        ([{**RESIZE, "name": "t", "on_failure": {"task": "shell"}}], {}, "'shell'"),
        (
            [{**RESIZE, "name": "t", "expect": {"within": "1m", "on_miss": {"task": "shell"}}}],
            {},
            "'shell'",
        ),
        ([{**RESIZE, "name": "taken"}], {}, "which belongs to 'api'"),
        ([], {"owner": "file:x"}, "schedules of code only"),
        ([], {"queues": [{"name": "q", "concurrency": 1}]}, "sets no queues"),
        (
            [],
            {"expectations": [{"name": "e", "every": "1d", "within": "1h"}]},
            "sets no queues and no expectations",
        ),
    ],
)
async def test_it_declares_nothing_else(
    world: World, schedules: list[Any], fields: dict[str, Any], reason: str
) -> None:
    await declare(world, token=ADMIN)
    headers = [("authorization", f"Bearer {ADMIN}")]
    await world.send("PUT", "/v1/schedules/taken", b'{"every": "1h", "task": "resize"}', headers)

    reply = await declare(world, RESIZE, *schedules, **fields)

    assert reply.status in (403, 422)
    assert reason in reply.json()["detail"]
    listed = await world.send("GET", "/v1/schedules", b"", headers)
    assert [(each["name"], each["owner"]) for each in listed.json()["items"]] == [("taken", "api")]


@pytest.mark.parametrize(
    ("task", "fields", "verb"),
    [
        ("mail", {"prune": True}, "delete"),
        ("mail", {"prune": True, "dry_run": True}, "delete"),
        ("mail", {"schedules": [{**RESIZE, "name": "theirs"}]}, "replace"),
        ("mail", {"schedules": [{**RESIZE, "name": "theirs"}], "dry_run": True}, "replace"),
        ("shell", {"prune": True}, "delete"),
        ("shell", {"schedules": [{**RESIZE, "name": "theirs"}]}, "replace"),
    ],
)
async def test_it_neither_replaces_nor_deletes_what_it_could_not_declare(
    world: World, task: str, fields: dict[str, Any], verb: str
) -> None:
    theirs = {"name": "theirs", "every": "1h", "task": task, "payload": {"command": "true"}}
    assert (await declare(world, theirs, token=ADMIN)).status == 200

    reply = await declare(world, **fields)

    assert (reply.status, reply.code) == (403, "forbidden"), reply.body
    assert f"may not {verb} the schedule 'theirs'" in reply.json()["detail"]
    headers = [("authorization", f"Bearer {ADMIN}")]
    assert (await world.get("/v1/schedules/theirs", headers)).json()["task"] == task


async def test_a_change_by_hand_does_not_take_a_schedule_away_from_it(world: World) -> None:
    await declare(world, RESIZE)
    headers = [("authorization", f"Bearer {ADMIN}")]
    await world.send("PUT", "/v1/schedules/s", b'{"every": "1h", "task": "mail"}', headers)

    kept = await declare(world, RESIZE, keep_edits=True)
    put = await declare(world, RESIZE)

    assert [reply.json()["schedules"][0]["effect"] for reply in (kept, put)] == ["kept", "changed"]


@pytest.mark.parametrize(
    ("fields", "verb"),
    [({"schedules": [{**RESIZE, "name": "theirs"}]}, "replace"), ({"prune": True}, "delete")],
)
async def test_it_is_judged_by_what_another_declaration_has_put_just_before(
    world: World, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], verb: str
) -> None:
    theirs = make_schedule_spec("theirs", job=make_spec(task="mail"))
    assert (await declare(world, {**RESIZE, "name": "theirs"})).status == 200
    put = world.engine.declarations.put

    async def put_after(command: DeclareSchedules, *others: Any) -> list[Declared]:
        await put(DeclareSchedules(CODE, [theirs]))
        return await put(command, *others)

    monkeypatch.setattr(world.engine.declarations, "put", put_after)
    reply = await declare(world, **{"schedules": [{**RESIZE, "name": "new"}]} | fields)

    assert (reply.status, reply.code) == (403, "forbidden"), reply.body
    assert f"may not {verb} the schedule 'theirs'" in reply.json()["detail"]
    headers = [("authorization", f"Bearer {ADMIN}")]
    listed = (await world.get("/v1/schedules", headers)).json()["items"]
    assert [(each["name"], each["task"]) for each in listed] == [("theirs", "mail")]


async def test_a_worker_without_that_right_declares_nothing(world: World) -> None:
    reply = await declare(world, RESIZE, token=PLAIN)

    assert reply.status == 403


@pytest.mark.parametrize(
    "words", ["role=admin name=x schedules=yes", "role=worker name=x schedules=no"]
)
def test_only_a_worker_has_that_right(words: str) -> None:
    with pytest.raises(Invalid, match="schedules=yes is for the role worker only"):
        parse_tokens(f"{WORKER} {words}", "tokens", "f", check_token)


def test_the_right_is_read_from_the_line() -> None:
    tokens = parse_tokens(LINES, "tokens", "f", check_token)

    names = frozenset({"resize", "shell"})
    assert tokens[digest(WORKER)] == TokenPermission(
        Role.WORKER, "gpu", tasks=names, may_declare=True
    )
    assert not tokens[digest(PLAIN)].may_declare
