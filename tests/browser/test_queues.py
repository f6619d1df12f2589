"""The screens of queues: pause with a note, and limits that are changed where they are shown."""

from __future__ import annotations

from playwright.async_api import expect

from tests.browser.conftest import Open
from tests.browser.shop import Shop

HOSTILE = "</span><script>alert(1)</script>"


async def test_a_limit_is_changed_by_keyboard_where_it_is_shown_and_put_back(
    open_page: Open, shop: Shop
) -> None:
    await shop.seed()
    page = await open_page("/queues")
    limit = page.get_by_role("button", name="concurrency of images")
    await limit.focus()
    await page.keyboard.press("Enter")
    await page.keyboard.press("Control+A")

    await page.keyboard.type("5")
    await page.keyboard.press("Enter")

    await expect(limit).to_have_text("5")
    await page.get_by_role("button", name="Undo").click()
    await expect(limit).to_have_text("2")


async def test_the_note_of_a_pause_is_only_text(open_page: Open, shop: Shop) -> None:
    await shop.seed()
    await shop.post("/v1/queues/images:pause", {"note": HOSTILE})
    page = await open_page("/queues")
    await expect(page.locator("tbody")).to_contain_text(HOSTILE)

    await page.get_by_role("button", name="Resume").click()

    await expect(page.locator("tbody")).not_to_contain_text(HOSTILE)
    await page.get_by_role("button", name="Undo").click()
    await expect(page.locator("tbody")).to_contain_text(HOSTILE)
