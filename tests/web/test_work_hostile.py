"""Invalid requests of workers get a 4xx that names the field, and do not reach the engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedo.protocol.work import WorkRequest
from tests.web.placing import LEASE_TEXT, PlacingWorld
from tests.web.world import World


@pytest.fixture
async def world() -> AsyncIterator[PlacingWorld]:
    async with PlacingWorld() as made:
        yield made


STOPPED = {"lease": LEASE_TEXT, "outcome": "stopped"}
FAILED = {"lease": LEASE_TEXT, "outcome": "failed"}
OUTPUT = {"stream": "stdout", "text": "a"}

BAD: list[tuple[dict[str, Any], str | None]] = [
    ({"worker": None}, "/worker"),
    ({"worker": ""}, "/worker"),
    ({"worker": "-a"}, "/worker"),
    ({"worker": ".a"}, "/worker"),
    ({"worker": "a/b"}, "/worker"),
    ({"worker": "w" * 129}, "/worker"),
    ({"worker": "\u0430"}, "/worker"),
    ({"worker": "server"}, "/worker"),
    ({"worker": "embedded"}, "/worker"),
    ({"worker": "process-17"}, "/worker"),
    ({"worker": 5}, "/worker"),
    ({"protocol": 0}, "/protocol"),
    ({"protocol": "1"}, "/protocol"),
    ({"session": "s" * 129}, "/session"),
    ({"session": 5}, "/session"),
    ({"tasks": "resize"}, "/tasks"),
    ({"tasks": ["a", "b c"]}, "/tasks/1"),
    ({"tasks": ["a"] * 1_001}, "/tasks"),
    ({"queues": [""]}, "/queues/0"),
    ({"queues": ["a"] * 1_001}, "/queues"),
    ({"slots": -1}, "/slots"),
    ({"slots": 10_001}, "/slots"),
    ({"slots": 1.5}, "/slots"),
    ({"labels": []}, "/labels"),
    ({"labels": {"a b": 1}}, "/labels/a b"),
    ({"labels": {"": 1}}, "/labels/"),
    ({"labels": {"a": None}}, "/labels/a"),
    ({"labels": {"a": []}}, "/labels/a"),
    ({"labels": {"a": {"=": 1}}}, "/labels/a"),
    ({"labels": {"a": "x" * 257}}, "/labels/a"),
    ({"labels": {"a": "\u00e9" * 129}}, "/labels/a"),
    ({"labels": {"a": "x\ny"}}, "/labels/a"),
    ({"labels": {"a": "\u202e"}}, "/labels/a"),
    ({"labels": {"a/b": "\x1b[31m"}}, "/labels/a~1b"),
    ({"labels": {f"l{n}": 1 for n in range(65)}}, "/labels"),
    ({"labels": {"x" * 129: 1}}, "/labels/" + "x" * 128),
    ({"resources": {"cpu": -1}}, "/resources/cpu"),
    ({"resources": {"cpu": True}}, "/resources/cpu"),
    ({"resources": {"cpu": "many"}}, "/resources/cpu"),
    ({"resources": {"cpu": "8 GiB B"}}, "/resources/cpu"),
    ({"resources": {"cpu": "1e9"}}, "/resources/cpu"),
    ({"resources": {"cpu": 1e16}}, "/resources/cpu"),
    ({"resources": {"cpu": "999999999999999Ti"}}, "/resources/cpu"),
    ({"resources": {"cpu": None}}, "/resources/cpu"),
    ({"resources": {f"r{n}": 1 for n in range(33)}}, "/resources"),
    ({"version": "v" * 129}, "/version"),
    ({"task_defaults": {"a b": {}}}, None),
    ({"task_defaults": {"a": {"retry": "often"}}}, "/task_defaults/a/retry"),
    ({"task_defaults": {"a": {"retry": 0}}}, "/task_defaults/a/retry"),
    ({"task_defaults": {"a": {"timeout": "never"}}}, "/task_defaults/a/timeout"),
    ({"task_defaults": {f"t{n}": {} for n in range(1_001)}}, "/task_defaults"),
    ({"running": LEASE_TEXT}, "/running"),
    ({"running": [LEASE_TEXT, "x"]}, "/running/1"),
    ({"running": [LEASE_TEXT] * 10_001}, "/running"),
    ({"results": [STOPPED] * 1_001}, "/results"),
    ({"results": [STOPPED] * 10_000}, "/results"),
    ({"results": {}}, "/results"),
    ({"results": [STOPPED, {}]}, "/results/1/lease"),
    ({"results": [{"lease": LEASE_TEXT}]}, "/results/0/outcome"),
    ({"results": [{"lease": LEASE_TEXT, "outcome": "gone"}]}, "/results/0/outcome"),
    ({"results": [{"lease": LEASE_TEXT, "outcome": "stopped", "ran": -1}]}, "/results/0/ran"),
    ({"results": [{"lease": LEASE_TEXT, "outcome": "stopped", "ran": "soon"}]}, "/results/0/ran"),
    ({"results": [{"lease": LEASE_TEXT, "outcome": "lost", "blame": "me"}]}, "/results/0/blame"),
    ({"isolated_tasks": ["shell", ""]}, "/isolated_tasks/1"),
    ({"results": [{"lease": "0000000000007.1", "outcome": "stopped"}]}, "/results/0/lease"),
    ({"results": [{"lease": "zzzzzzzzzzzzz.1.7", "outcome": "stopped"}]}, "/results/0/lease"),
    ({"results": [{"lease": "0000000000007.-1.7", "outcome": "stopped"}]}, "/results/0/lease"),
    (
        {"results": [{"lease": "0000000000007.\u0661.7", "outcome": "stopped"}]},
        "/results/0/lease",
    ),
    (
        {"results": [{"lease": "0000000000007." + "9" * 5_000 + ".7", "outcome": "stopped"}]},
        "/results/0/lease",
    ),
    ({"results": [FAILED]}, "/results/0/error"),
    ({"results": [{**FAILED, "error": "it broke"}]}, "/results/0/error"),
    ({"results": [{**FAILED, "error": {}, "retry_in": -1}]}, "/results/0/retry_in"),
    ({"results": [{"lease": LEASE_TEXT, "outcome": "snoozed"}]}, "/results/0/delay"),
    ({"results": [{**STOPPED, "output": [OUTPUT, OUTPUT]}]}, "/results/0/output"),
    ({"results": [{**STOPPED, "output": [OUTPUT] * 4}]}, "/results/0/output"),
    ({"results": [{**STOPPED, "output": [{"stream": "stdin", "text": ""}]}]}, None),
    ({"results": [{**STOPPED, "output": [{"stream": "stdout"}]}]}, "/results/0/output/0"),
    ({"results": [{**STOPPED, "output": [{**OUTPUT, "base64": ""}]}]}, "/results/0/output/0"),
    (
        {"results": [{**STOPPED, "output": [{"stream": "stdout", "base64": "?"}]}]},
        "/results/0/output/0/base64",
    ),
    (
        {"results": [{**STOPPED, "output": [{**OUTPUT, "total_bytes": -1}]}]},
        "/results/0/output/0/total_bytes",
    ),
    ({"progress": [{"lease": LEASE_TEXT, "percent": 101}]}, "/progress/0/percent"),
    ({"progress": [{"lease": LEASE_TEXT, "percent": "half"}]}, "/progress/0/percent"),
    ({"progress": [{"lease": "x"}]}, "/progress/0/lease"),
    ({"progress": [{"lease": LEASE_TEXT}] * 1_001}, "/progress"),
    ({"accept": ["x"]}, "/accept/0"),
    ({"accept": [LEASE_TEXT] * 1_001}, "/accept"),
    ({"reject": [{"lease": "x"}]}, "/reject/0/lease"),
    ({"reject": ["x"]}, "/reject/0"),
    ({"draining": "yes"}, "/draining"),
    ({"wait": "61s"}, "/wait"),
    ({"wait": "long"}, "/wait"),
    ({"wait": -1}, "/wait"),
    ({"max_leases": -1}, "/max_leases"),
    ({"max_leases": 1_001}, "/max_leases"),
    ({"session_timeout": "4s"}, "/session_timeout"),
    ({"session_timeout": "61m"}, "/session_timeout"),
]


@pytest.mark.parametrize(("fields", "pointer"), BAD, ids=lambda value: ascii(value)[:60])
async def test_a_bad_field_of_a_poll_is_named_and_changes_nothing(
    world: PlacingWorld, fields: dict[str, Any], pointer: str | None
) -> None:
    good = {"worker": "w1", "results": [STOPPED]}

    reply = await world.post("/v1/work", {**good, **fields})

    assert (reply.status, reply.code) == (422, "invalid")
    if pointer is not None:
        assert [each["pointer"] for each in reply.json()["errors"]] == [pointer]
    assert len(reply.json()["errors"][0]["detail"]) > 5
    assert len(reply.body) < 2_000
    assert world.sessions.asks == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"worker=w1",
        b'{"worker":"w1"',
        b'{"worker":"w1","worker":"w2"}',
        b'{"worker":"w1","results":[{"lease":"a","lease":"b"}]}',
        b'{"worker":"w1","labels":{"a":1e999}}',
        b'{"worker":"w1","labels":{"a":NaN}}',
        b'{"worker":"w1","slots":99999999999999999999}',
        b'{"worker":"w1","session":"\\ud800"}',
        b'{"worker":"w1","session":"\\u0000"}',
        b'{"worker":"w1","x":' + b"[" * 65 + b"]" * 65 + b"}",
        b'{"worker":"w1","x":' + b"[" * 100_000,
        b"\xff" * 100,
        b"\x00" * 100,
    ],
    ids=lambda body: repr(body)[:50],
)
async def test_a_malformed_poll_is_refused(world: PlacingWorld, body: bytes) -> None:
    headers = [("content-type", "application/json"), ("content-length", str(len(body)))]

    reply = await world.send("POST", "/v1/work", body, headers, content_type=None)

    assert reply.status in {400, 415, 422}
    assert world.sessions.asks == []


async def test_a_body_may_be_as_large_as_a_batch_and_no_larger(world: PlacingWorld) -> None:
    large = {"worker": "w1", "x": "a" * 2_000_000}
    too_large = {"worker": "w1", "x": "a" * 8_388_608}

    assert (await world.post("/v1/work", large)).status == 200
    assert (await world.post("/v1/work", too_large)).code == "too-large"


async def test_a_thousand_results_are_one_request(world: PlacingWorld) -> None:
    results = [
        {"lease": f"{n:013d}.1.7", "outcome": "completed", "result": n} for n in range(1_000)
    ]

    reply = await world.post("/v1/work", {"worker": "w1", "results": results})

    assert reply.status == 200
    assert len(world.sessions.asks[0].reports) == 1_000


async def test_a_result_for_another_job_is_passed_to_the_engine_which_refuses_it(
    world: PlacingWorld,
) -> None:
    text = "7ZZZZZZZZZZZZ.999999999.999999999999999"

    await world.work(results=[{"lease": text, "outcome": "stopped"}], running=[text])

    (report,) = world.sessions.asks[0].reports
    assert report.key == (2**63 - 1, 999_999_999, 999_999_999_999_999)


async def test_the_worker_protocol_refuses_forms_and_other_methods(world: PlacingWorld) -> None:
    body = orjson.dumps({"worker": "w1"})

    form = await world.send("POST", "/v1/work", body, content_type="text/plain")
    read = await world.get("/v1/work")

    assert (form.status, read.status) == (415, 405)
    assert read.headers["allow"] == "POST"


SCALARS = st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats() | st.text()
LEASES = st.sampled_from([LEASE_TEXT, "7ZZZZZZZZZZZZ.1.1", "x", ""])
ANYTHING = st.recursive(
    SCALARS | LEASES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["lease", "outcome", "result", "error", "type", "stream", "text", "=", "x"]
            )
            | st.text(max_size=5),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)
FIELDS = st.sampled_from([field.name for field in msgspec.structs.fields(WorkRequest)])


@given(st.dictionaries(FIELDS, ANYTHING, max_size=6))
async def test_no_request_breaks_the_server(fields: dict[str, Any]) -> None:
    async with World() as world:
        body = orjson.dumps({"worker": "w1", **fields, "wait": 0})

        reply = await world.send("POST", "/v1/work", body)

        assert reply.status in {200, 400, 422}, reply
        if reply.status != 200:
            assert reply.json()["code"] in {"invalid", "bad-json", "bad-request"}
