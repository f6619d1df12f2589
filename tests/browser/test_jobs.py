"""The list of jobs: filters in the address, news that move no row, and operations on many jobs."""

from __future__ import annotations

import asyncio
import re

import pytest
from playwright.async_api import APIResponse, Route, expect

from schedo.core.ids import parse_id
from schedo.core.limits import HOUR
from schedo.core.model import JobSpec
from schedo.core.worker_pool import WorkerSpec
from schedo.store.sqlite import read_connection
from tests.browser.conftest import Axe, Open, intercept
from tests.browser.shop import Shop, Shopkeeper
from tests.browser.test_frame import be_live

HOSTILE = "<img src=x onerror=alert(1)>\x1b[31mred\x1b[0m</script>"


async def test_filters_are_typed_kept_in_the_address_and_taken_away(
    open_page: Open, shop: Shop
) -> None:
    await shop.seed_jobs()
    page = await open_page("/jobs")
    await expect(page.locator("tbody tr")).to_have_count(31)

    await page.keyboard.press("f")
    await page.keyboard.type("task:send_email payload.order:7")
    await page.keyboard.press("Enter")

    await expect(page.locator("tbody tr")).to_have_count(1)
    await expect(page).to_have_url(re.compile(r"/jobs\?task=send_email&payload.order=7$"))
    await page.reload()
    await expect(page.locator("tbody tr")).to_have_count(1)
    await page.get_by_role("button", name="payload.order: 7").click()
    await expect(page.locator("tbody tr")).to_have_count(25)
    await page.get_by_role("group", name="States").get_by_text("scheduled").click()
    await expect(page.locator("tbody tr")).to_have_count(5)
    await page.go_back()
    await expect(page.locator("tbody tr")).to_have_count(25)
    await page.get_by_role("button", name="Clear all").click()
    await expect(page.locator("tbody tr")).to_have_count(31)


async def test_jobs_are_opened_and_cancelled_by_keyboard_alone(open_page: Open, shop: Shop) -> None:
    for _ in range(3):
        await shop.submit(task="later", delay="1h")
    page = await open_page("/jobs?state=scheduled")
    await expect(page.locator("tbody tr")).to_have_count(3)

    for selected in (1, 2):
        await page.keyboard.press("j")
        await page.keyboard.press("x")
        await expect(page.locator(".selection")).to_contain_text(f"{selected} on this page")
    await page.get_by_role("button", name="Cancel", exact=True).focus()
    await page.keyboard.press("Enter")

    await expect(page.locator(".toasts")).to_contain_text("2 jobs were cancelled.")
    await expect(page.locator("tbody .state", has_text="cancelled")).to_have_count(2)
    await page.locator("tbody a").first.focus()
    await page.keyboard.press("Enter")
    await expect(page).to_have_title(re.compile("later cancelled"))


async def test_new_jobs_are_counted_and_move_no_row(open_page: Open, shop: Shop) -> None:
    first = await shop.submit(task="later", delay="1h")
    page = await open_page("/jobs?task=later")
    await expect(page.locator("tbody tr")).to_have_count(1)
    await expect(page.locator(".connection")).to_have_text("live")

    await shop.submit(task="later", delay="1h")
    await shop.submit(task="other", delay="1h")
    await shop.post(f"/v1/jobs/{first['id']}:cancel")

    await expect(page.locator("tbody .state")).to_have_text("cancelled")
    await page.get_by_role("button", name="1 new job matches: show").click()
    await expect(page.locator("tbody .state")).to_have_text(["scheduled", "cancelled"])


async def test_jobs_that_come_while_the_list_is_read_are_new(open_page: Open, shop: Shop) -> None:
    page = await open_page("/login")
    answers: list[APIResponse] = []

    async def hold(route: Route) -> None:
        answer = await route.fetch()
        answers.append(answer)
        if len(answers) > 1:
            await route.fulfill(response=answer)
            return
        await expect(page.locator(".connection")).to_have_text("live")
        await shop.post("/v1/jobs:batch", [{"task": "later", "delay": "1h"}] * 150)
        await shop.engine.flush()
        await route.fulfill(response=answer)

    await page.route("**/v1/jobs?**", hold)
    await page.goto(f"{shop.url}/jobs?task=later")

    await expect(page.locator(".news")).to_contain_text("new jobs or more match: show")


