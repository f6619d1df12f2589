"""The overview: is it well, what is late, where it queues, who works, and why a job waits."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Request, expect

from schedo.core.worker_pool import WorkerSpec
from schedo.web.site import read_screens
from tests.browser.conftest import Open
from tests.browser.shop import GATEWAY, Shop, Shopkeeper

HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>'\"&amp;\u202e \u0000x" + "y" * 300


async def test_each_card_answers_its_question(open_page: Open, shop: Shop) -> None:
    await shop.seed()
    await shop.submit(task="train_model", queue="ml", run_at="2026-01-01T00:00:00Z")

    page = await open_page("/")

    await expect(page.locator(".verdict")).to_contain_text(
        re.compile("Jobs start|started|no worker")
    )
    await expect(page.locator(".figures > div")).to_have_count(6)
    text = page.locator("main")
    await expect(text).to_contain_text(GATEWAY)
    await expect(page.get_by_role("link", name="images")).to_be_visible()
    await expect(page.get_by_role("img", name="2 of 8 slots busy")).to_be_visible()
    await expect(text).to_contain_text("region=eu")
    waiting = page.locator(".waiting")
    await expect(waiting).to_contain_text("train_model")
    await expect(waiting).to_contain_text("worker")
    map_ = page.get_by_role("img", name=re.compile(r"^Of \d+ starts in 15 minutes"))
    await expect(map_).to_be_visible()


async def test_what_the_shell_asks_for_together_with_the_modules_is_asked_for_once(
    open_page: Open, shop: Shop
) -> None:
    page = await open_page("/login")
    # Until the next page is there, this one goes on: it must not ask meanwhile.
    await expect(page.get_by_role("heading", name="There is no login")).to_be_visible()
    asked: list[str] = []

    def note(request: Request) -> None:
        if request.is_navigation_request():
            asked.clear()  # of the page before
        asked.append(urlsplit(request.url).path)

    page.on("request", note)

    await page.goto(f"{shop.url}/")

    await expect(page.locator("main h1")).to_be_attached()
    await expect(page.locator("main [aria-busy=true]")).to_have_count(0)
    [overview] = [screen for screen in read_screens() if screen.path == "/"]
    once = {path for path in overview.reads.split() if path != "v1/summary"}
    assert {path: asked.count(f"/{path}") for path in once} == dict.fromkeys(once, 1)


async def test_what_happens_is_shown_without_a_reload(open_page: Open, shop: Shop) -> None:
    await shop.seed()
    page = await open_page("/")
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="mail"))
    await expect(row).to_contain_text("5")

    for _ in range(3):
        await shop.submit(task="send_email", queue="mail", delay="1h")

    await expect(row).to_contain_text("8")


async def test_an_empty_server_says_how_to_make_the_first_job(open_page: Open, shop: Shop) -> None:
    shop.engine.attach(WorkerSpec("local", 2), Shopkeeper(shop))
    page = await open_page("/")

    await expect(page.get_by_text("Waiting for the first job…")).to_be_visible()
    await expect(page.get_by_text(f"curl {shop.url}/v1/jobs")).to_be_visible()
    await shop.submit(task="send_email")

    await expect(page.get_by_text("Waiting for the first job…")).to_have_count(0)


async def test_the_pictures_are_tables_for_those_who_ask(open_page: Open, shop: Shop) -> None:
    await shop.seed()
    page = await open_page("/")

    await page.get_by_role("button", name="Show as table").first.click()
    await expect(page.get_by_role("rowheader", name="up to 10 ms")).to_be_visible()
    await page.get_by_role("button", name="timers").click()

    assert page.url.endswith("/?starts=timer")
    await page.reload()
    button = page.get_by_role("button", name="timers")
    await expect(button).to_have_attribute("aria-pressed", "true")


@pytest.mark.parametrize("width", [1440, 390])
async def test_hostile_texts_are_shown_as_texts(open_page: Open, shop: Shop, width: int) -> None:
    keeper = Shopkeeper(shop, error=HOSTILE)
    labels = {"region": "<b>eu</b>"}
    shop.engine.attach(WorkerSpec("eu-gpu-1", 2, labels=labels), keeper)
    await shop.submit(task="charge_card", queue="q" * 128)
    await shop.engine.flush()

    page = await open_page("/", width=width, height=900)

    await expect(page.get_by_text("<img src=x onerror=alert(1)>").first).to_be_attached()
    assert await page.locator("main img").count() == 0
    assert await page.locator("main script").count() == 0
    assert await page.evaluate("document.documentElement.scrollWidth") <= width


async def test_forced_colours_and_reduced_motion_break_nothing(open_page: Open, shop: Shop) -> None:
    await shop.seed()

    page = await open_page("/", forced_colors="active")

    await expect(page.locator(".figures > div").first).to_be_visible()
