"""Numbers at and beyond every bound, in every numeric field of the API."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from schedo.clock import SystemClock
from schedo.protocol.openapi import build_document
from schedo.store.sqlite.store import SqliteStore
from tests.web.world import World

# As JSON text: some of them no JSON writer would write.
NUMBERS = [
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551616",
    "-9223372036854775808",
    "-9223372036854775809",
    "9007199254740993",
    "4294967296",
    "1000000000",
    "-1",
    "0",
    "-0",
    "1.5",
    "1e3",
    "1e300",
    "1e309",
    "-1e309",
    "5e-324",
    "9" * 400,
    "9" * 5_000,
    "0." + "9" * 400,
    "true",
    "null",
]
TEXTS = [
    "99999999999999999999s",
    "999999999999999w",
    "999999999999999.999999999999999w",
    "P999999999999999W",
    "36600d",
    "36600.000000000001d",
    "0.000000000000001us",
    "9999-12-31T23:59:59.999999Z",
    "9999-12-31T23:59:59.9999999999Z",
    "9999-12-31T23:59:59-23:59",
    "0001-01-01T00:00:00Z",
    "1970-01-01T00:00:00+23:59",
    "1970-01-01T00:00:00Z",
    "0CR5KPDD15T00.999999999.999999999999999",
    "7ZZZZZZZZZZZZ.0.0",
    "8000000000000.1.1",
    "ZZZZZZZZZZZZZ.1.1",
    "999999999999999Ti",
    "\\u0665",
    "x",
]
VALUES = NUMBERS + [f'"{text}"' for text in TEXTS]

DOCUMENT = build_document()
OPERATIONS = [
    (path, method, operation)
    for path, item in DOCUMENT["paths"].items()
    for method, operation in item.items()
]
IDS = [operation["operationId"] for _, _, operation in OPERATIONS]
SAMPLES = {
    "task": "demo",
    "Task": "demo",
    "worker": "w1",
    "lease": "0CR5KPDD15T00.1.7",
    "key": "k",
    "outcome": "failed",
    "error": {},
    "delay": "1m",
    "stream": "stdout",
    "text": "x",
    "every": "1h",
    "cron": "0 9 * * *",
    "action": "cancel",
    "owner": "file:a.toml",
    "name": "daily",
    "within": "1m",
}
ALSO: dict[str, dict[str, Any]] = {  # fields that make the rest of the request valid
    "put_schedule": {"every": "1h"},
    "explain_cron": {"cron": "0 9 * * *"},
    "short_schedule": {"command": "true"},
    "create_operation": {"where": {"queue": "default"}},
    "put_expectation": {"every": "1h"},
}
Place = tuple[str | int, ...]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A world on a real file, because only SQLite checks the range of its columns.

    Its clock is real too, so that a poll ends after the time that it asks for.
    """
    store = SqliteStore(tmp_path / "schedo.db")
    async with World(store=store, clock=SystemClock()) as made:
        yield made


