"""The frame around all screens: it loads, follows the server, and can be used by all."""

from __future__ import annotations

import asyncio
import contextlib
import re

from playwright.async_api import Page, Route, expect

from tests.browser.conftest import Axe, Open, intercept
from tests.browser.shop import Shop


async def be_live(page: Page) -> None:
    """Wait until the screen is there and follows the server."""
    await expect(page.locator("main h1")).to_be_attached()
    if "/login" not in page.url:
        await expect(page.locator(".connection")).to_have_text("live")


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
    # Counted from what was heard last, whatever was tried since then.
    await expect(page.locator(".connection small")).to_have_text(re.compile(r"^for ([2-9]\.|\d\d)"))
    await shop.start_again()

    await expect(page.locator(".connection")).to_have_text("live")


async def test_a_screen_that_is_opened_while_the_server_is_away_comes_with_the_server(
    open_page: Open, shop: Shop, axe: Axe
) -> None:
    await shop.seed()
    shop.expected += ["net::ERR", "Failed to load resource"]
    page = await open_page("/", bypass_csp=True)
    await be_live(page)
    await page.evaluate("document.documentElement.id = 'same'")
    await shop.hang_up()
    await expect(page.locator(".connection")).to_contain_text("reconnecting")

    await page.get_by_role("link", name="Workers", exact=True).click()
    await expect(page.get_by_role("alert")).to_contain_text("opens when it is back")
    await axe(page)
    await shop.start_again()

    await expect(page.get_by_role("link", name="eu-gpu-1")).to_be_visible()
    await expect(page.get_by_role("alert")).to_have_count(0)
    assert await page.locator("html#same").count() == 1


async def test_a_screen_whose_file_failed_once_comes_with_the_whole_page(
    open_page: Open, shop: Shop
) -> None:
    await shop.seed()
    shop.expected += ["net::ERR", "Failed to load resource"]
    page = await open_page("/")
    await be_live(page)
    failed: list[str] = []

    async def fail_once(route: Route) -> None:
        if failed:
            await route.continue_()
        else:
            failed.append(route.request.url)
            await route.abort()

    await intercept(page, "**/screens/workers.js", fail_once)

    await page.get_by_role("link", name="Workers", exact=True).click()

    await expect(page.get_by_role("link", name="eu-gpu-1")).to_be_visible()


async def test_what_is_opened_for_the_first_time_while_the_server_is_away_says_so(
    open_page: Open, shop: Shop
) -> None:
    shop.expected += ["net::ERR", "Failed to load resource"]
    page = await open_page("/")
    await be_live(page)
    await shop.hang_up()
    await expect(page.locator(".connection")).to_contain_text("reconnecting")

    await page.keyboard.press("?")
    await expect(page.locator(".toast")).to_contain_text("the server cannot be reached")
    await shop.start_again()
    await be_live(page)
    await page.keyboard.press("?")

    await expect(page.get_by_role("dialog")).to_contain_text("find, or do")


async def test_many_tabs_of_a_browser_share_one_stream(open_page: Open, shop: Shop) -> None:
    first = await open_page("/")
    tabs = [first, *[await first.context.new_page() for _ in range(11)]]
    await asyncio.gather(*(tab.goto(f"{shop.url}/") for tab in tabs[1:]))

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
    await expect(page.get_by_role("combobox")).to_be_focused()
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

    await page.goto(f"{shop.url}/")

    await be_live(page)


async def test_without_room_for_its_stream_a_page_asks_again_for_what_it_shows(
    open_page: Open, shop: Shop
) -> None:
    shop.expected += ["503"]
    job = (await shop.submit(task="send_email", delay="1h"))["id"]
    page = await open_page("/login")
    await page.add_init_script("delete window.SharedWorker")  # a route does not reach its requests
    await page.route("**/v1/events?*", lambda route: route.fulfill(status=503))
    await page.goto(f"{shop.url}/jobs/{job}")
    await expect(page.locator(".connection")).to_have_text("each 5 s")

    await shop.post(f"/v1/jobs/{job}:cancel")

    await expect(page.locator(".head .state")).to_have_text("cancelled")


async def test_an_unknown_address_says_so(open_page: Open, shop: Shop) -> None:
    shop.expected += ["404"]
    page = await open_page("/login/a/b/c")

    await expect(page.locator("h1")).to_have_text("There is nothing at /login/a/b/c")
    await page.get_by_role("link", name="Go to the overview").click()
    await expect(page).to_have_title("Overview · schedo")


# Options and the numbers in chips are data: each comes when its own answer does.
SETTLES_S = 20
LOOKS = """[...document.querySelectorAll('main :not(option, .chip .muted)')].map((each) => {
  const {display, alignItems, gap, width} = getComputedStyle(each);
  const fixed = each.closest('.chip') ? '' : width;
  return [each.tagName, each.className, display, alignItems, gap, fixed].join(' ');
}).join('\\n')"""


async def test_a_screen_looks_the_same_whatever_was_shown_before(
    open_page: Open, shop: Shop
) -> None:
    paths = ("/jobs?task=none", "/schedules?q=none", "/invoke", "/")

    async def look(page: Page) -> str:
        await expect(page.locator("main [aria-busy=true]")).to_have_count(0)
        return str(await page.evaluate(LOOKS))

    alone = {path: await open_page(path) for path in paths[:-1]}
    page = await open_page(paths[-1])
    await be_live(page)
    go = "path => (history.pushState(null, '', path), dispatchEvent(new PopStateEvent('popstate')))"
    for path in (*paths, *paths[:-1]):
        await page.evaluate(go, path)
        if path in alone:
            found, wanted = "", "not looked at"
            with contextlib.suppress(TimeoutError):  # each part of a screen comes with its data
                async with asyncio.timeout(SETTLES_S):
                    while found != wanted:
                        found, wanted = await look(page), await look(alone[path])
            assert found == wanted, path


async def test_on_a_narrow_window_the_links_of_the_bar_give_way(open_page: Open) -> None:
    page = await open_page("/login")
    for width in (1100, 900, 700):
        await page.set_viewport_size({"width": width, "height": 600})

        hidden = "(bar) => bar.scrollWidth - bar.clientWidth"
        assert await page.locator("header.top .seg").evaluate(hidden) == 0, width
