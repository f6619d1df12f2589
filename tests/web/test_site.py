"""The page: its shell at each of its addresses, its files, and what protects a browser."""

from __future__ import annotations

import re
import zlib
from pathlib import Path

import pytest

from schedo.protocol.roles import ROLES
from schedo.web import site
from schedo.web.app import build_app
from schedo.web.settings import WebSettings
from tests.browser import vendoring
from tests.web.world import Browser, World, secured

UI = Path(site.__file__).parent / "ui"
OWN = sorted(path for path in UI.rglob("*.js") if path.parent.name != "vendor")


def files_of(shell: bytes) -> list[str]:
    return re.findall(r'(?:src|href)="(/ui/[^"]+)"', shell.decode())


@pytest.mark.parametrize("path", ["/", "/login", *(screen.path for screen in site.read_screens())])
@pytest.mark.parametrize("accept", ["text/html", "application/json", "*/*", ""])
async def test_each_address_of_a_screen_has_the_shell_whatever_is_accepted(
    world: World, path: str, accept: str
) -> None:
    reply = await world.get(path, [("accept", accept)])

    assert (reply.status, reply.headers["cache-control"]) == (200, "no-cache")
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    assert b'<div id="page">' in reply.body


async def test_the_page_needs_no_token_and_no_known_host() -> None:
    async with World(secured("t" * 32)) as world:
        for path in ("/", "/login", "/docs"):
            shell = await world.send("GET", path, host="any.example")
            assert shell.status == 200
            for file in files_of(shell.body):
                assert (await world.send("GET", file, host="any.example")).status == 200
        assert (await world.get("/v1/summary")).status == 401


@pytest.mark.parametrize("path", ["/", "/docs"])
async def test_a_shell_that_has_not_changed_is_not_sent_again(world: World, path: str) -> None:
    first = await world.get(path)

    again = await world.get(path, [("if-none-match", first.headers["etag"])])

    assert (again.status, again.body) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]


@pytest.mark.parametrize("path", ["/", "/docs"])
async def test_every_file_that_a_shell_names_is_there_and_kept_forever(
    world: World, path: str
) -> None:
    shell = await world.get(path)

    files = files_of(shell.body)
    for file in files:
        plain = await world.get(file)
        zipped = await world.get(file, [("accept-encoding", "br, gzip")])
        assert plain.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert plain.headers["vary"] == "accept-encoding"
        assert zipped.headers["content-encoding"] == "gzip"
        assert zlib.decompress(zipped.body, 31) == plain.body
    assert len(files) >= 2
    assert b"{" not in shell.body


async def test_the_page_forbids_code_that_is_not_a_file_of_its_own(world: World) -> None:
    for path in ("/", "/docs"):
        headers = (await world.get(path)).headers
        policy = headers["content-security-policy"].split("; ")
        assert policy[:3] == ["default-src 'none'", "script-src 'self'", "style-src 'self'"]
        assert "require-trusted-types-for 'script'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["cross-origin-opener-policy"] == "same-origin"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["x-content-type-options"] == "nosniff"


async def test_the_shell_names_all_modules_that_its_screen_needs_at_once(world: World) -> None:
    named = {file.split("/", 3)[3] for file in files_of((await world.get("/")).body)}

    assert {"app.js", "lib/base.js", "vendor/signals-core.js", "screens/overview.js"} <= named
    assert {"screens/overview/queues.js", "css/overview.css"} <= named
    assert not named & {"screens/login.js", "parts/palette.js", "stream_worker.js"}


async def test_the_shell_names_the_data_that_its_screen_reads_at_first(world: World) -> None:
    app = build_app(world.engine, WebSettings())
    app._router.default = site.Site("/schedo/")

    overview, jobs = [(await Browser(app).get(path)).body.decode() for path in ("/", "/jobs")]

    named = re.findall(
        r'<link rel="preload" as="fetch" crossorigin href="/schedo/([^"]+)">', overview
    )
    assert {"v1/summary", "v1/timeseries", "v1/fires", "v1/failures"} <= {*named}
    for path in named:
        assert (await world.get(f"/{path}")).status == 200
    assert 'preload" as' not in jobs


async def test_the_first_visit_is_small(world: World) -> None:
    gzip = [("accept-encoding", "gzip")]
    shell = await world.get("/", gzip)
    named = files_of(zlib.decompress(shell.body, 31))

    files = [await world.get(file, gzip) for file in {*named}]

    assert len(files) > 40
    assert sum(len(reply.body) for reply in (shell, *files)) <= 60_000


async def test_the_files_of_another_version_are_not_found(world: World) -> None:
    file = files_of((await world.get("/")).body)[0]
    hash_ = file.split("/")[2]

    other = await world.get(file.replace(hash_, "0" * 12))

    assert (other.status, other.headers["cache-control"]) == (404, "no-store")


@pytest.mark.parametrize(
    "name",
    ["", "index", "../app.py", "%2e%2e/app.py", "vendor/VENDOR.json", "vendor", "/app.js", "\0"],
)
async def test_no_other_file_is_served(world: World, name: str) -> None:
    hash_ = files_of((await world.get("/")).body)[0].split("/")[2]

    assert (await world.get(f"/ui/{hash_}/{name}")).status == 404
    assert (await world.get(f"/docs/{name}")).status == 404


@pytest.mark.parametrize("path", ["/", "/login", "/docs", "/ui/x/app.js"])
async def test_the_page_can_only_be_read(world: World, path: str) -> None:
    reply = await world.post(path, {})

    assert (reply.code, reply.headers["allow"]) == ("method-not-allowed", "GET, HEAD")


async def test_under_a_prefix_only_the_base_and_the_files_of_the_shell_change(world: World) -> None:
    app = build_app(world.engine, WebSettings())
    app._router.default = site.Site("/schedo/")

    shell = (await Browser(app).get("/login")).body

    assert b'<base href="/schedo/">' in shell
    assert set(re.findall(rb'(?:src|href)="(/[a-z]+)', shell)) == {b"/schedo"}


def test_every_screen_of_the_table_has_an_address_and_a_module() -> None:
    table = (UI / "screens.js").read_text(encoding="utf-8")

    screens = site.read_screens()
    assert len(screens) == table.count("path: ") == table.count("title: ")
    for screen in screens:
        assert (UI / screen.module).exists(), screen
        assert not screen.style or (UI / "css" / f"{screen.style}.css").exists(), screen
        assert f"style: '{screen.style}'" in table or not screen.style
    assert table.count("style: ") == sum(bool(screen.style) for screen in screens)
    assert table.count("reads: '") == sum(bool(screen.reads) for screen in screens)


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_modules_are_short_and_import_files_that_are_here(path: Path) -> None:
    text = path.read_text(encoding="utf-8")

    assert text.count("\n") <= 200
    for imported in re.findall(r"from '([^']+)'|import\('([^']+)'\)", text):
        assert (path.parent / "".join(imported)).exists(), imported
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|\beval\(|new Function|style=", text
    )


def test_the_page_offers_only_operations_that_exist() -> None:
    texts = [path.read_text(encoding="utf-8") for path in OWN if path.suffix == ".js"]
    asked = {
        name for text in texts for name in re.findall(r"(?:may\(|operation[=:] ?)['\"](\w+)", text)
    }

    assert {"put_schedule", "pause_queue", "retry_job"} <= asked
    assert asked <= ROLES.keys()


def test_the_vendored_libraries_are_those_of_their_lists() -> None:
    assert vendoring.find_differences() == []
