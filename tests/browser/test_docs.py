"""The reference of the API at /docs: it begins with a submit, has examples, and is searched."""

from __future__ import annotations

import asyncio
import json
import shlex

import pytest
from playwright.async_api import Route, expect

from schedo.protocol.public_url import parse_public_url
from schedo.web.settings import WebSettings
from tests.browser.conftest import Axe, Open
from tests.browser.shop import Shop


async def test_it_leads_with_a_submit_that_a_shell_can_run(open_page: Open, shop: Shop) -> None:
    page = await open_page("/docs")

    example = page.locator("#first pre").first
    await expect(example).to_contain_text("/v1/jobs")
    words = shlex.split((await example.text_content() or "").replace("\\\n", ""))
    curl = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    answer, _ = await curl.communicate()

    assert curl.returncode == 0
    assert (json.loads(answer)["task"], json.loads(answer)["state"]) == ("send_email", "scheduled")


async def test_every_operation_has_an_example_and_a_link(open_page: Open, shop: Shop) -> None:
    page = await open_page("/docs")
    await expect(page.locator("#operations section").first).to_be_visible()

    boxes = await page.locator("#operations section").count()

    assert boxes > 60
    assert await page.locator("#operations .example pre").count() == boxes
    assert await page.locator("#contents a").count() == boxes
    await expect(page.locator("#put_expectation pre")).to_contain_text("/v1/expectations/nightly")


async def test_a_search_leaves_what_has_all_the_words(open_page: Open, shop: Shop) -> None:
    page = await open_page("/docs")
    await page.get_by_role("searchbox").fill("expected_count action")

    await expect(page.locator("#about")).to_contain_text("match")
    await expect(page.locator("#type-BulkRequest")).to_be_visible()
    await expect(page.locator("#create_job")).to_be_hidden()
    await expect(page.locator("#contents a:visible")).to_have_count(
        await page.locator("#operations section:visible").count()
    )

    await page.get_by_role("searchbox").fill("")

    await expect(page.locator("#create_job")).to_be_visible()


async def test_what_is_typed_before_the_reference_has_come_is_searched(open_page: Open) -> None:
    page = await open_page("/docs")
    is_typed = asyncio.Event()

    async def hold(route: Route) -> None:
        await is_typed.wait()
        await route.continue_()

    await page.route("**/openapi.json", hold)
    await page.reload()
    await page.get_by_role("searchbox").fill("submit a job;")
    is_typed.set()

    await expect(page.locator("#create_job")).to_be_visible()
    await expect(page.locator("#about")).to_contain_text("match")


async def test_a_link_into_what_the_search_has_hidden_shows_it(open_page: Open, shop: Shop) -> None:
    page = await open_page("/docs")
    await page.get_by_role("searchbox").fill("submit a job;")
    await page.locator("#create_job").get_by_role("link", name="JobRequest").click()

    await expect(page.locator("#type-JobRequest")).to_be_in_viewport()


@pytest.mark.parametrize("width", [390, 1440])
async def test_it_fits_wide_and_narrow_screens_without_barriers(
    open_page: Open, shop: Shop, axe: Axe, width: int
) -> None:
    page = await open_page("/docs", width=width, bypass_csp=True)
    await expect(page.locator("#type-JobRequest")).to_be_attached()

    await expect(page.locator("#contents a").first).to_be_visible(visible=width > 800)
    wide = await page.evaluate("document.documentElement.scrollWidth > innerWidth")
    assert not wide
    await axe(page)


async def test_below_a_path_the_examples_have_it_and_work(open_page: Open, shop: Shop) -> None:
    url = parse_public_url(f"{shop.url}/schedo")
    shop.app.use(WebSettings(public_url=url))
    page = await open_page("/schedo/docs")

    await expect(page.locator("#type-JobRequest")).to_be_attached()
    example = page.locator("#first pre").first
    await expect(example).to_contain_text(f"{shop.url}/schedo/v1/jobs")
    words = shlex.split((await example.text_content() or "").replace("\\\n", ""))
    curl = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    answer, _ = await curl.communicate()

    assert json.loads(answer)["state"] == "scheduled"


async def test_with_tokens_the_examples_have_one(open_page: Open, shop: Shop) -> None:
    shop.app.use(WebSettings(anyone=None))

    page = await open_page("/docs")

    await expect(page.locator("#first pre").first).to_contain_text("Bearer $SCHEDO_TOKEN")
