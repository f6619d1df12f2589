"""Logins at a server of a cluster, with a link that another one has made."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from schedo.protocol.roles import Role
from tests.cluster.members import MemberWorld, running_cluster
from tests.web.test_sessions import SETTINGS, TOKENS, list_jobs, read_cookie


@pytest.fixture
async def servers() -> AsyncIterator[list[MemberWorld]]:
    async with running_cluster(2, SETTINGS) as (_, worlds):
        yield worlds


async def make_link(world: MemberWorld) -> str:
    bearer = [("authorization", f"Bearer {TOKENS[Role.VIEWER]}")]
    return str((await world.post("/v1/session:link", {}, bearer)).json()["link"])


async def test_a_link_of_another_server_logs_in_once(servers: list[MemberWorld]) -> None:
    first, second = servers
    code = await make_link(first)

    reply = await second.post("/v1/session", {"link": code})
    again = [await each.post("/v1/session", {"link": code}) for each in servers]

    assert (reply.status, reply.json()["role"]) == (200, "viewer")
    # Each of these servers has a store of its own, so the cookie is good where it was signed.
    assert (await list_jobs(first, read_cookie(reply))).status == 200
    assert (await list_jobs(first, read_cookie(reply), host="other")).status == 401
    assert [each.status for each in again] == [401, 401]


async def test_a_wrong_link_or_token_is_refused_as_elsewhere(servers: list[MemberWorld]) -> None:
    first, second = servers
    code = await make_link(first)
    await first.http.stop(grace_s=0.1)

    for body in ({"link": code}, {"link": "none"}, {"token": "wrong"}):
        reply = await second.post("/v1/session", body)
        assert (reply.status, reply.code) == (401, "unauthorized"), body
