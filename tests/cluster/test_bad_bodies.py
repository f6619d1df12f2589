"""What is wrong with a body in a cluster is what one server alone would say of it."""

from __future__ import annotations

import pytest

from tests.cluster.conftest import Cluster

DEEP = b"[" * 1_000 + b"]" * 1_000
TOO_DEEP = "nested deeper than 64 levels"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/work", b'{"worker":"w","zz":%b}' % DEEP),
        ("/v1/jobs", b'{"task":"demo","payload":%b}' % DEEP),
        ("/v1/invoke", b'{"task":"demo","payload":%b}' % DEEP),
        ("/schedule", b'{"task":"demo","payload":%b}' % DEEP),
        ("/v1/declarations", b'{"owner":"file:a","zz":%b}' % DEEP),
        ("/v1/session", b'{"zz":%b}' % DEEP),
        ("/v1/jobs:batch", b'[{"task":"demo","payload":%b}]' % DEEP),
    ],
)
async def test_a_body_that_is_nested_too_deeply_is_refused(
    cluster: Cluster, path: str, body: bytes
) -> None:
    reply = await cluster[1].send("POST", path, body)

    assert reply.status == 400, reply
    assert TOO_DEEP in reply.json()["detail"]


async def test_a_line_that_is_nested_too_deeply_refuses_its_batch(cluster: Cluster) -> None:
    lines = b'{"task":"demo"}\n{"task":"demo","payload":%b}' % DEEP

    reply = await cluster[1].send(
        "POST", "/v1/jobs:batch", lines, content_type="application/x-ndjson"
    )

    assert reply.status == 400, reply
    assert f"value 2: the body is {TOO_DEEP}" in reply.json()["detail"]


@pytest.mark.parametrize(
    ("payload", "detail"),
    [
        (b"[" * 300 + b"]" * 300, TOO_DEEP),
        (b'"\xff"', "the body is not UTF-8"),
        (b"1e999", "number is infinity"),
    ],
    ids=["deep", "not UTF-8", "infinite"],
)
async def test_a_declaration_with_a_payload_that_is_no_json_is_refused(
    cluster: Cluster, payload: bytes, detail: str
) -> None:
    schedule = b'{"name":"a","every":"1h","task":"demo","payload":%b}' % payload

    reply = await cluster[1].send(
        "POST", "/v1/declarations", b'{"owner":"file:a","schedules":[%b]}' % schedule
    )

    assert reply.status == 400, reply
    assert detail in reply.json()["detail"]