def resolve(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema that a reference names."""
    name = schema.get("$ref", "").rpartition("/")[2]
    return DOCUMENT["components"]["schemas"][name] if name else schema


def walk(schema: dict[str, Any], place: Place = ()) -> Iterator[Place]:
    """Yield the places of all values that are no object and no array."""
    schema = resolve(schema)
    for branch in schema.get("anyOf", ()):
        yield from walk(branch, place)
    if "properties" in schema:
        for name, inner in schema["properties"].items():
            yield from walk(inner, (*place, name))
    elif schema.get("type") == "array":
        yield from walk(schema["items"], (*place, 0))
    elif schema.get("type") == "object":
        inner = schema.get("additionalProperties")
        yield from walk(inner if isinstance(inner, dict) else {}, (*place, "name"))
    else:
        yield place


def put(schema: dict[str, Any], place: Place, value: Any) -> Any:
    """Return a minimal value of the schema that has the given value at the place."""
    if not place:
        return value
    schema = next(each for each in branches(schema) if leads_to(each, place[0]))
    step, rest = place[0], place[1:]
    if isinstance(step, int):
        return [put(schema["items"], rest, value)]
    made = {name: SAMPLES[name] for name in schema.get("required", ())}
    inner = schema.get("properties", {}).get(step) or schema.get("additionalProperties")
    return made | {step: put(inner if isinstance(inner, dict) else {}, rest, value)}


def branches(schema: dict[str, Any]) -> list[dict[str, Any]]:
    schema = resolve(schema)
    return [resolve(each) for each in schema.get("anyOf", (schema,))]


def leads_to(schema: dict[str, Any], step: str | int) -> bool:
    if isinstance(step, int):
        return schema.get("type") == "array"
    return schema.get("type") == "object" and (
        step in schema.get("properties", {}) or "properties" not in schema
    )


async def check(world: World, method: str, url: str, body: str | None) -> None:
    """Send the request; a refusal must be a 4xx that names the field."""
    reply = await world.send(
        method.upper(), url, (body or "").encode(), [("schedo-lease-nonce", "n")]
    )
    sent = f"{method} {url} {(body or '')[:300]} -> {reply.status} {reply.body[:300]!r}"
    assert reply.status < 500 or reply.code == "no-capacity", sent
    if reply.status == 422 and reply.code == "invalid" and "null" not in (body or ""):
        assert reply.json()["errors"], sent


async def check_lists(world: World) -> None:
    """Check that an accepted value can be read again."""
    lists = ("jobs", "schedules", "queues", "workers", "operations", "expectations")
    for path in (*(f"/v1/{name}" for name in lists), "/metrics"):
        assert (await world.get(path)).status == 200, path


@pytest.mark.parametrize(("path", "method", "operation"), OPERATIONS, ids=IDS)
async def test_no_number_in_a_body_or_query_breaks_the_server(
    world: World, path: str, method: str, operation: dict[str, Any]
) -> None:
    name = operation["operationId"]
    job = await world.submit(delay="1h")
    await world.put("/v1/schedules/daily", {"task": "demo", "every": "1h"})
    url = path.format(id=job["id"], name="daily", code="invalid", file="page.js")
    content = operation.get("requestBody", {}).get("content", {})
    schema = content.get("application/json", {}).get("schema")
    if schema is not None:
        for place in dict.fromkeys(walk(schema)):
            whole = put(schema, place, "@@")
            if isinstance(whole, dict) and place[0] not in {"cron", "every", "at", "Task"}:
                whole = ALSO.get(name, {}) | whole
            text = json.dumps(whole)
            for value in VALUES:
                await check(world, method, url, text.replace('"@@"', value))
            await check_lists(world)
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "query":
            for value in [*NUMBERS, *TEXTS]:
                await check(world, method, f"{url}?{parameter['name']}={value}", None)

    assert world.engine.health().ready, world.engine.health().reasons
    await check_lists(world)
    await world.submit()


@pytest.mark.parametrize(
    ("order", "places"),
    [
        ("jobs", [b"9223372036854775808", b"9" * 19, b"9" * 30, b"-1", b"1e3", b"0x10", b"\xff"]),
        ("schedules", [b"a b", b"-a", b"x" * 129, b"\xff\xfe", b"\0"]),
    ],
)
async def test_a_forged_cursor_is_refused(world: World, order: str, places: list[bytes]) -> None:
    for number in range(2):
        await world.submit()
        await world.put(f"/v1/schedules/s{number}", {"task": "demo", "every": "1h"})
    page = (await world.get(f"/v1/{order}?limit=1")).json()
    start = base64.urlsafe_b64decode(page["next_cursor"] + "==")[:8]

    for last in places:
        forged = base64.urlsafe_b64encode(start + last).decode().rstrip("=")
        reply = await world.get(f"/v1/{order}?cursor={forged}")
        assert (reply.status, reply.code) == (400, "bad-request"), (order, last)
        assert reply.json()["errors"][0]["parameter"] == "cursor"
    assert world.engine.health().ready


OUTPUT = {"stream": "stdout", "text": "x"}
REPORTED: list[dict[str, Any]] = [
    {"outcome": "failed", "error": {"exit_code": "@@"}},
    {"outcome": "failed", "error": {"http_status": "@@"}},
    {"outcome": "failed", "error": {}, "retry_in": "@@"},
    {"outcome": "snoozed", "delay": "@@"},
    {"outcome": "completed", "result": "@@"},
    {"outcome": "completed", "output": [{**OUTPUT, "total_bytes": "@@"}]},
]


@pytest.mark.parametrize("reported", REPORTED, ids=ascii)
async def test_no_number_in_the_progress_of_an_attempt_breaks_the_server(
    world: World, reported: dict[str, Any]
) -> None:
    for value in VALUES:
        job = await world.submit(retry=3)
        given = await world.post("/v1/work", {"worker": "w1", "slots": 1_000, "max_leases": 1})
        result = {"lease": given.json()["leases"][0]["lease"], **reported}
        text = json.dumps({"worker": "w1", "slots": 1_000, "max_leases": 0, "results": [result]})
        await check(world, "POST", "/v1/work", text.replace('"@@"', value))
        for part in ("", "/attempts", "/output", "/progress"):
            assert (await world.get(f"/v1/jobs/{job['id']}{part}")).status == 200
        await world.post(f"/v1/jobs/{job['id']}:cancel")

    assert world.engine.health().ready, world.engine.health().reasons
    await check_lists(world)