async def test_jobs_that_come_while_the_server_is_away_are_new(open_page: Open, shop: Shop) -> None:
    shop.expected += ["net::ERR", "Failed to load resource"]
    await shop.submit(task="later", delay="1h")
    page = await open_page("/jobs?task=later")
    await expect(page.locator("tbody tr")).to_have_count(1)
    await expect(page.locator(".connection")).to_have_text("live")
    await shop.hang_up()
    await expect(page.locator(".connection")).to_contain_text("reconnecting")
    await shop.engine.submit([JobSpec(task="later", delay_us=HOUR)])
    await shop.engine.flush()

    await shop.start_again()

    await expect(page.locator(".news")).to_contain_text("1 new job matches: show")
    await expect(page.locator("tbody tr")).to_have_count(1)


async def test_jobs_that_leave_the_list_while_the_server_is_away_show_their_state(
    open_page: Open, shop: Shop
) -> None:
    shop.expected += ["net::ERR", "Failed to load resource"]
    job = await shop.submit(task="later", delay="1h")
    await shop.submit(task="later", delay="1h")
    page = await open_page("/jobs?state=scheduled")
    await expect(page.locator("tbody tr")).to_have_count(2)
    await expect(page.locator(".connection")).to_have_text("live")
    await shop.hang_up()
    await expect(page.locator(".connection")).to_contain_text("reconnecting")
    await shop.engine.cancel(parse_id(job["id"]))
    await shop.engine.flush()

    await shop.start_again()

    await expect(page.locator("tbody .state")).to_have_text(["scheduled", "cancelled"])


async def test_of_many_new_jobs_the_page_counts_the_first_only(open_page: Open, shop: Shop) -> None:
    page = await open_page("/jobs?task=later")
    await expect(page.locator(".connection")).to_have_text("live")
    job = {"task": "later", "delay": "1h"}

    await shop.post("/v1/jobs:batch", [job] * 150)
    news = page.get_by_role("button", name="150 new jobs match: show")
    await expect(news).to_be_visible()
    await shop.post("/v1/jobs:batch", [job] * 150)

    await page.get_by_role("button", name="200 new jobs or more match: show").click()
    await expect(page.locator("tbody tr")).to_have_count(50)


async def test_what_comes_next_is_one_click_away_and_counts_down(
    open_page: Open, shop: Shop, axe: Axe
) -> None:
    late = await shop.submit(task="later", delay="2h")
    soon = await shop.submit(task="later", delay="1h")
    page = await open_page("/jobs?task=later", bypass_csp=True)
    rows = page.locator("tbody a")
    await expect(rows).to_have_text([soon["id"], late["id"]])
    latest = await shop.submit(task="later", delay="3h")

    await page.get_by_role("button", name="what comes next").click()

    await expect(page).to_have_url(re.compile(r"state=scheduled%2Cretrying&order=due"))
    await expect(rows).to_have_text([soon["id"], late["id"], latest["id"]])
    await expect(page.locator("tbody tr").first).to_contain_text(re.compile("in 59 m|in 1 h"))
    await axe(page)
    await page.get_by_role("group", name="States").get_by_text("failed").click()
    await expect(page.get_by_role("button", name="newest first")).to_have_attribute(
        "aria-pressed", "true"
    )


async def test_what_comes_next_says_when_it_has_changed_and_moves_no_row(
    open_page: Open, shop: Shop
) -> None:
    first = await shop.submit(task="later", delay="1h")
    second = await shop.submit(task="later", delay="2h")
    page = await open_page("/jobs?state=scheduled&order=due")
    rows, news = page.locator("tbody a"), page.locator(".news button")
    await expect(rows).to_have_text([first["id"], second["id"]])
    await expect(page.locator(".connection")).to_have_text("live")

    await shop.post(f"/v1/jobs/{first['id']}:cancel")
    await expect(page.locator("tbody .state")).to_have_text(["cancelled", "scheduled"])
    soonest = await shop.submit(task="later", delay="1m")
    await expect(news).to_have_text("What comes next has changed: show")
    await news.click()

    await expect(rows).to_have_text([soonest["id"], second["id"]])
    await expect(news).to_have_count(0)


