"""Logging in: with a token, by the link of `schedo open`."""

from __future__ import annotations

from dataclasses import replace

from playwright.async_api import Page, expect

from schedo.protocol.public_url import parse_public_url
from schedo.protocol.roles import Role
from schedo.web.permissions import ANONYMOUS, TokenPermission, digest
from schedo.web.settings import WebSettings
from tests.browser.conftest import Axe, Open, intercept
from tests.browser.shop import Shop

TOKEN = "correct-horse-battery-staple-0123456789"
BEARER = [("authorization", f"Bearer {TOKEN}")]


def secure(shop: Shop, role: Role = Role.OPERATOR) -> None:
    """Let the server need a token from now on, with a public URL."""
    ada = TokenPermission(role, "ada")
    url = parse_public_url(shop.url)
    shop.app.use(WebSettings(tokens={digest(TOKEN): ada}, anyone=None, public_url=url))
    shop.expected += ["401"]


async def kept_by_scripts(page: Page) -> str:
    """Return all that a script of the page can read."""
    texts = "[document.cookie, location.href, JSON.stringify({...localStorage, ...sessionStorage})]"
    return str(await page.evaluate(f"{texts}.join(' ')"))


async def test_a_token_becomes_a_cookie_that_no_script_reads(open_page: Open, shop: Shop) -> None:
    secure(shop)
    page = await open_page("/")
    await expect(page.get_by_label("Token")).to_be_focused()
    await page.get_by_label("Token").fill(TOKEN)

    await page.get_by_role("button", name="Log in").click()

    await expect(page).to_have_title("Overview · schedo")
    await expect(page.locator("html")).to_be_visible()
    [cookie] = await page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert cookie["name"].startswith("schedo-")
    kept = await kept_by_scripts(page)
    assert TOKEN not in kept
    assert cookie["value"] not in kept


async def test_the_link_of_schedo_open_logs_in_and_leaves_the_address(
    open_page: Open, shop: Shop
) -> None:
    secure(shop)
    code = (await shop.post("/v1/session:link", {}, BEARER)).json()["link"]

    page = await open_page(f"/login#link={code}")

    await expect(page).to_have_title("Overview · schedo")
    assert code not in page.url


async def test_a_page_that_began_at_the_login_is_live_on_the_next_screen(
    open_page: Open, shop: Shop
) -> None:
    page = await open_page("/login")

    await page.get_by_role("link", name="Schedules").click()

    await expect(page.locator(".connection")).to_have_text("live")
    await expect(page.get_by_role("link", name="New schedule")).to_be_visible()


async def test_a_server_without_tokens_says_that_it_has_no_login(open_page: Open) -> None:
    page = await open_page("/login?next=/queues")
    await expect(page.locator("h1")).to_have_text("There is no login")
    await expect(page.get_by_label("Token")).to_have_count(0)

    await page.get_by_role("link", name="Go on").click()

    await expect(page).to_have_title("Queues · schedo")


async def test_who_may_look_without_a_token_reads_so_at_the_login(
    open_page: Open, shop: Shop
) -> None:
    secure(shop)
    shop.app.use(replace(shop.app.context.settings, anyone=ANONYMOUS))

    page = await open_page("/login")

    await expect(page.locator("main")).to_contain_text("Without a token you may only look.")
    await expect(page.get_by_label("Token")).to_be_focused()


async def test_without_a_token_each_way_leads_to_the_login(open_page: Open, shop: Shop) -> None:
    secure(shop)
    page = await open_page("/jobs")
    await expect(page.get_by_label("Token")).to_be_visible()

    await page.get_by_role("link", name="Schedules").click()

    await expect(page).to_have_url(f"{shop.url}/login?next=%2Fschedules")
    await expect(page.get_by_label("Token")).to_be_visible()


