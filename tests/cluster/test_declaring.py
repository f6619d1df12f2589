"""Declarations whose schedules and expectations belong to several servers."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from schedo.client.messages import HttpResponse
from schedo.cluster import declaring as in_parts
from schedo.cluster.peers import ChangeLost
from schedo.core.commands import DeclareSchedules, PutEffect
from schedo.core.model import JobSpec, Rule, ScheduleSpec
from schedo.core.shards import SHARDS, shard_of
from schedo.engine import declarations
from schedo.engine.action_log import change
from schedo.engine.homes import texts_of
from schedo.errors import PeerUnreachable, Unavailable
from schedo.tasks.declarations import declare_schedules
from schedo.web.handlers import schedules
from tests.cluster.conftest import Cluster
from tests.cluster.members import Map, MemberWorld
from tests.core.builders import make_schedule_spec

NAMES = [f"s{number}" for number in range(6)]


def declaration(names: list[str] = NAMES, **fields: Any) -> dict[str, Any]:
    schedules = [{"name": name, "every": "1h", "task": "demo"} for name in names]
    return {"owner": "file:jobs.toml", "schedules": schedules, **fields}


async def names_of(world: MemberWorld) -> list[str]:
    page = await world.engine.list_schedules(None, 100)
    return [each.name for each in page.schedules]


def effects(reply: Any, kind: str = "schedules") -> dict[str, str]:
    assert reply.status == 200, reply
    return {each["name"]: each["effect"] for each in reply.json()[kind]}


async def test_each_server_puts_the_schedules_whose_shards_it_owns(cluster: Cluster) -> None:
    _, first, second = cluster
    expectations = [{"name": f"e{n}", "every": "1h", "within": "5m"} for n in range(4)]
    queues = [{"name": "mail", "concurrency": 2}]
    body = declaration(expectations=expectations, queues=queues)

    made = await second.post("/v1/declarations", body)
    again = await first.post("/v1/declarations", body)

    assert effects(made) == dict.fromkeys(NAMES, "created")
    assert effects(made, "expectations") == {f"e{n}": "created" for n in range(4)}
    assert effects(again) == dict.fromkeys(NAMES, "unchanged")
    for world in (first, second):
        assert await names_of(world) == [name for name in NAMES if world.router.servers.owns(name)]
        assert world.engine.get_queue("mail").concurrency == 2
    assert {*await names_of(first), *await names_of(second)} == {*NAMES}


async def test_what_is_no_longer_declared_is_named_or_removed_everywhere(cluster: Cluster) -> None:
    _, first, second = cluster
    await second.post("/v1/declarations", declaration())

    kept = await second.post("/v1/declarations", declaration(NAMES[:1]))
    pruned = await first.post("/v1/declarations", declaration(NAMES[:1], prune=True))

    assert kept.json()["undeclared"] == NAMES[1:]
    assert effects(pruned) == {NAMES[0]: "unchanged"} | dict.fromkeys(NAMES[1:], "removed")
    assert [*await names_of(first), *await names_of(second)] == NAMES[:1]


@pytest.fixture
async def following(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The servers, the second of which puts nothing under a name that it does not own."""
    second = cluster[2]

    def refuse(command: object) -> Unavailable | None:
        is_own = all(map(second.router.servers.owns, texts_of(command)))
        return None if is_own else Unavailable("the shard has just moved")

    monkeypatch.setattr(second.engine._loop, "find_refusal", refuse)
    second.router.start()
    return cluster


