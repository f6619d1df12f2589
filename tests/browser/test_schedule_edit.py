"""Changing a schedule and making one: nothing is saved before it is shown what changes."""

from __future__ import annotations

import re
from typing import Any

from playwright.async_api import Page, expect

from tests.browser.conftest import Axe, Open
from tests.browser.shop import Shop

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
HOOK = {
    "every": "1h",
    "task": "http",
    "payload": {"url": "https://example.org", "secret": SECRET},
}


async def test_a_changed_rule_is_explained_and_shown_as_a_difference_before_it_is_saved(
    open_page: Open, shop: Shop, axe: Axe
) -> None:
    await shop.seed()
    page = await open_page("/schedules/backup.nightly/edit", bypass_csp=True)
    await expect(page.get_by_role("button", name="Save")).to_be_disabled()

    await page.get_by_label("Cron").fill("0 5 * * *")

    await expect(page.locator("main")).to_contain_text("At 05:00 every day")
    await expect(page.locator(".changes")).to_contain_text("30 2 * * *")
    await axe(page)
    assert (await shop.get("/v1/schedules/backup.nightly")).json()["cron"] == "30 2 * * *"
    await page.keyboard.press("Enter")
    await expect(page.locator("h1")).to_have_text("backup.nightly")
    assert (await shop.get("/v1/schedules/backup.nightly")).json()["cron"] == "0 5 * * *"
    await page.get_by_role("button", name="Undo").click()
    await expect(page.locator(".head code")).to_have_text("30 2 * * *")


async def test_a_new_schedule_never_replaces_one(open_page: Open, shop: Shop) -> None:
    shop.expected += ["404"]  # of the name that is still free
    await shop.seed()
    page = await open_page("/schedules/-new")
    await page.get_by_label("Name").fill("cache.warm")
    await page.get_by_label("Cron").fill("H 3 * * *")
    await page.get_by_label("Task", exact=True).fill("warm")

    await page.get_by_role("button", name="Make it").click()

    await expect(page.get_by_role("alert")).to_contain_text("There is a schedule of this name")
    await page.get_by_label("Name").fill("cache.cold")
    await page.get_by_role("button", name="Make it").click()
    await expect(page.locator("h1")).to_have_text("cache.cold")
    assert (await shop.get("/v1/schedules/cache.warm")).json()["every"] == "30m"


async def test_a_wrong_rule_is_told_beside_it(open_page: Open, shop: Shop) -> None:
    shop.expected += ["422"]
    await shop.seed()
    page = await open_page("/schedules/cache.warm/edit")

    await page.get_by_label("Every").fill("often")
    await page.get_by_role("button", name="Save").click()

    await expect(page.locator(".field.wrong")).to_contain_text("Every")
    assert (await shop.get("/v1/schedules/cache.warm")).json()["every"] == "30m"


async def test_what_another_has_saved_meanwhile_is_shown_before_it_is_replaced(
    open_page: Open, shop: Shop
) -> None:
    await shop.put("/v1/schedules/report", {"cron": "0 5 * * *", "task": "sync"})
    page = await open_page("/schedules/report/edit")
    await page.get_by_label("Cron").fill("0 6 * * *")
    await shop.put("/v1/schedules/report", {"cron": "0 5 * * *", "task": "weigh"})
    save = page.get_by_role("button", name="Save")

    await save.click()

    await expect(page.get_by_role("alert")).to_contain_text("changed by another meanwhile")
    await expect(page.locator(".changes dt")).to_have_text(["cron", "task"])
    assert (await shop.get("/v1/schedules/report")).json()["task"] == "weigh"
    await page.get_by_label("Task", exact=True).fill("weigh")
    await expect(page.locator(".changes dt")).to_have_text(["cron"])
    await save.click()
    await expect(page.locator("h1")).to_have_text("report")
    saved = (await shop.get("/v1/schedules/report")).json()
    assert (saved["cron"], saved["task"]) == ("0 6 * * *", "weigh")


async def test_an_undo_does_not_take_back_what_another_has_done_since(
    open_page: Open, shop: Shop
) -> None:
    await shop.put("/v1/schedules/report", {"cron": "0 5 * * *", "task": "sync"})
    page = await open_page("/schedules/report/edit")
    await page.get_by_label("Cron").fill("0 6 * * *")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator("h1")).to_have_text("report")
    await shop.post("/v1/schedules/report:pause", {})

    await page.get_by_role("button", name="Undo").click()

    await expect(page.locator(".toast")).to_contain_text("another has changed it meanwhile")
    left = (await shop.get("/v1/schedules/report")).json()
    assert (left["cron"], left["paused"]) == ("0 6 * * *", True)