async def test_a_search_that_ended_early_goes_on_where_it_stopped(
    open_page: Open, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_connection, "LOOKED_AT_MAX", 250)  # of which the page asks for 8
    wanted = await shop.submit(task="later", payload={"order": "needle"}, delay="1h")
    for _ in range(5):
        await shop.engine.submit([JobSpec(task="later", delay_us=HOUR)] * 1_000)
    await shop.engine.flush()
    page = await open_page("/jobs?q=needle")
    bounded = page.locator(".bounded")
    await expect(page.get_by_text("Nothing was found so far.")).to_be_visible()

    for looked_at in ("2,000", "4,000"):
        await expect(bounded).to_contain_text(f"Looked through {looked_at} jobs")
        await page.get_by_role("button", name="Go on").click()

    await expect(page.locator("tbody tr")).to_have_count(1)
    await expect(page.locator("tbody a")).to_have_text(wanted["id"])
    await expect(bounded).to_have_count(0)


async def test_a_row_that_go_on_has_found_shows_what_its_job_becomes(
    open_page: Open, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_connection, "LOOKED_AT_MAX", 250)
    wanted = await shop.submit(task="later", payload={"order": "needle"}, delay="1h")
    await shop.engine.submit([JobSpec(task="later", delay_us=HOUR)] * 2_500)
    await shop.engine.flush()
    page = await open_page("/jobs?q=needle")
    await be_live(page)
    await page.get_by_role("button", name="Go on").click()
    await expect(page.locator("tbody .state")).to_have_text("scheduled")

    await shop.post(f"/v1/jobs/{wanted['id']}:cancel")

    await expect(page.locator("tbody .state")).to_have_text("cancelled")
    await expect(page.locator(".news")).to_be_empty()


async def test_a_search_that_goes_on_late_leaves_no_gap_below_new_jobs(
    open_page: Open, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_connection, "LOOKED_AT_MAX", 250)  # of which the page asks for 8

    async def submit(others: int) -> str:
        """Submit a job that is searched for, and then others."""
        job = await shop.submit(task="later", payload={"order": "needle"}, delay="1h")
        await shop.engine.submit([JobSpec(task="later", delay_us=HOUR)] * others)
        await shop.engine.flush()
        return str(job["id"])

    oldest, old = await submit(1_000), await submit(1_500)
    page = await open_page("/jobs?q=needle")
    await be_live(page)
    ids = page.locator("tbody a")
    await expect(ids).to_have_text([old])
    go_on = page.get_by_role("button", name="Go on")
    first: asyncio.Future[Route] = asyncio.get_running_loop().create_future()

    async def hold_the_first(route: Route) -> None:
        if first.done():
            await route.continue_()
        else:
            first.set_result(route)

    await intercept(page, "**/v1/jobs?**", hold_the_first)
    await go_on.click()
    late = await first
    new = await submit(1_000)
    await page.get_by_role("button", name="show").click()
    await expect(ids).to_have_text([new])

    await late.continue_()

    await expect(go_on).to_be_enabled()
    await go_on.click()
    await expect(ids).to_have_text([new, old, oldest])


