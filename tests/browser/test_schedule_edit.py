"""Changing a schedule and making one: nothing is saved before it is shown what changes."""

from __future__ import annotations

from playwright.async_api import expect

from tests.browser.conftest import Axe, Open
from tests.browser.shop import Shop


async def test_a_changed_rule_is_explained_and_shown_as_a_difference_before_it_is_saved(
    open_page: Open, shop: Shop, axe: Axe
) -> None:
    await shop.seed()
    page = await open_page("/schedules/backup.nightly/edit", bypass_csp=True)
    await expect(page.get_by_role("button", name="Save")).to_be_disabled()

    await page.get_by_label("Cron").fill("0 5 * * *")

    await expect(page.locator("main")).to_contain_text("At 05:00 every day")
    await expect(page.locator(".changes")).to_contain_text("30 2 * * *")
    await axe(page)
    assert (await shop.get("/v1/schedules/backup.nightly")).json()["cron"] == "30 2 * * *"
    await page.keyboard.press("Enter")
    await expect(page.locator("h1")).to_have_text("backup.nightly")
    assert (await shop.get("/v1/schedules/backup.nightly")).json()["cron"] == "0 5 * * *"
    await page.get_by_role("button", name="Undo").click()
    await expect(page.locator(".head code")).to_have_text("30 2 * * *")


async def test_a_new_schedule_never_replaces_one(open_page: Open, shop: Shop) -> None:
    shop.expected += ["404"]  # of the name that is still free
    await shop.seed()
    page = await open_page("/schedules/new")
    await page.get_by_label("Name").fill("cache.warm")
    await page.get_by_label("Cron").fill("H 3 * * *")
    await page.get_by_label("Task").fill("warm")

    await page.get_by_role("button", name="Make it").click()

    await expect(page.get_by_role("alert")).to_contain_text("There is a schedule of this name")
    await page.get_by_label("Name").fill("cache.cold")
    await page.get_by_role("button", name="Make it").click()
    await expect(page.locator("h1")).to_have_text("cache.cold")
    assert (await shop.get("/v1/schedules/cache.warm")).json()["every"] == "30m"


async def test_a_wrong_rule_is_told_beside_it(open_page: Open, shop: Shop) -> None:
    shop.expected += ["422"]
    await shop.seed()
    page = await open_page("/schedules/cache.warm/edit")

    await page.get_by_label("Every").fill("often")
    await page.get_by_role("button", name="Save").click()

    await expect(page.locator(".field.wrong")).to_contain_text("Every")
    assert (await shop.get("/v1/schedules/cache.warm")).json()["every"] == "30m"
