"""The invoke console: who would take the job, what is wrong with it, and what came of it."""

from __future__ import annotations

import re

from playwright.async_api import expect

from schedo.core.worker_pool import WorkerSpec
from tests.browser.conftest import Axe, Open
from tests.browser.shop import Shop, Shopkeeper

HOSTILE = "<img src=x onerror=alert(1)>"


async def test_who_would_take_the_job_is_said_before_it_is_sent_and_as_it_changes(
    open_page: Open, shop: Shop, axe: Axe
) -> None:
    await shop.seed()
    spec = WorkerSpec("other", 2, frozenset({"send_email"}), labels={"region": "us"})
    shop.engine.attach(spec, Shopkeeper(shop))
    page = await open_page("/invoke?task=send_email", bypass_csp=True)
    takers = page.get_by_role("region", name="Who would take it")
    await expect(takers).to_contain_text("2 of 2 workers could take it now.")

    await page.get_by_label("Requires").fill('{"labels": {"region": "eu"}}')

    await expect(takers).to_contain_text("1 of 2 workers could take it now.")
    await expect(takers.locator("dt")).to_have_text(["eu-gpu-1", "other"])
    await expect(takers.locator("dd").last).to_contain_text("region")
    await axe(page)
    await shop.post("/v1/workers/eu-gpu-1:cordon")
    await expect(takers).to_contain_text("0 of 2 workers could take it now")
    assert (await shop.get("/v1/jobs?task=send_email&state=running")).json()["items"] == []


async def test_what_is_wrong_is_said_at_its_field_before_the_job_is_sent(
    open_page: Open, shop: Shop
) -> None:
    shop.expected += ["422"]
    await shop.seed()
    page = await open_page("/invoke?task=send_email")

    await page.get_by_label("Timeout").fill("never")
    await expect(page.get_by_label("Timeout")).to_have_attribute("aria-invalid", "true")
    await page.get_by_label("Timeout").fill("")
    await expect(page.get_by_label("Timeout")).not_to_have_attribute("aria-invalid", "true")
    await page.get_by_label("Payload").fill("{")

    await expect(page.get_by_label("Payload")).to_have_attribute("aria-invalid", "true")
    await expect(page.get_by_role("button", name="Invoke", exact=True)).to_be_disabled()


async def test_a_job_is_invoked_by_keyboard_and_shows_its_life_and_its_result(
    open_page: Open, shop: Shop
) -> None:
    await shop.seed()
    page = await open_page("/invoke?task=send_email")

    await page.get_by_label("Payload").fill(f'{{"to": "{HOSTILE}"}}')
    await page.keyboard.press("Control+Enter")

    answer = page.get_by_role("region", name="The answer")
    await expect(answer.locator(".state")).to_have_text("completed")
    await expect(answer.get_by_role("img", name=re.compile("attempt 1: completed"))).to_be_visible()
    await expect(answer.get_by_role("region", name="The result")).to_contain_text('"ok": true')
    await answer.locator("a.mono").focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("region", name="The payload")).to_contain_text(HOSTILE)


async def test_keys_that_are_held_invoke_once(open_page: Open, shop: Shop) -> None:
    await shop.seed()
    page = await open_page("/invoke?task=sync")
    await page.get_by_label("Payload").focus()
    answer = page.get_by_role("region", name="The answer")

    await page.keyboard.down("Control")
    for _ in range(3):
        await page.keyboard.down("Enter")
        await expect(answer.locator(".state")).to_have_text("completed")

    assert len((await shop.get("/v1/jobs?task=sync")).json()["items"]) == 1


async def test_a_job_that_no_worker_takes_is_refused_with_the_reason(
    open_page: Open, shop: Shop
) -> None:
    shop.expected += ["503", "422"]
    page = await open_page(f"/invoke?task={HOSTILE}".replace("<", "%3C").replace(">", "%3E"))

    takers = page.get_by_role("region", name="Who would take it")
    await expect(takers.get_by_role("status")).to_contain_text("task")
    await page.get_by_role("button", name="Invoke", exact=True).click()

    await expect(page.get_by_role("alert")).to_contain_text("It was not run.")
    assert await page.locator("main img, main script").count() == 0
