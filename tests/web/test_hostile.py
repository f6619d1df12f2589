"""Hostile bodies through the real application: a clear 4xx, nothing stored, nothing stuck."""

from __future__ import annotations

from typing import Any

import pytest

from schedo.protocol.operation import Operation
from schedo.protocol.operations import OPERATIONS
from schedo.protocol.schedules import EmptyRequest
from tests.web.world import World

BAD_NAMES = [
    "",
    "-x",
    "../x",
    "a/b",
    "a b",
    "a\n",
    "\na",
    "x" * 129,
    "a\u202eb",
    "a\u200bb",
    "\u0430dmin",
    "caf\u00e9",
    "\U0001f600",
    "\uff41",
    "a:b",
    "a\x7f",
    "$(id)",
    "<script>",
    "'--",
]


@pytest.mark.parametrize("name", BAD_NAMES, ids=ascii)
@pytest.mark.parametrize("field", ["task", "queue", "tags"])
async def test_a_bad_name_is_refused_in_every_field_for_a_name(
    world: World, field: str, name: str
) -> None:
    value = [name] if field == "tags" else name

    reply = await world.post("/v1/jobs", {"task": "a", field: value})

    pointer = "/tags/0" if field == "tags" else f"/{field}"
    assert (reply.status, reply.code) == (422, "invalid")
    assert [each["pointer"] for each in reply.json()["errors"]] == [pointer]
    assert (await world.get("/v1/jobs")).json()["items"] == []


@pytest.mark.parametrize("name", ["CON", "a", "A.b_c-9", ".hidden", "_", "x" * 128])
async def test_a_valid_name_is_accepted(world: World, name: str) -> None:
    assert (await world.submit(task=name, queue=name, tags=[name]))["task"] == name


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"delay": -1}, "/delay"),
        ({"delay": "-5s"}, "/delay"),
        ({"delay": "5 parsecs"}, "/delay"),
        ({"delay": True}, "/delay"),
        ({"delay": []}, "/delay"),
        ({"delay": 1e300}, "/delay"),
        ({"delay": "\u0665s"}, "/delay"),
        ({"delay": "1" * 10_000}, "/delay"),
        ({"run_at": "tomorrow"}, "/run_at"),
        ({"run_at": "2026-11-20T11:04:05"}, "/run_at"),
        ({"run_at": "10000-01-01T00:00:00Z"}, "/run_at"),
        ({"run_at": 5}, "/run_at"),
        ({"delay": 1, "run_at": "2027-01-01T00:00:00Z"}, "/run_at"),
        ({"expires_in": 1, "expires_at": "2027-01-01T00:00:00Z"}, "/expires_at"),
        ({"expires_in": 0}, "/expires_in"),
        ({"delay": "1h", "expires_in": "1m"}, "/expires_in"),
        ({"run_at": "2027-01-01T00:00:00Z", "expires_at": "2026-12-01T00:00:00Z"}, "/expires_at"),
        ({"priority": 10}, "/priority"),
        ({"priority": -10}, "/priority"),
        ({"priority": 0.5}, "/priority"),
        ({"priority": "high"}, "/priority"),
        ({"timeout": 0}, "/timeout"),
        ({"timeout": "forever"}, "/timeout"),
        ({"retry": 0}, "/retry"),
        ({"retry": 101}, "/retry"),
        ({"retry": "often"}, "/retry"),
        ({"retry": []}, "/retry"),
        ({"retry": {"max_attempts": 0}}, "/retry/max_attempts"),
        ({"retry": {"initial": "soon"}}, "/retry/initial"),
        ({"retry": {"factor": 0.5}}, "/retry/factor"),
        ({"retry": {"jitter": 2}}, "/retry/jitter"),
        ({"retry": {"backoff": "random"}}, "/retry/backoff"),
        ({"retry": {"tries": 5}}, "/retry/tries"),
        ({"unique": ""}, "/unique"),
        ({"unique": "x" * 256}, "/unique"),
        ({"unique": {}}, "/unique/key"),
        ({"unique": {"key": "k", "while": []}}, "/unique/while"),
        ({"unique": {"key": "k", "while": ["completed"]}}, "/unique/while/0"),
        ({"unique": {"key": "k", "for": 0}}, "/unique/for"),
        ({"unique": {"key": "k", "on_conflict": "panic"}}, "/unique/on_conflict"),
        ({"delivery": "exactly_once"}, "/delivery"),
        ({"tags": "a"}, "/tags"),
        ({"tags": ["a"] * 21}, "/tags"),
        ({"tags": [1]}, "/tags/0"),
        ({"meta": []}, "/meta"),
        ({"meta": {"x": "y" * 5_000}}, "/meta"),
        ({"traceparent": "00-" + "0" * 32 + "-" + "0" * 16 + "-01"}, "/traceparent"),
        ({"tracestate": "x" * 513}, "/tracestate"),
        ({"dealy": 5}, "/dealy"),
        ({"a/b~c": 5}, "/a~1b~0c"),
        ({"<script>alert(1)</script>": 5}, "/<script>alert(1)<~1script>"),
        ({"task": None}, "/task"),
        ({"task": 5}, "/task"),
    ],
    ids=lambda value: ascii(value)[:60],
)
async def test_a_bad_field_of_a_submit_is_named_and_no_job_is_stored(
    world: World, fields: dict[str, Any], pointer: str
) -> None:
    reply = await world.post("/v1/jobs", {"task": "a", **fields})

    assert (reply.status, reply.code) == (422, "invalid")
    assert [each["pointer"] for each in reply.json()["errors"]] == [pointer]
    assert len(reply.json()["errors"][0]["detail"]) > 5
    assert (await world.get("/v1/jobs")).json()["items"] == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b'"task"',
        b"5",
        b"{",
        b'{"task":"a",}',
        b'{"task":"a"}{"task":"b"}',
        b'{"task":"a","task":"b"}',
        b'{"task":"a","payload":{"x":1,"x":2}}',
        b'{"task":"a","payload":{"x":1,"\\u0078":2}}',
        b'{"task":"a","payload":NaN}',
        b'{"task":"a","payload":Infinity}',
        b'{"task":"a","payload":1e999}',
        b'{"task":"a","payload":9223372036854775808}',
        b'{"task":"a","payload":' + b"1" * 5_000 + b"}",
        b'{"task":"a","payload":"\\ud800"}',
        b'{"task":"a","payload":"\\u0000"}',
        b'{"task":"a","payload":"\xff"}',
        b'{"task":"a","payload":"\xc0\x80"}',
        b'\xef\xbb\xbf{"task":"a"}',
        b'{"task":"a","payload":' + b"[" * 64 + b"]" * 64 + b"}",
        b'{"task":"a","payload":' + b"[" * 100_000,
        b'{"task":"a","payload":' + b'{"a":' * 100_000,
        b'{"task":"a","unique":"a\\u0000b"}',
        b'{"task":"a","meta":{"\\u0000":1}}',
    ],
    ids=lambda body: repr(body)[:60],
)
async def test_bad_json_is_refused(world: World, body: bytes) -> None:
    headers = [("content-type", "application/json"), ("content-length", str(len(body)))]
    for path in ("/v1/jobs", "/v1/jobs:batch"):
        text = b"[" + body + b"]" if path.endswith("batch") and body[:1] == b"{" else body
        headers[1] = ("content-length", str(len(text)))
        reply = await world.send("POST", path, text, headers, content_type=None)
        assert reply.status in {400, 422} or reply.json()["items"] == []

    assert (await world.get("/v1/jobs")).json()["items"] == []


