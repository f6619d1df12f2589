"""A screen that is left while a question is open or a reply is on its way."""

from __future__ import annotations

import asyncio

from playwright.async_api import Page, Route, expect

from tests.browser.conftest import Open, intercept, next_frame
from tests.browser.shop import Shop
from tests.browser.test_failures import fail

Requests = asyncio.Queue[Route]


async def hold(page: Page, path: str, method: str) -> Requests:
    """Let the requests with this method and end of their path wait for the test."""
    held: Requests = asyncio.Queue()

    async def take(route: Route) -> None:
        await (held.put(route) if route.request.method == method else route.continue_())

    await intercept(page, f"**{path}", take)
    return held


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


async def test_a_count_that_comes_late_asks_nothing_on_another_screen(
    open_page: Open, shop: Shop
) -> None:
    await fail(shop, "often", 2, "it broke")
    page = await open_page("/failures")
    counts = await hold(page, "/v1/operations", "POST")
    await page.get_by_role("button", name="Retry these…").click()
    count = await counts.get()
    await page.get_by_role("link", name="Queues").click()
    await expect(page.locator("h1")).to_have_text("Queues")

    async with page.expect_response("**/v1/operations"):
        await count.continue_()
    await next_frame(page)

    await expect(page.get_by_role("dialog")).to_have_count(0)


async def test_an_operation_that_begins_late_is_said_where_the_user_is(
    open_page: Open, shop: Shop
) -> None:
    await fail(shop, "often", 2, "it broke")
    page = await open_page("/failures")
    await page.get_by_role("button", name="Retry these…").click()
    sure = page.get_by_role("button", name="Retry 2 jobs")
    await expect(sure).to_be_visible()
    begun = await hold(page, "/v1/operations", "POST")
    await sure.click()
    answer = await begun.get()
    await page.get_by_role("link", name="Queues").click()
    await expect(page.locator("h1")).to_have_text("Queues")

    await answer.continue_()

    await page.locator(".toast").get_by_role("link", name="Retry 2 jobs").click()
    await expect(page.locator(".operation")).to_contain_text("2 jobs were retried")


async def test_a_schedule_that_is_saved_late_takes_nobody_back(open_page: Open, shop: Shop) -> None:
    await shop.seed()
    page = await open_page("/schedules/cache.warm/edit")
    await page.get_by_label("Every").fill("15m")
    saved = await hold(page, "/v1/schedules/cache.warm", "PUT")
    await page.get_by_role("button", name="Save").click()
    answer = await saved.get()
    await page.get_by_role("link", name="Queues").click()

    await answer.continue_()

    await expect(page.locator(".toast")).to_contain_text("cache.warm is changed.")
    await expect(page.locator("h1")).to_have_text("Queues")


async def test_a_schedule_that_is_deleted_late_takes_nobody_back(
    open_page: Open, shop: Shop
) -> None:
    await shop.seed()
    page = await open_page("/schedules/cache.warm")
    await page.get_by_role("button", name="Delete…").click()
    await page.get_by_label("Type cache.warm").fill("cache.warm")
    deleted = await hold(page, "/v1/schedules/cache.warm", "DELETE")
    await page.get_by_role("button", name="Delete the schedule").click()
    answer = await deleted.get()
    await page.get_by_role("link", name="Queues").click()

    await answer.continue_()

    await expect(page.locator(".toast")).to_contain_text("cache.warm is deleted.")
    await expect(page.locator("h1")).to_have_text("Queues")


async def test_jobs_that_are_deleted_late_lead_nobody_back_to_the_first_page(
    open_page: Open, shop: Shop
) -> None:
    for _ in range(101):
        job = await shop.submit(task="later", delay="1h")
        await shop.post(f"/v1/jobs/{job['id']}:cancel")
    page = await open_page("/jobs?task=later")
    following = page.get_by_role("button", name="Next page")
    await following.click()
    await expect(page.get_by_role("button", name="First page")).to_be_enabled()
    await page.locator("tbody").get_by_role("checkbox").first.check()
    await page.get_by_role("button", name="Delete", exact=True).click()
    deleted = await hold(page, "/v1/jobs/*", "DELETE")
    await page.get_by_role("button", name="Delete 1 job").click()
    reply = await deleted.get()
    await following.click()
    await expect(page.locator("tbody tr")).to_have_count(1)

    await reply.continue_()

    await expect(page.locator(".toast")).to_contain_text("1 job was deleted.")
    await expect(page.locator("tbody tr")).to_have_count(1)
    assert "cursor=" in page.url
