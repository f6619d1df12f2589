"""Operations on many jobs that belong to several servers."""

from __future__ import annotations

from typing import Any

import pytest

from schedo.cluster.bulk import BulkChanges
from schedo.core.bulk import BulkAction, BulkOperation, BulkState
from schedo.core.bulk_commands import Outcomes
from schedo.core.ids import parse_id
from schedo.core.job_filter import JobFilter
from schedo.core.shards import SHARDS
from schedo.errors import PeerUnreachable, Unavailable
from tests.cluster.conftest import Cluster
from tests.cluster.members import MemberWorld
from tests.web.world import T0


def make_operation(action: BulkAction) -> BulkOperation:
    return BulkOperation(
        id=512, action=action, which=JobFilter(), created_at=T0, before=512, state=BulkState.RUNNING
    )


async def submit(world: MemberWorld, count: int, **fields: Any) -> tuple[int, ...]:
    return tuple([parse_id((await world.submit(delay="1h", **fields))["id"]) for _ in range(count)])


async def states(world: MemberWorld, ids: tuple[int, ...]) -> list[str]:
    return [(await world.engine.get(each)).state.value for each in ids]


async def test_the_jobs_of_another_server_are_changed_there_and_counted(cluster: Cluster) -> None:
    _, first, second = cluster
    theirs, own = await submit(first, 3), await submit(second, 2)

    found, outcomes = await BulkChanges(second.router).change(
        make_operation(BulkAction.CANCEL), theirs + own
    )

    assert (found, outcomes) == (own, Outcomes(done=3))
    assert await states(first, theirs) == ["cancelled"] * 3
    assert await states(second, own) == ["scheduled"] * 2
    assert (await first.get("/v1/log")).json()["items"] == []


@pytest.mark.parametrize(
    ("action", "outcome"),
    [(BulkAction.RUN, "done"), (BulkAction.RETRY, "skipped"), (BulkAction.DELETE, "skipped")],
)
async def test_a_job_whose_state_does_not_allow_it_is_skipped(
    cluster: Cluster, action: BulkAction, outcome: str
) -> None:
    _, first, second = cluster
    theirs = await submit(first, 1)

    found, outcomes = await BulkChanges(second.router).change(make_operation(action), theirs)

    assert (found, outcomes) == ((), Outcomes(**{outcome: 1}))


async def test_an_ended_job_is_deleted_at_its_server_and_one_that_is_gone_is_skipped(
    cluster: Cluster,
) -> None:
    _, first, second = cluster
    theirs = await submit(first, 1)
    await first.engine.cancel(theirs[0])
    changes = BulkChanges(second.router)

    deleted = await changes.change(make_operation(BulkAction.DELETE), theirs)
    again = await changes.change(make_operation(BulkAction.DELETE), theirs)

    assert [deleted, again] == [((), Outcomes(done=1)), ((), Outcomes(skipped=1))]


async def test_a_step_waits_for_an_owner_that_cannot_be_asked(cluster: Cluster) -> None:
    _, first, second = cluster
    theirs = await submit(first, 1)
    changes, operation = BulkChanges(second.router), make_operation(BulkAction.CANCEL)
    second.cluster.believed = dict.fromkeys(range(SHARDS), 7)  # no member
    with pytest.raises(Unavailable, match="move"):
        await changes.change(operation, theirs)
    second.cluster.believed = {}
    await first.http.stop(grace_s=0.1)

    with pytest.raises(PeerUnreachable):
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