@pytest.mark.parametrize(
    "payload",
    [
        "\u2028\u2029",
        "\ufffe\uffff",
        "\U0001f600\u202e",
        "<script>alert(1)</script>",
        "'; DROP TABLE job; --",
        "\x1b[31m\r\n\x07",
        {"__proto__": {"x": 1}, "": ""},
        2**63 - 1,
        -(2**63),
        [[]] * 1_000,
    ],
    ids=ascii,
)
async def test_a_strange_but_valid_payload_is_stored_unchanged(
    world: World, payload: object
) -> None:
    job = await world.submit(payload=payload)

    found = await world.get(f"/v1/jobs/{job['id']}")

    assert found.json()["payload"] == payload
    assert found.headers["content-type"] == "application/json"


async def test_html_in_every_text_field_is_returned_only_as_json(world: World) -> None:
    html = "<img src=x onerror=alert(1)>"

    job = await world.post(
        "/v1/jobs", {"task": "a", "payload": html, "unique": html, "meta": {html: html}}
    )
    bad = await world.post("/v1/jobs", {"task": html})
    lost = await world.get(f"/v1/jobs/{html}")

    for reply in (job, bad, lost):
        assert "json" in reply.headers["content-type"]
        assert reply.headers["x-content-type-options"] == "nosniff"


WITHOUT_FIELDS = [operation for operation in OPERATIONS if operation.request is EmptyRequest]


@pytest.mark.parametrize("operation", WITHOUT_FIELDS, ids=lambda operation: operation.name)
@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b'{"x":1}', 422, "invalid"),
        (b"null", 422, "invalid"),
        (b"[]", 422, "invalid"),
        (b"\0", 400, "bad-json"),
        (b"{", 400, "bad-json"),
    ],
)
async def test_an_operation_without_fields_refuses_any_field_and_changes_nothing(
    world: World, operation: Operation, body: bytes, status: int, code: str
) -> None:
    job = await world.submit(delay="1h")
    await world.put("/v1/schedules/s", {"task": "a", "every": "1h"})
    name = "s" if "schedules" in operation.path else "default"
    path = operation.path.format(id=job["id"], name=name)
    nonce = [("schedo-lease-nonce", "n")]

    refused = await world.send(operation.method, path, body, nonce)
    unchanged = (await world.get(f"/v1/jobs/{job['id']}")).json()
    kept = await world.get("/v1/schedules/s")
    taken = await world.send(operation.method, path, b" {} ", nonce)

    assert (refused.status, refused.code) == (status, code)
    assert (unchanged["state"], kept.status) == ("scheduled", 200)
    assert taken.status not in {400, 422}