async def test_a_schedule_that_another_has_deleted_is_not_made_anew_unasked(
    open_page: Open, shop: Shop
) -> None:
    shop.expected += ["404"]
    await shop.put("/v1/schedules/report", {"cron": "0 5 * * *", "task": "sync"})
    page = await open_page("/schedules/report/edit")
    await page.get_by_label("Cron").fill("0 6 * * *")
    await shop.engine.delete_schedule("report")
    save = page.get_by_role("button", name="Save")

    await save.click()

    await expect(page.get_by_role("alert")).to_contain_text("deleted by another meanwhile")
    assert (await shop.get("/v1/schedules/report")).status == 404
    await save.click()
    await expect(page.locator("h1")).to_have_text("report")
    assert (await shop.get("/v1/schedules/report")).json()["cron"] == "0 6 * * *"


async def test_an_interval_that_is_typed_anew_stays_an_interval(
    open_page: Open, shop: Shop
) -> None:
    await shop.put("/v1/schedules/report", {"every": "30m", "task": "sync"})
    page = await open_page("/schedules/report/edit")
    interval = page.get_by_label("Every")

    await interval.fill("")

    await expect(page.locator("main")).to_contain_text("It needs a rule.")
    await interval.fill("15m")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator("h1")).to_have_text("report")
    assert (await shop.get("/v1/schedules/report")).json()["every"] == "15m"


async def test_a_payload_that_is_an_empty_text_is_no_missing_one(
    open_page: Open, shop: Shop
) -> None:
    await shop.put("/v1/schedules/report", {"every": "30m", "task": "sync", "payload": 0})
    page = await open_page("/schedules/report/edit")

    await page.get_by_label("Payload").fill('""')
    await page.get_by_role("button", name="Save").click()

    await expect(page.locator("h1")).to_have_text("report")
    assert (await shop.get("/v1/schedules/report")).json()["payload"] == ""


# By the label of a field: what is chosen or typed, the field of the body, and its value there.
CHOSEN: dict[str, tuple[str, str, Any]] = {
    "An earlier run is unfinished": ("buffer_one", "overlap", "buffer_one"),
    "Instants were missed": ("all", "catchup", "all"),
    "A lost attempt": ("at_most_once", "delivery", "at_most_once"),
    "A time that does not exist": ("skip", "dst", {"gap": "skip", "fold": "first"}),
    "Paused": ("true", "paused", True),
}
TYPED: dict[str, tuple[str, str, Any]] = {
    "Jitter": ("5m", "jitter", "5m"),
    "Queue": ("nightly", "queue", "nightly"),
    "Payload": ('{"table": "orders"}', "payload", {"table": "orders"}),
    "After a final failure, run the task": ("pager", "on_failure", {"task": "pager"}),
    "Missed at most this long ago": ("2h", "catchup_window", "2h"),
    "Missed runs at most": ("7", "catchup_max", 7),
    "Expect a completed run within": ("30m", "expect", {"within": "30m"}),
    "An attempt runs at most": ("10m", "timeout", "10m"),
    "Expires if not started within": ("1h", "expires_in", "1h"),
    "Priority": ("-3", "priority", -3),
    "Fires from": ("2027-01-01T00:00:00Z", "start_at", "2027-01-01T00:00:00.000000Z"),
    "Fires until": ("2027-12-01T00:00:00Z", "end_at", "2027-12-01T00:00:00.000000Z"),
    "Only workers with": ('{"worker": "w1"}', "requires", {"worker": "w1"}),
    "Rather workers with, the best first": ('[{"zone": "eu"}]', "prefer", [{"zone": "eu"}]),
    "Tags": ("db, nightly", "tags", ["db", "nightly"]),
    "Keep failed runs": ("30d", "keep", {"failed": "30d"}),
    "Meta": ('{"owner": "ada"}', "meta", {"owner": "ada"}),
}


async def open_groups(page: Page) -> None:
    """Open the fields that are rarely needed."""
    await page.get_by_label("Cron").wait_for()
    await page.eval_on_selector_all("details.group", "all => all.forEach(each => each.open = true)")


