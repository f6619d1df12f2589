"""What the page shows of actions and payloads to each role: only what the server would accept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from schedo.protocol.roles import Role
from schedo.web.permissions import ANONYMOUS, TokenPermission, digest
from schedo.web.settings import WebSettings
from tests.browser.conftest import Open
from tests.browser.shop import Shop
from tests.browser.test_frame import be_live

PERMISSIONS = {
    "vera": TokenPermission(Role.VIEWER, "vera", hides_payloads=True),
    "otto": TokenPermission(Role.OPERATOR, "otto"),
    "mail": TokenPermission(Role.OPERATOR, "mail", frozenset({"mail"})),
    "sync": TokenPermission(Role.OPERATOR, "sync", tasks=frozenset({"sync"})),
    "ada": TokenPermission(Role.ADMIN, "ada"),
}
TOKENS = {name: f"the-token-of-{name}-0123456789abcdef" for name in PERMISSIONS}
SETTINGS = WebSettings(
    version="0.1.0",
    tokens={digest(TOKENS[name]): permission for name, permission in PERMISSIONS.items()},
    anyone=None,
)
# The actions of each screen by the least role for them.
OPERATOR = {
    "/schedules": {"Trigger", "Pause…"},
    "/schedules/backup.nightly": {"Trigger", "Pause…"},
    "/queues": {"Pause…"},
    "/queues/images": {"Pause…"},
    "/workers": {"Cordon", "Drain…"},
    "/workers/eu-gpu-1": {"Cordon", "Drain…"},
    "/jobs/FAILED": {"Retry"},
    "/failures": {"Retry these…"},
    "/invoke?task=sync": {"Invoke"},
    "/expectations": set(),
    "/log": set(),
}
ADMIN = {
    "/schedules": {"New schedule"},
    "/schedules/backup.nightly": {"Edit", "Duplicate", "Delete…"},
    "/expectations": {"Delete…"},
}
ALL = set().union(*OPERATOR.values(), *ADMIN.values())


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def guarded() -> AsyncIterator[Shop]:
    """A full server that needs a token; no test here changes it."""
    async with Shop() as made:
        await made.seed()
        await made.put("/v1/expectations/nas", {"every": "1d", "within": "1h"})
        await made.submit(task="charge_card", retry=1)
        made.app.use(SETTINGS)
        yield made


async def log_in(page: Page, name: str) -> None:
    reply = await page.request.post("/v1/session", data={"token": TOKENS[name]})
    assert reply.ok


async def actions(page: Page, shop: Shop, path: str) -> set[str]:
    """Return the actions that the screen offers."""
    headers = [("authorization", f"Bearer {TOKENS['ada']}")]
    jobs = await shop.get("/v1/jobs?state=failed", headers)
    await page.goto(path.replace("FAILED", jobs.json()["items"][0]["id"]))
    await be_live(page)
    await expect(page.locator("main [aria-busy=true]")).to_have_count(0)
    texts = await page.locator("main :is(button, a.btn)").all_inner_texts()
    return {text for text in texts if text in ALL}


@pytest.mark.parametrize("name", ["vera", "otto", "ada"])
async def test_each_role_sees_the_actions_that_it_may_carry_out(
    open_page: Open, guarded: Shop, name: str
) -> None:
    role = PERMISSIONS[name].role
    page = await open_page("/docs", base_url=guarded.url)
    await log_in(page, name)
    for path, by_operators in OPERATOR.items():
        wanted = set() if role is Role.VIEWER else by_operators
        if role is Role.ADMIN:
            wanted = wanted | ADMIN.get(path, set())

        assert await actions(page, guarded, path) == wanted, path
    limits = await page.locator(".limit").count()
    assert limits == 0


async def test_limits_are_changed_by_admins_only(open_page: Open, guarded: Shop) -> None:
    for name, limits in (("otto", 0), ("ada", 2)):
        page = await open_page("/docs", base_url=guarded.url)
        await log_in(page, name)

        await actions(page, guarded, "/queues/images")

        await expect(page.locator("button.limit")).to_have_count(limits)


async def test_a_token_for_some_queues_or_tasks_acts_on_these_only(
    open_page: Open, guarded: Shop
) -> None:
    found = {}
    for name in ("mail", "sync"):
        page = await open_page("/docs", base_url=guarded.url)
        await log_in(page, name)
        for path in ("/queues/mail", "/queues/images", "/schedules/cache.warm", "/workers"):
            found[name, path] = await actions(page, guarded, path)

    assert {place: names for place, names in found.items() if names} == {
        ("mail", "/queues/mail"): {"Pause…"},
        ("sync", "/schedules/cache.warm"): {"Trigger", "Pause…"},
    }


async def test_a_viewer_reads_why_buttons_are_missing_and_sees_no_payload(
    open_page: Open, shop: Shop, guarded: Shop
) -> None:
    shop.expected += ["401"]  # after the end of the session
    page = await open_page("/docs", base_url=guarded.url)
    await log_in(page, "vera")
    await actions(page, guarded, "/jobs/FAILED")
    await expect(page.get_by_role("region", name="Payload")).to_contain_text("hidden")
    await page.goto("/schedules/-new")
    await expect(page.locator("main")).to_contain_text("changed by the role admin")

    await page.keyboard.press("?")

    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("needs the role operator: run, retry")
    await expect(dialog).to_contain_text("Payloads are hidden")
    await dialog.get_by_role("button", name="Log out").click()
    await expect(page.get_by_label("Token")).to_be_visible()


async def test_somebody_without_a_token_may_look_where_that_is_allowed_and_log_in(
    open_page: Open, shop: Shop
) -> None:
    await shop.seed()
    shop.app.use(replace(SETTINGS, anyone=ANONYMOUS))
    page = await open_page("/schedules/backup.nightly")
    await be_live(page)
    await expect(page.locator("main")).to_contain_text("Ledger")
    await expect(page.locator("main button", has_text="Trigger")).to_have_count(0)

    await page.get_by_role("link", name="Log in").click()
    await page.get_by_label("Token").fill(TOKENS["otto"])
    await page.get_by_role("button", name="Log in").click()

    await expect(page).to_have_title("Overview · schedo")
    await page.goto(f"{shop.url}/schedules/backup.nightly")
    await expect(page.get_by_role("button", name="Trigger")).to_be_visible()
