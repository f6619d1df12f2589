"""A program that responds at the URL of a server, and is no schedo."""

from __future__ import annotations

import asyncio

import pytest

from schedo.cluster import servers
from schedo.cluster.router import Router
from tests.cluster.conftest import Cluster
from tests.cluster.test_forwarding import text_of
from tests.cluster.test_unreachable import Talk, standing_in


def responding(status: str) -> Talk:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\n{{}}".encode())
        await writer.drain()

    return talk


@pytest.mark.parametrize("status", ["200 OK", "401 Unauthorized", "404 Not Found"])
async def test_what_another_program_responds_is_not_sent_on_as_the_response_of_a_server(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    everything, first, second = cluster
    monkeypatch.setattr(servers, "MOVING_S", 0.05)

    async with standing_in(everything, 1, responding(status)):
        reply = await second.post("/v1/jobs", {"task": "demo", "unique": text_of(first)})

    assert (reply.status, reply.code) == (503, "peer-unreachable")
    detail = reply.json()["detail"]
    assert "is not the server host 1, but another program" in detail
    assert "`advertise` of that server" in detail


@pytest.mark.parametrize("header", ["", "\r\nx-request-id: r-1"])
async def test_a_change_that_a_proxy_may_have_sent_on_has_an_unknown_outcome(
    cluster: Cluster, header: str
) -> None:
    everything, first, second = cluster

    async with standing_in(everything, 1, responding(f"504 Gateway Timeout{header}")):
        reply = await second.post("/v1/jobs", {"task": "demo", "unique": text_of(first)})

    assert (reply.status, reply.code) == (503, "outcome-unknown")


async def test_the_readiness_names_the_url_at_which_another_program_responds(
    cluster: Cluster,
) -> None:
    everything, _, second = cluster

    async with standing_in(everything, 1, responding("404 Not Found")):
        await second.router.look()
        notes, url = second.router.notes(), everything.members[0].url

    assert len(notes) == 1
    assert f"what responds at {url} is not the server host 1" in notes[0]


async def test_a_program_behind_a_proxy_that_numbers_responses_is_no_server_either(
    cluster: Cluster,
) -> None:
    everything, _, second = cluster

    async with standing_in(everything, 1, responding("200 OK\r\nx-request-id: r-1")):
        await second.router.look()
        notes, url = second.router.notes(), everything.members[0].url

    assert len(notes) == 1
    assert f"what responds at {url} is not the server host 1" in notes[0]


async def test_a_server_of_another_cluster_at_the_url_is_not_the_one_that_is_asked(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    monkeypatch.setattr(servers, "MOVING_S", 0.05)
    first.app.context.credentials.peers = Router(first.app.context, first.cluster, b"o" * 32)

    reply = await second.post("/v1/jobs", {"task": "demo", "unique": text_of(first)})

    assert (reply.status, reply.code) == (503, "peer-unreachable")
    assert "or a server of another cluster" in reply.json()["detail"]
