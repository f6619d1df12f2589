"""A server notices that the URL that it gives to the others leads to another program or server."""

from __future__ import annotations

import asyncio

import pytest

from schedo.cluster import reachability
from tests.cluster.conftest import Cluster
from tests.cluster.members import MemberWorld
from tests.cluster.test_strangers import responding
from tests.cluster.test_unreachable import Talk, move, standing_in


def of_another_program(body: bytes) -> Talk:
    """Respond as a program does that gives each response an id, as schedo does."""
    head = f"HTTP/1.1 200 OK\r\nx-request-id: r-1\r\ncontent-length: {len(body)}\r\n\r\n".encode()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head + body)
        await writer.drain()

    return talk


async def list_own(world: MemberWorld) -> tuple[bool, str | None]:
    """Return what the server says of itself: whether it can be reached, and what is wrong."""
    found = (await world.get("/v1/cluster")).json()
    (own,) = [each for each in found["members"] if each["number"] == found["me"]]
    return own["reachable"], own.get("problem")


@pytest.mark.parametrize(
    "talk",
    [responding("404 Not Found"), of_another_program(b"{}"), of_another_program(b"hello")],
    ids=["not found", "another JSON", "no JSON"],
)
async def test_a_server_at_whose_url_another_program_responds_says_so(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, talk: Talk
) -> None:
    everything, first, _ = cluster

    async with standing_in(everything, 1, talk):
        await first.router.look()
        ready = await first.get("/readyz")
        is_reachable, problem = await list_own(first)

    wrong = f"what responds at {everything.members[0].url} is not the server host 1"
    assert ready.status == 200
    assert any(wrong in note for note in ready.json()["notes"])
    assert not is_reachable
    assert problem is not None
    assert "`advertise`" in problem
    assert wrong in caplog.text


async def test_a_server_with_the_url_of_another_one_names_that_one(cluster: Cluster) -> None:
    everything, first, second = cluster
    move(everything, 1, everything.members[1].url)

    await first.router.look()
    await second.router.look()

    for world in (first, second):
        (note,) = world.router.notes()
        assert "is the server host 2, and not host 1" in note
    members = (await second.get("/v1/cluster")).json()["members"]
    assert [each["reachable"] for each in members] == [False, True]


async def test_a_server_that_cannot_reach_itself_may_be_reached_by_others(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    everything, first, _ = cluster
    with_none = "http://127.0.0.1:1"
    move(everything, 1, with_none)
    (other,) = everything.members[1:]
    everything.members.remove(other)
    await first.router.look()
    assert "does not reach itself" not in caplog.text  # no other server uses the URL yet
    everything.members.append(other)

    for _ in range(3):
        await first.router.look()

    assert first.router.notes() == []
    assert await list_own(first) == (True, None)
    assert caplog.text.count(f"this server does not reach itself at {with_none}") == 1


@pytest.mark.parametrize("asked", [0, 1], ids=["itself", "another one"])
async def test_a_server_behind_a_load_balancer_is_wrong_although_it_gets_some_requests_itself(
    cluster: Cluster, asked: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reachability, "FINE_LOOKS", 2)
    everything, *worlds = cluster
    own, other = (each.url for each in everything.members)

    found = []
    for url in (other, own, other, own, own):
        move(everything, 1, url)
        await worlds[asked].router.look()
        found.append(bool(worlds[asked].router.notes()))

    assert found == [True, True, True, True, False]
    assert caplog.text.count("and not host 1") == 1


async def test_a_server_asks_only_while_the_others_know_its_url_and_it_stays(
    cluster: Cluster,
) -> None:
    everything, first, _ = cluster

    async with standing_in(everything, 1, responding("404 Not Found")) as heads:
        url = everything.members[0].url
        move(everything, 1, "")
        await first.router.look()
        move(everything, 1, url)
        await first.router.look()
        everything.leave(1)
        await first.router.look()

    assert len(heads) == 1
