"""A screen that is left while a question is open or a reply is on its way."""

from __future__ import annotations

from playwright.async_api import expect

from tests.browser.conftest import Open
from tests.browser.shop import Shop


async def test_the_way_back_leaves_no_question_about_what_was_shown_before(
    open_page: Open, shop: Shop
) -> None:
    await shop.seed()
    page = await open_page("/jobs?state=running")
    await page.locator("tbody a").first.click()
    ident = await page.locator("h1.id").text_content()
    await page.get_by_role("button", name="Cancel…").click()
    await expect(page.get_by_role("dialog")).to_be_visible()

    await page.go_back()

    await expect(page.locator("h1")).to_have_text("Jobs")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    assert (await shop.get(f"/v1/jobs/{ident}")).json()["state"] == "running"
