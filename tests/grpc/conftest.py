"""A gRPC server with a client, fresh for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.grpc.calling import Client, Served, serving
from tests.web.world import World


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with World() as world, serving(world) as made:
        yield made


@pytest.fixture
def world(served: Served) -> World:
    return served.world


@pytest.fixture
def client(served: Served) -> Client:
    return served.client
