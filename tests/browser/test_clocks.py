"""Zones, changes of the clock, a wrong clock, and what a person has asked of the browser."""

from __future__ import annotations

import datetime
import re
import zoneinfo

from playwright.async_api import Page, expect

from schedo.core.limits import HOUR
from schedo.protocol.times import parse_instant
from tests.browser.conftest import Axe, Open
from tests.browser.shop import Shop
from tests.browser.test_frame import be_live

CHATHAM = "Pacific/Chatham"  # 12:45 or 13:45 ahead of UTC
MOVING = """[...document.querySelectorAll('*')].map(each => getComputedStyle(each)).filter(style =>
  parseFloat(style.transitionDuration) > 0 || style.animationName !== 'none').length"""


async def test_an_instant_is_shown_by_the_clock_of_the_browser_s_zone(
    open_page: Open, shop: Shop
) -> None:
    await shop.put("/v1/schedules/tide", {"cron": "30 2 * * *", "tz": "UTC", "task": "sync"})
    [first, *_] = (await shop.get("/v1/schedules/tide")).json()["next_fires"]
    at = datetime.datetime.fromtimestamp(parse_instant(first) / 1e6, zoneinfo.ZoneInfo(CHATHAM))
    page = await open_page("/schedules/tide", timezone_id=CHATHAM)

    shown = page.locator(".fires .first time")
    await expect(shown).to_have_text(f"{at:%Y-%m-%d %H:%M:%S}")
    assert at.minute == 15
    await page.get_by_role("button", name="UTC").click()
    await expect(shown).to_have_text(f"{first[:10]} {first[11:19]}")


async def test_the_changes_of_a_zone_s_clock_are_told_in_the_preview(
    open_page: Open, shop: Shop
) -> None:
    rule = {"cron": "30 2 * * *", "tz": "Europe/Berlin", "task": "sync"}
    await shop.put("/v1/schedules/night", rule)
    page = await open_page("/schedules/night/edit")
    changes = page.locator("li", has=page.locator(".dst"))
    await expect(changes.filter(has_text="clocks go forward: moved")).to_have_count(1)

    await page.get_by_label("A time that does not exist").select_option("skip")
    await page.get_by_label("A time that exists twice").select_option("both")

    await expect(changes.filter(has_text="clocks go forward: moved")).to_have_count(0)
    await expect(changes.filter(has_text="clocks go back")).to_have_count(2)


async def test_a_clock_that_is_wrong_is_told_and_countdowns_follow_the_server(
    open_page: Open, shop: Shop
) -> None:
    await shop.put("/v1/schedules/soon", {"every": "1h", "task": "sync"})
    page = await open_page("/login", locale="en-GB")  # its window has a clock of its own
    ahead_us = shop.engine.clock.now() + 2 * HOUR
    await page.clock.set_system_time(ahead_us / 1e6)

    await page.goto(f"{shop.url}/schedules/soon")

    apart = re.compile("this clock is (2 h 0|1 h 59) m ahead")
    await expect(page.locator(".skew")).to_have_text(apart)
    await expect(page.locator(".fires .first")).to_have_text(re.compile(r"in \d+(\.\d)? (m|s)"))


async def test_nothing_moves_where_that_is_not_wanted(open_page: Open, shop: Shop) -> None:
    await shop.seed()
    page = await open_page("/")
    await be_live(page)

    assert await page.evaluate(MOVING) == 0


async def visible_squares(page: Page) -> list[str]:
    return list(
        await page.eval_on_selector_all(
            ".slots i", "all => all.map(each => getComputedStyle(each).backgroundColor)"
        )
    )


async def test_a_busy_slot_is_seen_in_forced_colours(open_page: Open, shop: Shop, axe: Axe) -> None:
    await shop.seed()
    page = await open_page("/workers", forced_colors="active", bypass_csp=True)
    await be_live(page)
    await expect(page.locator(".slots i.on")).to_have_count(2)

    colours = await visible_squares(page)

    assert len(set(colours)) == 2
    await axe(page)
