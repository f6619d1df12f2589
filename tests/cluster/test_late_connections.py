"""A server of a cluster that stood still finds that its own time to connect to others is over."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from schedo.client import async_transport
from schedo.client.async_transport import Streams
from schedo.cluster import app_calls, peers, servers
from tests.cluster.conftest import Cluster
from tests.cluster.test_app_calls import backend_of, make_spec, submit
from tests.cluster.test_forwarding import has_job, text_of


def let_the_first_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no connection come of the first try, and let that take all of the time."""
    monkeypatch.setattr(peers, "CONNECT_S", 0.05)
    connect, tries = async_transport.open_streams, itertools.count()

    async def hang_once(*address: Any) -> Streams:
        if next(tries) == 0:
            monkeypatch.setattr(peers, "CONNECT_S", 10.0)  # of the next try, on a busy machine
            await asyncio.Event().wait()
        return await connect(*address)

    monkeypatch.setattr(peers, "open_streams", hang_once)


async def test_a_connection_that_takes_all_of_the_time_is_tried_once_more(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    monkeypatch.setattr(servers, "MOVING_S", 0.05)
    let_the_first_hang(monkeypatch)

    reply = await second.post("/v1/jobs", {"task": "demo", "unique": text_of(first)})

    assert reply.status == 201


async def test_a_submit_of_a_task_connects_once_more(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    monkeypatch.setattr(app_calls, "MOVING_S", 0.05)
    let_the_first_hang(monkeypatch)

    (job,) = await submit(backend_of(second), make_spec(text_of(first)))

    assert await has_job(first, job.id)
