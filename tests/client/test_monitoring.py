"""The summary and the series with both clients."""

from __future__ import annotations

from typing import Any

import pytest

from schedo import AsyncClient, Client
from tests.client.server import FakeServer

SUMMARY = {"verdict": {"level": "ok"}}
SERIES = {"window": "24h", "figures": {}}
CLUSTER = {"me": 1, "members": [], "unowned": []}
FAILURES = {"since": "2026-11-20T11:00:00.000000Z", "items": []}
FIRES = {"together": [2, 0], "items": []}
STATS = {"by": "task", "items": []}
NAMES = {"queues": ["mail"], "tags": []}
TARGETS = [
    "/v1/summary",
    "/v1/cluster",
    "/v1/failures",
    "/v1/names",
    "/v1/fires",
    "/v1/fires?from=2026-11-20T12%3A00%3A00Z&hours=6&bucket=1m&limit=9",
    "/v1/timeseries?window=15m",
    "/v1/timeseries?window=24h&names=due%2Cstarted&queue=mail&points=24",
    "/v1/stats?by=task",
    "/v1/stats?by=queue&since=2026-11-20T12%3A00%3A00Z&per=hour&name=ma&limit=9",
]
WANTED: Any = {"since": "2026-11-20T12:00:00Z", "per": "hour", "name": "ma", "limit": 9}


@pytest.fixture
def monitored(server: FakeServer) -> FakeServer:
    server.on("GET", "/v1/summary", 200, SUMMARY)
    server.on("GET", "/v1/cluster", 200, CLUSTER)
    server.on("GET", "/v1/failures", 200, FAILURES)
    server.on("GET", "/v1/names", 200, NAMES)
    server.on("GET", "/v1/fires", 200, FIRES)
    server.on("GET", "/v1/timeseries", 200, SERIES)
    server.on("GET", "/v1/stats", 200, STATS)
    return server


def test_the_summary_and_the_series_are_read(monitored: FakeServer) -> None:
    with Client(monitored.url) as client:
        assert client.get_summary() == SUMMARY
        assert client.get_cluster() == CLUSTER
        assert client.list_failures() == FAILURES
        assert client.list_names() == NAMES
        assert client.list_fires() == FIRES
        client.list_fires(start="2026-11-20T12:00:00Z", hours=6, bucket="1m", limit=9)
        client.get_timeseries()
        found = client.get_timeseries("24h", names=["due", "started"], queue="mail", points=24)
        assert client.get_stats() == STATS
        client.get_stats("queue", **WANTED)

    assert found == SERIES
    assert [request.target for request in monitored.requests] == TARGETS


async def test_the_summary_and_the_series_are_read_with_asyncio(monitored: FakeServer) -> None:
    async with AsyncClient(monitored.url) as client:
        assert await client.get_summary() == SUMMARY
        assert await client.get_cluster() == CLUSTER
        assert await client.list_failures() == FAILURES
        assert await client.list_names() == NAMES
        assert await client.list_fires() == FIRES
        await client.list_fires(start="2026-11-20T12:00:00Z", hours=6, bucket="1m", limit=9)
        await client.get_timeseries()
        names = ["due", "started"]
        found = await client.get_timeseries("24h", names=names, queue="mail", points=24)
        assert await client.get_stats() == STATS
        await client.get_stats("queue", **WANTED)

    assert found == SERIES
    assert [request.target for request in monitored.requests] == TARGETS


def test_a_client_asks_what_it_may_do_and_makes_a_link(server: FakeServer) -> None:
    server.on("GET", "/v1/me", 200, {"access": "token"})
    server.on("POST", "/v1/session:link", 201, {"link": "abc"})
    server.on("GET", "/v1/log", 200, {"items": []})
    with Client(server.url) as client:
        assert client.get_me() == {"access": "token"}
        assert client.create_session_link() == {"link": "abc"}
        assert client.list_log(who="ada") == {"items": [], "next_cursor": None}


async def test_a_client_asks_what_it_may_do_with_asyncio(server: FakeServer) -> None:
    server.on("GET", "/v1/me", 200, {"access": "token"})
    server.on("POST", "/v1/session:link", 201, {"link": "abc"})
    server.on("GET", "/v1/log", 200, {"items": []})
    async with AsyncClient(server.url) as client:
        assert await client.get_me() == {"access": "token"}
        assert await client.create_session_link() == {"link": "abc"}
        assert await client.list_log(who="ada") == {"items": [], "next_cursor": None}
