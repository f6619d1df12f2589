"""A cluster of two servers for each test that wants one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.cluster.members import Map, MemberWorld, running_cluster

Cluster = tuple[Map, MemberWorld, MemberWorld]


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with running_cluster() as (everything, (first, second)):
        yield everything, first, second
