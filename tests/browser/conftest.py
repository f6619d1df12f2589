"""A real browser for the page: one Chromium for all tests, and a tab for each.

The server runs in the same event loop as the tests, so a test can change anything on it. A page
fails its test by any message on the console and any error: the policy reports there.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import (
    Browser,
    BrowserContext,
    Page,
    Route,
    ViewportSize,
    async_playwright,
    expect,
)

from tests.browser.chromium import CHROMIUM, OPTIONS
from tests.browser.shop import Shop

Open = Callable[..., Awaitable[Page]]
# A shared machine can be slow: these end what hangs, and say nothing about how long anything takes.
expect.set_options(timeout=30_000)
_HANGS_S = 240
_NO_BROWSER = (
    "there is no Chromium: apt-get install chromium-headless-shell, or name one in SCHEDO_CHROMIUM"
)
_AXE = Path(__file__).parent / "vendor" / "axe.js"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run these tests in one event loop, or skip them loudly."""
    here = Path(__file__).parent
    for item in items:
        if here not in item.path.parents:
            continue
        item.add_marker(pytest.mark.browser)
        item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_HANGS_S))
            assert isinstance(item, pytest.Function)
            item.obj = _end_what_hangs(item.obj)
        if CHROMIUM is None:
            item.add_marker(pytest.mark.skip(reason=_NO_BROWSER))


def _end_what_hangs(test: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """End a test a little before pytest-timeout would.

    That one interrupts the event loop, so its traceback does not name the line that waits.
    """

    @functools.wraps(test)
    async def ended(*args: Any, **kwargs: Any) -> None:
        async with asyncio.timeout(_HANGS_S - 30):
            await test(*args, **kwargs)

    return ended


async def next_frame(page: Page) -> None:
    """Wait until the page has drawn its last change, or for 100 ms if the browser hides it.

    A tab that is not drawn has no frames; the page itself waits for 35 ms at most, too.
    """
    await page.evaluate(
        "new Promise((go) => { requestAnimationFrame(go); setTimeout(go, 100); })",
    )


async def intercept(page: Page, url: str, handler: Callable[[Route], Any]) -> None:
    """Let the test answer requests of a page that is open.

    `page.route` returns before a busy browser hands the requests over, so this waits for one.
    """
    await page.route(url, handler)
    await page.route("**/healthz", lambda route: route.fulfill(body="intercepted"))
    while await page.evaluate("fetch('/healthz').then((it) => it.text())") != "intercepted":
        pass
    await page.unroute("**/healthz")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say in the last lines that the browser was missing: a skipped test is easy to overlook."""
    skipped = terminalreporter.stats.get("skipped", [])
    if any(_NO_BROWSER in str(report.longrepr) for report in skipped):
        terminalreporter.write_line(f"The page was NOT tested: {_NO_BROWSER}", red=True)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def chromium() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="session")
async def shop() -> AsyncIterator[Shop]:
    """A server on a free port, with nothing in its store."""
    async with Shop() as made:
        yield made


class Windows:
    """The windows of the tests: a tab in a window that is open costs half of a new window.

    Tests that want the same share one. Each has its own server, so its own origin.
    """

    def __init__(self, chromium: Browser) -> None:
        self._chromium = chromium
        self._shared: dict[bool, BrowserContext] = {}

    async def open(self, **options: Any) -> BrowserContext:
        """Open a window of its own."""
        defaults = {"reduced_motion": "reduce", "timezone_id": "Europe/Paris", "locale": "en-GB"}
        return await self._chromium.new_context(**{**defaults, **options})

    async def share(self, bypass_csp: bool) -> BrowserContext:
        """Return the window of all tests that want nothing special; none closes its first tab."""
        if bypass_csp not in self._shared:
            self._shared[bypass_csp] = await self.open(bypass_csp=bypass_csp)
            await self._shared[bypass_csp].new_page()
        return self._shared[bypass_csp]

    async def tidy(self, url: str) -> None:
        """Close all tabs of the test that ends, and forget what its server had in the browser."""
        for context in self._shared.values():
            first, *others = context.pages
            for page in others:
                await page.close()
            await context.clear_cookies()
            session = await context.new_cdp_session(first)
            stored = {"origin": url, "storageTypes": "all"}
            await session.send("Storage.clearDataForOrigin", stored)
            await session.detach()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def windows(chromium: Browser) -> Windows:
    return Windows(chromium)


@pytest_asyncio.fixture(loop_scope="session")
async def open_page(windows: Windows, shop: Shop) -> AsyncIterator[Open]:
    """Return a function that opens an address of the page, in a window of its own if it has to."""
    own: list[BrowserContext] = []
    heard: list[str] = []

    async def open_(
        path: str = "/", width: int = 1440, height: int = 900, base_url: str = "", **options: Any
    ) -> Page:
        """Open a path of the shop.

        base_url: of another server; options: of a browser context. Except for bypass_csp, each of
        these needs a window of its own.
        """
        url, size = base_url or shop.url, ViewportSize(width=width, height=height)
        if base_url or options.keys() - {"bypass_csp"}:
            context = await windows.open(viewport=size, base_url=url, **options)
            own.append(context)
        else:
            context = await windows.share(options.get("bypass_csp", False))
        page = await context.new_page()
        await page.set_viewport_size(size)
        page.on("console", lambda message: heard.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: heard.append(f"error: {error}"))
        await page.goto(url + path)
        return page

    yield open_
    for context in own:
        await context.close()
    await windows.tidy(shop.url)
    expected = shop.expected
    assert [line for line in heard if not any(part in line for part in expected)] == []


Axe = Callable[..., Awaitable[None]]


@pytest.fixture
def axe() -> Axe:
    """Return a check that a page has no barrier that axe finds.

    axe makes functions from texts, which the policy of the page forbids: open the page with
    bypass_csp=True.
    """

    async def check(page: Page, rules: list[str] | None = None) -> None:
        """rules: the only ones to look at."""
        if not await page.evaluate("'axe' in window"):
            await page.evaluate(_AXE.read_text(encoding="utf-8"))
        options = {"resultTypes": ["violations"], **({"runOnly": rules} if rules else {})}
        found = await page.evaluate("options => axe.run(options)", options)
        findings = [
            f"{violation['id']}: {node['target']} {node['failureSummary']}"
            for violation in found["violations"]
            for node in violation["nodes"]
        ]
        assert not findings, "\n".join(findings)

    return check
