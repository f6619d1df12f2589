"""The screens of schedules: what they say, what can be done by keyboard, and what is only text."""

from __future__ import annotations

import re

from playwright.async_api import Page, Route, expect

from schedo.protocol.times import parse_duration, parse_instant, render_instant
from tests.browser.conftest import Axe, Open, intercept
from tests.browser.shop import Shop
from tests.browser.test_frame import be_live

COPIED = re.compile("Copied|Press Ctrl")  # the browser of a test may refuse the clipboard
HOSTILE = "<img src=x onerror=alert(1)>"


async def press(page: Page, *keys: str) -> None:
    for key in keys:
        await page.keyboard.press(key)


async def test_a_schedule_is_paused_with_a_note_and_the_pause_is_undone_by_keyboard(
    open_page: Open, shop: Shop
) -> None:
    await shop.seed()
    page = await open_page("/")
    await be_live(page)
    await press(page, "g", "s")
    await expect(page.locator("tbody tr")).to_have_count(3)
    await press(page, "j")
    name = await page.evaluate("document.activeElement.textContent")
    await press(page, "Enter")
    await expect(page.locator("h1")).to_have_text(name)
    await page.get_by_role("button", name="Pause…").focus()
    await press(page, "Enter")

    await expect(page.get_by_role("textbox", name="Note")).to_be_focused()
    await page.keyboard.type(HOSTILE)
    await press(page, "Enter")

    await expect(page.locator("main")).to_contain_text(HOSTILE)
    assert (await shop.get(f"/v1/schedules/{name}")).json()["note"] == HOSTILE
    await page.get_by_role("button", name="Undo").click()
    await expect(page.locator("main")).not_to_contain_text(HOSTILE)
    assert not (await shop.get(f"/v1/schedules/{name}")).json()["paused"]


async def test_a_command_is_copied_from_a_question_without_carrying_it_out(
    open_page: Open, shop: Shop
) -> None:
    await shop.seed()
    page = await open_page("/schedules/backup.nightly")
    await be_live(page)
    pause = page.get_by_role("button", name="Pause…")

    await pause.click()
    question = page.get_by_role("dialog")
    await question.get_by_role("button", name="Copy as curl").click()
    await expect(question.get_by_role("button", name=COPIED)).to_be_visible()
    await question.get_by_role("button", name="Go back").click()
    await expect(question).to_have_count(0)

    assert not (await shop.get("/v1/schedules/backup.nightly")).json()["paused"]


async def test_a_text_that_the_browser_does_not_copy_is_shown_until_its_field_is_left(
    open_page: Open, shop: Shop
) -> None:
    await shop.seed()
    page = await open_page("/schedules/backup.nightly")
    await be_live(page)
    await page.evaluate(
        "navigator.clipboard.writeText = () => Promise.reject(new Error('denied'));"
        " document.execCommand = () => false"
    )

    await page.locator(".menu summary").click()
    await page.get_by_role("button", name="curl").click()
    field = page.get_by_role("textbox", name="curl")
    await expect(field).to_be_focused()
    assert "backup.nightly" in await page.evaluate("getSelection().toString()")
    await press(page, "Tab")

    await expect(field).to_be_hidden()


async def test_the_coming_fire_is_said_once(open_page: Open, shop: Shop) -> None:
    # It does not fire while the test runs, unless that is when a year ends.
    await shop.put("/v1/schedules/tide", {"cron": "0 0 1 1 *", "task": "sync"})
    [first, *_] = (await shop.get("/v1/schedules/tide")).json()["next_fires"]
    page = await open_page("/schedules/tide")

    await expect(page.locator(".fires .first")).to_contain_text(re.compile(r"in \d+(\.\d)? [dhms]"))

    assert await page.locator(f'.fires time[datetime="{first}"]').count() == 1


