"""Access control: tokens, hosts and origins, and the responses to refused requests."""

from __future__ import annotations

import logging

import pytest

from schedo.core.ids import render_id
from schedo.core.model import PauseScope
from schedo.protocol.operation import Operation
from schedo.protocol.operations import OPERATIONS
from schedo.web.context import AppContext
from schedo.web.credentials import host_name
from schedo.web.handler_table import HANDLERS
from schedo.web.http import Request, Response
from schedo.web.settings import WebSettings
from tests.web.world import Reply, World, secured

HOW = "send it as 'Authorization: Bearer <token>'"
TOKEN = "correct-horse-battery-staple-0123456789"
SECURED = secured(TOKEN, permissions={"allow_shell"})


OPEN = ("/healthz", "/readyz", "/openapi.json", "/problems/{code}", "/v1/me", "/v1/session")


async def call(world: World, operation: Operation, headers: list[tuple[str, str]]) -> Reply:
    path = operation.path
    for part in ("{id}", "{name}", "{code}", "{file}"):
        path = path.replace(part, render_id(7))
    if operation.name == "get_events":
        path += "?topics=none"  # an error of the handler, because a stream does not end
    body = b"[]" if operation.is_batch else b"{}"
    return await world.send(
        operation.method, path, body if operation.request else b"", headers, host="any.example"
    )


def every_operation() -> list[Operation]:
    return list(OPERATIONS)


def test_every_operation_has_a_handler_and_every_handler_an_operation() -> None:
    assert sorted(HANDLERS) == sorted(operation.name for operation in OPERATIONS)


@pytest.mark.parametrize("operation", every_operation(), ids=lambda operation: operation.name)
@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", "Bearer ", "Bearer wrong", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x"],
)
async def test_without_the_token_only_health_checks_and_the_documentation_are_open(
    operation: Operation, authorization: str | None
) -> None:
    async with World(SECURED) as world:
        headers = [] if authorization is None else [("authorization", authorization)]
        reply = await call(world, operation, headers)

        if operation.path in OPEN:
            # 404: there is no file or error of that name; 422: the login has no token.
            assert reply.status in (200, 204, 404, 422), reply
        else:
            assert (reply.status, reply.code) == (401, "unauthorized")
            assert reply.headers["www-authenticate"] == 'Bearer realm="schedo"'
            assert TOKEN.encode() not in reply.body


@pytest.mark.parametrize("operation", every_operation(), ids=lambda operation: operation.name)
async def test_with_the_token_every_operation_is_reached(operation: Operation) -> None:
    async with World(SECURED) as world:
        reply = await call(world, operation, [("authorization", f"bearer  {TOKEN}")])

        assert reply.status not in {401, 403, 405, 415, 421, 500}


@pytest.mark.parametrize(
    ("headers", "detail"),
    [
        ([], f"the token is missing; {HOW}"),
        ([("authorization", "Bearer wrong")], "the token is wrong"),
        ([("authorization", "Bearer ")], f"the Authorization header has no bearer token; {HOW}"),
        ([("authorization", TOKEN)], f"the Authorization header has no bearer token; {HOW}"),
    ],
    ids=["missing", "wrong", "empty", "no bearer"],
)
async def test_a_wrong_token_is_called_wrong_and_a_missing_one_missing(
    headers: list[tuple[str, str]], detail: str
) -> None:
    async with World(SECURED) as world:
        assert (await world.get("/v1/jobs", headers)).json()["detail"] == detail


@pytest.mark.parametrize("authorization", [None, "Bearer wrong", f"Bearer {TOKEN}"])
async def test_only_with_the_token_does_the_readiness_have_reasons_and_notes(
    authorization: str | None,
) -> None:
    headers = [] if authorization is None else [("authorization", authorization)]
    async with World(SECURED) as world:
        await world.engine.pause([PauseScope.STARTS], note="a private note")
        ready = await world.send("GET", "/readyz", headers=headers, host="10.1.2.3")
        world.app.drain()
        stopping = await world.send("GET", "/readyz", headers=headers, host="10.1.2.3")

    assert (ready.status, stopping.status) == (200, 503)
    if authorization == f"Bearer {TOKEN}":
        assert b"a private note" in ready.body
        assert stopping.json()["reasons"] == ["the server is stopping"]
    else:
        assert ready.json() == {"ready": True, "code": "ready"}
        assert stopping.json() == {"ready": False, "code": "stopping"}


async def test_a_page_with_a_foreign_host_name_reads_only_the_code_of_the_readiness(
    world: World,
) -> None:
    reply = await world.send("GET", "/readyz", host="evil.example")

    assert reply.json() == {"ready": True, "code": "ready"}


