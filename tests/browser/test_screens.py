"""Every screen in every state, light and dark, wide and narrow: no barrier, no overflow.

A state has one server and one page, which goes from screen to screen as a user does, so a screen
costs what it draws and what axe looks at. Where only colours or the width have changed, axe looks
again only at what depends on them.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Literal

import pytest_asyncio
from playwright.async_api import Page, expect

from schedo.core.worker_pool import WorkerSpec
from schedo.protocol.roles import Role
from schedo.web.permissions import TokenPermission, digest
from schedo.web.settings import WebSettings
from tests.browser.conftest import Axe, Open
from tests.browser.shop import Shop, Shopkeeper
from tests.browser.test_frame import be_live

# Each screen by an address that the seeded shop fills; a new screen adds its line.
SCREENS = [
    *("/", "/lateness", "/lateness?window=24h", "/jobs", "/jobs?state=failed", "/jobs/ID"),
    *("/schedules", "/schedules/backup.nightly", "/schedules/backup.nightly/edit"),
    *("/schedules/-new", "/queues", "/queues/images", "/workers", "/workers/eu-gpu-1"),
    *(
        "/invoke?task=send_email",
        "/failures",
        "/stats",
        "/expectations",
        "/cluster",
        "/log",
        "/login",
    ),
]
# Those that read nothing at first, so nothing of them can fail or be gone.
STILL = {"/invoke?task=send_email", "/login", "/schedules/-new"}
# Names may have 128 characters, and nothing in them at which a line could break.
LONG = "W" * 128
LISTS = [path for path in SCREENS if path.count("/") == 1 and path != "/login"]
OF_LONG_NAMES = [f"/{kind}/{LONG}" for kind in ("queues", "schedules", "workers")]
OF_LONG_NAMES += [f"/schedules/{LONG}/edit", f"/stats?by=task&name={LONG}", "/jobs/ID"]
VIEWER = "the-token-of-a-viewer-0123456789"
COLOURS = ["color-contrast", "link-in-text-block"]
LAYOUT = [*COLOURS, "scrollable-region-focusable"]
# Pictures are drawn again for another width in one of the next frames.
_IS_DRAWN = (
    "[...document.querySelectorAll('.card > .body')].every(e => e.scrollWidth <= e.clientWidth)"
)
View = tuple[int, Literal["light", "dark"], list[str] | None]
WIDE_LIGHT: View = (1440, "light", None)
NARROW_DARK: View = (390, "dark", LAYOUT)
VIEWS = [WIDE_LIGHT, (1440, "dark", COLOURS), NARROW_DARK, (390, "light", COLOURS)]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def full() -> AsyncIterator[Shop]:
    """A full server, with what the others' table does not have."""
    async with Shop() as made:
        await made.seed()
        await made.put("/v1/expectations/nas", {"every": "1d", "within": "1h"})
        await made.post("/v1/schedules/backup.nightly:trigger", {})
        await made.engine.flush()
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def long_names(shop: Shop) -> Shop:
    """A server on which everything has the longest name."""
    worker = WorkerSpec(LONG, 8, frozenset({LONG}), labels={LONG: LONG})
    shop.engine.attach(worker, Shopkeeper(shop, error=LONG, failing=LONG))
    rule = {"task": LONG, "queue": LONG, "expect": {"within": "1h"}}
    for name, fires in ((LONG, {"every": "1s"}), (LONG[1:], {"cron": "0 * * * *"})):
        assert (await shop.put(f"/v1/schedules/{name}", {**rule, **fires})).status == 201
    await shop.put(f"/v1/expectations/{LONG}", {"every": "1d", "within": "1h"})
    await shop.engine.change_queue(LONG, concurrency=1)
    await shop.submit(task=LONG, queue="waiting." + LONG[:100], payload={LONG: LONG}, tags=[LONG])
    for _ in range(20):  # as many as the list shows
        run = (await shop.post(f"/v1/schedules/{LONG}:trigger", {"overlap": "allow"})).json()
        await shop.get(f"/v1/jobs/{run['job']}/wait?timeout=5s")
    await shop.submit(task=LONG, queue=LONG, payload={LONG: LONG}, tags=[LONG], unique=LONG)
    await shop.engine.flush()
    return shop


async def address(shop: Shop, path: str) -> str:
    """Return the path with the id of a job of the shop, or of none."""
    if "ID" not in path:
        return path
    jobs = (await shop.get("/v1/jobs?limit=1")).json()
    items = jobs.get("items") or [{"id": "0CR5KPDD15T00"}]
    return path.replace("ID", items[0]["id"])


async def visit(page: Page, path: str) -> None:
    """Open a screen in the page that is loaded, and wait until the screen shows its data."""
    await page.evaluate(
        "path => (history.pushState(null, '', path), dispatchEvent(new PopStateEvent('popstate')))",
        path,
    )
    await settle(page)


async def settle(page: Page) -> None:
    await expect(page.locator("main h1")).to_have_count(1)
    await expect(page.locator("main [aria-busy=true]")).to_have_count(0)


async def look(page: Page, axe: Axe, path: str, views: list[View]) -> None:
    """Check the screen in these themes and widths."""
    # Without a type, a button of a form sends it, whatever else a click on the button does.
    assert await page.locator("form button:not([type])").count() == 0, path
    for width, theme, rules in views:
        await page.set_viewport_size({"width": width, "height": 900})
        await page.emulate_media(color_scheme=theme)
        await page.wait_for_function(_IS_DRAWN, timeout=30_000)
        await axe(page, rules)
        assert await page.evaluate("document.documentElement.scrollWidth") <= width, path


