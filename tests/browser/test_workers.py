"""The screens of workers, and of what people did: what is shown of them, and what undoes it."""

from __future__ import annotations

from playwright.async_api import expect

from tests.browser.conftest import Axe, Open
from tests.browser.shop import Shop


async def test_a_cordon_is_undone_and_both_are_in_the_log(open_page: Open, shop: Shop) -> None:
    await shop.seed()
    page = await open_page("/workers")
    await expect(page.get_by_role("img", name="2 of 8 slots busy: 2 keep_busy")).to_be_visible()
    await page.get_by_role("button", name="Cordon", exact=True).focus()

    await page.keyboard.press("Enter")

    await expect(page.locator("tbody")).to_contain_text("cordoned")
    await page.get_by_role("button", name="Undo").click()
    await expect(page.locator("tbody")).not_to_contain_text("cordoned")
    await page.keyboard.press("g")
    await page.keyboard.press("h")
    await expect(page.locator("tbody tr").first).to_contain_text("uncordon worker")
    await page.get_by_role("button", name="uncordon worker").click()
    await expect(page).to_have_url(f"{shop.url}/log?action=uncordon_worker")


async def test_the_log_leads_to_what_was_changed(open_page: Open, shop: Shop) -> None:
    for name in ("nas", "crontab"):
        await shop.put(f"/v1/expectations/{name}", {"every": "1d", "within": "1h"})
    where = {"task": "later"}
    await shop.submit(**where, delay="1h")
    await shop.post("/v1/operations", {"action": "cancel", "where": where})
    page = await open_page("/log")

    await page.get_by_role("link", name="crontab").click()
    await expect(page.locator("tbody b")).to_have_text("crontab")
    await page.go_back()
    row = page.locator("tbody tr", has_text="operation")
    await row.get_by_role("link").click()

    await expect(page.locator(".operation")).to_contain_text("1 job was cancelled")


async def test_a_row_of_the_log_on_a_phone_has_two_lines(open_page: Open, shop: Shop) -> None:
    await shop.put("/v1/expectations/nas", {"every": "1d", "within": "1h"})
    page = await open_page("/log", width=390)

    row = await page.locator("tbody tr").bounding_box()

    assert row
    assert row["height"] <= 80


async def test_a_drain_says_how_many_jobs_it_waits_for(
    open_page: Open, shop: Shop, axe: Axe
) -> None:
    await shop.seed()
    page = await open_page("/workers/eu-gpu-1", bypass_csp=True)
    await expect(page.locator("tbody tr")).to_have_count(2)
    await axe(page)

    await page.get_by_role("button", name="Drain…").click()

    await expect(page.get_by_role("button", name="Drain after 2 jobs")).to_be_visible()
    await axe(page)
    await page.keyboard.press("Escape")
    assert (await shop.get("/v1/workers/eu-gpu-1")).json()["state"] == "active"


async def test_a_worker_that_left_is_no_error_of_the_page(open_page: Open, shop: Shop) -> None:
    shop.expected += ["404"]

    page = await open_page("/workers/gone")

    await expect(page.locator("main")).to_contain_text("No worker of this name is known")


async def test_what_is_overdue_comes_first_and_can_be_expected_no_longer(
    open_page: Open, shop: Shop
) -> None:
    shop.expected += ["404"]  # of the name that is free again
    for name, every in (("early", "1d"), ("soon", "1s")):
        await shop.put(f"/v1/expectations/{name}", {"every": every, "within": "1s"})
    await shop.engine.flush()
    page = await open_page("/expectations")
    await expect(page.locator("tbody tr")).to_have_count(2)
    await page.get_by_role("button", name="Delete…").first.click()
    name = await page.locator(".field b").inner_text()
    await page.get_by_label(f"Type {name}").fill(name)
    await page.get_by_role("button", name="Delete the expectation").click()
    await expect(page.locator("tbody tr")).to_have_count(1)

    await page.get_by_role("button", name="Undo").click()

    await expect(page.locator("tbody tr")).to_have_count(2)
