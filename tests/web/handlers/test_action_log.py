"""The log of changes: what is in it, who reads it, and that it costs submits nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from schedo.protocol.roles import LOGGED, Role
from schedo.store.sqlite.store import SqliteStore
from schedo.web.permissions import TokenPermission, digest
from schedo.web.settings import WebSettings
from tests.web.handlers.test_bulk import ended
from tests.web.world import SECOND, Headers, World

TOKENS = {name: f"{name}-token-0123456789abcdef" for name in ("ada", "bob", "eve")}
ROLES = {"ada": Role.ADMIN, "bob": Role.OPERATOR, "eve": Role.VIEWER}
SETTINGS = WebSettings(
    tokens={digest(TOKENS[name]): TokenPermission(role, name) for name, role in ROLES.items()},
    anyone=None,
)


def bearer(name: str) -> Headers:
    return [("authorization", f"Bearer {TOKENS[name]}")]


async def read_log(world: World, query: str = "", headers: Headers = ()) -> list[Any]:
    reply = await world.get("/v1/log" + query, headers)
    assert reply.status == 200, reply
    items: list[Any] = reply.json()["items"]
    return items


def shown(items: list[Any]) -> list[tuple[str, str, str]]:
    return [(each["action"], each["target"], each["answer"]) for each in items]


async def test_a_change_of_a_job_says_who_made_it_when_and_from_where() -> None:
    async with World(SETTINGS) as world:
        job = (await world.post("/v1/jobs", {"task": "x", "delay": 60}, bearer("ada"))).json()
        await world.post(f"/v1/jobs/{job['id'].lower()}:cancel", None, bearer("bob"))

        [entry] = await read_log(world, headers=bearer("ada"))

    assert entry == {
        "at": "2026-11-20T11:04:05.000000Z",
        "who": "bob",
        "via": "api",
        "action": "cancel_job",
        "target": f"jobs/{job['id']}",
        "answer": "cancelled",
        "address": "",
    }


async def test_changes_of_every_kind_are_in_the_log_newest_first(world: World) -> None:
    job = await world.submit(delay=3600)
    await world.patch(f"/v1/jobs/{job['id']}", {"priority": 3})
    await world.post(f"/v1/jobs/{job['id']}:run")
    await world.post(f"/v1/jobs/{job['id']}:cancel")
    await world.post(f"/v1/jobs/{job['id']}:retry")
    await world.put("/v1/schedules/s", {"task": "x", "every": 60})
    await world.put("/v1/schedules/s", {"task": "x", "every": 60})  # changes nothing
    await world.post("/v1/schedules/s:pause", {})
    await world.post("/v1/schedules/s:resume", {})
    made = (await world.post("/v1/schedules/s:trigger", {})).json()["job"]
    await world.send("DELETE", "/v1/schedules/s")
    await world.patch("/v1/queues/mail", {"concurrency": 2})
    await world.post("/v1/queues/mail:pause", {})
    await world.post("/v1/queues/mail:resume")
    await world.post("/v1/server:pause", {})
    await world.post("/v1/server:resume", {})
    await world.put("/v1/expectations/e", {"every": "1h", "within": "1m"})
    await world.send("DELETE", "/v1/expectations/e")
    bulk = (await world.post("/v1/operations", {"action": "cancel", "where": {"task": "x"}})).json()
    world.attach_worker()
    await world.post("/v1/workers/hands:cordon")
    declaration = {"owner": "file:a", "schedules": [{"name": "d", "task": "x", "every": 60}]}
    await world.post("/v1/declarations", declaration)
    await world.post("/v1/declarations", declaration)  # changes nothing

    id_ = job["id"]
    assert shown(await read_log(world))[::-1] == [
        ("update_job", f"jobs/{id_}", "scheduled"),
        ("run_job", f"jobs/{id_}", "queued"),
        ("cancel_job", f"jobs/{id_}", "cancelled"),
        ("retry_job", f"jobs/{id_}", "queued"),
        ("put_schedule", "schedules/s", "created"),
        ("pause_schedule", "schedules/s", "done"),
        ("resume_schedule", "schedules/s", "done"),
        ("trigger_schedule", "schedules/s", f"made {made['id']}"),
        ("delete_schedule", "schedules/s", "done"),
        ("update_queue", "queues/mail", "done"),
        ("pause_queue", "queues/mail", "done"),
        ("resume_queue", "queues/mail", "done"),
        ("pause_server", "server", "done"),
        ("resume_server", "server", "done"),
        ("put_expectation", "expectations/e", "created"),
        ("delete_expectation", "expectations/e", "done"),
        ("create_operation", f"operations/{bulk['id']}", "counting"),
        ("cordon_worker", "workers/hands", "done"),
        ("declare", "declarations", "changed"),
    ]


async def test_a_schedule_that_is_put_for_its_owner_is_logged_as_one_that_is_put_by_hand(
    world: World,
) -> None:
    for rule in ({"every": 60}, {"every": 60}, {"every": 90}):
        await world.put("/v1/schedules/s?owner=crontab:web1", {"task": "x", **rule})

    assert shown(await read_log(world))[::-1] == [
        ("put_schedule", "schedules/s", "created"),
        ("put_schedule", "schedules/s", "changed"),
    ]


async def test_a_declaration_that_keeps_a_change_by_hand_is_not_in_the_log(world: World) -> None:
    declared = {"owner": "code:a", "schedules": [{"name": "s", "task": "x", "every": 60}]}
    await world.post("/v1/declarations", declared)
    await world.put("/v1/schedules/s", {"task": "x", "every": 90})

    await world.post("/v1/declarations", {**declared, "keep_edits": True})

    assert shown(await read_log(world)) == [
        ("put_schedule", "schedules/s", "changed"),
        ("declare", "declarations", "changed"),
    ]


async def test_submits_and_refused_changes_are_not_in_the_log(world: World) -> None:
    await world.submit()
    await world.post("/v1/jobs/0000000000007:cancel")
    counted = {"action": "cancel", "where": {"task": "x"}, "dry_run": True}
    assert (await world.post("/v1/operations", counted)).status == 200

    assert await read_log(world) == []
    assert not {"create_job", "create_jobs", "invoke", "work", "beat_expectation"} & LOGGED


@pytest.mark.parametrize(
    ("headers", "via"),
    [
        ([], "api"),
        ([("user-agent", "schedo")], "api"),
        ([("user-agent", "schedo-cli")], "cli"),
        ([("sec-fetch-site", "same-origin")], "page"),
        ([("origin", "http://localhost:8080"), ("user-agent", "schedo-cli")], "page"),
    ],
)
async def test_the_log_tells_the_page_the_command_line_and_other_clients_apart(
    world: World, headers: Headers, via: str
) -> None:
    await world.post("/v1/server:pause", {}, headers)

    [entry] = await read_log(world)
    assert (entry["who"], entry["via"]) == ("local", via)


async def test_the_log_is_filtered_and_read_page_by_page(world: World) -> None:
    for name in "abc":
        await world.post(f"/v1/queues/{name}:pause", {})
        world.clock.stall(1_000_000)
    await world.post("/v1/queues/a:resume")

    first = (await world.get("/v1/log?limit=3")).json()
    rest = (await world.get(f"/v1/log?limit=3&cursor={first['next_cursor']}")).json()

    assert [each["target"][-1] for each in first["items"] + rest["items"]] == list("acba")
    assert "next_cursor" not in rest
    assert len(await read_log(world, "?target=queues/a")) == 2
    assert len(await read_log(world, "?action=resume_queue&who=local")) == 1
    assert len(await read_log(world, "?who=ada")) == 0
    assert len(await read_log(world, "?before=2026-11-20T11:04:06Z")) == 1


@pytest.mark.parametrize(
    "query", ["who=a+b", "action=cancel", "target=", "before=x", "limit=0", "cursor=x"]
)
async def test_a_wrong_filter_of_the_log_is_named(world: World, query: str) -> None:
    reply = await world.get(f"/v1/log?{query}")

    assert reply.status == 400
    assert reply.json()["errors"][0]["parameter"] == query.partition("=")[0]


async def test_a_viewer_reads_the_log_without_addresses() -> None:
    async with World(SETTINGS) as world:
        await world.post("/v1/server:pause", {}, bearer("ada"))

        [entry] = await read_log(world, headers=bearer("eve"))

    assert (entry["who"], "address" in entry) == ("ada", False)


async def test_the_log_survives_a_restart(tmp_path: Path) -> None:
    async with World(store=SqliteStore(tmp_path / "schedo.db")) as world:
        await world.post("/v1/server:pause", {})
    async with World(store=SqliteStore(tmp_path / "schedo.db")) as world:
        assert shown(await read_log(world)) == [("pause_server", "server", "done")]


async def test_what_a_change_starts_does_not_act_as_its_author(world: World) -> None:
    job = await world.submit(delay=3600)
    changing = world.post(f"/v1/jobs/{job['id']}:run")  # wakes the engine's turn
    await changing
    await world.engine.pause_queue("mail")  # a call of a program, beside any request

    assert shown(await read_log(world)) == [("run_job", f"jobs/{job['id']}", "queued")]


async def test_no_token_is_in_the_log() -> None:
    async with World(SETTINGS) as world:
        await world.post("/v1/server:pause", {}, bearer("ada"))
        text = orjson.dumps(await read_log(world, headers=bearer("ada")))

    assert TOKENS["ada"].encode() not in text


def changes_in(history: Any) -> list[tuple[str, ...]]:
    """Return what a job's history says of changes by hand, oldest first."""
    names = ("action", "by", "via", "operation")
    changed = [item for item in history["items"] if item["what"] == "changed"]
    return [tuple(item[name] for name in names if name in item) for item in changed]


