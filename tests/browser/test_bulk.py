"""Operations on thousands of jobs from the page, while the server goes on with its work."""

from __future__ import annotations

import asyncio

from playwright.async_api import Locator, Page, expect

from schedo.core.leases import Lease
from schedo.core.limits import HOUR
from schedo.core.model import ONCE, Job, JobSpec, Options
from schedo.core.states import State
from schedo.core.worker_pool import WorkerSpec
from schedo.engine.call_results import Accepted
from schedo.errors import SchedoError
from tests.browser.conftest import Open
from tests.browser.shop import Shop, Shopkeeper
from tests.browser.test_login import BEARER, TOKEN, secure

FAILED = 5_000
STARTED = 10
QUEUES = ("payments", "live")
TASKS = frozenset({"charge_card"})


class Holder(Shopkeeper):
    """A worker whose jobs go on."""

    def start(self, lease: Lease) -> None:
        """It never ends."""


def spec(queue: str) -> JobSpec:
    return JobSpec(task="charge_card", queue=queue, options=Options(retry=ONCE))


async def fail(shop: Shop, queue: str, jobs: int) -> list[int]:
    """Let jobs fail without a retry; return their ids."""
    made: list[Accepted[Job] | SchedoError] = await shop.engine.submit([spec(queue)] * jobs)
    idents = [each.job.id for each in made if isinstance(each, Accepted)]
    assert len(idents) == jobs
    for ident in idents:
        assert (await shop.engine.wait(ident, 60)).state is State.FAILED
    return idents


async def fail_on(shop: Shop, begun: asyncio.Event) -> list[int]:
    """Let jobs of another queue fail, one after the other, until it is cancelled."""
    idents = []
    try:
        while True:
            idents += await fail(shop, "live", 1)
            begun.set()
    except asyncio.CancelledError:
        return idents


async def log_in(page: Page, shop: Shop) -> None:
    secure(shop)
    await page.reload()
    await page.get_by_label("Token").fill(TOKEN)
    await page.get_by_role("button", name="Log in").click()


async def count(shop: Shop, idents: list[int]) -> dict[str, int]:
    """Return how many of the jobs are in each state."""
    found: dict[str, int] = {}
    for ident in idents:
        state = (await shop.engine.get(ident)).state.value
        found[state] = found.get(state, 0) + 1
    return found


async def plan_retry(page: Page) -> Locator:
    """Ask for a retry of all that match; return the question."""
    await page.get_by_role("checkbox", name="Select all rows").check()
    await page.get_by_role("button", name="All that match").click()
    await page.get_by_role("button", name="Retry…").click()
    question = page.get_by_role("dialog")
    await expect(question).to_contain_text("5,000 match now")
    return question


async def start_some(shop: Shop) -> None:
    """Let a worker start STARTED of the retried jobs, which go on."""
    for queue in QUEUES:
        shop.engine.detach(queue, "it was switched off")
    shop.engine.attach(WorkerSpec("holder", STARTED, TASKS), Holder(shop))
    await shop.engine.resume_queue("payments")
    await shop.engine.flush()


async def test_thousands_of_failed_jobs_are_retried_while_others_fail_and_put_back(
    open_page: Open, shop: Shop
) -> None:
    for queue in QUEUES:
        shop.engine.attach(WorkerSpec(queue, 50, TASKS, frozenset({queue})), Shopkeeper(shop))
    planned = await fail(shop, "payments", FAILED)
    await shop.engine.pause_queue("payments")
    page = await open_page("/jobs?task=charge_card&state=failed")
    await log_in(page, shop)

    question = await plan_retry(page)
    begun = asyncio.Event()
    others = asyncio.create_task(fail_on(shop, begun))
    await begun.wait()
    sure = question.get_by_role("button", name="Retry 5,000 jobs")
    await expect(sure).to_be_disabled()
    await question.get_by_role("textbox").fill(str(FAILED))
    await sure.click()

    operation = page.locator(".operation")
    await expect(operation.get_by_role("progressbar")).to_be_visible()
    await expect(operation).to_contain_text("5,000 jobs were retried.")
    others.cancel()
    left_alone = await others
    assert await count(shop, planned) == {"queued": FAILED}
    assert await count(shop, left_alone) == {"failed": len(left_alone)}
    [row, *_] = (await shop.get("/v1/log", BEARER)).json()["items"]
    assert (row["who"], row["action"]) == ("ada", "create_operation")

    await start_some(shop)
    await operation.get_by_role("button", name="Undo").click()

    await expect(operation).to_contain_text("4,990 jobs were put back, 10 skipped.")
    assert await count(shop, planned) == {"running": STARTED, "failed": FAILED - STARTED}


async def test_what_was_done_to_selected_jobs_is_taken_back(open_page: Open, shop: Shop) -> None:
    jobs = [await shop.submit(task="later", delay=delay) for delay in ("1h", "2h")]
    page = await open_page("/jobs?task=later")

    await page.get_by_role("checkbox", name="Select all rows").check()
    await page.get_by_role("button", name="Cancel", exact=True).click()
    await expect(page.locator("tbody .state", has_text="cancelled")).to_have_count(2)
    curl = page.get_by_role("button", name="Copy as curl")
    sent = await curl.get_attribute("title") or ""
    assert sorted(sent.splitlines()) == [
        f"curl -X POST '{shop.url}/v1/jobs/{job['id']}:cancel'" for job in jobs
    ]
    await page.get_by_role("button", name="Undo").click()

    await expect(page.locator("tbody .state", has_text="scheduled")).to_have_count(2)
    for job in jobs:
        again = (await shop.get(f"/v1/jobs/{job['id']}")).json()
        assert again["scheduled_at"] == job["scheduled_at"]


async def test_all_that_match_are_chosen_for_what_is_seen_and_not_again_later(
    open_page: Open, shop: Shop
) -> None:
    for task in ("later", "other"):
        await shop.engine.submit([JobSpec(task=task, delay_us=HOUR)] * 60)
    await shop.engine.flush()
    page = await open_page("/jobs?task=later")
    rows = page.get_by_role("checkbox", name="Select all rows")
    everything = page.get_by_role("button", name="All that match")
    await rows.check()
    await everything.click()
    await expect(everything).to_have_attribute("aria-pressed", "true")

    await page.get_by_role("button", name="Select none").click()
    await rows.check()

    await expect(everything).to_have_attribute("aria-pressed", "false")
    await everything.click()
    await page.get_by_label("Filter the jobs").fill("task:other")
    await page.keyboard.press("Enter")
    await expect(page.locator("tbody")).to_contain_text("other")
    await expect(page.locator(".selection")).to_have_count(0)
    await rows.check()
    await expect(everything).to_have_attribute("aria-pressed", "false")
