"""The screen of ended jobs: sums over hours and days, and those of one name by itself."""

from __future__ import annotations

import re
from urllib.parse import quote

from playwright.async_api import Page, expect

from schedo.core.worker_pool import WorkerSpec
from tests.browser.conftest import Open
from tests.browser.shop import GATEWAY, Shop, Shopkeeper

HOSTILE = "<img src=x onerror=alert(1)>"


async def end_jobs(shop: Shop, **counts: int) -> None:
    """Let this number of jobs of each task end; those of charge_card fail."""
    shop.engine.attach(WorkerSpec("hands", 8, frozenset(counts)), Shopkeeper(shop, GATEWAY))
    for task, count in counts.items():
        for _ in range(count):
            job = await shop.submit(task=task, queue=f"{task}s", retry={"max_attempts": 1})
            await shop.get(f"/v1/jobs/{job['id']}/wait?timeout=5s")
    await shop.engine.flush()


async def read_row(page: Page, name: str) -> list[str]:
    """Return what a row says: how many completed and failed, and the share of these."""
    cells = page.locator("tbody tr", has_text=name).locator("td.num")
    await expect(cells.first).to_be_visible()
    return (await cells.all_inner_texts())[:3]


async def test_a_task_that_fails_is_found_and_shown_by_itself(open_page: Open, shop: Shop) -> None:
    await end_jobs(shop, send_email=5, charge_card=2)
    page = await open_page("/stats")
    whole = "7 jobs ended in the last 7 days: 5 completed, 2 failed (28.57 %)."
    await expect(page.locator(".lead", has_text=whole)).to_be_visible()
    assert await read_row(page, "send_email") == ["5", "0", "\N{EN DASH}"]

    await page.get_by_role("button", name="Failed", exact=True).click()
    await expect(page.locator("tbody tr").first).to_contain_text("charge_card")
    await page.get_by_role("link", name="charge_card").click()

    only = "2 jobs ended in the last 7 days: 0 completed, 2 failed (100 %)."
    await expect(page.locator(".lead", has_text=only)).to_be_visible()
    await expect(page.locator("tbody tr")).to_have_count(2)  # the others stay in reach
    await page.reload()
    await expect(page.locator(".lead", has_text=only)).to_be_visible()
    await page.get_by_role("link", name="Its jobs").click()
    await expect(page).to_have_url(re.compile(r"/jobs\?task=charge_card$"))


async def test_the_figures_of_hours_are_a_table_for_those_who_cannot_see_them(
    open_page: Open, shop: Shop
) -> None:
    await end_jobs(shop, send_email=3)
    page = await open_page("/stats?by=queue&window=24h&name=send_emails")

    await page.get_by_role("button", name="Show as table").click()

    rows = page.get_by_role("group", name="Ended jobs of queue send_emails").locator("tbody tr")
    counts = [int(text) for text in await rows.locator("td:nth-child(2)").all_inner_texts()]
    assert len(counts) in (24, 25)
    assert sum(counts) == 3


async def test_a_queue_leads_to_what_ended_of_it(open_page: Open, shop: Shop) -> None:
    await end_jobs(shop, send_email=1)
    page = await open_page("/queues/send_emails")

    await page.get_by_role("link", name="Hours and days").click()

    await expect(page.get_by_role("heading", name="send_emails")).to_be_visible()
    await page.get_by_role("link", name="The queue").click()
    await expect(page).to_have_url(re.compile(r"/queues/send_emails$"))


async def test_a_hostile_address_is_only_text(open_page: Open) -> None:
    page = await open_page(f"/stats?by=queue&name={quote(HOSTILE)}&q={quote(HOSTILE)}")

    await expect(page.get_by_role("heading", name=HOSTILE)).to_be_visible()
    await expect(page.locator(".empty", has_text="No queue with this name")).to_be_visible()


async def test_the_list_of_jobs_counts_those_that_ended_in_a_day(
    open_page: Open, shop: Shop
) -> None:
    await end_jobs(shop, send_email=3, charge_card=1)
    await shop.submit(task="send_email", delay="1h")

    page = await open_page("/jobs?state=failed")

    states = page.get_by_role("group", name="States")
    for text in ("completed 3", "failed 1", "cancelled 0", "scheduled 1"):
        await expect(states.get_by_role("button", name=text)).to_be_visible()
    await states.get_by_role("link", name="ended: in the last 24 hours").click()
    await expect(page.get_by_role("heading", name="Ended jobs")).to_be_visible()
