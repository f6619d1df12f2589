"""Listing, cordoning and draining workers with both clients."""

from __future__ import annotations

import pytest

from schedo import AsyncClient, Client
from tests.client.server import FakeServer

WORKER = {"name": "w#1", "state": "active"}
TARGET = "/v1/workers/w%231"
ACTS = ("cordon", "uncordon", "drain")


@pytest.fixture
def workers(server: FakeServer) -> FakeServer:
    server.on("GET", "/v1/workers", 200, {"items": [WORKER]})
    server.on("GET", TARGET, 200, WORKER)
    for act in ACTS:
        server.on("POST", f"{TARGET}:{act}", 200, {**WORKER, "act": act})
    return server


def test_workers_are_listed_shown_and_cordoned(workers: FakeServer) -> None:
    with Client(workers.url) as client:
        assert client.list_workers() == [WORKER]
        assert client.get_worker("w#1") == WORKER
        assert client.cordon_worker("w#1")["act"] == "cordon"
        assert client.uncordon_worker("w#1")["act"] == "uncordon"
        assert client.drain_worker("w#1")["act"] == "drain"


async def test_workers_are_listed_shown_and_cordoned_with_asyncio(workers: FakeServer) -> None:
    async with AsyncClient(workers.url) as client:
        assert await client.list_workers() == [WORKER]
        assert await client.get_worker("w#1") == WORKER
        assert (await client.cordon_worker("w#1"))["act"] == "cordon"
        assert (await client.uncordon_worker("w#1"))["act"] == "uncordon"
        assert (await client.drain_worker("w#1"))["act"] == "drain"