async def test_without_the_token_an_unknown_path_is_refused_like_a_known_one() -> None:
    async with World(SECURED) as world:
        assert (await world.get("/v1/secrets")).status == 401
        assert (await world.get("/healthz/../v1/jobs")).status == 401
        assert (await world.get("/healthz/")).status == 401


async def test_each_of_several_tokens_is_accepted_and_a_removed_one_is_refused() -> None:
    tokens = ["old-token-0123456789", "new-token-0123456789"]
    for known, opens in ((tokens, [200, 200]), (tokens[1:], [401, 200])):
        async with World(secured(*known)) as world:
            statuses = [
                (await world.get("/v1/jobs", [("authorization", f"Bearer {token}")])).status
                for token in tokens
            ]
            assert statuses == opens


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8080",
        "localhost.evil.example",
        "127.0.0.1.nip.io:8080",
        "127.0.0.2",
        "[::2]:8080",
        "",
        "localhost@evil.example",
        "evil.example#localhost",
    ],
)
async def test_a_request_for_another_host_name_is_misdirected(world: World, host: str) -> None:
    reply = await world.send("GET", "/v1/jobs", host=host)

    assert (reply.status, reply.code) == (421, "misdirected")


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8080", "localhost.", "127.0.0.1:1", "[::1]:8080", "[::1]"]
)
async def test_the_host_names_of_the_server_are_accepted_with_any_port(
    world: World, host: str
) -> None:
    assert (await world.send("GET", "/v1/jobs", host=host)).status == 200


async def test_an_allowed_host_may_be_an_ipv6_address_without_brackets() -> None:
    async with World(WebSettings(allowed_hosts=["FD00::1", "jobs.example"])) as world:
        for host, status in (("[fd00::1]:8080", 200), ("jobs.example", 200), ("localhost", 421)):
            assert (await world.send("GET", "/v1/jobs", host=host)).status == status


def test_a_host_name_is_read_without_its_port() -> None:
    assert host_name("[::1]:80") == "[::1]"
    assert host_name("A.b.:1") == "a.b"


async def test_a_request_without_or_with_two_hosts_is_refused(world: World) -> None:
    assert (await world.send("GET", "/v1/jobs", host=None)).code == "bad-request"
    twice = await world.send("GET", "/v1/jobs", headers=[("host", "localhost")])
    assert twice.code == "bad-request"


async def test_proxy_headers_give_no_access() -> None:
    async with World(SECURED) as world:
        headers = [
            ("x-forwarded-for", "127.0.0.1"),
            ("x-real-ip", "127.0.0.1"),
            ("forwarded", "for=127.0.0.1"),
            ("x-forwarded-host", "localhost"),
        ]
        assert (await world.send("GET", "/v1/jobs", headers=headers)).status == 401
    async with World() as world:
        reply = await world.send("GET", "/v1/jobs", headers=headers, host="evil.example")
        assert reply.status == 421


@pytest.mark.parametrize(
    "headers",
    [
        [("origin", "https://evil.example")],
        [("origin", "http://localhost:3000")],
        [("origin", "null")],
        [("origin", "http://[")],
        [("sec-fetch-site", "cross-site")],
        [("sec-fetch-site", "same-site")],
        [("origin", "http://localhost:8080"), ("sec-fetch-site", "cross-site")],
    ],
)
async def test_a_page_of_another_site_cannot_change_anything(
    world: World, headers: list[tuple[str, str]]
) -> None:
    job = await world.submit(delay=60)

    for method, path, body in (
        ("POST", "/v1/jobs", b'{"task":"x"}'),
        ("POST", f"/v1/jobs/{job['id']}:cancel", b""),
        ("PUT", "/v1/schedules/s", b'{"task":"x","every":60}'),
        ("DELETE", "/v1/schedules/s", b""),
    ):
        reply = await world.send(method, path, body, headers)
        assert (reply.status, reply.code) == (403, "cross-site")

    assert (await world.get("/v1/jobs")).json()["items"] == [job]


async def test_a_page_of_the_server_can_make_changes(world: World) -> None:
    headers = [("origin", "http://localhost:8080"), ("sec-fetch-site", "same-origin")]

    assert (await world.send("POST", "/v1/jobs", b'{"task":"x"}', headers)).status == 201


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "",
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/json; charset=utf-16",
        "application/json-patch+json",
        "application/x-ndjson",
        "text/plain, application/json",
    ],
)
async def test_a_body_that_is_not_declared_as_json_is_refused(
    world: World, content_type: str | None
) -> None:
    for path in ("/v1/jobs", "/schedule", "/v1/queues/q:pause"):
        reply = await world.send("POST", path, b'{"task":"x"}', content_type=content_type)
        assert (reply.status, reply.code) == (415, "unsupported-media-type")
    assert (await world.get("/v1/jobs")).json()["items"] == []


