"""Undoing operations on many jobs over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from schedo.core.bulk_undo import BulkStep, JobBefore
from schedo.core.changes import Changes
from schedo.core.ids import parse_id
from schedo.core.leases import AttemptResult, Failed
from schedo.core.model import Failure
from schedo.core.states import State
from schedo.protocol.roles import Role
from schedo.store.sqlite.store import SqliteStore
from schedo.web.permissions import TokenPermission, digest
from schedo.web.settings import WebSettings
from tests.web.handlers.test_bulk import PATH, change, ended
from tests.web.world import T0, World

ERROR = Failure("exit-code", "it ended with 3", exit_code=3)


async def undo(world: World, operation: Any) -> Any:
    reply = await world.post(f"{PATH}/{operation['id']}:undo")
    assert reply.status == 201, reply
    assert reply.headers["location"] == f"{PATH}/{reply.json()['id']}"
    return await ended(world, reply.json()["id"])


async def states(world: World) -> dict[str, int]:
    items = (await world.get("/v1/jobs?limit=500")).json()["items"]
    found = [each["state"] for each in items]
    return {state: found.count(state) for state in sorted(set(found))}


async def test_many_cancelled_jobs_are_put_back_in_steps(world: World) -> None:
    jobs = [await world.submit(queue="mail", delay=3600) for _ in range(130)]
    operation = await change(world, "cancel", queue="mail")
    assert await states(world) == {"cancelled": 130}

    undone = await undo(world, operation)

    assert await states(world) == {"scheduled": 130}
    assert (undone["undoes"], undone["action"]) == (operation["id"], "cancel")
    assert [undone[name] for name in ("state", "total", "done", "skipped")] == ["done", 130, 130, 0]
    found = (await world.get(f"/v1/jobs/{jobs[0]['id']}")).json()
    assert found["scheduled_at"] == jobs[0]["scheduled_at"]
    log = (await world.get("/v1/log?action=undo_operation")).json()["items"]
    assert [(each["target"], each["answer"]) for each in log] == [
        (f"operations/{operation['id']}", f"made {undone['id']}")
    ]


async def test_an_undo_that_comes_to_what_other_servers_have_kept_has_searched_all_ages(
    world: World,
) -> None:
    job = await world.submit(delay=3600)
    operation = await change(world, "cancel", task="demo")
    kept = JobBefore(parse_id(job["id"]) - 64, T0, State.QUEUED, 0, T0)  # of a job that is gone
    step = BulkStep(parse_id(operation["id"]), -(2**61), (kept,))
    await world.engine.bulk._store.commit(Changes(steps=[step]))

    undone = await undo(world, operation)

    assert [undone[name] for name in ("state", "done", "skipped")] == ["done", 1, 1]
    assert undone["searched_back_to"] == "1970-01-01T00:00:00.000000Z"


async def test_retried_jobs_that_have_not_started_fail_again_and_the_others_go_on(
    world: World,
) -> None:
    world.attach_worker(slots=3)
    retry = {"max_attempts": 1}
    for _ in range(3):
        await world.submit(retry=retry)
    await world.worker.first()
    await world.engine.flush()
    for lease in world.worker.leases:
        world.engine.report(AttemptResult(lease.key, Failed(ERROR)))
    await world.engine.flush()
    await world.engine.sessions.cordon("hands", True)
    assert await states(world) == {"failed": 3}
    operation = await change(world, "retry", state="failed")
    started = (await world.get("/v1/jobs?limit=1")).json()["items"][0]["id"]
    await world.post(f"/v1/jobs/{started}:cancel")

    undone = await undo(world, operation)

    assert (undone["done"], undone["skipped"]) == (2, 1)
    assert await states(world) == {"cancelled": 1, "failed": 2}
    jobs = (await world.get("/v1/jobs?state=failed")).json()["items"]
    assert [job["error"]["message"] for job in jobs] == ["it ended with 3"] * 2
    assert [job["failures"] for job in jobs] == [1, 1]


async def test_an_undo_goes_on_after_a_restart(tmp_path: Path) -> None:
    async with World(store=SqliteStore(tmp_path / "schedo.db")) as world:
        for _ in range(60):
            await world.submit(delay=3600)
        operation = await change(world, "cancel", task="demo")
    async with World(store=SqliteStore(tmp_path / "schedo.db")) as world:
        began = (await world.post(f"{PATH}/{operation['id']}:undo")).json()
    async with World(store=SqliteStore(tmp_path / "schedo.db")) as world:
        undone = await ended(world, began["id"])

        assert (undone["done"], undone["undoes"]) == (60, operation["id"])
        assert await states(world) == {"scheduled": 60}


async def test_deleted_jobs_cannot_be_brought_back(world: World) -> None:
    await world.submit(delay=60)
    await change(world, "cancel", task="demo")
    deleted = await change(world, "delete", task="demo")

    reply = await world.post(f"{PATH}/{deleted['id']}:undo")

    assert (reply.status, reply.code) == (409, "conflict")
    assert "nothing brings them back" in reply.json()["detail"]
    assert (await world.post(f"{PATH}/0000000000007:undo")).status == 404


async def test_a_restricted_operator_undoes_only_operations_on_its_own_jobs() -> None:
    token, admin = "mail-operator-token-0123456789", "admin-token-0123456789abcdef"
    mail = TokenPermission(Role.OPERATOR, "mail", frozenset({"mail"}))
    tokens = {digest(admin): TokenPermission(Role.ADMIN, "ada"), digest(token): mail}
    async with World(WebSettings(tokens=tokens, anyone=None)) as world:
        headers = [("authorization", f"Bearer {admin}")]
        asked = {"action": "cancel", "where": {"queue": "default"}}
        number = (await world.post(PATH, asked, headers)).json()["id"]
        await ended(world, number, headers)

        path = f"{PATH}/{number}:undo"
        reply = await world.post(path, None, [("authorization", f"Bearer {token}")])

    assert reply.status == 403


async def test_an_operation_changes_exactly_as_many_jobs_as_expected_or_none(world: World) -> None:
    await world.submit(delay=60)
    asked = {"action": "cancel", "where": {"task": "demo"}, "expected_count": 2}
    refused = await ended(world, (await world.post(PATH, asked)).json()["id"])
    done = await ended(world, (await world.post(PATH, {**asked, "expected_count": 1})).json()["id"])

    assert (refused["state"], refused["done"], refused["expected_count"]) == ("refused", 0, 2)
    assert (done["state"], done["done"]) == ("done", 1)
    wrong = await world.post(PATH, {**asked, "expected_count": -1})
    assert wrong.json()["errors"][0]["pointer"] == "/expected_count"
