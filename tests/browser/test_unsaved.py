"""The editor of a schedule is left while something typed is not saved."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import Dialog, Locator, Page, expect

from tests.browser.conftest import Axe, Open
from tests.browser.shop import Shop

# Goes back, and returns when the page has heard of it: after an Escape it would ask again.
GO_BACK = """() => new Promise((resolve) => {
    addEventListener('popstate', () => resolve(), { once: true });
    history.back();
})"""


async def open_editor(open_page: Open, shop: Shop) -> Page:
    """Come to an editor by a link, so that there is a way back."""
    await shop.seed()
    page = await open_page("/schedules/cache.warm", bypass_csp=True)
    await page.get_by_role("link", name="Edit", exact=True).click()
    await expect(page.locator("h1")).to_have_text("Edit cache.warm")
    return page


def question(page: Page) -> Locator:
    return page.get_by_role("dialog", name="Leave without saving?")


async def test_a_link_asks_before_it_leaves_what_is_not_saved(
    open_page: Open, shop: Shop, axe: Axe
) -> None:
    page = await open_editor(open_page, shop)
    every = page.get_by_label("Every")
    await every.fill("15m")
    queues = page.get_by_role("link", name="Queues")
    await queues.click()
    await expect(question(page)).to_contain_text("Your changes to cache.warm would be lost.")
    await axe(page)

    await page.get_by_role("button", name="Stay").click()

    await expect(question(page)).to_have_count(0)
    await expect(every).to_have_value("15m")
    assert page.url.endswith("/schedules/cache.warm/edit")
    await queues.click()
    await page.get_by_role("button", name="Leave").click()
    await expect(page.locator("h1")).to_have_text("Queues")
    await page.get_by_role("link", name="Workers").click()
    await expect(page.locator("h1")).to_have_text("Workers")


async def test_the_way_back_asks_and_leads_there_and_forward_again(
    open_page: Open, shop: Shop
) -> None:
    page = await open_editor(open_page, shop)
    every = page.get_by_label("Every")
    await every.fill("15m")
    await page.evaluate("history.back()")
    await expect(question(page)).to_be_visible()
    await page.evaluate(GO_BACK)  # who is impatient is asked once
    await page.keyboard.press("Escape")
    await expect(question(page)).to_have_count(0)
    await expect(every).to_have_value("15m")
    await expect(page).to_have_url(f"{shop.url}/schedules/cache.warm/edit")

    await page.evaluate("history.back()")
    await page.get_by_role("button", name="Leave").click()

    await expect(page.locator("h1")).to_have_text("cache.warm")
    await page.go_forward()
    await expect(every).to_have_value("30m")


async def test_a_key_and_the_palette_ask_too(open_page: Open, shop: Shop) -> None:
    page = await open_editor(open_page, shop)
    await page.get_by_label("Every").fill("15m")
    await page.locator("h1").click()
    await page.keyboard.type("gq")
    await expect(question(page)).to_be_visible()
    await page.keyboard.press("Enter")
    await expect(question(page)).to_have_count(0)
    await expect(page.locator("h1")).to_have_text("Edit cache.warm")

    await page.keyboard.press("Control+K")
    await page.get_by_role("combobox", name="Find, or do").fill("workers")
    await page.keyboard.press("Enter")

    await expect(question(page)).to_be_visible()
    await page.get_by_role("button", name="Leave").click()
    await expect(page.locator("h1")).to_have_text("Workers")


async def test_the_browser_asks_before_it_closes_the_tab(open_page: Open, shop: Shop) -> None:
    page = await open_editor(open_page, shop)
    asked: asyncio.Queue[Dialog] = asyncio.Queue()
    page.on("dialog", asked.put)
    await page.get_by_label("Every").press_sequentially("9")

    await page.close(run_before_unload=True)

    dialog = await asked.get()
    assert dialog.type == "beforeunload"
    await dialog.dismiss()
    await page.get_by_label("Every").fill("30m")
    async with page.expect_event("close"):
        await page.close(run_before_unload=True)
    assert asked.empty()


async def test_nothing_is_asked_where_nothing_has_changed(open_page: Open, shop: Shop) -> None:
    page = await open_editor(open_page, shop)
    await page.get_by_label("Every").fill("15m")
    await page.get_by_label("Every").fill("30m")

    await page.get_by_role("link", name="Go back").click()

    await expect(page.locator("h1")).to_have_text("cache.warm")
    await page.go_back()
    await page.get_by_label("Every").fill("15m")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator("h1")).to_have_text("cache.warm")
    await page.get_by_role("link", name="Queues").click()
    await expect(page.locator("h1")).to_have_text("Queues")


@pytest.mark.parametrize("query", ["", "?name=night", "?from=cache.warm"])
async def test_a_new_schedule_asks_only_for_what_was_typed(
    open_page: Open, shop: Shop, query: str
) -> None:
    await shop.seed()
    page = await open_page(f"/schedules/-new{query}")
    await expect(page.get_by_label("Name")).to_be_visible()
    await page.get_by_role("link", name="Queues").click()
    await expect(page.locator("h1")).to_have_text("Queues")
    await page.go_back()

    await page.get_by_label("Name").fill("cache.cold")
    await page.get_by_role("link", name="Queues").click()

    await expect(question(page)).to_contain_text("The new schedule would be lost.")
