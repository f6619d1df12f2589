"""The main path by keyboard alone: from the overview to a job and back, palette and help."""

from __future__ import annotations

import re

from playwright.async_api import Page, expect

from tests.browser.conftest import Open, next_frame
from tests.browser.shop import Shop
from tests.browser.test_failures import fail
from tests.browser.test_leaving import hold


async def type_into_palette(page: Page, text: str, found: str) -> None:
    """Open the palette, type, and take the first of what was found."""
    await page.keyboard.press("/")
    await expect(page.get_by_role("combobox")).to_be_focused()
    await page.keyboard.type(text)
    # The last option searches for the text, and is the only one until the names are here.
    chosen = page.get_by_role("option", selected=True).locator(".text")
    await expect(chosen).to_have_text(found)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("dialog")).to_have_count(0)


# What Escape does, and a click before the browser has told the page that the dialog is closed.
ESCAPE_AND_CLICK = """async (button) => {
  const dialog = document.querySelector('dialog');
  dialog.dispatchEvent(new Event('cancel', { cancelable: true }));
  dialog.close();
  for (let n = 0; n < 50; n += 1) await null;
  button.click();
}"""


async def test_a_failed_job_is_found_retried_and_left_by_keyboard_alone(
    open_page: Open, shop: Shop
) -> None:
    await fail(shop, "charge_card", 2, "the gateway answered 502")
    page = await open_page("/")
    await expect(page.locator(".verdict")).to_be_visible()

    await type_into_palette(page, "failed charge", "failed charge_card")
    await expect(page).to_have_url(re.compile(r"/jobs\?task=charge_card&state=failed$"))
    await expect(page.locator("tbody tr")).to_have_count(2)
    for key in ("j", "j", "k"):
        await page.keyboard.press(key)
    ident = await page.locator("tbody a").first.text_content() or ""
    await expect(page.locator("tbody a").first).to_be_focused()
    await page.keyboard.press("Enter")

    await expect(page.locator("h1")).to_have_text(ident)
    await expect(page.locator("main")).to_be_focused()
    await expect(page.get_by_role("button", name="Retry", exact=True)).to_be_visible()
    await page.keyboard.press("r")
    await expect(page.locator(".head .state")).to_have_text("queued")
    for _ in range(40):  # the message comes last in the page
        if await page.evaluate("document.activeElement.textContent") == "Undo":
            break
        await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await expect(page.locator(".head .state")).to_have_text("cancelled")

    await page.go_back()  # the key for it is the browser's
    await expect(page).to_have_url(re.compile(r"/jobs\?task=charge_card&state=failed$"))
    await expect(page.locator("tbody tr")).to_have_count(1)
    await page.keyboard.press("g")
    await page.keyboard.press("o")
    await expect(page).to_have_title("Overview · schedo")


async def test_the_second_key_of_a_way_that_leads_nowhere_does_nothing_else(
    open_page: Open, shop: Shop
) -> None:
    await fail(shop, "charge_card", 1, "the gateway answered 502")
    [job] = (await shop.get("/v1/jobs?state=failed")).json()["items"]
    page = await open_page(f"/jobs/{job['id']}")
    await expect(page.get_by_role("button", name="Retry", exact=True)).to_be_visible()

    for key in ("g", "r", "g", "g", "o"):  # r alone retries the job
        await page.keyboard.press(key)

    await expect(page).to_have_title("Overview · schedo")
    assert (await shop.get(f"/v1/jobs/{job['id']}")).json()["state"] == "failed"


async def test_the_palette_finds_an_id_and_carries_out_a_verb(open_page: Open, shop: Shop) -> None:
    await shop.seed()
    job = await shop.submit(task="later", delay="1h")
    page = await open_page("/")
    await expect(page.locator(".verdict")).to_be_visible()

    await type_into_palette(page, job["id"].lower(), job["id"])
    await expect(page.locator("h1")).to_have_text(job["id"])
    await type_into_palette(page, "pause queue mail", "pause queue mail")

    await expect(page.locator(".toasts")).to_contain_text("The queue mail is paused.")
    assert (await shop.engine.get_queue_status("mail")).queue.paused


async def test_a_verb_of_the_palette_is_taken_back(open_page: Open, shop: Shop) -> None:
    await shop.seed()
    await shop.put("/v1/schedules/report", {"every": "1d", "task": "later"})
    page = await open_page("/expectations")
    undo = page.get_by_role("button", name="Undo")

    await type_into_palette(page, "pause queue mail", "pause queue mail")
    await undo.click()
    await expect(page.locator(".toasts")).to_contain_text("Taken back.")
    await type_into_palette(page, "trigger report", "trigger report")
    await undo.click()
    await expect(page.locator(".toast", has_text="Taken back.")).to_have_count(2)

    assert not (await shop.engine.get_queue_status("mail")).queue.paused


