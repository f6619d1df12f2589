"""A worker's token makes a worker for its queues and tasks, and opens nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from schedo.client.tokens import check_token
from schedo.config import Config, Secret
from schedo.core.ids import render_id
from schedo.errors import Invalid
from schedo.protocol.operation import Operation
from schedo.protocol.operations import OPERATIONS
from schedo.protocol.roles import Role
from schedo.server.settings import read_tokens
from schedo.web.permissions import WORKER_LINE, TokenPermission, digest, parse_tokens
from schedo.web.settings import WebSettings
from tests.web.placing import PlacingWorld, make_lease
from tests.web.world import Reply

MASTER = "correct-horse-battery-staple-0123456789"
IMAGES = "images-token-0123456789abcdef"
ANY = "any-token-0123456789abcdefgh"


def worker_permission(
    queues: frozenset[str] | None = None, tasks: frozenset[str] | None = None
) -> TokenPermission:
    return TokenPermission(Role.WORKER, "worker", queues, tasks, "worker_tokens")


PERMISSIONS = {
    digest(IMAGES): worker_permission(
        frozenset({"images", "thumbs"}), frozenset({"resize", "crop"})
    ),
    digest(ANY): worker_permission(),
}
SECURED = WebSettings(
    tokens={digest(MASTER): TokenPermission(Role.ADMIN, "admin"), **PERMISSIONS}, anyone=None
)


@pytest.fixture
async def world() -> AsyncIterator[PlacingWorld]:
    async with PlacingWorld(SECURED) as made:
        yield made


async def work(world: PlacingWorld, token: str, **fields: Any) -> Reply:
    headers = [("authorization", f"Bearer {token}")]
    return await world.post("/v1/work", {"worker": "w1", **fields}, headers)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
async def test_a_worker_token_is_valid_only_for_the_worker_protocol(
    world: PlacingWorld, operation: Operation
) -> None:
    path = operation.path
    for part in ("{id}", "{name}", "{code}", "{file}"):
        path = path.replace(part, render_id(7))
    body = b"[]" if operation.is_batch else b'{"worker":"w1"}'
    headers = [("authorization", f"Bearer {IMAGES}")]

    reply = await world.send(operation.method, path, body if operation.request else b"", headers)

    if operation.role is None or operation.path == "/v1/work":
        assert reply.status in (200, 204, 404, 422)
    else:
        assert (reply.status, reply.code) == (403, "forbidden")


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "PATCH"])
async def test_a_worker_token_is_valid_only_for_post(world: PlacingWorld, method: str) -> None:
    headers = [("authorization", f"Bearer {IMAGES}")]

    assert (await world.send(method, "/v1/work", headers=headers)).status == 405
    assert (await world.send("POST", "/v1/work/", b"{}", headers)).status == 404


@pytest.mark.parametrize("token", ["", "wrong", IMAGES + "x", IMAGES[:-1], IMAGES.upper()])
async def test_a_wrong_worker_token_is_refused(world: PlacingWorld, token: str) -> None:
    reply = await work(world, token)

    assert (reply.status, reply.code) == (401, "unauthorized")
    assert world.sessions.asks == []


async def test_a_registration_within_the_permission_of_its_token_is_accepted(
    world: PlacingWorld,
) -> None:
    reply = await work(world, IMAGES, queues=["images"], tasks=["resize"])

    assert reply.status == 200
    offer = world.sessions.asks[0].spec
    assert (offer.queues, offer.tasks) == (frozenset({"images"}), frozenset({"resize"}))


@pytest.mark.parametrize(
    "fields",
    [
        {"queues": ["images", "mail"]},
        {"queues": ["mail"]},
        {"tasks": ["shell"]},
        {"tasks": ["resize", "shell"], "queues": ["images"]},
        {"task_defaults": {"shell": {"retry": 100}}},
    ],
    ids=str,
)
async def test_a_registration_beyond_the_permission_of_its_token_is_refused(
    world: PlacingWorld, fields: dict[str, Any]
) -> None:
    reply = await work(world, IMAGES, **fields)

    assert (reply.status, reply.code) == (403, "forbidden")
    assert world.sessions.asks == []


async def test_a_worker_that_registers_for_all_tasks_gets_all_that_its_token_permits(
    world: PlacingWorld,
) -> None:
    await work(world, IMAGES)
    await work(world, ANY, worker="w2")
    await work(world, MASTER, worker="w3")

    offers = [(ask.spec.queues, ask.spec.tasks) for ask in world.sessions.asks]
    assert offers == [({"images", "thumbs"}, {"resize", "crop"}), (None, None), (None, None)]


async def test_a_worker_name_of_another_token_cannot_be_taken_over(world: PlacingWorld) -> None:
    await work(world, MASTER, session="a")
    world.sessions.add_worker("w1")

    reply = await work(world, IMAGES, session="b")

    assert (reply.status, reply.code) == (403, "forbidden")
    assert [ask.session for ask in world.sessions.asks] == ["a"]


async def test_the_name_of_an_evicted_worker_can_be_taken_by_another_token(
    world: PlacingWorld,
) -> None:
    await work(world, ANY)

    assert (await work(world, IMAGES)).status == 200


async def test_the_name_of_a_disconnected_worker_can_be_taken_by_another_token(
    world: PlacingWorld,
) -> None:
    await work(world, ANY)
    world.sessions.add_worker("w1", state="disconnected")

    assert (await work(world, IMAGES)).status == 200


async def test_the_name_of_a_disconnected_worker_that_holds_attempts_cannot_be_taken(
    world: PlacingWorld,
) -> None:
    await work(world, ANY)
    world.sessions.add_worker("w1", state="disconnected")
    world.sessions.held["w1"] = [make_lease(queue="images", task="resize")]

    assert (await work(world, IMAGES)).status == 403


@pytest.mark.parametrize(
    ("queue", "task", "status"),
    [("images", "resize", 200), ("mail", "resize", 403), ("images", "shell", 403)],
)
async def test_a_worker_of_the_last_server_cannot_be_taken_over_by_another_token(
    world: PlacingWorld, queue: str, task: str, status: int
) -> None:
    world.sessions.add_worker("w1", state="disconnected")
    works = (("images", "resize"), (queue, task))
    world.sessions.held["w1"] = [make_lease(queue=queue, task=task) for queue, task in works]

    assert (await work(world, IMAGES, running=[])).status == status


async def test_the_servers_own_token_may_speak_for_any_worker(world: PlacingWorld) -> None:
    await work(world, IMAGES)
    world.sessions.add_worker("w1")

    assert (await work(world, MASTER)).status == 200


async def test_worker_tokens_are_enforced_on_a_server_without_its_own_token() -> None:
    async with PlacingWorld(WebSettings(tokens=PERMISSIONS)) as world:
        headers = [("authorization", f"Bearer {IMAGES}")]

        assert (await world.get("/v1/jobs", headers)).status == 403
        assert (await work(world, IMAGES, queues=["mail"])).status == 403
        assert (await world.get("/v1/jobs")).status == 200


def parse(text: str) -> dict[bytes, TokenPermission]:
    return parse_tokens(text, "worker_tokens", "f", check_token, WORKER_LINE)


def test_a_file_of_tokens_is_read_line_by_line() -> None:
    text = f"""
