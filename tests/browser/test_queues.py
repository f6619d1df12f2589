"""The screens of queues: pause with a note, and limits that are changed where they are shown."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from schedo.store.sqlite import job_search, read_connection
from tests.browser.conftest import Open, intercept, next_frame
from tests.browser.shop import Shop
from tests.browser.test_frame import be_live

HOSTILE = "</span><script>alert(1)</script>\u202e\x1b[31mred\x1b[0m"
SHOWN = r"</span><script>alert(1)</script>\u202ered"


async def test_a_limit_is_changed_by_keyboard_where_it_is_shown_and_put_back(
    open_page: Open, shop: Shop
) -> None:
    await shop.seed()
    page = await open_page("/queues")
    limit = page.get_by_role("button", name="concurrency of images")
    await limit.focus()
    await page.keyboard.press("Enter")
    await page.keyboard.press("Control+A")

    await page.keyboard.type("5")
    await page.keyboard.press("Enter")

    await expect(limit).to_have_text("5")
    await page.get_by_role("button", name="Undo").click()
    await expect(limit).to_have_text("2")


async def test_a_limit_that_is_only_looked_at_does_not_put_back_what_another_has_changed(
    open_page: Open, shop: Shop
) -> None:
    await shop.seed()
    page = await open_page("/queues")
    limit = page.get_by_role("button", name="concurrency of images")
    await limit.click()
    await shop.patch("/v1/queues/images", {"concurrency": 9})
    await expect(page.get_by_role("img", name="of 9 run")).to_be_visible()

    await page.locator("h1").click()

    await expect(limit).to_have_text("9")
    await expect(page.locator(".toast")).to_have_count(0)
    assert shop.engine.get_queue("images").concurrency == 9


async def test_a_limit_that_is_half_typed_is_saved_by_no_click_beside_it(
    open_page: Open, shop: Shop
) -> None:
    await shop.seed()
    page = await open_page("/queues")
    limit = page.get_by_role("button", name="concurrency of images")
    field = page.get_by_label("concurrency of images")
    await limit.click()
    await field.fill("1")

    await page.locator("h1").click()

    await expect(limit).to_have_text("2")
    await limit.click()
    await expect(field).to_have_value("2")
    await field.fill("1")
    await page.keyboard.press("Escape")
    await expect(limit).to_have_text("2")
    await limit.click()
    await field.fill("12")
    await page.get_by_role("button", name="Save").click()
    await expect(limit).to_have_text("12")
    await limit.click()
    await field.fill("7")
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await expect(limit).to_have_text("7")
    await expect(page.locator(".toast")).to_have_count(2)


async def test_a_limit_that_is_no_number_is_told_and_stays_typed(
    open_page: Open, shop: Shop
) -> None:
    await shop.seed()
    page = await open_page("/queues")
    await page.get_by_role("button", name="concurrency of images").click()
    field = page.get_by_label("concurrency of images")
    await field.fill("1o")

    await page.keyboard.press("Enter")

    await expect(page.locator(".toast")).to_contain_text("“1o” is not a concurrency.")
    await expect(field).to_have_value("1o")
    await field.fill("10")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("button", name="concurrency of images")).to_have_text("10")


@pytest.mark.parametrize("key", ["Enter", "Escape"])
async def test_the_keyboard_goes_on_from_a_limit_that_was_typed(
    open_page: Open, shop: Shop, key: str
) -> None:
    await shop.seed()
    page = await open_page("/queues")
    limit = page.get_by_role("button", name="concurrency of images")
    await limit.focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_label("concurrency of images")).to_be_focused()
    await page.keyboard.type("5")

    await page.keyboard.press(key)

    await expect(limit).to_be_focused()
    await limit.click()
    await page.get_by_role("link", name="mail").focus()
    await expect(limit).to_be_visible()
    await expect(page.get_by_role("link", name="mail")).to_be_focused()


async def test_the_undo_of_a_limit_does_not_take_back_that_of_another(
    open_page: Open, shop: Shop
) -> None:
    await shop.seed()
    page = await open_page("/queues")
    await page.get_by_role("button", name="concurrency of images").click()
    await page.get_by_label("concurrency of images").fill("5")
    await page.keyboard.press("Enter")
    await expect(page.locator(".toast")).to_contain_text("is 5")
    await shop.patch("/v1/queues/images", {"concurrency": 9})

    await page.get_by_role("button", name="Undo").click()

    await expect(page.locator(".toast")).to_contain_text("another has changed it meanwhile")
    assert shop.engine.get_queue("images").concurrency == 9


async def test_the_only_limit_of_an_idle_queue_is_put_back(open_page: Open, shop: Shop) -> None:
    await shop.patch("/v1/queues/idle", {"concurrency": 3})
    page = await open_page("/queues/idle")
    limit = page.get_by_role("button", name="concurrency of idle")
    await limit.click()
    await page.get_by_label("concurrency of idle").fill("")
    await page.keyboard.press("Enter")
    await expect(limit).to_have_text("∞")

    await page.get_by_role("button", name="Undo").click()

    await expect(page.locator(".toast")).to_contain_text("Taken back.")
    await expect(limit).to_have_text("3")


async def test_a_change_that_could_not_be_read_is_read_when_it_can_be(
    open_page: Open, shop: Shop
) -> None:
    shop.expected += ["503"]
    await shop.seed()
    page = await open_page("/queues")
    await be_live(page)
    await intercept(page, "**/v1/queues", lambda route: route.fulfill(status=503, body="{}"))
    async with page.expect_response(lambda response: response.status == 503):
        await shop.patch("/v1/queues/images", {"concurrency": 9})

    await page.unroute("**/v1/queues")

    await expect(page.get_by_role("button", name="concurrency of images")).to_have_text("9")


async def test_a_limit_that_is_half_typed_waits_while_the_user_looks_into_another_window(
    open_page: Open, shop: Shop
) -> None:
    await shop.seed()
    page = await open_page("/queues")
    await page.get_by_role("button", name="concurrency of images").click()
    field = page.get_by_label("concurrency of images")
    await field.fill("1")

    # As another window comes to the front, which no window of a test does.
    await page.evaluate(
        "document.hasFocus = () => false; document.activeElement.dispatchEvent(new Event('blur'))"
    )
    await next_frame(page)

    await field.fill("12")
    await page.keyboard.press("Enter")
    await expect(page.locator(".toast")).to_have_count(1)
    await expect(page.locator(".toast")).to_contain_text("is 12")


async def test_each_number_has_its_label_on_a_phone(open_page: Open, shop: Shop) -> None:
    await shop.seed()
    page = await open_page("/queues", width=390)
    await expect(page.locator("tbody tr")).to_have_count(3)

    labels = await page.eval_on_selector_all(
        "tr[data-key=images] td.num",
        "all => all.filter(each => each.offsetParent)"
        ".map(each => getComputedStyle(each, '::before').content)",
    )

    assert labels == ['"Running "', '"Due "', '"Oldest "']


async def test_the_note_of_a_pause_is_only_text(open_page: Open, shop: Shop) -> None:
    await shop.seed()
    await shop.post("/v1/queues/images:pause", {"note": HOSTILE})
    page = await open_page("/queues")
    await expect(page.locator("tbody")).to_contain_text(SHOWN)

    await page.get_by_role("button", name="Resume").click()

    await expect(page.locator("tbody")).not_to_contain_text(SHOWN)
    await page.get_by_role("button", name="Undo").click()
    await expect(page.locator("tbody")).to_contain_text(SHOWN)


@pytest.mark.parametrize("path", ["/queues/default", "/jobs?state=queued"])
async def test_due_jobs_are_shown_below_many_newer_ones(
    open_page: Open, shop: Shop, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    for name in ("LOOKED_AT_ONCE", "LOOKED_AT_ALONE"):
        monkeypatch.setattr(job_search, name, 2)
    monkeypatch.setattr(read_connection, "LOOKED_AT_MAX", 4)
    for _ in range(5):
        await shop.submit(task="unserved")
    await shop.post("/v1/jobs:batch", [{"task": "later", "delay": "1h"}] * 20)
    first = (await shop.get("/v1/jobs?state=queued")).json()
    assert (first["items"], first["partial"]) == ([], True)

    page = await open_page(path)

    await expect(page.locator("tbody .state", has_text="queued")).to_have_count(5)
