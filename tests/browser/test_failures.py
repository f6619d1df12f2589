"""What fails, in groups: how much lately, in which order, and a retry of the jobs of a group."""

from __future__ import annotations

import asyncio
import re

import pytest
from playwright.async_api import Route, expect

from schedo.core.failure_groups import FailureGroups
from schedo.core.model import Failure
from schedo.core.outcomes import NEXT_RUN_FIRST, PAST_UNTIL, FailedAttempt
from schedo.core.states import State
from schedo.core.worker_pool import WorkerSpec
from tests.browser.conftest import Axe, Open, intercept, next_frame
from tests.browser.shop import Shop, Shopkeeper

HOSTILE = "<img src=x onerror=alert(1)>\x1b[31mred\x1b[0m order 9781"


async def fail(shop: Shop, task: str, jobs: int, error: str) -> None:
    """Let jobs of a task fail, each by one attempt without a retry; then the worker leaves."""
    shop.engine.attach(WorkerSpec(task, 8, frozenset({task})), Shopkeeper(shop, error, task))
    for _ in range(jobs):
        job = await shop.submit(task=task, retry=1)
        await shop.get(f"/v1/jobs/{job['id']}/wait?timeout=5s")
    shop.engine.detach(task, "it was switched off")


async def test_groups_show_the_last_hour_and_are_sorted_by_what_is_asked_for(
    open_page: Open, shop: Shop, axe: Axe
) -> None:
    await fail(shop, "often", 3, "gateway 1 answered 502")
    await fail(shop, "lately", 1, HOSTILE)
    page = await open_page("/failures", bypass_csp=True)
    tasks = page.locator("tbody td:first-child")
    await expect(tasks).to_have_text(["lately", "often"])

    await page.get_by_role("button", name="Attempts").click()

    await expect(tasks).to_have_text(["often", "lately"])
    await expect(page).to_have_url(re.compile("sort=attempts"))
    hour = page.get_by_role("img", name="3 failed attempts in the last hour")
    await expect(hour).to_be_visible()
    await expect(page.locator("#groups")).to_have_text("2 groups")
    await expect(page.get_by_text("<img src=x onerror=alert(#)>red order #")).to_be_visible()
    assert await page.locator("main img:not(svg)").count() == 0
    await axe(page)


async def test_a_group_that_fails_again_is_shown_so_without_a_reload(
    open_page: Open, shop: Shop
) -> None:
    page = await open_page("/failures")
    await expect(page.get_by_text("No attempt has failed since")).to_be_visible()
    await expect(page.locator(".connection")).to_have_text("live")

    await fail(shop, "lately", 1, "it broke")

    await expect(page.locator("tbody tr")).to_contain_text("it broke")


async def test_the_jobs_of_a_group_are_retried_together(open_page: Open, shop: Shop) -> None:
    await fail(shop, "often", 3, "gateway 1 answered 502")
    await fail(shop, "other", 1, "gateway 1 answered 502")
    page = await open_page("/failures?q=often")

    await page.get_by_role("button", name="Retry these…").click()
    question = page.get_by_role("dialog")
    await expect(question).to_contain_text("3 match now")
    await question.get_by_role("button", name="Retry 3 jobs").click()

    await expect(page.locator(".operation")).to_contain_text("3 jobs were retried")
    left = (await shop.get("/v1/jobs?state=failed")).json()["items"]
    assert [job["task"] for job in left] == ["other"]


@pytest.mark.parametrize("error", [HOSTILE, "no order\u202e 9781", "order\t\x1b]0;title\x07gone"])
async def test_the_jobs_of_a_group_are_found_whatever_their_message_hides(
    open_page: Open, shop: Shop, error: str
) -> None:
    await fail(shop, "often", 2, error)
    page = await open_page("/failures")

    await page.get_by_role("button", name="Retry these…").click()

    await expect(page.get_by_role("dialog")).to_contain_text("2 match now")
    await page.keyboard.press("Escape")
    await page.get_by_role("link", name="often").click()
    await expect(page.locator("tbody tr")).to_have_count(2)


