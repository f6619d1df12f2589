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