async def test_a_deleted_schedule_is_put_back(open_page: Open, shop: Shop) -> None:
    shop.expected += ["404"]  # of the name that is still free
    await shop.seed()
    before = (await shop.get("/v1/schedules/backup.nightly")).json()
    page = await open_page("/schedules/backup.nightly")
    await page.get_by_role("button", name="Delete…").click()
    delete = page.get_by_role("button", name="Delete the schedule")
    await expect(delete).to_be_disabled()
    await page.get_by_label("Type backup.nightly").fill("backup.nightly")

    await delete.click()

    await expect(page.locator("h1")).to_have_text("Schedules")
    assert (await shop.get("/v1/schedules/backup.nightly")).status == 404
    await page.get_by_role("button", name="Undo").click()
    await expect(page.locator("tbody")).to_contain_text("backup.nightly")
    after = (await shop.get("/v1/schedules/backup.nightly")).json()
    assert {name: before[name] for name in ("cron", "tz", "task", "payload")} == {
        name: after[name] for name in ("cron", "tz", "task", "payload")
    }


async def test_a_deleted_schedule_is_not_put_back_over_that_of_another(
    open_page: Open, shop: Shop
) -> None:
    await shop.seed()
    page = await open_page("/schedules/cache.warm")
    await page.get_by_role("button", name="Delete…").click()
    await page.get_by_label("Type cache.warm").fill("cache.warm")
    await page.get_by_role("button", name="Delete the schedule").click()
    await expect(page.locator("h1")).to_have_text("Schedules")
    await shop.put("/v1/schedules/cache.warm", {"every": "5m", "task": "sync"})

    await page.get_by_role("button", name="Undo").click()

    await expect(page.locator(".toast")).to_contain_text("another has changed it meanwhile")
    assert (await shop.get("/v1/schedules/cache.warm")).json()["every"] == "5m"


async def test_the_list_is_filtered_by_its_address(open_page: Open, shop: Shop) -> None:
    await shop.seed()
    await shop.post("/v1/schedules/cache.warm:pause", {"note": "busy"})

    page = await open_page("/schedules?health=paused")

    await expect(page.locator("tbody tr")).to_have_count(1)
    await expect(page.locator("tbody tr")).to_contain_text("cache.warm")
    await page.get_by_role("searchbox").fill("nothing")
    await expect(page.locator("main")).to_contain_text("No schedule matches")


async def test_no_row_moves_below_the_pointer(open_page: Open, shop: Shop) -> None:
    for name, year in (("first", 2127), ("second", 2128)):
        rule = {"at": f"{year}-01-04T06:00:00Z", "task": "sync"}
        await shop.put(f"/v1/schedules/{name}", rule)
    page = await open_page("/schedules")
    await be_live(page)
    names = page.locator("tbody .name a")
    await expect(names).to_have_text(["first", "second"])
    await page.get_by_role("button", name="Trigger").first.hover()

    await shop.put("/v1/schedules/second", {**rule, "at": "2126-01-04T06:00:00Z"})

    await expect(page.locator("tbody")).to_contain_text("2126")
    await expect(names).to_have_text(["first", "second"])
    await page.locator("h1").hover()
    await expect(names).to_have_text(["second", "first"])


async def test_a_triggered_run_shows_in_the_ledger(open_page: Open, shop: Shop) -> None:
    await shop.seed()
    page = await open_page("/schedules/backup.nightly")

    await page.get_by_role("button", name="Trigger").click()

    await expect(page.locator(".ledger").get_by_role("link", name="1 triggered")).to_be_visible()


async def test_a_list_that_cannot_be_read_says_so_and_tries_again(
    open_page: Open, shop: Shop
) -> None:
    shop.expected += ["500"]
    page = await open_page("/login")

    # The stream has the list read again too: each read fails that no click came before.
    async def fail_until_clicked(route: Route) -> None:
        if await page.evaluate("window.isClicked"):
            await route.continue_()
        else:
            await route.fulfill(status=500, json={})

    await page.route("**/v1/schedules?*", fail_until_clicked)
    await page.goto(f"{shop.url}/schedules")

    await expect(page.get_by_role("alert")).to_contain_text("could not be read")
    await page.evaluate("addEventListener('click', () => { window.isClicked = true; }, true)")
    await page.get_by_role("button", name="Try again").click()
    await expect(page.locator("main")).to_contain_text("There is no schedule yet")


