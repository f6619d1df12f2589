"""The page of a server that is killed and started again."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from playwright.async_api import Route, expect

from tests.browser.conftest import Open
from tests.browser.shop import Shop
from tests.e2e.remote import find_port
from tests.e2e.server import Server, eventually, serving

pytestmark = pytest.mark.e2e


def count_starts(server: Server) -> int:
    """Return how many starts of the last day the server has measured."""
    return int(server.ask("GET", "/v1/summary")[1]["day"]["started"])


async def test_the_page_is_right_again_without_a_reload_after_a_kill(
    open_page: Open, shop: Shop, tmp_path: Path
) -> None:
    shop.expected += ["net::ERR", "Failed to load resource"]
    with serving(tmp_path, "--port", str(find_port()), "--allow-shell") as server:
        await asyncio.to_thread(server.submit, task="shell", payload={"command": "true"})
        page = await open_page("/", base_url=server.url)
        await expect(page.locator(".connection")).to_have_text("live")
        await page.evaluate("document.documentElement.id = 'same'")
        await asyncio.to_thread(server.submit, task="missing", queue="later", delay="1h")
        await expect(page.get_by_role("link", name="later", exact=True)).to_be_visible()

        server.kill()
        await expect(page.locator(".connection")).to_contain_text("reconnecting")
        await expect(
            page.get_by_role("link", name="later", exact=True)
        ).to_be_visible()  # nothing is hidden
        await asyncio.to_thread(server.start)
        await asyncio.to_thread(server.submit, task="missing", queue="newer", delay="1h")

        await expect(page.locator(".connection")).to_have_text("live")
        await expect(page.get_by_role("link", name="newer")).to_be_visible()
        await expect(page.get_by_text(re.compile("^Hatched"))).to_be_visible()
        assert await page.locator("html#same").count() == 1


async def test_a_page_whose_server_is_killed_before_its_stream_opens_is_live_when_it_is_back(
    open_page: Open, shop: Shop, tmp_path: Path
) -> None:
    shop.expected += ["net::ERR", "Failed to load resource"]
    with serving(tmp_path, "--port", str(find_port())) as server:
        _, summary = await asyncio.to_thread(server.ask, "GET", "/v1/summary")
        has_ended = asyncio.Event()

        async def kill_and_answer(route: Route) -> None:
            if has_ended.is_set():
                await route.continue_()
                return
            await asyncio.to_thread(server.kill)
            has_ended.set()
            await route.fulfill(json=summary)

        page = await open_page("/healthz", base_url=server.url)
        await page.route("**/v1/summary", kill_and_answer)
        await page.goto("/lateness", wait_until="commit")
        await has_ended.wait()  # the page may notice it before its process is reaped

        await expect(page.locator(".connection")).to_contain_text("reconnecting")
        await asyncio.to_thread(server.start)
        await expect(page.locator(".connection")).to_have_text("live")


async def test_the_chart_of_24_hours_is_still_there_after_a_kill(
    open_page: Open, shop: Shop, tmp_path: Path
) -> None:
    shop.expected += ["net::ERR", "Failed to load resource"]
    with serving(tmp_path, "--port", str(find_port()), "--allow-shell") as server:
        await asyncio.to_thread(server.submit, task="shell", payload={"command": "true"})
        await asyncio.to_thread(eventually, lambda: count_starts(server), "a measured start")
        await asyncio.to_thread(server.terminate)  # which saves the minute that has begun
        await asyncio.to_thread(server.start)
        page = await open_page("/lateness?window=24h", base_url=server.url)
        picture, text = page.locator(".late-map"), re.compile("^Of 1 starts in 24 hours")
        await expect(picture).to_have_attribute("aria-label", text)
        await expect(page.locator(".connection")).to_have_text("live")

        server.kill()
        await expect(page.locator(".connection")).to_contain_text("reconnecting")
        await asyncio.to_thread(server.start)
        await expect(page.locator(".connection")).to_have_text("live")

        await expect(picture).to_have_attribute("aria-label", text)
        await page.reload()  # so that it is not what the page has kept
        await expect(picture).to_have_attribute("aria-label", text)
        await expect(page.get_by_text(re.compile("^Hatched: for .* no server ran"))).to_be_visible()