# comment
{IMAGES} tasks=resize,crop  queues=images,thumbs

{ANY}
"""

    assert parse(text) == PERMISSIONS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there is no token"),
        ("# only\n", "there is no token"),
        ("short", "line 1"),
        (f"{ANY}\n{ANY}", "line 2: this token occurs twice"),
        (f"{ANY} queue=a", "line 1: write queues=a,b"),
        (f"{ANY} queues", "line 1: write queues=a,b"),
        (f"{ANY} queues=a queues=b", "each once"),
        (f"{ANY} role=admin", "line 1: write queues=a,b tasks=x,y schedules=yes behind"),
        (f"{ANY} name=x", "line 1: write queues=a,b"),
        (f"{ANY} queues=", "line 1: queues: "),
        (f"{ANY} queues=a,,b", "line 1: queues: "),
        (f"{ANY} tasks=a/b", "line 1: tasks: "),
        (f"{ANY} tasks=a, b", "line 1: write queues=a,b"),
        ("changeme-changeme-0123456789", "line 1"),
    ],
    ids=lambda value: value[:40],
)
def test_the_error_for_a_bad_file_of_tokens_names_the_line(text: str, message: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse(text)

    assert message in str(caught.value)
    assert ANY not in str(caught.value)


def test_the_number_of_worker_tokens_is_limited() -> None:
    text = "\n".join(f"abcdefgh-0123456789-{n}" for n in range(1_001))

    with pytest.raises(Invalid, match="at most 1000"):
        parse(text)


def test_the_file_of_tokens_is_read_once_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"{ANY}\n")
    path.chmod(0o600)

    assert read_tokens(Config(worker_tokens=str(path))) == {digest(ANY): worker_permission()}
    assert read_tokens(Config()) == {}


def test_a_file_of_tokens_that_all_users_can_write_or_that_has_the_servers_token_is_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"{MASTER}\n")
    path.chmod(0o600)
    config = Config(worker_tokens=str(path), token=Secret(MASTER))

    with pytest.raises(Invalid, match="the server's own token"):
        read_tokens(config)
    path.chmod(0o646)
    with pytest.raises(Invalid, match="every user of this machine can write it"):
        read_tokens(config)
    path.unlink()
    with pytest.raises(Invalid, match="cannot be read"):
        read_tokens(config)