async def test_who_could_not_log_out_reads_so(open_page: Open, shop: Shop) -> None:
    secure(shop)
    shop.expected += ["ERR_FAILED"]
    page = await open_page("/")
    await page.get_by_label("Token").fill(TOKEN)
    await page.get_by_role("button", name="Log in").click()
    await expect(page).to_have_title("Overview · schedo")
    await intercept(page, "**/v1/session", lambda route: route.abort())
    await page.get_by_role("button", name="Keys and choices").click()
    log_out = page.get_by_role("button", name="Log out")

    await log_out.click()

    await expect(page.get_by_role("alert")).to_contain_text("You are still logged in")
    await page.unroute("**/v1/session")
    await log_out.click()
    await expect(page.get_by_label("Token")).to_be_visible()


async def log_in(page: Page) -> None:
    await page.get_by_label("Token").fill(TOKEN)
    await page.get_by_role("button", name="Log in").click()


async def test_what_is_typed_into_the_editor_outlives_the_session(
    open_page: Open, shop: Shop, axe: Axe
) -> None:
    await shop.put("/v1/schedules/report", {"cron": "0 5 * * *", "task": "sync"})
    secure(shop, Role.ADMIN)
    page = await open_page("/schedules/report/edit", bypass_csp=True)
    await log_in(page)
    cron = page.get_by_label("Cron")
    await cron.fill("0 6 * * *")
    await page.context.clear_cookies()  # as at the end of its 12 hours
    save = page.locator("button", has_text="Save")

    # What the page reads beside it may have shown the login already, above the button.
    await save.dispatch_event("click")

    again = page.get_by_role("dialog")
    await expect(again.get_by_label("Token")).to_be_focused()
    await axe(page)
    await page.keyboard.press("Escape")
    await expect(cron).to_have_value("0 6 * * *")
    await save.dispatch_event("click")
    await log_in(page)
    await expect(again).to_have_count(0)
    await save.click()
    await expect(page.locator("h1")).to_have_text("report")
    saved = (await shop.get("/v1/schedules/report", BEARER)).json()
    assert saved["cron"] == "0 6 * * *"


async def test_what_is_typed_into_the_invoke_console_is_there_after_a_login(
    open_page: Open, shop: Shop
) -> None:
    secure(shop)
    page = await open_page("/invoke")
    await log_in(page)
    await page.get_by_label("Task").fill("sync")
    payload = page.get_by_label("Payload")
    await payload.fill('{"order": 9781}')
    await page.context.clear_cookies()
    # What the page reads beside it may have shown the login already; then there is no button.
    invoke = page.get_by_role("button", name="Invoke", exact=True)
    await invoke.evaluate_all("all => all.forEach((each) => each.isConnected && each.click())")

    await log_in(page)

    await expect(payload).to_have_value('{"order": 9781}')


async def test_a_page_whose_stream_was_refused_is_live_again_after_a_login(
    open_page: Open, shop: Shop
) -> None:
    await shop.put("/v1/schedules/report", {"cron": "0 5 * * *", "task": "sync"})
    secure(shop, Role.ADMIN)
    page = await open_page("/schedules/report/edit")
    await log_in(page)
    live = page.locator(".connection")
    await expect(live).to_have_text("live")
    await page.get_by_label("Cron").fill("0 6 * * *")
    await page.context.clear_cookies()
    shop.app.context.end_streams()  # as at the end of the session
    again = page.get_by_role("dialog")
    await expect(again.get_by_label("Token")).to_be_focused()
    await expect(live).to_contain_text("reconnecting")

    await log_in(page)

    await expect(again).to_have_count(0)
    await expect(live).to_have_text("live")


async def test_the_page_works_below_the_path_of_a_proxy(open_page: Open) -> None:
    settings = WebSettings(version="0.1.0", public_url=parse_public_url("https://x.example/schedo"))
    async with Shop(settings) as behind:
        await behind.seed()
        page = await open_page("/schedo/", base_url=behind.url)

        await expect(page).to_have_title("Overview · schedo")
        await expect(page.locator(".connection")).to_have_text("live")
        hrefs = await page.eval_on_selector_all("a[href^='/']", "all => all.map(a => a.pathname)")
        assert all(href.startswith("/schedo/") for href in hrefs)
        await page.close()
