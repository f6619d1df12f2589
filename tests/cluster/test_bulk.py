"""Operations on many jobs that belong to several servers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from schedo.cluster import bulk
from schedo.cluster.bulk import BulkChanges
from schedo.core.bulk import BulkAction, BulkError, BulkOperation, BulkState
from schedo.core.bulk_commands import Changed
from schedo.core.bulk_undo import JobBefore
from schedo.core.ids import parse_id
from schedo.core.job_filter import JobFilter
from schedo.core.shards import SHARDS
from schedo.core.states import State
from schedo.errors import SchedoError, Unavailable
from tests.cluster.conftest import Cluster
from tests.cluster.members import MemberWorld
from tests.web.connecting import turn
from tests.web.world import T0


def changes_of(world: MemberWorld) -> BulkChanges:
    """Return what lets other servers change their jobs for operations of this one."""
    return BulkChanges(world.router.servers, world.engine.bulk.parts)


def make_operation(action: BulkAction) -> BulkOperation:
    return BulkOperation(
        id=512, action=action, which=JobFilter(), created_at=T0, before=512, state=BulkState.RUNNING
    )


async def submit(world: MemberWorld, count: int, **fields: Any) -> tuple[int, ...]:
    return tuple([parse_id((await world.submit(delay="1h", **fields))["id"]) for _ in range(count)])


async def states(world: MemberWorld, ids: tuple[int, ...]) -> list[str]:
    return [(await world.engine.get(each)).state.value for each in ids]


def read_store_of(owner: MemberWorld, other: MemberWorld, patch: pytest.MonkeyPatch) -> None:
    """Let another server read the store of an owner, as if the two shared it."""
    for name in ("settle", "find_job_ids", "load_bulk_step"):
        patch.setattr(other.engine.store, name, getattr(owner.engine.store, name))


async def test_the_jobs_of_another_server_are_changed_there_and_counted(cluster: Cluster) -> None:
    _, first, second = cluster
    theirs, own = await submit(first, 3), await submit(second, 2)

    found, changed = await changes_of(second).change(
        make_operation(BulkAction.CANCEL), theirs + own
    )

    assert (found, changed.done, changed.skipped) == (own, 3, 0)
    assert [each.id for each in changed.before] == [*theirs]
    assert await states(first, theirs) == ["cancelled"] * 3
    assert await states(second, own) == ["scheduled"] * 2
    assert (await first.get("/v1/log")).json()["items"] == []


async def test_what_another_server_has_changed_is_counted_and_undone_if_its_response_is_lost(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    theirs = await submit(first, 2)
    read_store_of(first, second, monkeypatch)
    send = second.router.servers.send

    async def lose(*request: Any) -> None:
        monkeypatch.setattr(second.router.servers, "send", send)
        await send(*request)
        raise SchedoError("the response was lost")

    monkeypatch.setattr(second.router.servers, "send", lose)
    which = JobFilter(states=BulkAction.CANCEL.states)
    operation = replace(make_operation(BulkAction.CANCEL), which=which)
    _, changed = await changes_of(second).change(operation, theirs)

    assert (changed.done, changed.skipped) == (2, 0)
    step = await first.engine.bulk._store.load_bulk_step(operation.id, operation.id + 1)
    assert step is not None
    assert [each.id for each in step.jobs] == [*theirs]
    assert ((step.number,), step.jobs) == (changed.kept, changed.before)


async def test_a_response_says_under_which_number_another_server_has_kept_what_it_changed(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    theirs = await submit(first, 2)
    operation = make_operation(BulkAction.CANCEL)

    _, changed = await changes_of(second).change(operation, theirs)

    step = await first.engine.bulk._store.load_bulk_step(operation.id, operation.id + 1)
    assert step is not None
    assert (step.number,) == changed.kept
    assert step.jobs == changed.before


@pytest.mark.parametrize(
    ("action", "outcome"),
    [
        (BulkAction.RUN, Changed(done=1)),
        (BulkAction.RETRY, Changed(errors=(BulkError(0, ""),))),
        (BulkAction.DELETE, Changed(errors=(BulkError(0, ""),))),
    ],
)
async def test_a_job_whose_state_does_not_allow_it_is_not_changed(
    cluster: Cluster, action: BulkAction, outcome: Changed
) -> None:
    _, first, second = cluster
    theirs = await submit(first, 1)

    found, changed = await changes_of(second).change(make_operation(action), theirs)

    assert found == ()
    assert (changed.done, len(changed.errors)) == (outcome.done, len(outcome.errors))
    assert all(each.job_id == theirs[0] for each in changed.errors)


async def test_an_ended_job_is_deleted_at_its_server_and_one_that_is_gone_is_skipped(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    theirs = await submit(first, 1)
    await first.engine.cancel(theirs[0])
    changes = changes_of(second)

    deleted = await changes.change(make_operation(BulkAction.DELETE), theirs)
    again = await changes.change(make_operation(BulkAction.DELETE), theirs)

    assert [deleted, again] == [((), Changed(done=1)), ((), Changed(skipped=1))]


async def test_what_another_server_has_changed_is_put_back_there(cluster: Cluster) -> None:
    _, first, second = cluster
    theirs, own = await submit(first, 2), await submit(second, 1)
    for world, ids in ((first, theirs), (second, own)):
        for each in ids:
            await world.engine.cancel(each)
        assert await states(world, ids) == ["cancelled"] * len(ids)
    for ids in (theirs, own):
        for each in ids:
            await (first if ids is theirs else second).engine.retry(each)
    changes = changes_of(second)
    _, changed = await changes.change(make_operation(BulkAction.CANCEL), theirs)

    mine = JobBefore(own[0], T0, State.QUEUED, 0, T0)
    found, put_back = await changes.put_back((*changed.before, mine))

    assert (found, put_back) == ((mine,), Changed(done=2))
    assert await states(first, theirs) == ["queued"] * 2


async def test_jobs_that_move_during_a_step_go_to_their_new_owner(cluster: Cluster) -> None:
    everything, first, second = cluster
    theirs = await submit(first, 2)
    second.cluster.believed = dict.fromkeys(range(SHARDS), 7)  # no member yet
    changing = asyncio.create_task(
        changes_of(second).change(make_operation(BulkAction.CANCEL), theirs)
    )
    await turn()
    second.cluster.believed = {}
    everything.give((), None)

    assert (await changing)[1].done == 2


async def test_jobs_of_a_server_that_has_just_died_wait_for_their_next_owner(
    cluster: Cluster,
) -> None:
    everything, first, second = cluster
    theirs = await submit(first, 2)
    everything.members[0] = everything.members[0]._replace(silent_us=None)
    changing = asyncio.create_task(
        changes_of(second).change(make_operation(BulkAction.CANCEL), theirs)
    )
    await turn()
    assert not changing.done()

    everything.give(range(SHARDS), 2)

    assert await changing == (theirs, Changed())


async def test_a_step_waits_for_an_owner_that_cannot_be_asked(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, first, second = cluster
    monkeypatch.setattr(bulk, "MOVING_S", 0.1)
    theirs = await submit(first, 1)
    changes, operation = (
        changes_of(second),
        make_operation(BulkAction.CANCEL),
    )
    second.cluster.believed = dict.fromkeys(range(SHARDS), 7)  # no member
    with pytest.raises(Unavailable, match="move"):
        await changes.change(operation, theirs)
    second.cluster.believed = {}
    await first.http.stop(grace_s=0.1)

    with pytest.raises(Unavailable, match="cannot be reached"):
        await changes.change(operation, theirs)


async def test_an_operation_is_shown_and_ended_by_the_server_that_carries_it_out(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    where = {"action": "cancel", "where": {"queue": "mail"}}
    made = [(await world.post("/v1/operations", where)).json() for world in (first, second)]
    path = f"/v1/operations/{made[0]['id']}"

    listed = (await second.get("/v1/operations")).json()["items"]
    shown = await second.get(path)
    cancelled = await second.post(f"{path}:cancel")
    missing = await second.get("/v1/operations/0000000000000")

    assert {each["id"] for each in listed} == {each["id"] for each in made}
    assert [shown.json()["id"], cancelled.json()["id"]] == [made[0]["id"]] * 2
    assert missing.code == "not-found"


async def test_an_operation_whose_shard_moves_is_not_called_missing(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything, first, second = cluster
    where = {"action": "cancel", "where": {"queue": "mail"}}
    path = f"/v1/operations/{(await second.post('/v1/operations', where)).json()['id']}"

    async def find_none() -> list[BulkOperation]:
        return []

    with monkeypatch.context() as patch:  # until the next owner has recovered
        patch.setattr(second.engine.bulk, "all", find_none)
        everything.give([second.number - 1], None)
        asking = asyncio.ensure_future(first.get(path))
        await asyncio.wait([asking], timeout=0.05)

    everything.give([second.number - 1], 2)
    assert (await asking).status == 200


async def test_a_server_that_owns_nothing_lets_another_one_begin_an_operation(
    cluster: Cluster,
) -> None:
    everything, first, second = cluster
    everything.give(range(SHARDS), 1)

    made = await second.post("/v1/operations", {"action": "cancel", "where": {"queue": "mail"}})

    assert made.status == 201
    assert [each.id for each in await first.engine.bulk.all()] == [parse_id(made.json()["id"])]
    assert await second.engine.bulk.all() == []