async def test_a_search_that_cannot_go_on_says_so(
    open_page: Open, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.expected += ["ERR_FAILED"]
    monkeypatch.setattr(read_connection, "LOOKED_AT_MAX", 250)
    await shop.engine.submit([JobSpec(task="later", delay_us=HOUR)] * 2_500)
    await shop.engine.flush()
    page = await open_page("/jobs?q=needle")
    go_on = page.get_by_role("button", name="Go on")
    await expect(go_on).to_be_visible()
    await intercept(page, "**/v1/jobs?**", lambda route: route.abort())

    await go_on.click()

    await expect(page.get_by_role("alert")).to_contain_text("could not be read")
    await page.unroute("**/v1/jobs?**")
    await page.get_by_role("button", name="Try again").click()
    await expect(page.locator(".bounded")).to_have_count(0)
    await expect(page.get_by_role("alert")).to_have_count(0)


async def test_the_count_of_new_jobs_covers_no_row_and_no_head(open_page: Open, shop: Shop) -> None:
    for _ in range(30):
        await shop.submit(task="later", delay="1h")
    for width in (1440, 390):
        page = await open_page("/jobs?task=later", width=width, height=600)
        await expect(page.locator(".connection")).to_have_text("live")
        table = page.get_by_role("table")
        before = await table.bounding_box()
        await shop.submit(task="later", delay="1h")
        news = page.get_by_role("button", name=re.compile("1 new job matches"))
        await expect(news).to_be_visible()

        assert await table.bounding_box() == before
        seen, head = await news.bounding_box(), await page.locator("thead").bounding_box()
        assert seen
        assert head
        assert seen["y"] + seen["height"] <= head["y"]
        await page.close()


async def test_hostile_rows_a_selection_and_news_are_text_and_no_barrier(
    open_page: Open, shop: Shop, axe: Axe
) -> None:
    shop.engine.attach(WorkerSpec("w", 2, frozenset({"fail"})), Shopkeeper(shop, HOSTILE, "fail"))
    failed = await shop.submit(task="fail", retry=1)
    await shop.get(f"/v1/jobs/{failed['id']}/wait?timeout=5s")
    await shop.submit(task="later", delay="1h", payload={HOSTILE: HOSTILE})
    page = await open_page("/jobs", bypass_csp=True)
    await expect(page.locator(".connection")).to_have_text("live")

    await page.get_by_role("checkbox", name="Select all rows").check()
    await shop.submit(task="later", delay="1h")
    await expect(page.locator(".news")).to_contain_text("1 new job matches")

    await expect(page.locator("tbody")).to_contain_text("<img src=x onerror=alert(1)>red")
    assert await page.locator("main img, main script").count() == 0
    await axe(page)
    await page.set_viewport_size({"width": 390, "height": 844})
    await page.emulate_media(color_scheme="dark")
    await axe(page)
    assert await page.evaluate("document.documentElement.scrollWidth") <= 390


async def test_all_jobs_that_match_are_changed_after_an_exact_count(
    open_page: Open, shop: Shop
) -> None:
    for _ in range(60):
        await shop.submit(task="later", delay="1h")
    await shop.submit(task="other", delay="1h")
    page = await open_page("/jobs?task=later")

    await page.get_by_role("checkbox", name="Select all rows").check()
    await page.get_by_role("button", name="All that match").click()
    await page.get_by_role("button", name="Cancel…").click()
    question = page.get_by_role("dialog")
    await expect(question).to_contain_text("60 match now")
    await shop.submit(task="later", delay="1h")  # after the count: it is left alone
    await question.get_by_role("button", name="Cancel 60 jobs").click()

    await expect(page.locator(".operation")).to_contain_text("60 jobs were cancelled")
    left = (await shop.get("/v1/jobs?state=scheduled")).json()["items"]
    assert sorted(job["task"] for job in left) == ["later", "other"]


async def test_pages_are_stepped_through_and_back(open_page: Open, shop: Shop) -> None:
    for _ in range(60):
        await shop.submit(task="later", delay="1h")
    page = await open_page("/jobs")

    await page.get_by_role("button", name="Next page").click()
    await expect(page.locator("tbody tr")).to_have_count(10)
    await page.reload()
    await expect(page.locator("tbody tr")).to_have_count(10)
    await page.go_back()
    await expect(page.locator("tbody tr")).to_have_count(50)


async def test_a_list_that_cannot_be_read_says_why(open_page: Open, shop: Shop, axe: Axe) -> None:
    shop.expected += ["400"]
    page = await open_page("/jobs?task=%00", bypass_csp=True)

    await expect(page.get_by_role("alert")).to_contain_text("The jobs could not be read.")
    await expect(page.get_by_role("alert")).to_contain_text("request ")
    await axe(page)
    await page.get_by_role("button", name="Clear all").click()
    await expect(page.get_by_text("There are no jobs.")).to_be_visible()


async def test_a_phone_shows_each_job_whole_and_selects_all(open_page: Open, shop: Shop) -> None:
    await shop.seed_jobs()
    page = await open_page("/jobs?task=send_email", width=390)
    await expect(page.locator("tbody tr")).to_have_count(25)

    await page.get_by_role("checkbox", name="Select all rows").check()

    await expect(page.locator(".selection")).to_contain_text("25 on this page")
    table = page.get_by_role("group", name="Jobs", exact=True)
    assert await table.evaluate("element => element.scrollWidth <= element.clientWidth")
    await expect(page.locator("tbody tr").last).to_contain_text("order")