async def test_the_history_of_a_job_tells_who_changed_it() -> None:
    async with World(SETTINGS) as world:
        job = (await world.post("/v1/jobs", {"task": "x", "delay": 60}, bearer("ada"))).json()
        address = f"/v1/jobs/{job['id']}"
        page = [*bearer("bob"), ("sec-fetch-site", "same-origin")]
        await world.post(f"{address}:run", None, page)
        world.clock.stall(SECOND)
        where = {"action": "cancel", "where": {"task": "x"}}
        bulk = (await world.post("/v1/operations", where, bearer("ada"))).json()
        await ended(world, bulk["id"], bearer("ada"))
        world.clock.stall(SECOND)
        await world.post(f"{address}:retry", None, bearer("bob"))

        history = (await world.get(f"{address}/history", bearer("eve"))).json()

    assert changes_in(history) == [
        ("run_job", "bob", "page"),
        ("cancel_job", "ada", bulk["id"]),
        ("retry_job", "bob", "api"),
    ]


async def test_the_history_of_a_run_tells_who_triggered_it(world: World) -> None:
    await world.put("/v1/schedules/s", {"task": "x", "every": 60, "overlap": "allow"})
    runs = [(await world.post("/v1/schedules/s:trigger", {})).json()["job"] for _ in range(2)]
    submitted = await world.submit()

    for run in runs:
        history = (await world.get(f"/v1/jobs/{run['id']}/history")).json()
        assert changes_in(history) == [("trigger_schedule", "local", "api")]
    history = (await world.get(f"/v1/jobs/{submitted['id']}/history")).json()
    assert changes_in(history) == []
