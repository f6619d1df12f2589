"""The page of a server that is killed and started again."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.browser.conftest import Open
from tests.browser.shop import Shop
from tests.e2e.remote import find_port
from tests.e2e.server import serving

pytestmark = pytest.mark.e2e
BACK_MS = 3_000  # after the start of the server


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
        await expect(page.get_by_role("link", name="later")).to_be_visible()

        server.kill()
        await expect(page.locator(".connection")).to_contain_text("reconnecting")
        await expect(page.get_by_role("link", name="later")).to_be_visible()  # nothing is hidden
        await asyncio.to_thread(server.start)
        await expect(page.locator(".connection")).to_have_text("live", timeout=BACK_MS)
        await asyncio.to_thread(server.submit, task="missing", queue="newer", delay="1h")

        await expect(page.get_by_role("link", name="newer")).to_be_visible()
        await expect(page.get_by_text(re.compile("^Hatched"))).to_be_visible()
        assert await page.locator("html#same").count() == 1