@pytest.mark.parametrize(
    ("own", "other"),
    [
        ("user 9781 has no address", "order 9781 has no address"),
        ("it broke", "it broke again"),
        ("0CR6HNYEM0YGF has no address", "Köln-2026-11-20 has no address"),
    ],
)
async def test_a_retry_of_a_group_leaves_alone_those_that_share_words_with_it(
    open_page: Open, shop: Shop, own: str, other: str
) -> None:
    await fail(shop, "often", 1, other)
    await fail(shop, "often", 2, own)
    page = await open_page("/failures")

    await page.get_by_role("button", name="Retry these…").first.click()
    question = page.get_by_role("dialog")
    await expect(question).to_contain_text("1 other failed job has the same words in the error")
    await question.get_by_role("button", name="Retry 2 jobs").click()

    await expect(page.locator(".toast")).to_contain_text("2 jobs were retried.")
    left = (await shop.get("/v1/jobs?state=failed")).json()["items"]
    assert [job["error"]["message"] for job in left] == [other]
    await page.get_by_role("button", name="Undo").click()
    await expect(page.locator(".toast")).to_contain_text("Taken back.")


async def test_a_retry_of_more_jobs_than_are_looked_at_says_whom_it_may_catch(
    open_page: Open, shop: Shop
) -> None:
    await fail(shop, "often", 2, "it broke")
    page = await open_page("/failures")
    endless = {"items": [], "next_cursor": "more"}
    await intercept(page, "**/v1/jobs?**", lambda route: route.fulfill(json=endless))

    await page.get_by_role("button", name="Retry these…").click()

    question = page.get_by_role("dialog")
    await expect(question).to_contain_text("2 match now")
    await expect(question).to_contain_text("too many to leave out those of other groups")


MESSAGES = [
    "order 9781 of 0CR6HNYEM0YGF is gone",
    "3f2504e0-4f89-11d3-9a0c-0305e82c3301 timed out after 2.5 s\nsecond line 7",
    "é12345678 -12345678 12345678é _12345678_ --a1b2c3d4-- ab-1 a1b2c3d 1,234 ½ ²",
    "\U0001f600" * 299 + "12",
    f"no route to host 7{NEXT_RUN_FIRST}",
    f"no route to host 7{PAST_UNTIL}",
    "\x1b[31mred\x1b[0m order 9781",
    "",
]
ALL_OF_THEM = """async (failures) => {
  const app = document.querySelector('script[src$="/app.js"]').src;
  const { isOf } = await import(app.replace('app.js', 'lib/failure_groups.js'));
  return failures.filter(([group, job]) => !isOf(group, job)).map(([group]) => group.message);
}"""


async def test_the_page_has_the_rule_of_the_server_for_what_is_of_a_group(open_page: Open) -> None:
    failures = []
    for message in MESSAGES:
        groups = FailureGroups()
        failure = Failure("boom", message, exit_code=3)
        failed = FailedAttempt(1, "t", 1, "failed", failure, 1, 1, State.FAILED, 0, None)
        groups.note(failed, 10)
        [group] = groups.latest()
        error = {"type": "boom", "message": message, "exit_code": 3}
        failures.append((group.key._asdict(), {"task": "t", "error": error}))
    page = await open_page("/failures")

    assert await page.evaluate(ALL_OF_THEM, failures) == []


async def test_a_question_is_not_replaced_by_another_while_it_is_read(
    open_page: Open, shop: Shop
) -> None:
    await fail(shop, "first", 1, "it broke")
    await fail(shop, "second", 1, "it broke")
    page = await open_page("/failures")
    counts: asyncio.Queue[Route] = asyncio.Queue()
    await intercept(page, "**/v1/operations", counts.put)
    for task in ("first", "second"):
        await page.get_by_role("button", name=f"Retry these… {task}").click()
    first, second = await counts.get(), await counts.get()
    await second.continue_()
    sample = page.locator("dialog .sample")
    await expect(sample).to_contain_text("second")

    async with page.expect_response("**/v1/operations"):
        await first.continue_()
    await next_frame(page)

    await expect(sample).to_contain_text("second")
    await page.keyboard.press("Escape")
    await expect(sample).to_contain_text("first")
    await page.keyboard.press("Escape")
    await expect(page.locator("dialog")).to_have_count(0)
    await expect(page.locator("[aria-busy=true]")).to_have_count(0)
