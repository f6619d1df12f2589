"""Idempotency keys: a repeated request gets the same response, and a bad one is still refused."""

from __future__ import annotations

import asyncio
from typing import cast

import orjson
import pytest

from schedo.protocol import pieces, reading
from schedo.store.base import Store
from schedo.testing.faults import FaultyStore
from tests.passes import one_pass
from tests.stores import make_store
from tests.web.world import Reply, World

KEY = [("Idempotency-Key", "key-1")]
LINES = "application/x-ndjson"
JSON = "application/json"

MALFORMED = [
    b"{",
    b"[",
    b"\xff",
    b"[NaN]",
    b'[{"task":"a","task":"b"}]',
    b"[" * 300 + b"]" * 300,
    b"[" * 2_000,
    b'["\\ud800"]',
    b"[9223372036854775808]",
    b"[" + b"1" * 5_000 + b"]",
    b"\xef\xbb\xbf[]",
    b"",
]


async def post(world: World, path: str, body: bytes, *, kind: str, keyed: bool) -> Reply:
    headers = [("content-type", kind), ("content-length", str(len(body)))]
    return await world.send("POST", path, body, headers + KEY * keyed, content_type=None)


@pytest.mark.parametrize("body", MALFORMED, ids=lambda body: repr(body)[:40])
@pytest.mark.parametrize(
    ("path", "kind"),
    [("/v1/jobs", JSON), ("/v1/jobs:batch", JSON), ("/v1/jobs:batch", LINES), ("/schedule", JSON)],
)
async def test_a_malformed_body_is_refused_in_the_same_way_with_and_without_a_key(
    world: World, path: str, kind: str, body: bytes
) -> None:
    plain = await post(world, path, body, kind=kind, keyed=False)
    keyed = await post(world, path, body, kind=kind, keyed=True)

    assert keyed.status == plain.status
    if plain.status == 200:
        assert keyed.json() == plain.json() == {"items": []}
    else:
        assert (keyed.code, keyed.json()["detail"]) == (plain.code, plain.json()["detail"])


@pytest.mark.parametrize("kind", [JSON, LINES])
async def test_a_body_of_too_many_values_is_not_parsed_for_its_key(
    world: World, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[int] = []
    loads = orjson.loads

    def watch(text: bytes) -> object:
        parsed.append(len(text))
        return loads(text)

    body = b"[" + b"[]," * 700_000 + b"[]]"
    monkeypatch.setattr(orjson, "loads", watch)
    reply = await post(world, "/v1/jobs:batch", body, kind=kind, keyed=True)

    assert reply.code == ("bad-json" if kind == JSON else "too-large")
    assert max(parsed, default=0) <= pieces.PIECE_BYTES


async def test_lines_are_counted_before_they_are_split(world: World) -> None:
    reply = await post(world, "/v1/jobs:batch", b"\n" * 10_001, kind=LINES, keyed=False)

    assert reply.code == "too-large"
    assert [bytes(line) for line in reading.split_lines(b"\n" * 10_000 + b"1")] == [b"1"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (b'{"task":"a","queue":"q"}', b' {"queue" :"q",\n "task":"a"}'),
        (b'{"task":"a","payload":[1.50,"\\u0061"]}', b'{"task":"a","payload":[1.5,"a"]}'),
    ],
)
async def test_spaces_and_the_order_of_fields_make_no_other_request(
    world: World, first: bytes, second: bytes
) -> None:
    answer = await post(world, "/v1/jobs", first, kind=JSON, keyed=True)
    again = await post(world, "/v1/jobs", second, kind=JSON, keyed=True)

    assert (again.status, again.body) == (201, answer.body)
    assert again.headers["idempotency-replayed"] == "true"


async def test_jobs_on_lines_are_compared_by_their_values(world: World) -> None:
    one, two = b'{"task":"a","delay":60}', b'{"delay":60,"task":"a"}'
    lines = await post(world, "/v1/jobs:batch", one + b"\n\n" + two, kind=LINES, keyed=True)
    again = await post(world, "/v1/jobs:batch", two + b"\n" + one, kind=LINES, keyed=True)
    fewer = await post(world, "/v1/jobs:batch", two, kind=LINES, keyed=True)

    assert again.body == lines.body
    assert again.headers["idempotency-replayed"] == "true"
    assert fewer.code == "idempotency-mismatch"


async def test_a_replayed_wait_is_marked_as_replayed(world: World) -> None:
    body = b'{"task":"a","delay":60}'

    first = await post(world, "/v1/jobs?wait=0", body, kind=JSON, keyed=True)
    second = await post(world, "/v1/jobs?wait=0", body, kind=JSON, keyed=True)

    assert (first.status, second.status) == (202, 202)
    assert "idempotency-replayed" not in first.headers
    assert second.headers["idempotency-replayed"] == "true"
    assert second.headers["location"] == first.headers["location"]


async def test_a_repeated_request_whose_commit_is_in_doubt_waits_for_its_outcome() -> None:
    """A server that doubts its shards fails the replies, and keeps its scheduler."""
    store = FaultyStore(make_store())
    async with World(store=cast(Store, store)) as world:
        store.hold()
        sending = asyncio.create_task(world.post("/v1/jobs", {"task": "demo"}, KEY))
        await store.wait_held()
        world.engine._loop.suspend()
        first = await sending
        world.engine._loop.resume()

        again = asyncio.create_task(world.post("/v1/jobs", {"task": "demo"}, KEY))
        for _ in range(5):  # it looks for the key meanwhile, if it does not wait
            await world.store.find_idempotency_record("", b"")
            await one_pass()
        store.release()

        assert (first.status, first.code) == (503, "outcome-unknown")
        assert (await again).headers["idempotency-replayed"] == "true"
        assert len((await world.get("/v1/jobs")).json()["items"]) == 1


async def test_a_replayed_refusal_is_a_problem_document_again(world: World) -> None:
    unique = {"key": "k", "on_conflict": "reject"}
    await world.submit(unique=unique)

    first = await world.post("/v1/jobs", {"task": "demo", "unique": unique}, KEY)
    second = await world.post("/v1/jobs", {"task": "demo", "unique": unique}, KEY)

    assert (first.code, second.code) == ("duplicate-key", "duplicate-key")
    assert second.body == first.body
    assert second.headers["idempotency-replayed"] == "true"


async def test_the_record_of_a_batch_has_no_large_payload_but_the_repeated_response_has(
    world: World,
) -> None:
    secret = {"url": "http://a.example/", "secret": "whsec_x", "body": "x" * 10_000}
    jobs = [
        {"task": "demo", "payload": "x" * 10_000},
        {"task": "demo", "payload": "small"},
        {"task": "demo", "priority": 100},
        {"task": "http", "payload": secret, "delay": 60},
        {"task": "demo", "payload": "y" * 10_000, "unique": "u"},
        {"task": "demo", "payload": "z" * 10_000, "unique": "u"},
    ]

    first = await world.post("/v1/jobs:batch", jobs, KEY)
    again = await world.post("/v1/jobs:batch", jobs, KEY)

    scope = "anyone create_jobs key-1"
    known = await world.store.find_idempotency_record(scope, b"")
    assert known is not None
    record = await world.store.find_idempotency_record(scope, known.fingerprint)
    assert record is not None
    assert 0 < len(record.body) < 10_000
    assert again.headers["idempotency-replayed"] == "true"
    assert again.json() == first.json()
    found = again.json()["items"]
    assert [item["status"] for item in found] == [201, 201, 422, 201, 201, 200]
    assert found[0]["job"]["payload"] == "x" * 10_000
    assert found[3]["job"]["payload"]["secret"] == "***"
