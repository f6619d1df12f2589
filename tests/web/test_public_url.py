"""A server behind a proxy: the prefix of its addresses, its host, its cookies; and its viewers."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from schedo.core.states import State
from schedo.protocol.public_url import parse_public_url
from schedo.protocol.roles import Role
from schedo.web.permissions import ANONYMOUS, TokenPermission, digest
from schedo.web.settings import WebSettings
from tests.web.placing import PlacingWorld, make_job
from tests.web.world import Headers, World

ADMIN = "admin-token-0123456789abcdef"
VIEWER = "viewer-token-0123456789abcdef"
URL = parse_public_url("https://ops.example.org/schedo")
TOKENS = {
    digest(ADMIN): TokenPermission(Role.ADMIN, "ann"),
    digest(VIEWER): TokenPermission(Role.VIEWER, "wall", hides_payloads=True),
}
BEHIND = WebSettings(tokens=TOKENS, anyone=None, public_url=URL)
OPEN_TO_READ = WebSettings(tokens=TOKENS, anyone=ANONYMOUS)


def bearer(token: str) -> Headers:
    return [("authorization", f"Bearer {token}")]


@pytest.mark.parametrize("path", ["/schedo/v1/jobs", "/v1/jobs"])
async def test_addresses_work_with_and_without_the_prefix(path: str) -> None:
    async with World(WebSettings(public_url=URL)) as world:
        made = await world.post(path, {"task": "demo"})
        await world.post(path, {"task": "demo"})
        page = await world.get(path + "?limit=1")

    assert (made.status, page.status) == (201, 200)
    assert made.headers["location"] == f"/schedo/v1/jobs/{made.json()['id']}"
    assert page.headers["link"].startswith("</schedo/v1/jobs?limit=1&cursor=")


async def test_the_job_of_an_invocation_has_its_address_below_the_prefix() -> None:
    async with PlacingWorld(WebSettings(public_url=URL)) as world:
        world.placing.jobs = [make_job(State.RUNNING)]
        invoked = await world.post("/v1/invoke", {"task": "demo", "wait": 0})
        late = await world.post("/schedule", {"Task": "demo"})

    assert (invoked.status, late.status) == (201, 504)
    assert invoked.headers["location"] == "/schedo/v1/jobs/0000000000007"
    assert late.headers["location"] == "/schedo/v1/jobs/0000000000007"


@pytest.mark.parametrize("path", ["/schedo", "/schedo/", "/schedo/login", "/", "/login"])
async def test_the_page_names_the_prefix_as_its_base(path: str) -> None:
    async with World(BEHIND) as world:
        shell = await world.get(path)

    assert shell.status == 200
    assert b'<base href="/schedo/">' in shell.body


async def test_only_a_whole_part_of_a_path_is_the_prefix() -> None:
    async with World(WebSettings(public_url=URL)) as world:
        assert (await world.get("/schedox/v1/jobs")).status == 404
        assert (await world.get("/schedov1/jobs")).status == 404


async def test_a_cookie_is_for_the_prefix_and_for_tls() -> None:
    async with World(BEHIND) as world:
        reply = await world.post("/schedo/v1/session", {"token": ADMIN})
        plain = parse_public_url("http://ops.example.org")
        world.app.use(WebSettings(tokens=TOKENS, anyone=None, public_url=plain))
        other = await world.post("/v1/session", {"token": ADMIN})

    assert reply.headers["set-cookie"].split("; ")[1:] == [
        *("Path=/schedo", "Max-Age=43200", "HttpOnly", "SameSite=Strict", "Secure")
    ]
    assert other.headers["set-cookie"].split("; ")[1] == "Path=/"
    assert "Secure" not in other.headers["set-cookie"]


@pytest.mark.parametrize(
    ("host", "headers", "status"),
    [
        ("ops.example.org", [], 200),
        ("OPS.example.org:443", [], 200),
        ("127.0.0.1:8080", [], 200),
        ("evil.example", [], 421),
        ("evil.example", bearer(ADMIN), 200),
        ("evil.example", bearer("wrong"), 401),
        ("evil.example", [("x-forwarded-host", "ops.example.org")], 421),
    ],
)
async def test_with_a_public_url_other_hosts_need_a_token(
    host: str, headers: Headers, status: int
) -> None:
    settings = WebSettings(tokens=TOKENS, anyone=ANONYMOUS, public_url=URL)
    async with World(settings) as world:
        reply = await world.send("GET", "/v1/jobs", headers=headers, host=host)

    assert reply.status == status


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("ops.example.org", "https://ops.example.org", 200),
        ("127.0.0.1:8080", "https://ops.example.org", 200),  # a proxy changes the Host header
        ("127.0.0.1:8080", "http://127.0.0.1:8080", 200),
        ("ops.example.org", "http://ops.example.org", 403),
        ("ops.example.org", "https://evil.example", 403),
        ("127.0.0.1:8080", "https://evil.example", 403),
    ],
)
async def test_a_change_by_a_cookie_needs_the_public_origin(
    host: str, origin: str, status: int
) -> None:
    async with World(BEHIND) as world:
        body = b'{"token": "%b"}' % ADMIN.encode()
        reply = await world.send("POST", "/v1/session", body, host=host)
        cookie = reply.headers["set-cookie"].partition(";")[0]
        headers = [("cookie", cookie), ("origin", origin)]
        changed = await world.send("POST", "/v1/server:pause", b"{}", headers, host=host)

    assert changed.status == status


async def test_the_client_learns_the_public_url_once_it_may_read() -> None:
    async with World(BEHIND) as world:
        assert "public_url" not in (await world.get("/v1/me")).json()
        me = (await world.get("/v1/me", bearer(VIEWER))).json()

    assert (me["public_url"], me["hides_payloads"]) == ("https://ops.example.org/schedo", True)


async def test_an_anonymous_viewer_reads_and_changes_nothing() -> None:
    async with World(OPEN_TO_READ) as world:
        me = (await world.get("/v1/me")).json()
        read = await world.get("/v1/jobs")
        change = await world.post("/v1/server:pause", {})

    assert (me["access"], me["name"], me["role"]) == ("anonymous", "anonymous", "viewer")
    assert (read.status, change.status, change.code) == (200, 403, "forbidden")


async def test_with_anonymous_viewers_a_wrong_token_is_still_wrong_and_a_right_one_right() -> None:
    async with World(OPEN_TO_READ) as world:
        assert (await world.get("/v1/jobs", bearer("wrong"))).status == 401
        assert (await world.post("/v1/server:pause", {}, bearer(ADMIN))).status == 200
        cookie = (await world.post("/v1/session", {"token": ADMIN})).headers["set-cookie"]
        me = await world.get("/v1/me", [("cookie", cookie.partition(";")[0])])
        assert me.json()["role"] == "admin"
        stale = await world.get("/v1/me", [("cookie", "schedo=x.y")])
        assert stale.json()["role"] == "viewer"


async def test_anonymous_viewers_are_only_served_under_the_server_s_own_names() -> None:
    async with World(OPEN_TO_READ) as world:
        reply = await world.send("GET", "/v1/jobs", host="evil.example")

    assert (reply.status, reply.code) == (421, "misdirected")


async def test_a_viewer_from_whom_payloads_are_hidden_sees_none_in_any_response() -> None:
    secret = {"card": "4111-secret"}
    async with World(WebSettings(tokens=TOKENS, anyone=None)) as world:
        admin = bearer(ADMIN)
        event = {"task": "tell", "payload": secret}
        job = (
            await world.post(
                "/v1/jobs",
                {"task": "demo", "payload": secret, "on_failure": event, "meta": {"payload": 1}},
                admin,
            )
        ).json()
        schedule: Any = {"task": "demo", "every": 3600, "payload": secret}
        schedule["expect"] = {"within": "1m", "on_miss": event}
        body = world_json(schedule)
        await world.send("PUT", "/v1/schedules/s", body, admin)
        named = world_json({"every": "1h", "within": "1m", "on_miss": event})
        assert (await world.send("PUT", "/v1/expectations/e", named, admin)).status == 201
        for path in (
            f"/v1/jobs/{job['id']}",
            f"/v1/jobs/{job['id']}/wait?timeout=0s",
            "/v1/jobs",
            "/v1/schedules",
            "/v1/schedules/s",
            "/v1/expectations",
            "/v1/expectations/e",
        ):
            shown = await world.get(path, bearer(VIEWER))
            assert shown.status in (200, 202), path
            assert b"secret" not in shown.body, path
            assert b"secret" in (await world.get(path, admin)).body, path
        found = (await world.get(f"/v1/jobs/{job['id']}", bearer(VIEWER))).json()

    assert found["meta"] == {"payload": 1}
    assert found["on_failure"] == {"task": "tell"}


async def test_a_viewer_from_whom_payloads_are_hidden_sees_no_command_in_the_short_form() -> None:
    async with World(WebSettings(tokens=TOKENS, anyone=None)) as world:
        body = {"task": "demo", "payload": {"command": "pay --card 4111-secret"}}
        job = (await world.post("/v1/jobs", body, bearer(ADMIN))).json()
        path = f"/status?task_id={job['id']}"
        shown = (await world.get(path, bearer(VIEWER))).json()
        whole = (await world.get(path, bearer(ADMIN))).json()

    assert whole.pop("command") == "pay --card 4111-secret"
    assert shown == whole


@pytest.mark.parametrize("name", ["q", "payload.card", "payload.a.b"])
async def test_a_viewer_does_not_find_out_payloads_by_searching(name: str) -> None:
    async with World(WebSettings(tokens=TOKENS, anyone=None)) as world:
        refused = await world.get(f"/v1/jobs?{name}=4111", bearer(VIEWER))
        assert (refused.status, refused.code) == (403, "forbidden")
        assert name in refused.json()["detail"]
        assert (await world.get(f"/v1/jobs?{name}=4111", bearer(ADMIN))).status == 200
        assert (await world.get("/v1/jobs?queue=payload", bearer(VIEWER))).status == 200


async def test_a_long_list_without_payloads_is_whole() -> None:
    async with World(WebSettings(tokens=TOKENS, anyone=None)) as world:
        for _ in range(80):
            await world.post("/v1/jobs", {"task": "demo", "payload": "x" * 2_000}, bearer(ADMIN))

        reply = await world.get("/v1/jobs?limit=100", bearer(VIEWER))

    assert len(reply.json()["items"]) == 80
    assert b"xxx" not in reply.body


def world_json(value: object) -> bytes:
    return orjson.dumps(value)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("https://ops.example.org/schedo", ("https", "ops.example.org", "/schedo")),
        ("HTTPS://Ops.Example.org:443/", ("https", "ops.example.org", "")),
        ("http://ops:8080/a/b/", ("http", "ops:8080", "/a/b")),
        ("http://[::1]:80", ("http", "[::1]", "")),
    ],
)
def test_a_public_url_has_a_host_and_a_prefix(text: str, found: tuple[str, ...]) -> None:
    url = parse_public_url(text)

    assert (url.scheme, url.host, url.prefix) == found
    assert str(url) == f"{found[0]}://{found[1]}{found[2]}"


@pytest.mark.parametrize(
    "text",
    [
        *("ops.example.org", "ftp://x", "https://", "https://a b", "https://x?y", "https://x#y"),
        *("https://u:p@x", "https://x/../y", "https://x/./y", "https://x//y", "https://x/é"),
        *("https://x/<script>", 'https://x/"', "https://x:999999", "https://x\n/"),
    ],
)
def test_other_urls_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a URL like"):
        parse_public_url(text)
