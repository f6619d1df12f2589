"""A gateway asks the owner of an attempt when it has to know something, and else once a second."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from schedo.cluster import polling_worker
from schedo.cluster.owner_pace import LOOK_S, SPARE, UNKNOWN, Paces
from schedo.cluster.polling_worker import PollingWorker
from tests.cluster.conftest import Cluster
from tests.cluster.members import MemberWorld
from tests.cluster.test_given_leases import CountedReads
from tests.cluster.workers import HandWorker, holds, lease_of, result
from tests.passes import one_pass, until

FIRST, SECOND = 1, 2  # epochs


class AskedOwner:
    """Notes which leases a gateway asks an owner about, each time."""

    def __init__(
        self, gateway: MemberWorld, owner: MemberWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.lists: list[list[str] | None] = []
        self.others: list[set[str]] = []  # what the worker runs besides, by what the owner hears
        send = gateway.router.servers.peers.send

        async def note(member: Any, hop: Any, body: bytes = b"", *others: Any) -> Any:
            part = json.loads(body) if hop.purpose == "work" and member.name == owner.name else {}
            if part.get("max_leases") == 0:
                self.lists.append(part.get("running"))
                self.others.append({*part["elsewhere"]})
            return await send(member, hop, body, *others)

        monkeypatch.setattr(gateway.router.servers.peers, "send", note)


async def begin(
    first: MemberWorld, second: MemberWorld, monkeypatch: pytest.MonkeyPatch
) -> tuple[HandWorker, str, AskedOwner]:
    """Return a worker that has got a job of the first server from the second one, and its lease."""
    worker, asked = HandWorker(), AskedOwner(second, first, monkeypatch)
    return worker, await worker.take(first, at=second, task="demo"), asked


def known(gateway: MemberWorld, worker: HandWorker) -> PollingWorker:
    return gateway.router._gateway._workers.note_request(worker.name)


async def test_the_giver_of_a_lease_is_not_asked_about_it_at_once(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    worker, lease, asked = await begin(first, second, monkeypatch)

    polling = worker.begin_poll(second, lease)
    await first.submit(task="demo")
    other = lease_of(await polling)

    assert asked.lists == []
    await worker.poll(second, results=[result(lease), result(other)])
    assert asked.lists == [[]]


async def test_the_giver_hears_at_once_that_the_worker_does_not_have_the_lease(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    worker, lease, asked = await begin(first, second, monkeypatch)

    await worker.poll(second)

    assert asked.lists == [[]]
    assert holds(first, lease)  # the list may have left before the lease has come


async def test_all_owners_hear_at_once_that_the_worker_leaves(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    worker, lease, asked = await begin(first, second, monkeypatch)

    await worker.poll(second, lease, draining=True)

    assert asked.lists == [[lease]]


async def test_a_change_of_owners_between_two_polls_is_seen_with_the_next_one(
    cluster: Cluster,
) -> None:
    everything, first, second = cluster
    worker = HandWorker()
    lease = await worker.take(first, at=second, task="demo")

    everything.give([first.number - 1], second.number)
    polling = worker.begin_poll(second, lease)

    async with asyncio.timeout(LOOK_S / 2):
        assert (await polling)["revoked"] == [lease]  # which the next owner has never heard of


async def test_nothing_is_kept_of_the_owners_of_attempts_that_have_ended(cluster: Cluster) -> None:
    _, first, second = cluster
    worker = HandWorker()
    lease = await worker.take(first, at=second, task="demo")
    polling = worker.begin_poll(second, lease)
    await until(lambda: bool(second.router._gateway._workers.list_polls()))
    paces = known(second, worker).paces
    assert paces._by_epoch

    await worker.ask(second, max_leases=0, results=[result(lease)])

    await until(lambda: not paces._by_epoch)
    polling.cancel()


async def test_an_owner_that_had_a_lease_before_another_one_is_asked_anew() -> None:
    paces = Paces()
    paces.note_given(FIRST, ["a", "b"])

    paces.note_asked(SECOND, ["a"], is_heard=True)

    now = asyncio.get_running_loop().time()
    assert paces[FIRST].find_due(["b"]) > now
    assert paces[FIRST].find_due(["a", "b"]) < now
    assert paces[SECOND].find_due(["a"]) > now


async def test_leases_that_are_given_in_a_stream_do_not_put_a_look_off() -> None:
    paces = Paces()
    paces.note_given(FIRST, ["a"])
    due_s = paces[FIRST].find_due(["a"])
    await one_pass()

    paces.note_given(FIRST, ["b"])

    assert paces[FIRST].find_due(["a", "b"]) == due_s
    assert paces[UNKNOWN].find_due(["a", "b"]) == pytest.approx(due_s)


async def test_a_stream_of_attempts_reads_shards_once_a_second_only(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    worker = HandWorker(slots=3)
    leases = [await worker.take(first, at=second, task="demo")]
    known(second, worker).paces[UNKNOWN].due_s = 0.0  # a second later
    polling = worker.begin_poll(second, *leases)
    await until(lambda: known(second, worker).elsewhere[leases[0]].shard is not None)
    reads = CountedReads(second, monkeypatch)

    for _ in range(2):
        await first.submit(task="demo")
        leases.append(lease_of(await polling))
        polling = worker.begin_poll(second, *leases)
    await until(lambda: bool(second.router._gateway._workers.list_polls()))

    assert reads.count == 0
    polling.cancel()


async def test_an_attempt_whose_result_has_just_come_beside_the_poll_is_asked_about_nowhere(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    worker = HandWorker()
    lease = await worker.take(first, at=second, task="demo")
    polling = worker.begin_poll(second, lease)
    await first.submit(task="demo")
    running = lease_of(await polling)
    await worker.ask(second, max_leases=0, results=[result(lease)])
    asked, reads = AskedOwner(second, first, monkeypatch), CountedReads(second, monkeypatch)

    # It was sent before the report had its response.
    polling = worker.begin_poll(second, lease, running)
    await first.submit(task="demo")
    response = await polling

    assert (len(response["leases"]), response["revoked"]) == (1, [])
    assert (asked.lists, reads.count) == ([], 0)
    await worker.poll(second, lease, running, results=[result(lease_of(response))])
    assert (asked.lists, asked.others) == ([[running]], [set()])


async def test_an_attempt_that_its_worker_has_released_may_be_given_to_it_again(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    worker = HandWorker()
    released = await worker.take(first, at=second, task="demo")
    polling = worker.begin_poll(second, released)
    await first.submit(task="demo")
    completed = lease_of(await polling)
    kept = known(second, worker)

    for lease, outcome in ((released, "released"), (completed, "completed")):
        await worker.ask(second, max_leases=0, results=[{"lease": lease, "outcome": outcome}])

    assert [*kept.arrived] == [completed]


async def test_what_has_completed_is_forgotten_after_some_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker = PollingWorker("w")
    worker.note_arrived(["a"])
    monkeypatch.setattr(polling_worker, "ARRIVED_S", -1.0)

    worker.note_arrived(["b"])

    assert [*worker.arrived] == ["b"]


async def test_an_answer_does_not_forget_what_the_owner_has_given_meanwhile() -> None:
    paces = Paces()
    paces.note_given(FIRST, ["a"])
    paces.note_given(FIRST, ["b"])  # while the owner is asked about the first one

    paces.note_asked(FIRST, ["a"], is_heard=True)

    assert paces[FIRST].find_due(["a", "b"]) > asyncio.get_running_loop().time()


async def test_the_memory_of_a_busy_worker_is_bounded() -> None:
    paces = Paces()
    for number in range(10 * SPARE):
        paces.note_given(FIRST, [str(number)])
        paces.keep_only({FIRST}, {str(number)})

    assert len(paces[FIRST]._leases) <= SPARE + 3
    assert len(paces[UNKNOWN]._leases) <= SPARE + 3


async def test_a_request_asks_an_owner_at_once_that_has_not_heard_of_its_attempts() -> None:
    paces = Paces()
    paces.note_asked(FIRST, ["a"], is_heard=False)
    paces.note_asked(SECOND, ["b"], is_heard=True)

    paces.note_request(())

    now = asyncio.get_running_loop().time()
    assert paces[FIRST].find_due(["a"]) < now < paces[SECOND].find_due(["b"])
