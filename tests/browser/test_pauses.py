"""The way back from a pause or a resume of a queue or a schedule."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.browser.conftest import Open
from tests.browser.shop import Shop
from tests.browser.test_keyboard import type_into_palette

QUEUE, SCHEDULE = "/v1/queues/images", "/v1/schedules/cache.warm"
SCREENS = [("/queues/images", QUEUE), ("/schedules/cache.warm", SCHEDULE)]
UNTIL = "2099-01-01T00:00:00.000000Z"


async def read_pause(shop: Shop, path: str) -> tuple[bool, str | None, str | None]:
    """Return whether it is paused, with the note and the end of its pause."""
    if path == SCHEDULE:
        found = (await shop.get(path)).json()
        return found["paused"], found.get("note"), None
    items: list[dict[str, Any]] = (await shop.get("/v1/queues")).json()["items"]
    [found] = [item for item in items if item["name"] == "images"]
    pause = found.get("pause", {})
    return found["paused"], pause.get("note"), pause.get("until")


async def pause_by_hand(page: Page, note: str) -> None:
    await page.get_by_role("button", name="Pause…").click()
    await page.get_by_role("textbox", name="Note").fill(note)
    await page.keyboard.press("Enter")
    await expect(page.locator(".toast")).to_contain_text("is paused")


async def take_back_in_vain(page: Page) -> None:
    await page.get_by_role("button", name="Undo").click()
    await expect(page.locator(".toast")).to_contain_text("another has changed it meanwhile")


@pytest.mark.parametrize(("screen", "path"), SCREENS)
async def test_the_undo_of_a_pause_leaves_the_pause_of_another(
    open_page: Open, shop: Shop, screen: str, path: str
) -> None:
    await shop.seed()
    page = await open_page(screen)
    await pause_by_hand(page, "mine")
    await shop.post(f"{path}:pause", {"note": "theirs"})

    await take_back_in_vain(page)

    assert await read_pause(shop, path) == (True, "theirs", None)


@pytest.mark.parametrize(("screen", "path"), SCREENS)
async def test_the_undo_of_a_resume_leaves_the_pause_of_another(
    open_page: Open, shop: Shop, screen: str, path: str
) -> None:
    await shop.seed()
    await shop.post(f"{path}:pause", {"note": "before"})
    page = await open_page(screen)
    await page.get_by_role("button", name="Resume").click()
    await expect(page.locator(".toast")).to_be_visible()
    await shop.post(f"{path}:pause", {"note": "theirs"})

    await take_back_in_vain(page)

    assert await read_pause(shop, path) == (True, "theirs", None)


@pytest.mark.parametrize(("screen", "path"), SCREENS)
async def test_a_pause_is_taken_back_where_nobody_has_changed_it(
    open_page: Open, shop: Shop, screen: str, path: str
) -> None:
    await shop.seed()
    page = await open_page(screen)
    await pause_by_hand(page, "mine")

    await page.get_by_role("button", name="Undo").click()

    await expect(page.locator(".toast")).to_contain_text("Taken back.")
    assert await read_pause(shop, path) == (False, None, None)


async def test_the_palette_takes_back_a_resume_with_the_note_and_the_end_of_the_pause(
    open_page: Open, shop: Shop
) -> None:
    await shop.seed()
    await shop.post(f"{QUEUE}:pause", {"note": "the disk is full", "until": UNTIL})
    await shop.post(f"{SCHEDULE}:pause", {"note": "the disk is full"})
    page = await open_page("/expectations")

    for what in ("queue images", "schedule cache.warm"):
        await type_into_palette(page, f"resume {what}", f"resume {what}")
        await page.get_by_role("button", name="Undo").click()
        await expect(page.locator(".toast")).to_contain_text("Taken back.")
        await page.get_by_role("button", name="Dismiss").click()

    assert await read_pause(shop, QUEUE) == (True, "the disk is full", UNTIL)
    assert await read_pause(shop, SCHEDULE) == (True, "the disk is full", None)


async def test_the_undo_of_the_palette_leaves_the_pause_of_another(
    open_page: Open, shop: Shop
) -> None:
    await shop.seed()
    page = await open_page("/expectations")
    await type_into_palette(page, "pause queue images", "pause queue images")
    await expect(page.locator(".toast")).to_contain_text("The queue images is paused.")
    await shop.post(f"{QUEUE}:pause", {"note": "theirs"})

    await take_back_in_vain(page)

    assert await read_pause(shop, QUEUE) == (True, "theirs", None)


async def test_a_pause_by_the_palette_is_taken_back_to_the_pause_before_it(
    open_page: Open, shop: Shop
) -> None:
    await shop.seed()
    await shop.post(f"{QUEUE}:pause", {"note": "the disk is full"})
    page = await open_page("/expectations")
    await type_into_palette(page, "pause queue images", "pause queue images")

    await page.get_by_role("button", name="Undo").click()

    await expect(page.locator(".toast")).to_contain_text("Taken back.")
    assert await read_pause(shop, QUEUE) == (True, "the disk is full", None)
