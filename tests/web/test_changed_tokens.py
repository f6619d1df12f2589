"""Open polls of workers whose tokens change with a reload."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import orjson
import pytest

from schedo.protocol.roles import Role
from schedo.web.permissions import TokenPermission, digest
from schedo.web.server import HttpServer
from schedo.web.settings import WebSettings
from tests.passes import until
from tests.web.connecting import Served, open_connection
from tests.web.world import World

ADMIN = "admin-token-0123456789abcdef"
IMAGES = "images-token-0123456789abcdef"
MAIL = "mail-token-0123456789abcdefgh"


def worker(queue: str) -> TokenPermission:
    return TokenPermission(Role.WORKER, "worker", frozenset({queue}))


ADMINS = {digest(ADMIN): TokenPermission(Role.ADMIN, "ann")}
SETTINGS = WebSettings(
    tokens={**ADMINS, digest(IMAGES): worker("images"), digest(MAIL): worker("mail")}, anyone=None
)


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with World(SETTINGS) as world:
        server = HttpServer()
        port = await server.start(world.app, "127.0.0.1", 0)
        yield world, server, port
        await server.stop(grace_s=0.2)


async def begin_poll(
    served: Served, token: str, name: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a poll, and return its connection."""
    world, _, port = served
    before = len(world.app.context.polls)
    reader, writer = await open_connection(port)
    body = orjson.dumps({"worker": name, "wait": "30s", "tasks": ["demo"]})
    writer.write(
        b"POST /v1/work HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Authorization: Bearer %b\r\nContent-Length: %d\r\n\r\n%b"
        % (token.encode(), len(body), body)
    )
    await until(lambda: len(world.app.context.polls) > before)
    return reader, writer


async def submit(world: World, queue: str) -> None:
    body = {"task": "demo", "queue": queue}
    reply = await world.post("/v1/jobs", body, [("authorization", f"Bearer {ADMIN}")])
    assert reply.status == 201


@pytest.mark.parametrize(("images", "status"), [(None, b"401"), (worker("other"), b"503")])
async def test_the_open_poll_of_a_token_that_changes_gets_no_job(
    served: Served, images: TokenPermission | None, status: bytes
) -> None:
    world, _, _ = served
    gone, first = await begin_poll(served, IMAGES, "w1")
    kept, second = await begin_poll(served, MAIL, "w2")
    tokens = {**ADMINS, digest(MAIL): worker("mail")}

    world.app.use(replace(SETTINGS, tokens=tokens | ({digest(IMAGES): images} if images else {})))
    await submit(world, "images")
    await submit(world, "mail")

    assert (await gone.readline()).startswith(b"HTTP/1.1 %b " % status)
    assert (await kept.readline()).startswith(b"HTTP/1.1 200 ")
    assert world.app.context.clients == {}
    for writer in (first, second):
        writer.close()
        await writer.wait_closed()
