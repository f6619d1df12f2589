"""GET /v1/jobs with conditions on what jobs contain: bounded searches, and light lists."""

from __future__ import annotations

from typing import Any

import pytest

from schedo.store.sqlite import job_search, read_connection
from tests.stores import needs_sqlite
from tests.web.world import World


async def found(world: World, query: str) -> list[Any]:
    reply = await world.get(f"/v1/jobs?{query}")
    assert reply.status == 200, reply
    return [job["payload"]["n"] for job in reply.json()["items"]]


async def submit_orders(world: World) -> None:
    await world.submit(task="charge", payload={"n": 1, "order": {"id": 9781}, "who": "Ada"})
    await world.submit(task="charge", payload={"n": 2, "order": {"id": "9781"}}, tags=["vip"])
    await world.submit(task="mail", payload={"n": 3, "list": [{"sku": "x"}]}, delay="1h")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("payload.order.id=9781", [2, 1]),
        ("payload.order.id=9781&payload.n=1", [1]),
        ("payload.list.0.sku=x", [3]),
        ("q=ADA", [1]),
        ("q=vip", [2]),
        ("q=no%20such", []),
        ("state=scheduled,running", [3]),
        ("state=queued,scheduled&q=9781", [2, 1]),
        ("worker=eu-1", []),
        ("late_over=1h", []),
    ],
)
async def test_jobs_are_found_by_what_they_contain(
    world: World, query: str, expected: list[int]
) -> None:
    await submit_orders(world)

    assert await found(world, query) == expected


async def test_a_job_is_found_by_the_beginning_of_its_id(world: World) -> None:
    job = await world.submit(payload={"n": 1})

    assert await found(world, f"q={job['id'].lower()}") == [1]


async def test_a_list_shows_only_the_fields_that_are_asked_for(world: World) -> None:
    await submit_orders(world)

    page = (await world.get("/v1/jobs?fields=id,state,worker&limit=1")).json()

    assert [sorted(job) for job in page["items"]] == [["id", "state"]]
    assert "partial" not in page
    rest = (await world.get(f"/v1/jobs?limit=9&cursor={page['next_cursor']}")).json()
    assert len(rest["items"]) == 2


@needs_sqlite
async def test_a_search_that_ends_early_says_how_far_it_came(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_search, "LOOKED_AT_ONCE", 1)
    monkeypatch.setattr(read_connection, "LOOKED_AT_MAX", 2)
    monkeypatch.setattr(read_connection, "SEARCH_S", 60.0)  # so a page ends with its parts
    for n in range(8):
        await world.submit(payload={"n": n})

    page = (await world.get("/v1/jobs?payload.n=0")).json()

    assert (page["items"], page["partial"], page["looked_at"]) == ([], True, 2)
    assert page["searched_to"].startswith("2026-11-20T11:04:05")
    items = []
    while "next_cursor" in page:
        cursor = page["next_cursor"]
        page = (await world.get(f"/v1/jobs?payload.n=0&cursor={cursor}")).json()
        items += page["items"]
    assert [job["payload"] for job in items] == [{"n": 0}]


@pytest.mark.parametrize(
    ("query", "parameter"),
    [
        ("state=failed,dead", "state"),
        ("state=", "state"),
        ("q=", "q"),
        ("q=" + "x" * 201, "q"),
        ("worker=-", "worker"),
        ("late_over=soon", "late_over"),
        ("fields=id,colour", "fields"),
        ("payload.=1", "payload.PATH"),
        ("payload.a..b=1", "payload.a..b"),
        ("payload.a%22b=1", "payload.a%22b"),
        ("payload.1234567890=1", "payload.1234567890"),
        ("payload.a=" + "x" * 201, "payload.a"),
        ("&".join(f"payload.p{n}=1" for n in range(9)), "payload.PATH"),
        ("payload=1", "payload"),
    ],
)
async def test_a_wrong_condition_is_named(world: World, query: str, parameter: str) -> None:
    reply = await world.get(f"/v1/jobs?{query}")

    assert reply.status == 400
    assert reply.json()["errors"][0]["parameter"] == parameter.replace("%22", '"')


async def test_an_operation_takes_the_same_conditions(world: World) -> None:
    await submit_orders(world)
    where = {"payload": {"order.id": 9781}, "q": "ada", "late_over": "1h"}

    async def count(**where: Any) -> int:
        request = {"action": "cancel", "where": where, "dry_run": True}
        reply = await world.post("/v1/operations", request)
        assert reply.status == 200, reply
        assert reply.json()["where"].keys() == where.keys()
        matched: int = reply.json()["matched"]
        return matched

    assert await count(payload={"order.id": 9781}) == 2
    assert await count(payload={"order.id": "9781", "n": 1}) == 1
    assert await count(q="vip") == 1
    assert await count(worker="eu-1") == 0
    assert await count(**where) == 0
    reply = await world.post("/v1/operations", {"action": "cancel", "where": where})
    assert reply.json()["where"] == {**where, "payload": {"order.id": "9781"}}


