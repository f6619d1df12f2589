"""The frame around all screens: it loads, follows the server, and can be used by all."""

from __future__ import annotations

import asyncio
import re

import pytest
from playwright.async_api import Page, expect

from tests.browser.conftest import Axe, Open
from tests.browser.shop import Shop

# Each screen by an address that the seeded shop fills; a new screen adds its line.
SCREENS = [
    *(
        "/",
        "/lateness",
        "/lateness?window=24h",
        "/login",
        "/schedules",
        "/queues",
        "/queues/images",
    ),
    *("/workers", "/expectations", "/log", "/jobs", "/failures", "/invoke?task=send_email"),
]


async def be_live(page: Page) -> None:
    """Wait until the screen is there and follows the server."""
    await expect(page.locator("main h1")).to_be_attached()
    if "/login" not in page.url:
        await expect(page.locator(".connection")).to_have_text("live")


@pytest.mark.parametrize("server", ["full", "empty"])
@pytest.mark.parametrize("path", SCREENS)
async def test_a_screen_has_no_barrier(
    open_page: Open, full_and_empty: dict[str, Shop], axe: Axe, path: str, server: str
) -> None:
    page = await open_page(path, bypass_csp=True, base_url=full_and_empty[server].url)
    await be_live(page)

    await axe(page)
    await page.set_viewport_size({"width": 390, "height": 844})
    await page.emulate_media(color_scheme="dark")
    await axe(page)


@pytest.mark.parametrize("path", SCREENS)
async def test_a_screen_fits_a_phone_and_says_nothing_on_the_console(
    open_page: Open, full_and_empty: dict[str, Shop], path: str
) -> None:
    page = await open_page(path, width=390, height=844, base_url=full_and_empty["full"].url)
    await be_live(page)

    assert await page.evaluate("document.documentElement.scrollWidth") <= 390
    assert await page.locator("h1").count() == 1


async def test_the_page_is_live_again_after_the_server_was_away(
    open_page: Open, shop: Shop, axe: Axe
) -> None:
    await shop.seed()
    shop.expected += ["net::ERR", "Failed to load resource"]
    page = await open_page("/", bypass_csp=True)
    await be_live(page)

    await shop.hang_up()
    await expect(page.locator(".connection")).to_contain_text("reconnecting")
    await axe(page)
    await shop.start_again()

    await expect(page.locator(".connection")).to_have_text("live", timeout=3_000)


async def test_many_tabs_of_a_browser_share_one_stream(open_page: Open, shop: Shop) -> None:
    first = await open_page("/")
    tabs = [first, *[await first.context.new_page() for _ in range(11)]]
    await asyncio.gather(*(tab.goto("/") for tab in tabs[1:]))

    for tab in tabs:
        await be_live(tab)

    hub = shop.app.context.events
    assert hub is not None
    async with asyncio.timeout(10):  # one that the browser has closed may still be open here
        while hub.streams != 1:
            await first.evaluate("1")


async def test_the_keys_reach_the_palette_the_help_and_the_theme(open_page: Open) -> None:
    page = await open_page("/")
    await be_live(page)

    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog")).to_contain_text("find, or do")
    await page.keyboard.press("Escape")
    await page.keyboard.press("t")
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    await page.keyboard.press("/")
    await page.keyboard.type("overv")
    await expect(page.get_by_role("option").first).to_have_text(re.compile("Overview"))
    await page.keyboard.press("Enter")

    await expect(page.get_by_role("dialog")).to_have_count(0)


async def test_the_choices_of_a_browser_are_kept(open_page: Open) -> None:
    page = await open_page("/")
    await page.get_by_role("button", name="UTC").click()
    await page.keyboard.press("t")

    await page.reload()

    await expect(page.get_by_role("button", name="UTC")).to_have_attribute("aria-pressed", "true")
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")


async def test_without_its_module_worker_a_page_has_a_stream_of_its_own(
    open_page: Open, shop: Shop
) -> None:
    page = await open_page("/login")
    await page.add_init_script("delete window.SharedWorker")

    await page.goto("/")

    await be_live(page)


async def test_an_unknown_address_says_so(open_page: Open, shop: Shop) -> None:
    shop.expected += ["404"]
    page = await open_page("/login/a/b/c")

    await expect(page.locator("h1")).to_have_text("There is nothing at /login/a/b/c")
    await page.get_by_role("link", name="Go to the overview").click()
    await expect(page).to_have_title("Overview · schedo")