async def test_schedules_are_not_shown_as_failing_when_the_failing_ones_cannot_be_read(
    open_page: Open, shop: Shop
) -> None:
    shop.expected += ["500"]
    await shop.seed()
    page = await open_page("/schedules")
    await expect(page.locator("tbody tr")).to_have_count(3)
    await intercept(
        page, "**/v1/schedules?*health=failing*", lambda route: route.fulfill(status=500)
    )

    await page.get_by_role("button", name="failing").click()

    await expect(page.get_by_role("alert")).to_contain_text("could not be read")
    await expect(page.locator("tbody tr")).to_have_count(0)


async def test_the_screen_of_a_schedule_has_no_barrier_and_fits_a_phone(
    open_page: Open, shop: Shop, axe: Axe
) -> None:
    await shop.seed()
    await shop.post("/v1/schedules/backup.nightly:trigger", {})
    await shop.engine.flush()
    page = await open_page("/schedules/backup.nightly", bypass_csp=True)
    await expect(page.locator(".ledger a")).to_have_count(1)

    await axe(page)
    await page.emulate_media(color_scheme="dark")
    await page.set_viewport_size({"width": 390, "height": 844})
    await axe(page)

    assert await page.evaluate("document.documentElement.scrollWidth") <= 390


async def test_a_schedule_that_is_gone_says_so(open_page: Open, shop: Shop) -> None:
    shop.expected += ["404"]

    page = await open_page("/schedules/nothing")

    await expect(page.locator("main")).to_contain_text("There is no schedule of this name")
    await be_live(page)


async def test_a_list_of_many_schedules_shows_first_what_is_wrong_and_is_searched_whole(
    open_page: Open, shop: Shop
) -> None:
    rule = {"cron": "0 3 * * *", "task": "sync", "queue": "night"}
    many = [{**rule, "name": f"s{number:03}"} for number in range(240)]
    last = {"name": "z.late", "every": "1s", "task": "nobody", "expect": {"within": "10ms"}}
    declared = {"owner": "file:many.toml", "schedules": [*many, last]}
    assert (await shop.post("/v1/declarations", declared)).status == 200

    page = await open_page("/schedules")

    await expect(page.locator("main")).to_contain_text("1 schedule of 241")
    await expect(page.locator("tbody tr").first).to_contain_text("z.late")
    await expect(page.get_by_role("button", name="overdue 1")).to_be_visible()
    await page.get_by_role("button", name="Next page").click()
    await expect(page.locator("tbody tr").first).to_contain_text("s100")
    await page.get_by_role("searchbox").fill("night s239")
    await expect(page.locator("tbody tr")).to_have_count(1)
    await expect(page.locator("tbody tr")).to_contain_text("s239")


async def test_a_fire_with_jitter_is_a_range_and_its_run_is_beside_it(
    open_page: Open, shop: Shop
) -> None:
    rule = {"cron": "0 * * * *", "jitter": "10m", "task": "sync", "payload": {"region": "eu"}}
    await shop.put("/v1/schedules/spread", rule)
    first, *_ = (await shop.get("/v1/schedules/spread/fires")).json()["items"]
    due = parse_instant(first["at"]) + parse_duration(first["jitter"])
    page = await open_page("/schedules/spread", timezone_id="UTC")

    line = page.locator(".fires li").first
    await expect(line).to_contain_text(re.compile(r":00:00 to [0-9:]{3}10:00 in .+ its run: "))
    await expect(line).to_contain_text(render_instant(due)[11:19])
    await expect(page.locator(".ledger [aria-label*='comes, with jitter']").first).to_be_visible()
    await expect(page.get_by_role("region", name="Payload of")).to_contain_text('"eu"')