async def test_every_field_of_a_schedule_can_be_changed(
    open_page: Open, shop: Shop, axe: Axe
) -> None:
    await shop.seed()
    page = await open_page("/schedules/backup.nightly/edit", bypass_csp=True)
    await open_groups(page)
    for label, (value, *_) in CHOSEN.items():
        await page.get_by_label(label, exact=True).select_option(value)
    for label, (value, *_) in TYPED.items():
        await page.get_by_label(label, exact=True).fill(value)
    await page.get_by_label("Is it tried again").select_option("sidekiq")
    await axe(page)

    await page.get_by_role("button", name="Save").click()

    await expect(page.locator("h1")).to_have_text("backup.nightly")
    saved = (await shop.get("/v1/schedules/backup.nightly")).json()
    for _, field, value in (*CHOSEN.values(), *TYPED.values()):
        assert saved[field] == value, field
    assert saved["retry"]["preset"] == "sidekiq"
    await page.goto(f"{shop.url}/schedules/backup.nightly/edit")
    await expect(page.locator("details.group").first).to_contain_text("sidekiq")
    await expect(page.get_by_role("button", name="Save")).to_be_disabled()
    await expect(page.locator("main")).to_contain_text("Nothing differs")


async def test_what_the_server_refuses_stands_beside_its_field_which_gets_the_focus(
    open_page: Open, shop: Shop
) -> None:
    shop.expected += ["422"]
    await shop.seed()
    page = await open_page("/schedules/backup.nightly/edit")
    await open_groups(page)
    await page.get_by_label("Is it tried again").select_option("policy")
    await page.get_by_label("Attempts").fill("0")
    await page.locator("details.group > summary").first.click()  # close it again

    await page.get_by_role("button", name="Save").click()

    await expect(page.get_by_label("Attempts")).to_be_focused()
    await expect(page.locator(".field.wrong")).to_contain_text("Expected whole number >= 1")
    await page.get_by_label("Attempts").fill("2")
    await expect(page.locator(".field.wrong")).to_have_count(0)


async def test_a_text_that_is_no_json_is_not_sent(open_page: Open, shop: Shop) -> None:
    await shop.seed()
    page = await open_page("/schedules/backup.nightly/edit")

    await page.get_by_label("Payload").fill('{"a": ')

    await expect(page.locator(".field.wrong")).to_contain_text("Payload")
    await expect(page.get_by_role("button", name="Save")).to_be_disabled()
    await expect(page.get_by_label("Payload")).to_have_value('{"a": ')


async def test_a_text_that_is_no_json_goes_with_its_field(open_page: Open, shop: Shop) -> None:
    await shop.seed()
    page = await open_page("/schedules/backup.nightly/edit")
    await open_groups(page)
    task = page.get_by_label("After a final failure, run the task", exact=True)
    await task.fill("pager")
    await page.get_by_label("Its payload").fill("{")
    await expect(page.locator("main")).to_contain_text("on_failure.payload is not JSON")

    await task.fill("")
    await page.get_by_label("Priority").fill("3")

    await expect(page.get_by_role("button", name="Save")).to_be_enabled()


async def test_a_secret_stays_when_something_else_is_changed(open_page: Open, shop: Shop) -> None:
    await shop.put("/v1/schedules/hook", HOOK)
    page = await open_page("/schedules/hook/edit")

    await page.get_by_label("Every").fill("2h")
    await page.get_by_role("button", name="Save").click()

    await expect(page.locator("h1")).to_have_text("hook")
    schedule = await shop.engine.get_schedule("hook")
    assert SECRET.encode() in schedule.spec.job.payload
    assert (await shop.get("/v1/schedules/hook")).json()["every"] == "2h"


async def test_a_new_secret_is_saved_without_the_offer_to_bring_the_old_one_back(
    open_page: Open, shop: Shop
) -> None:
    await shop.put("/v1/schedules/hook", HOOK)
    page = await open_page("/schedules/hook/edit")
    payload = page.get_by_label("Payload", exact=True)
    await payload.fill((await payload.input_value()).replace("***", SECRET.swapcase()))

    await page.get_by_role("button", name="Save").click()

    toast = page.locator(".toast")
    await expect(toast).to_contain_text("hook is changed.")
    assert "Undo" not in await toast.inner_text()


