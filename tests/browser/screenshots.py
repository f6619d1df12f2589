"""The pictures of the README: `make screenshots` opens the page of a demo and writes docs/img.

Each picture is of the real page in Chromium, so it shows what a user gets.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from playwright.async_api import Browser, ViewportSize, async_playwright

from tests.browser.chromium import CHROMIUM, OPTIONS
from tests.browser.demo import SHOWN, Demo

FOLDER = Path(__file__).parents[2] / "docs" / "img"
WAIT_MS = 4_000  # for the first ticks, and the second look at what waits
SIZE = ViewportSize(width=1440, height=900)


async def take(browser: Browser, url: str, name: str, theme: str) -> None:
    """Write a picture of one address."""
    context = await browser.new_context(
        viewport=SIZE,
        color_scheme="dark" if theme == "dark" else "light",
        timezone_id="Europe/Berlin",
        reduced_motion="reduce",
    )
    page = await context.new_page()
    await page.goto(url)
    await page.wait_for_timeout(WAIT_MS)
    await page.screenshot(path=FOLDER / f"{name}.png", full_page=not name.startswith("schedule"))
    await context.close()


async def main() -> None:
    """Fill a demo, and take its pictures."""
    FOLDER.mkdir(exist_ok=True)
    async with Demo() as demo, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        job = await demo.fill()
        pages = {"overview": "/", "job": f"/jobs/{job}", "schedule": f"/schedules/{SHOWN}"}
        for name, path in pages.items():
            for theme in ("light", "dark"):
                await take(browser, demo.url + path, f"{name}-{theme}", theme)
        await browser.close()


if __name__ == "__main__":
    if CHROMIUM is None:
        sys.exit("there is no Chromium: apt-get install chromium-headless-shell")
    asyncio.run(main())