async def test_dialogs_give_the_focus_back_and_the_first_tab_skips_the_bar(
    open_page: Open, shop: Shop
) -> None:
    await shop.seed()
    [running, *_] = (await shop.get("/v1/jobs?state=running")).json()["items"]
    page = await open_page(f"/jobs/{running['id']}")
    await expect(page.locator(".head .state")).to_have_text("running")

    await page.keyboard.press("Tab")
    await expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.locator("main")).to_be_focused()
    for key in ("?", "c"):
        await page.keyboard.press(key)
        await expect(page.get_by_role("dialog")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("dialog")).to_have_count(0)
        await expect(page.locator("main")).to_be_focused()
    await expect(page.locator(".head .state")).to_have_text("running")


async def test_a_dialog_has_the_keys_as_soon_as_it_is_in_the_page(open_page: Open) -> None:
    page = await open_page("/")
    is_open = await page.evaluate("""() => new Promise((resolve) => {
      new MutationObserver(() => {
        const box = document.querySelector('dialog');
        if (box) resolve(box.open);
      }).observe(document.body, {childList: true, subtree: true});
      document.body.dispatchEvent(new KeyboardEvent('keydown', {key: '?', bubbles: true}));
    })""")
    assert is_open


async def test_a_key_that_is_held_does_what_it_does_once(open_page: Open, shop: Shop) -> None:
    job = await shop.submit(task="later", delay="1h")
    page = await open_page(f"/jobs/{job['id']}")
    await expect(page.get_by_role("button", name="Run now")).to_be_visible()
    sent: list[str] = []
    page.on("request", lambda each: sent.append(each.url) if each.method == "POST" else None)

    for _ in range(3):
        await page.keyboard.down("e")
    await page.keyboard.up("e")

    await expect(page.locator(".head .state")).to_have_text("queued")
    assert len(sent) == 1


async def test_a_held_enter_does_not_answer_the_question_that_it_has_asked(
    open_page: Open, shop: Shop
) -> None:
    await shop.seed()
    page = await open_page("/queues/mail")
    await page.get_by_role("button", name="Pause…").focus()

    await page.keyboard.down("Enter")
    await expect(page.get_by_label("Note")).to_be_focused()
    await page.keyboard.down("Enter")
    await page.keyboard.up("Enter")

    await next_frame(page)
    await expect(page.get_by_role("dialog")).to_be_visible()
    assert not (await shop.engine.get_queue_status("mail")).queue.paused


async def test_rows_are_passed_by_a_held_key(open_page: Open, shop: Shop) -> None:
    for _ in range(3):
        await shop.submit(task="later", delay="1h")
    page = await open_page("/jobs")
    await expect(page.locator("tbody tr")).to_have_count(3)

    for _ in range(3):
        await page.keyboard.down("j")

    await expect(page.locator("tbody a").last).to_be_focused()


async def test_a_button_keeps_the_focus_while_its_action_is_carried_out(
    open_page: Open, shop: Shop
) -> None:
    await shop.seed()
    page = await open_page("/schedules/cache.warm")
    await page.get_by_role("button", name="Trigger").focus()
    asked = await hold(page, "/v1/schedules/cache.warm:trigger", "POST")
    await page.keyboard.press("Enter")
    answer = await asked.get()
    await next_frame(page)
    await page.keyboard.press("Enter")  # is only for the impatient
    await answer.continue_()
    await expect(page.locator(".toast")).to_be_visible()
    await expect(page.get_by_role("button", name="Trigger")).to_be_focused()
    assert asked.empty()
    pause = page.get_by_role("button", name="Pause…")
    await pause.focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("textbox", name="Note")).to_be_focused()

    await page.keyboard.press("Escape")

    await expect(page.get_by_role("dialog")).to_have_count(0)
    await expect(pause).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("textbox", name="Note")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("button", name="Resume")).to_be_focused()


async def test_a_button_can_be_used_again_as_soon_as_escape_has_closed_its_question(
    open_page: Open, shop: Shop
) -> None:
    await shop.seed()
    page = await open_page("/schedules/cache.warm")
    pause = page.get_by_role("button", name="Pause…")
    await pause.click()
    await expect(page.get_by_role("dialog")).to_be_visible()

    await pause.evaluate(ESCAPE_AND_CLICK)

    await page.get_by_role("textbox", name="Note").fill("again")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("button", name="Resume")).to_be_visible()


async def test_the_button_of_a_group_keeps_the_focus_after_its_question(
    open_page: Open, shop: Shop
) -> None:
    await fail(shop, "often", 2, "it broke")
    page = await open_page("/failures")
    retry = page.get_by_role("button", name="Retry these…")
    await retry.focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("dialog")).to_be_visible()

    await page.keyboard.press("Escape")

    await expect(page.get_by_role("dialog")).to_have_count(0)
    await expect(retry).to_be_focused()