async def test_a_mask_is_not_saved_as_the_secret_of_another_task(
    open_page: Open, shop: Shop
) -> None:
    await shop.put("/v1/schedules/hook", HOOK)
    page = await open_page("/schedules/hook/edit")

    await page.get_by_label("Task", exact=True).fill("call")

    await expect(page.locator("main")).to_contain_text("Type the secret")
    await expect(page.get_by_role("button", name="Save")).to_be_disabled()


async def test_a_large_number_keeps_its_digits_when_something_else_is_changed(
    open_page: Open, shop: Shop
) -> None:
    large, larger = 2**53 + 1, 2**62 + 1
    await shop.put("/v1/schedules/count", {"every": "1h", "task": "sync", "payload": {"n": large}})
    page = await open_page("/schedules/count/edit")

    await page.get_by_label("Every").fill("2h")

    await expect(page.locator(".changes dt")).to_have_text(["every"])
    await page.get_by_label("Payload").fill(f'{{"n": {large}, "to": {larger}}}')
    await expect(page.locator(".changes dt")).to_have_text(["every", "payload.to"])
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator("h1")).to_have_text("count")
    saved = (await shop.get("/v1/schedules/count")).json()
    assert (saved["every"], saved["payload"]) == ("2h", {"n": large, "to": larger})


async def test_a_number_with_a_fraction_of_zero_stays_one(open_page: Open, shop: Shop) -> None:
    rate = {"rate": 1.0, "few": 1e-9}
    await shop.put("/v1/schedules/count", {"every": "1h", "task": "sync", "payload": rate})
    before = (await shop.get("/v1/schedules/count")).body.partition(b'"payload":')[2]
    page = await open_page("/schedules/count/edit")

    await page.get_by_label("Every").fill("2h")
    await expect(page.get_by_label("Payload")).to_have_value(re.compile(r"1\.0"))
    await page.get_by_role("button", name="Save").click()

    await expect(page.locator("h1")).to_have_text("count")
    after = (await shop.get("/v1/schedules/count")).body.partition(b'"payload":')[2]
    assert after.partition(b"}")[0] == before.partition(b"}")[0]


async def test_a_schedule_may_be_called_new(open_page: Open, shop: Shop) -> None:
    await shop.put("/v1/schedules/new", {"every": "1h", "task": "sync"})

    page = await open_page("/schedules/new")

    await expect(page.locator("h1")).to_have_text("new")
    await page.get_by_role("link", name="Duplicate").click()
    await expect(page.get_by_label("Every")).to_have_value("1h")
    await expect(page.get_by_label("Name")).to_have_value("")


async def test_the_preview_shows_fires_as_ranges_while_a_jitter_is_typed(
    open_page: Open, shop: Shop
) -> None:
    await shop.seed()
    page = await open_page("/schedules/backup.nightly/edit")

    await page.get_by_label("Jitter").fill("20m")

    await expect(page.locator(".fires li").first).to_contain_text("02:30:00 to 02:50:00")


async def test_the_preview_of_an_instant_follows_its_offset(open_page: Open, shop: Shop) -> None:
    page = await open_page("/schedules/-new")
    await page.get_by_role("button", name="UTC").click()
    await page.get_by_role("button", name="once").click()
    instant = page.get_by_label("At", exact=True)

    await instant.fill("2127-01-04T06:00:00+05:00")

    await expect(page.locator(".says")).to_contain_text("2127-01-04 01:00:00")
    await instant.fill("2127-01-04")  # not yet an instant
    await expect(page.locator(".says")).to_have_count(0)


async def test_what_changes_is_as_wide_as_the_cards_above_it(open_page: Open, shop: Shop) -> None:
    await shop.seed()
    for width in (1440, 390):
        page = await open_page("/schedules/backup.nightly/edit", width=width)
        changes = page.get_by_role("region", name="What changes")
        await expect(changes).to_be_visible()
        means = page.get_by_role("region", name="What it means")

        narrow, wide = await changes.bounding_box(), await means.bounding_box()

        assert narrow
        assert wide
        assert narrow["width"] == wide["width"]
        await page.close()


async def test_a_schedule_that_does_not_exist_can_be_made(open_page: Open, shop: Shop) -> None:
    shop.expected += ["404"]
    page = await open_page("/schedules/not.there/edit")

    await expect(page.locator("main")).to_contain_text("There is no schedule of this name.")
    await page.get_by_role("link", name="Make it").click()

    await expect(page.get_by_label("Name", exact=True)).to_have_value("not.there")
