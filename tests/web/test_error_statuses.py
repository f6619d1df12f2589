"""The OpenAPI document names the statuses of the errors of each operation, and they are true.

That no other status occurs is checked with each response to a test of the web, in responses.py.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from schedo.core.limits import BATCH_BYTES_MAX
from schedo.protocol.examples import EXAMPLES
from schedo.protocol.openapi import build_document
from schedo.protocol.operation import Operation
from schedo.protocol.operations import OPERATIONS
from tests.web.responses import ANY_OPERATION
from tests.web.world import Headers, Reply, World, secured

TOKEN = "admin-token-0123456789abcdef"
PATHS = build_document()["paths"]
# What a wrong request can bring about; the others need a state of the server.
PROVOKED = {400, 401, 403, 404, 413, 415, 422}
ENDLESS = {"get_events"}  # its responses are a stream


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with World(secured(TOKEN)) as world:
        yield world


async def send(
    world: World, operation: Operation, query: str = "", token: str = TOKEN, **other: Any
) -> Reply:
    """Send the operation about something that is not there, with its example as the body."""
    parts = {"id": "0CR728XJV2WG0", "name": other.pop("name", "not-there"), "code": "not-there"}
    path = operation.path.format(**parts)
    wanted = ["task_id=0CR728XJV2WG0"] if "task_id" in operation.query else []
    query = "&".join([*wanted, *filter(None, [query])])
    headers: Headers = [("schedo-lease-nonce", "none"), *other.pop("headers", ())]
    if token:
        headers = [*headers, ("authorization", f"Bearer {token}")]
    body = json.dumps(EXAMPLES.get(operation.name, {})).encode() if operation.request else b""
    body = other.pop("body", body)
    url = f"{path}?{query}" if query else path
    return await world.send(operation.method, url, body, headers, **other)


@pytest.mark.parametrize(
    "operation",
    [each for each in OPERATIONS if each.name not in ENDLESS],
    ids=lambda operation: operation.name,
)
async def test_each_status_that_a_wrong_request_gets_is_named(
    world: World, operation: Operation
) -> None:
    wrong = [
        await send(world, operation, query="nonsense=1"),
        await send(world, operation, token=""),
        await send(world, operation, body=b"x" * (BATCH_BYTES_MAX + 1)),
    ]
    if operation.method != "GET":
        wrong.append(await send(world, operation, headers=[("origin", "http://elsewhere")]))
    if operation.request is not None:
        wrong.append(await send(world, operation, content_type="text/plain"))
        wrong.append(await send(world, operation, body=b"5"))
    if "{" in operation.path or operation.query == ("task_id",):
        wrong.append(await send(world, operation))
    if "{name}" in operation.path:
        wrong.append(await send(world, operation, name="-not-a-name"))
    named = PATHS[operation.path][operation.method.lower()]["responses"]

    found = {reply.status for reply in wrong if reply.status >= 400}

    assert {str(status) for status in found} <= set(named)
    assert {int(status) for status in named if status != "default"} & PROVOKED - {403} <= found


def test_each_error_of_an_operation_is_a_problem_document() -> None:
    responses = build_document()["components"]["responses"]

    for response in responses.values():
        assert set(response["content"]) == {"application/problem+json"}
    assert "not-found:" in responses["NotFound"]["description"]
    assert "Retry-After" in responses["Overloaded"]["headers"]
    assert not ANY_OPERATION & {
        int(status) for status in PATHS["/v1/jobs"]["post"]["responses"] if status != "default"
    }
