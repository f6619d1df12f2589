"""Sessions of browsers: how one begins and ends, and which requests a cookie is good for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from schedo.core.ids import render_id
from schedo.protocol.operations import OPERATIONS
from schedo.protocol.roles import Role
from schedo.store.sqlite.store import SqliteStore
from schedo.web.permissions import TokenPermission, digest
from schedo.web.sessions import LINK_US, SESSION_US
from schedo.web.settings import WebSettings
from tests.web.world import Headers, Reply, World

TOKENS = {role: f"{role}-token-0123456789abcdef" for role in Role}
SETTINGS = WebSettings(
    tokens={digest(token): TokenPermission(role, role.value) for role, token in TOKENS.items()},
    anyone=None,
)
SAME_ORIGIN = ("sec-fetch-site", "same-origin")


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with World(SETTINGS) as made:
        yield made


def read_cookie(reply: Reply) -> str:
    return reply.headers["set-cookie"].partition(";")[0]


async def log_in(world: World, role: Role = Role.ADMIN) -> str:
    reply = await world.post("/v1/session", {"token": TOKENS[role]})
    assert reply.status == 200, reply
    return read_cookie(reply)


async def list_jobs(world: World, cookie: str, host: str = "localhost:8080") -> Reply:
    return await world.send("GET", "/v1/jobs", headers=[("cookie", cookie)], host=host)


async def test_a_token_is_exchanged_for_a_cookie_that_no_script_and_no_other_site_gets(
    world: World,
) -> None:
    reply = await world.post("/v1/session", {"token": TOKENS[Role.OPERATOR]})

    value, *attributes = reply.headers["set-cookie"].split("; ")
    assert attributes == ["Path=/", "Max-Age=43200", "HttpOnly", "SameSite=Strict"]
    assert TOKENS[Role.OPERATOR] not in value
    me = reply.json()
    assert (me["access"], me["name"], me["role"]) == ("session", "operator", "operator")
    assert (await list_jobs(world, value)).status == 200


async def test_the_session_has_the_role_of_its_token(world: World) -> None:
    cookie = await log_in(world, Role.VIEWER)

    me = (await world.get("/v1/me", [("cookie", cookie)])).json()
    reply = await world.post("/v1/server:pause", {}, [("cookie", cookie), SAME_ORIGIN])

    assert (me["role"], "list_jobs" in me["operations"]) == ("viewer", True)
    assert "pause_server" not in me["operations"]
    assert (reply.status, reply.code) == (403, "forbidden")


async def test_a_viewer_s_cookie_changes_nothing(world: World) -> None:
    headers = [("cookie", await log_in(world, Role.VIEWER)), SAME_ORIGIN]
    changes = [each for each in OPERATIONS if each.role not in (None, Role.VIEWER)]
    for operation in changes:
        path = operation.path.replace("{id}", render_id(7)).replace("{name}", "x")
        body = b"{}" if operation.request else b""
        reply = await world.send(operation.method, path, body, headers)
        assert (reply.status, reply.code) == (403, "forbidden"), operation.name


@pytest.mark.parametrize("role", [Role.WORKER, Role.BEAT])
async def test_the_token_of_a_program_begins_no_session(world: World, role: Role) -> None:
    reply = await world.post("/v1/session", {"token": TOKENS[role]})

    assert (reply.status, "set-cookie" in reply.headers) == (403, False)


async def test_wrong_tokens_are_refused_and_slowed_down(world: World) -> None:
    replies = [await world.post("/v1/session", {"token": "wrong"}) for _ in range(20)]

    assert (replies[0].status, replies[0].code) == (401, "unauthorized")
    assert replies[-1].status == 429
    assert not any("set-cookie" in reply.headers for reply in replies)
    assert await log_in(world)


@pytest.mark.parametrize("body", [{}, {"token": "a", "link": "b"}, {"token": ""}, {"token": 1}])
async def test_a_login_has_either_a_token_or_a_link(world: World, body: object) -> None:
    assert (await world.post("/v1/session", body)).status == 422


async def test_forged_cookies_are_refused(world: World) -> None:
    cookie = await log_in(world, Role.VIEWER)
    cookie_name, _, value = cookie.partition("=")
    payload, _, signature = value.partition(".")
    name, _, expiry = payload.partition("-")
    admin = digest(TOKENS[Role.ADMIN]).hex()[:16]
    forged = [
        f"{payload}.",
        f"{payload}.{signature[:-1]}",
        f"{payload}.{signature[::-1]}",
        f"{name}-{int(expiry) + 1}.{signature}",
        f"{admin}-{expiry}.{signature}",
        f"{payload}.\u00e9",
        f"{name}-{'9' * 30}.{signature}",
        f"{name}-\u00b2.{signature}",
        "",
        ".",
    ]
    for value in forged:
        reply = await list_jobs(world, f"{cookie_name}={value}")
        assert (reply.status, reply.code) == (401, "unauthorized"), value


async def test_a_session_ends_after_twelve_hours(world: World) -> None:
    cookie = await log_in(world)
    world.clock.stall(SESSION_US - 2_000_000)
    before = await list_jobs(world, cookie)
    world.clock.stall(2_000_000)

    assert (before.status, (await list_jobs(world, cookie)).status) == (200, 401)


async def test_a_session_ends_when_its_token_is_taken_out_of_the_file(world: World) -> None:
    cookie = await log_in(world)
    others = {key: it for key, it in SETTINGS.tokens.items() if it.role is not Role.ADMIN}

    world.app.use(WebSettings(tokens=others, anyone=None))

    assert (await list_jobs(world, cookie)).status == 401


async def test_a_session_survives_a_restart_of_the_server_and_is_void_on_another(
    tmp_path: Path,
) -> None:
    async with World(SETTINGS, SqliteStore(tmp_path / "schedo.db")) as first:
        cookie = await log_in(first)
    async with World(SETTINGS, SqliteStore(tmp_path / "schedo.db")) as next_one:
        assert (await list_jobs(next_one, cookie)).status == 200
    async with World(SETTINGS) as other:
        assert (await list_jobs(other, cookie)).status == 401


async def test_a_cookie_is_good_only_for_the_host_that_gave_it(world: World) -> None:
    cookie = await log_in(world)

    assert (await list_jobs(world, cookie, "LOCALHOST:9000")).status == 200
    assert (await list_jobs(world, cookie, "evil.example")).status == 401


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([], 403),
        ([("sec-fetch-site", "none")], 403),
        ([("sec-fetch-site", "same-site")], 403),
        ([("sec-fetch-site", "cross-site")], 403),
        ([("origin", "https://evil.example")], 403),
        ([("origin", "null")], 403),
        ([SAME_ORIGIN, ("origin", "https://evil.example")], 403),
        ([SAME_ORIGIN], 200),
        ([("origin", "http://localhost:8080")], 200),
    ],
)
async def test_a_change_by_a_cookie_needs_a_proof_of_the_same_origin(
    world: World, headers: Headers, status: int
) -> None:
    cookie = ("cookie", await log_in(world))

    reply = await world.post("/v1/server:pause", {}, [cookie, *headers])

    assert reply.status == status
    if status == 403:
        assert reply.code == "cross-site"
        assert not world.engine.pauses()


async def test_a_page_of_another_site_can_neither_log_in_nor_out(world: World) -> None:
    for host, headers in (
        ("localhost:8080", [("origin", "https://evil.example")]),
        ("localhost:8080", [("sec-fetch-site", "cross-site")]),
    ):
        body = b'{"token": "%b"}' % TOKENS[Role.ADMIN].encode()
        reply = await world.send("POST", "/v1/session", body, headers, host=host)
        assert (reply.status, "set-cookie" in reply.headers) == (403, False)
        assert (await world.send("DELETE", "/v1/session", b"", headers)).status == 403


async def test_a_bearer_token_wins_over_a_cookie(world: World) -> None:
    cookie = ("cookie", await log_in(world))
    viewer = ("authorization", f"Bearer {TOKENS[Role.VIEWER]}")

    me = (await world.get("/v1/me", [cookie, viewer])).json()
    wrong = await world.get("/v1/jobs", [cookie, ("authorization", "Bearer wrong")])

    assert (me["access"], me["role"]) == ("token", "viewer")
    assert wrong.status == 401


async def test_the_stream_of_events_opens_by_a_cookie(world: World) -> None:
    cookie = await log_in(world, Role.VIEWER)

    # An error of the handler, because a stream does not end.
    assert (await world.get("/v1/events?topics=none", [("cookie", cookie)])).status == 400
    assert (await world.get("/v1/events?topics=none")).status == 401


async def test_a_logout_deletes_the_cookie(world: World) -> None:
    cookie = await log_in(world)
    name = cookie.partition("=")[0]

    reply = await world.send("DELETE", "/v1/session", headers=[("cookie", cookie), SAME_ORIGIN])

    assert reply.status == 204
    assert reply.headers["set-cookie"].startswith(f"{name}=; Path=/; Max-Age=0;")


async def test_a_link_logs_in_once(world: World) -> None:
    bearer = [("authorization", f"Bearer {TOKENS[Role.OPERATOR]}")]
    code = (await world.post("/v1/session:link", {}, bearer)).json()["link"]

    first = await world.post("/v1/session", {"link": code})
    second = await world.post("/v1/session", {"link": code})

    assert (first.json()["name"], second.status) == ("operator", 401)
    assert (await list_jobs(world, read_cookie(first))).status == 200


async def test_a_link_is_void_after_a_minute(world: World) -> None:
    bearer = [("authorization", f"Bearer {TOKENS[Role.OPERATOR]}")]
    code = (await world.post("/v1/session:link", {}, bearer)).json()["link"]
    world.clock.stall(LINK_US)

    assert (await world.post("/v1/session", {"link": code})).status == 401


async def test_only_the_latest_links_are_kept(world: World) -> None:
    bearer = [("authorization", f"Bearer {TOKENS[Role.OPERATOR]}")]
    codes = [(await world.post("/v1/session:link", {}, bearer)).json()["link"] for _ in range(65)]

    assert (await world.post("/v1/session", {"link": codes[0]})).status == 401
    assert (await world.post("/v1/session", {"link": codes[1]})).status == 200


async def test_a_session_makes_no_link(world: World) -> None:
    cookie = ("cookie", await log_in(world))

    assert (await world.post("/v1/session:link", {}, [cookie, SAME_ORIGIN])).status == 403


async def test_without_tokens_no_client_logs_in_and_everyone_is_an_admin() -> None:
    async with World() as world:
        me = (await world.get("/v1/me", [("cookie", "schedo=x.y")])).json()

        assert (me["access"], me["role"]) == ("open", "admin")
        assert set(me["operations"]) == {operation.name for operation in OPERATIONS}
        assert (await world.post("/v1/session", {"token": "x"})).status == 409
        assert (await world.post("/v1/session:link", {})).status == 409


async def test_without_a_login_the_server_says_only_that_there_is_none(world: World) -> None:
    me = (await world.get("/v1/me")).json()

    assert me["access"] == "none"
    assert me.keys() == {"access", "operations"}
    assert "create_session" in me["operations"]
    assert "list_jobs" not in me["operations"]


async def test_a_cookie_header_that_occurs_twice_is_refused(world: World) -> None:
    reply = await world.get("/v1/jobs", [("cookie", "a=b"), ("cookie", "c=d")])

    assert reply.status == 400


async def test_a_cookie_of_another_path_does_not_hide_the_session(world: World) -> None:
    cookie = await log_in(world)
    name = cookie.partition("=")[0]

    assert (await list_jobs(world, f"other=1; {name}=old.x; {cookie}")).status == 200


async def test_two_servers_on_one_host_have_cookies_of_two_names(world: World) -> None:
    """Browsers do not tell ports apart, so one name would log out from the other server."""
    async with World(SETTINGS) as other:
        mine, theirs = await log_in(world), await log_in(other)

        assert mine.partition("=")[0] != theirs.partition("=")[0]
        for server in (world, other):
            assert (await list_jobs(server, f"{mine}; {theirs}")).status == 200
            again = await log_in(server)
            assert again.partition("=")[0] in {mine.partition("=")[0], theirs.partition("=")[0]}


async def test_the_end_of_a_session_needs_none(world: World) -> None:
    reply = await world.send("DELETE", "/v1/session")

    assert (reply.status, "set-cookie" in reply.headers) == (204, False)