@pytest.mark.parametrize(
    ("where", "pointer"),
    [
        ({"payload": {"a..b": 1}}, "/where/payload"),
        ({"late_over": "soon"}, "/where/late_over"),
        ({"q": ""}, "/where/q"),
        ({"worker": "-"}, "/where/worker"),
    ],
)
async def test_a_wrong_condition_of_an_operation_is_named(
    world: World, where: dict[str, Any], pointer: str
) -> None:
    reply = await world.post("/v1/operations", {"action": "cancel", "where": where})

    assert reply.status == 422
    assert reply.json()["errors"][0]["pointer"] == pointer


async def test_a_list_may_begin_with_the_oldest_job(world: World) -> None:
    made = [(await world.submit())["id"] for _ in range(3)]

    first = (await world.get("/v1/jobs?order=oldest&limit=2")).json()
    cursor = first["next_cursor"]
    second = (await world.get(f"/v1/jobs?order=oldest&limit=2&cursor={cursor}")).json()
    refused = await world.get(f"/v1/jobs?limit=2&cursor={cursor}")
    unknown = await world.get("/v1/jobs?order=soonest")

    assert [job["id"] for job in (*first["items"], *second["items"])] == made
    assert "next_cursor" not in second
    assert (refused.status, unknown.status) == (400, 400)
    assert unknown.json()["detail"] == "order: this must be one of newest, oldest, due"


async def test_a_list_of_what_comes_next_has_only_jobs_that_wait_for_their_instant(
    world: World,
) -> None:
    late, soon, latest = [(await world.submit(delay=delay))["id"] for delay in ("2h", "1m", "1d")]
    await world.submit()

    whole = (await world.get("/v1/jobs?order=due&fields=id,state")).json()
    first = (await world.get("/v1/jobs?order=due&limit=2")).json()
    second = (await world.get(f"/v1/jobs?order=due&limit=2&cursor={first['next_cursor']}")).json()

    assert whole == {"items": [{"id": each, "state": "scheduled"} for each in (soon, late, latest)]}
    assert [job["id"] for job in (*first["items"], *second["items"])] == [soon, late, latest]
    assert "partial" not in first
    assert "next_cursor" not in second
    assert (await world.get("/v1/jobs?order=due&state=retrying")).json() == {"items": []}
    assert (
        len((await world.get("/v1/jobs?order=due&state=scheduled,retrying")).json()["items"]) == 3
    )


@pytest.mark.parametrize("state", ["queued", "failed,scheduled"])
async def test_a_job_that_does_not_wait_for_an_instant_cannot_come_next(
    world: World, state: str
) -> None:
    reply = await world.get(f"/v1/jobs?order=due&state={state}")

    assert reply.status == 400
    assert reply.json()["detail"] == (
        "state: with order=due, this must be scheduled, retrying, or both with a comma"
    )


async def test_a_cursor_of_another_order_is_refused(world: World) -> None:
    for _ in range(2):
        await world.submit(delay="1h")
    by_id = (await world.get("/v1/jobs?limit=1")).json()["next_cursor"]
    by_due = (await world.get("/v1/jobs?order=due&limit=1")).json()["next_cursor"]

    for query in (f"cursor={by_due}", f"order=oldest&cursor={by_due}", f"order=due&cursor={by_id}"):
        assert (await world.get(f"/v1/jobs?limit=1&{query}")).status == 400


@needs_sqlite
async def test_a_search_for_what_comes_next_ends_early_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_search, "LOOKED_AT_ONCE", 1)
    monkeypatch.setattr(read_connection, "LOOKED_AT_MAX", 2)
    monkeypatch.setattr(read_connection, "SEARCH_S", 60.0)  # so a page ends with its parts
    for n in range(5):
        await world.submit(payload={"n": n}, delay=f"{n + 1}h")

    page = (await world.get("/v1/jobs?order=due&payload.n=4")).json()

    assert (page["items"], page["partial"], page["looked_at"]) == ([], True, 2)
    assert page["searched_to"].startswith("2026-11-20T13:04:05")
    items = []
    while "next_cursor" in page:
        cursor = page["next_cursor"]
        page = (await world.get(f"/v1/jobs?order=due&payload.n=4&cursor={cursor}")).json()
        items += page["items"]
    assert [job["payload"] for job in items] == [{"n": 4}]