async def test_the_content_type_json_may_have_the_charset_utf8(world: World) -> None:
    for value in ("application/json; charset=utf-8", 'Application/JSON;charset="UTF-8"'):
        reply = await world.send("POST", "/v1/jobs", b'{"task":"x"}', content_type=value)
        assert reply.status == 201


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate", "zstd", "gzip, identity", "x"])
async def test_a_compressed_body_is_refused_unread(world: World, encoding: str) -> None:
    reply = await world.send("POST", "/v1/jobs", b"\x1f\x8b", [("content-encoding", encoding)])

    assert reply.code == "unsupported-media-type"
    assert world.pieces_read == 0


async def test_a_declared_large_body_is_refused_unread(world: World) -> None:
    reply = await world.send("POST", "/v1/jobs", b"{}", [("content-length", "1048577")])

    assert (reply.status, reply.code) == (413, "too-large")
    assert world.pieces_read == 0


async def test_a_large_body_in_pieces_is_read_only_up_to_the_limit(world: World) -> None:
    reply = await world.send("POST", "/v1/jobs", [b" " * 65_536] * 100)

    assert reply.code == "too-large"
    assert world.pieces_read == 17


@pytest.mark.parametrize("length", ["-1", "1e3", "x", "9" * 40])
async def test_a_content_length_that_is_no_number_is_refused(world: World, length: str) -> None:
    reply = await world.send("POST", "/v1/jobs", b"{}", [("content-length", length)])

    assert reply.status in {400, 413}


async def test_a_body_within_the_limit_may_arrive_in_pieces(world: World) -> None:
    reply = await world.send("POST", "/v1/jobs", [b'{"ta', b'sk":', b"", b'"x"}'])

    assert reply.status == 201


async def test_a_batch_may_be_larger_than_one_job(world: World) -> None:
    job = {"task": "x", "payload": "y" * 500_000}

    assert (await world.post("/v1/jobs:batch", [job] * 4)).status == 200


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("DELETE", "/v1/jobs", "GET, HEAD, POST"),
        ("GET", "/v1/jobs:batch", "POST"),
        ("POST", "/healthz", "GET, HEAD"),
        ("OPTIONS", "/v1/jobs", "GET, HEAD, POST"),
        ("TRACE", "/v1/schedules/s", "DELETE, GET, HEAD, PUT"),
        ("x" * 1_000, "/v1/jobs", "GET, HEAD, POST"),
    ],
)
async def test_an_unknown_method_gets_the_allowed_ones(
    world: World, method: str, path: str, allow: str
) -> None:
    reply = await world.send(method, path)

    assert (reply.status, reply.code) == (405, "method-not-allowed")
    assert reply.headers["allow"] == allow


@pytest.mark.parametrize(
    "path", ["/v1", "/v1/jobs/", "//v1/jobs", "/v1/jobs/a/b", "/V1/jobs", "/docs/../x", "/v2"]
)
async def test_an_unknown_path_is_not_found(world: World, path: str) -> None:
    assert (await world.get(path)).code == "not-found"


async def test_every_response_has_the_headers_that_protect_a_browser(world: World) -> None:
    for path in ("/v1/jobs", "/openapi.json", "/healthz", "/nothing", "/problems/invalid"):
        headers = (await world.get(path)).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert headers["content-security-policy"].startswith(
            "default-src 'none'; script-src 'self'"
        )
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-request-id"]
        assert "server" not in headers
        assert "access-control-allow-origin" not in headers


async def test_an_unexpected_error_returns_500_and_shows_only_the_request_id(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def break_down(site: AppContext, request: Request) -> Response:
        raise RuntimeError("secret detail")

    monkeypatch.setitem(HANDLERS, "get_info", break_down)
    async with World() as broken:
        with caplog.at_level(logging.ERROR):
            reply = await broken.get("/v1/info")

    request_id = reply.json()["request_id"]
    assert (reply.status, reply.code) == (500, "internal")
    assert b"secret" not in reply.body
    assert b"Traceback" not in reply.body
    assert request_id == reply.headers["x-request-id"]
    assert request_id in caplog.text
    assert "secret detail" in caplog.text