async def test_a_schedule_of_an_owner_that_moves_while_it_is_put_is_put_by_the_next_server(
    following: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything, first, second = following
    name = next(filter(second.router.servers.owns, NAMES))

    def move(_: bytes) -> bool:
        everything.give([shard_of(name)], 1)
        return False

    monkeypatch.setattr(schedules, "has_mask", move)
    path = f"/v1/schedules/{name}?owner=file:jobs.toml"
    reply = await second.put(path, {"every": "1h", "task": "demo"})

    assert reply.status == 201
    assert [await names_of(first), await names_of(second)] == [[name], []]


async def test_a_declared_schedule_that_moves_is_put_with_the_rights_of_the_client_only(
    following: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything, first, second = following
    monkeypatch.setattr(declarations, "PAUSE_S", 0.0)
    moving = next(filter(second.router.servers.owns, NAMES))
    declare = second.engine.expectations.declare

    async def move(command: Any) -> Any:
        everything.give([shard_of(moving)], 1)
        return await declare(command)

    sent: list[str] = []

    async def send_as_server(*arguments: Any) -> None:
        sent.append(arguments[1])
        raise PeerUnreachable("the server cannot be reached")

    monkeypatch.setattr(second.engine.expectations, "declare", move)
    monkeypatch.setattr(second.router.servers, "send", send_as_server)

    reply = await second.post("/v1/declarations", declaration())

    assert effects(reply) == dict.fromkeys(NAMES, "created")
    assert moving in await names_of(first)
    assert sent == []


def move_before_send(everything: Map, world: MemberWorld, name: str, number: int) -> None:
    """Let the server get the shard of the name right before it sends the request of this number."""
    send, sent = world.router.servers.peers.send, list[None]()

    async def send_after(*arguments: Any, **fields: Any) -> HttpResponse:
        sent.append(None)
        if len(sent) == number:
            everything.give([shard_of(name)], world.number)
        return await send(*arguments, **fields)

    setattr(world.router.servers.peers, "send", send_after)  # noqa: B010  # mypy refuses the assignment


async def test_what_is_no_longer_declared_is_removed_also_if_it_moves_meanwhile(
    cluster: Cluster,
) -> None:
    everything, first, second = cluster
    await second.post("/v1/declarations", declaration())
    [moving, *_] = await names_of(second)
    everything.give([shard_of(moving)], 1)
    move_before_send(everything, second, moving, 2)  # the first one was a dry run
    declared = [name for name in NAMES if name != moving]

    pruned = await second.post("/v1/declarations", declaration(declared, prune=True))

    assert effects(pruned) == dict.fromkeys(declared, "unchanged") | {moving: "removed"}
    assert [*await names_of(first), *await names_of(second)] == sorted(
        declared, key=first.router.servers.owns, reverse=True
    )


async def test_a_dry_run_and_a_refused_declaration_change_nothing(cluster: Cluster) -> None:
    _, first, second = cluster
    wrong = declaration()
    wrong["schedules"][3]["every"] = "soon"

    dry = await second.post("/v1/declarations", declaration(dry_run=True))
    refused = await second.post("/v1/declarations", wrong)
    malformed = await second.send("POST", "/v1/declarations", b"[]")

    assert effects(dry) == dict.fromkeys(NAMES, "created")
    assert (refused.status, refused.json()["errors"][0]["pointer"]) == (422, "/schedules/3/every")
    assert malformed.status == 422
    assert [*await names_of(first), *await names_of(second)] == []


async def test_a_declaration_waits_for_shards_that_move(cluster: Cluster) -> None:
    everything, first, second = cluster
    everything.give(range(SHARDS), None)
    declaring = asyncio.ensure_future(second.post("/v1/declarations", declaration()))
    await asyncio.wait([declaring], timeout=0.05)
    assert not declaring.done()

    everything.give(range(SHARDS), 1)

    assert effects(await declaring) == dict.fromkeys(NAMES, "created")
    assert await names_of(first) == NAMES


async def test_a_declaration_that_a_server_did_not_carry_out_may_be_declared_in_part(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    declare, passes = in_parts._declare, list[None]()

    async def stop_before_second_pass(*args: Any) -> Any:
        passes.append(None)
        if len(passes) == 2:
            await first.http.stop(grace_s=0.05)
        return await declare(*args)

    monkeypatch.setattr(in_parts, "_declare", stop_before_second_pass)

    reply = await second.post("/v1/declarations", declaration())

    assert (reply.status, reply.code) == (503, "outcome-unknown")
    assert await names_of(second)  # its own part


def answer_once(world: MemberWorld, number: int, answer: HttpResponse | Exception) -> None:
    """Replace what the server gets of another one for its request of this number."""
    send, sent = world.router.servers.peers.send, list[None]()

    async def replaced(*arguments: Any, **fields: Any) -> HttpResponse:
        sent.append(None)
        if len(sent) != number:
            return await send(*arguments, **fields)
        if isinstance(answer, Exception):
            raise answer
        return answer

    setattr(world.router.servers.peers, "send", replaced)  # noqa: B010  # mypy refuses the assignment


@pytest.mark.parametrize("dry_run", [False, True])
async def test_a_declaration_is_not_called_begun_when_a_server_has_not_said_whether_it_accepts_it(
    cluster: Cluster, dry_run: bool
) -> None:
    _, first, second = cluster
    answer_once(second, 1, ChangeLost("it may or may not have been carried out"))

    reply = await second.post("/v1/declarations", declaration(dry_run=dry_run))

    assert (reply.status, reply.code) == (503, "unavailable")
    assert [*await names_of(first), *await names_of(second)] == []


async def test_a_declaration_is_not_called_refused_when_one_server_has_carried_out_its_part(
    cluster: Cluster,
) -> None:
    _, _, second = cluster
    problem = {"type": "", "title": "", "status": 422, "detail": "too many", "code": "invalid"}
    answer_once(second, 2, HttpResponse(422, {}, msgspec.json.encode(problem)))

    reply = await second.post("/v1/declarations", declaration())

    assert (reply.status, reply.code) == (503, "outcome-unknown")
    assert "too many" in reply.json()["detail"]
    assert await names_of(second)  # its own part


async def test_the_schedules_of_an_application_are_put_by_their_owners(cluster: Cluster) -> None:
    _, first, second = cluster
    for world in (first, second):
        world.router.start()
    specs = [
        ScheduleSpec(name, Rule(every_us=3_600_000_000), JobSpec("demo", b'{"secret":"s"}'))
        for name in NAMES
    ]

    done = await declare_schedules(second.engine, "code:shop", specs, is_pruning=False)
    await asyncio.gather(*second.router.servers.background)
    everywhere = {*await names_of(first), *await names_of(second)}
    again = await declare_schedules(second.engine, "code:shop", specs[:1], is_pruning=True)
    await asyncio.gather(*second.router.servers.background)

    own = [name for name in NAMES if second.router.servers.owns(name)]
    assert [(each.schedule.name, each.effect) for each in done] == [
        (name, PutEffect.CREATED) for name in own
    ]
    assert everywhere == {*NAMES}
    assert {each.effect for each in again} <= {PutEffect.UNCHANGED, PutEffect.REMOVED}
    # Unlike servers with one database, the second one here does not know what the first one has.
    assert [name for name in await names_of(second) if name != NAMES[0]] == []
    kept = first if first.router.servers.owns(NAMES[0]) else second
    assert (await kept.engine.get_schedule(NAMES[0])).spec.job.payload == b'{"secret":"s"}'


async def test_a_schedule_that_moves_while_others_are_removed_stays(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything, first, second = cluster
    specs = [
        ScheduleSpec(name, Rule(every_us=3_600_000_000), JobSpec("demo", b"{}")) for name in NAMES
    ]
    moving = next(spec for spec in specs if second.router.servers.owns(spec.name))
    for world in (first, second):  # unlike servers with one database, each has records of its own
        await declare_schedules(world.engine, "code:shop", specs, is_pruning=False)
    second.router.start()
    send = second.router.servers.send

    async def move_first(*arguments: Any) -> Any:
        everything.give([shard_of(moving.name)], 1)
        return await send(*arguments)

    monkeypatch.setattr(second.router.servers, "send", move_first)

    removed = next(spec for spec in specs if spec is not moving)
    kept = [spec for spec in specs if spec is not removed]
    await declare_schedules(second.engine, "code:shop", kept, is_pruning=True)
    await asyncio.gather(*second.router.servers.background)

    assert moving.name in await names_of(first)


async def test_what_an_application_does_not_declare_is_removed_also_if_it_moves_meanwhile(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything, _, second = cluster
    monkeypatch.setattr(in_parts, "PAUSE_S", 0.0)
    specs = [
        ScheduleSpec(name, Rule(every_us=3_600_000_000), JobSpec("demo", b"{}")) for name in NAMES
    ]
    moving = next(spec for spec in specs if second.router.servers.owns(spec.name))
    await declare_schedules(second.engine, "code:shop", specs, is_pruning=False)
    everything.give([shard_of(moving.name)], 1)
    second.router.start()
    move_before_send(everything, second, moving.name, 1)

    kept = [spec for spec in specs if spec is not moving]
    await declare_schedules(second.engine, "code:shop", kept, is_pruning=True)
    await asyncio.gather(*second.router.servers.background)

    assert moving.name not in await names_of(second)


async def test_what_is_removed_at_a_server_that_cannot_be_reached_is_removed_later(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    monkeypatch.setattr(in_parts, "PAUSE_S", 0.0)
    specs = [
        ScheduleSpec(name, Rule(every_us=3_600_000_000), JobSpec("demo", b"{}")) for name in NAMES
    ]
    for world in (first, second):
        await declare_schedules(world.engine, "code:shop", specs, is_pruning=False)
    second.router.start()
    send = second.router.servers.send

    async def fail_first(*arguments: Any) -> Any:
        monkeypatch.setattr(second.router.servers, "send", send)
        raise PeerUnreachable("the server cannot be reached")

    monkeypatch.setattr(second.router.servers, "send", fail_first)

    kept = [spec for spec in specs if second.router.servers.owns(spec.name)]
    await declare_schedules(second.engine, "code:shop", kept, is_pruning=True)
    await asyncio.gather(*second.router.servers.background)

    removed = [spec.name for spec in specs if spec not in kept]
    assert {*removed}.isdisjoint(await names_of(first))


async def test_the_start_of_a_server_does_not_wait_for_owners_that_cannot_be_reached(
    cluster: Cluster,
) -> None:
    everything, first, second = cluster
    second.router.start()
    everything.give(range(SHARDS), None)
    specs = [
        ScheduleSpec(name, Rule(every_us=3_600_000_000), JobSpec("demo", b"{}")) for name in NAMES
    ]

    done = await declare_schedules(second.engine, "code:shop", specs, is_pruning=False)
    everything.give(range(0, SHARDS, 2), 1)
    everything.give(range(1, SHARDS, 2), 2)
    await asyncio.gather(*second.router.servers.background)

    assert done == []
    assert {*await names_of(first), *await names_of(second)} == {*NAMES}
    assert await names_of(second) == [name for name in NAMES if second.router.servers.owns(name)]


async def test_an_application_whose_schedule_moves_while_it_is_declared_declares_it_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(declarations, "PAUSE_S", 0.0)
    first = cluster[1]
    puts = first.engine.declarations
    asked: list[int] = []

    async def keep_all(command: DeclareSchedules) -> DeclareSchedules:
        asked.append(len(command.specs))
        return command

    async def change_late(*arguments: Any) -> Any:
        monkeypatch.setattr(declarations, "change", change)
        raise Unavailable("the shard of this request has just moved to another server")

    monkeypatch.setattr(puts, "declare_elsewhere", keep_all)
    monkeypatch.setattr(declarations, "change", change_late)

    [declared] = await puts.put(DeclareSchedules("code:app", [make_schedule_spec()]))

    assert declared.schedule.id
    assert asked == [1, 1]
