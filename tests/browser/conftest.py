"""A real browser for the page: one Chromium for all tests, a fresh context for each.

The server runs in the same event loop as the tests, so a test can change anything on it. A page
fails its test by any message on the console and any error: the policy reports there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import (
    Browser,
    BrowserContext,
    Page,
    ViewportSize,
    async_playwright,
    expect,
)

from tests.browser.chromium import CHROMIUM, OPTIONS
from tests.browser.shop import Shop

Open = Callable[..., Awaitable[Page]]
expect.set_options(timeout=15_000)  # a shared machine can be slow
_NO_BROWSER = "there is no Chromium: apt-get install chromium, or name one in SCHEDO_CHROMIUM"
_AXE = Path(__file__).parent / "vendor" / "axe.js"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run these tests in one event loop, or skip them loudly."""
    here = Path(__file__).parent
    for item in items:
        if here not in item.path.parents:
            continue
        item.add_marker(pytest.mark.browser)
        item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
        if CHROMIUM is None:
            item.add_marker(pytest.mark.skip(reason=_NO_BROWSER))


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


@pytest_asyncio.fixture(loop_scope="session")
async def open_page(chromium: Browser, shop: Shop) -> AsyncIterator[Open]:
    """Return a function that opens an address of the page in a context of its own."""
    contexts: list[BrowserContext] = []
    heard: list[str] = []

    async def open_(path: str = "/", width: int = 1440, height: int = 900, **options: Any) -> Page:
        size = ViewportSize(width=width, height=height)
        defaults = {
            "base_url": shop.url,
            "reduced_motion": "reduce",
            "timezone_id": "Europe/Paris",
            "locale": "en-GB",
        }
        context = await chromium.new_context(viewport=size, **{**defaults, **options})
        contexts.append(context)
        page = await context.new_page()
        page.on("console", lambda message: heard.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: heard.append(f"error: {error}"))
        await page.goto(path)
        return page

    yield open_
    for context in contexts:
        await context.close()
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