async def test_a_full_screen_has_no_barrier(open_page: Open, full: Shop, axe: Axe) -> None:
    page = await open_page("/", bypass_csp=True, base_url=full.url)
    await be_live(page)
    for path in SCREENS:
        await visit(page, await address(full, path))
        await look(page, axe, path, VIEWS)


async def test_a_screen_breaks_no_policy(open_page: Open, full: Shop) -> None:
    """The other pages here bypass the content security policy, for axe."""
    page = await open_page("/", base_url=full.url)
    await be_live(page)
    for path in SCREENS:
        await visit(page, await address(full, path))


async def test_the_longest_names_fit_on_every_screen(open_page: Open, long_names: Shop) -> None:
    page = await open_page("/", bypass_csp=True)
    await be_live(page)
    for path in LISTS + OF_LONG_NAMES:
        await visit(page, await address(long_names, path))
        for width in (1440, 768, 390):
            await page.set_viewport_size({"width": width, "height": 900})
            await page.wait_for_function(_IS_DRAWN, timeout=30_000)
            assert await page.evaluate("document.documentElement.scrollWidth") <= width, path


async def test_nothing_of_a_list_is_beyond_its_edge_and_its_names_are_told_apart(
    open_page: Open, long_names: Shop
) -> None:
    far = {"cron": "0 0 29 2 *", "tz": "America/Argentina/ComodRivadavia", "task": LONG}
    await long_names.put("/v1/schedules/far", far)
    page = await open_page("/schedules")
    hidden = "(table) => table.scrollWidth - table.clientWidth"
    beyond: dict[tuple[str, int], int] = {}
    for path in ("/schedules", "/workers", "/queues", "/expectations"):
        await visit(page, path)
        for width in (1440, 1421, 1260, 1120, 1024, 920, 768, 660):
            await page.set_viewport_size({"width": width, "height": 900})
            beyond[path, width] = await page.locator("main .table").first.evaluate(hidden)
            box = await page.locator("td.name").first.bounding_box()
            assert box is not None
            assert box["width"] > 130, (path, width)
    assert {place: pixels for place, pixels in beyond.items() if pixels} == {}
    await visit(page, "/lateness")
    await page.set_viewport_size({"width": 390, "height": 844})
    assert await page.locator("main .table.dense").evaluate(hidden) == 0


async def test_what_can_be_copied_is_in_view_on_a_phone(open_page: Open, long_names: Shop) -> None:
    page = await open_page("/expectations", width=390)
    button = page.locator("td.acts").get_by_role("button", name="Copy as curl")
    await expect(button).to_have_attribute("title", re.compile(f"/{LONG}/beat'"))
    for path in ("/jobs", "/jobs/ID", f"/schedules/{LONG}"):
        await visit(page, await address(long_names, path))
        await page.locator(".menu summary").click()
        box = await page.locator(".menu > div").bounding_box()
        assert box is not None
        assert 0 <= box["x"] <= box["x"] + box["width"] <= 390, path


async def test_an_empty_screen_has_no_barrier(open_page: Open, shop: Shop, axe: Axe) -> None:
    shop.expected += ["404"]  # of what is not there
    page = await open_page("/", bypass_csp=True)
    await be_live(page)
    for path in SCREENS:
        await visit(page, await address(shop, path))
        await look(page, axe, path, VIEWS)


async def test_a_screen_that_cannot_be_read_says_so(
    open_page: Open, shop: Shop, full: Shop, axe: Axe
) -> None:
    shop.expected += ["500"]
    page = await open_page("/login", bypass_csp=True, base_url=full.url)
    problem = {"detail": "the disk failed", "code": "internal", "status": 500}
    await page.route(
        re.compile(r"/v1/(?!me|events|summary)"),
        lambda route: route.fulfill(status=500, json=problem),
    )
    await page.goto("/failures")
    for path in SCREENS:
        await visit(page, await address(full, path))
        if path not in STILL | {"/"}:
            await expect(page.locator("main")).to_contain_text("could not be read")
        await look(page, axe, path, VIEWS)


async def test_a_viewer_s_screen_has_no_barrier(open_page: Open, axe: Axe) -> None:
    viewer = TokenPermission(Role.VIEWER, "vera", hides_payloads=True)
    async with Shop() as guarded:
        await guarded.seed()
        job = await address(guarded, "/jobs/ID")
        guarded.app.use(WebSettings(tokens={digest(VIEWER): viewer}, anyone=None))
        page = await open_page("/docs", bypass_csp=True, base_url=guarded.url)
        assert (await page.request.post("/v1/session", data={"token": VIEWER})).ok
        await page.goto("/")
        await be_live(page)
        for path in SCREENS:
            await visit(page, job if "ID" in path else path)
            await look(page, axe, path, VIEWS)
        await page.close()


async def test_a_screen_stays_when_its_server_is_gone(
    open_page: Open, shop: Shop, axe: Axe
) -> None:
    await shop.seed()
    shop.expected += ["net::ERR", "Failed to load resource", "404"]
    page = await open_page("/", bypass_csp=True)
    for path in SCREENS:
        await be_live(page)
        await visit(page, await address(shop, path))
        if path == "/login":  # it says so when it has asked who the visitor is
            await expect(page.locator("main h1")).to_have_text("There is no login")
        text = await page.locator("main h1").inner_text()

        await shop.hang_up()

        if path != "/login":
            await expect(page.locator(".connection")).to_contain_text("reconnecting")
        assert await page.locator("main h1").inner_text() == text
        await look(page, axe, path, [WIDE_LIGHT, NARROW_DARK])
        await shop.start_again()
