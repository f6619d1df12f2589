"""The screen of one job: its life, its output, why it waits, and what can be done."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from playwright.async_api import Page, Request, expect

from schedo.core.ids import parse_id
from schedo.core.leases import AttemptResult, CapturedOutput, Completed, Failed, Lease, StopRequest
from schedo.core.model import Failure, LeaseKey
from schedo.core.progress import ProgressUpdate
from schedo.core.worker_messages import Progress
from schedo.core.worker_pool import WorkerSpec
from tests.browser.conftest import Axe, Open
from tests.browser.shop import Shop

HOSTILE = "<img src=x onerror=alert(1)>'\"</script>\u202e\x1b]0;title\x07\x1b[31mred\x1b[0m"
SHOWN = r"""<img src=x onerror=alert(1)>'"</script>\u202e"""


DRAWN = """(() => {
  const life = document.querySelector('.life');
  return Number(life.firstChild.getAttribute('width')) === life.clientWidth;
})()"""
OVERLAPS = """(life) => {
  const boxes = [...life.querySelectorAll('text.at')].map((each) => each.getBoundingClientRect());
  return boxes.some((one) => boxes.some((other) => one.x < other.x && one.right > other.x));
}"""


class Printer:
    """A worker whose jobs write and fail, until one of the task `finish` comes."""

    def __init__(self, shop: Shop, message: str = HOSTILE) -> None:
        """message: of the error of those that fail."""
        self._engine, self._message = shop.engine, message
        shop.engine.attach(WorkerSpec("printer", 8, tasks=frozenset({"write", "finish"})), self)

    def start(self, lease: Lease) -> None:
        asyncio.get_running_loop().call_soon(self._end, lease)

    def _end(self, lease: Lease) -> None:
        text = f"first line\n{HOSTILE}\n".encode()
        failed = Failed(Failure("GatewayError", self._message))
        outcome = Completed(b'{"ok":true}') if lease.task == "finish" else failed
        output = (CapturedOutput("stdout", text, b"", len(text)),)
        self._engine.report(AttemptResult(lease.key, outcome, output, ran_us=1))

    def stop(self, stop: StopRequest) -> None:
        """Its jobs end at once."""


async def submit_failing(shop: Shop, **fields: Any) -> str:
    Printer(shop)
    job = await shop.submit(task="write", retry={"max_attempts": 1}, **fields)
    await shop.get(f"/v1/jobs/{job['id']}/wait?timeout=5s")
    return str(job["id"])


async def test_a_failed_job_is_retried_and_taken_back_by_keyboard_alone(
    open_page: Open, shop: Shop
) -> None:
    ident = await submit_failing(shop)
    shop.engine.detach("printer", "it was switched off")
    page = await open_page(f"/jobs/{ident}")
    await expect(page.locator(".head .state")).to_have_text("failed")

    await page.keyboard.press("r")

    await expect(page.locator(".head .state")).to_have_text("queued")
    await expect(page.locator(".why")).to_contain_text("no worker")
    undo = page.get_by_role("button", name="Undo")
    await undo.focus()
    await page.keyboard.press("Enter")
    await expect(page.locator(".head .state")).to_have_text("cancelled")
    life = await page.locator(".life svg").get_attribute("aria-label") or ""
    assert life.count("waited") == 2  # until each change by hand, with no step after it


async def test_a_job_is_followed_while_it_changes(open_page: Open, shop: Shop) -> None:
    job = await shop.submit(task="finish", payload={"order": 9781})
    page = await open_page(f"/jobs/{job['id']}")
    await expect(page.locator(".checks .blocked")).to_contain_text("no worker")
    await expect(page.locator(".connection")).to_have_text("live")

    Printer(shop)

    await expect(page.locator(".head .state")).to_have_text("completed")
    await expect(page.get_by_role("img", name=re.compile("attempt 1: completed"))).to_be_visible()
    await expect(page.get_by_role("region", name="The result")).to_contain_text('"ok": true')
    await expect(page.get_by_role("region", name="The payload")).to_contain_text('"order": 9781')


async def test_the_life_of_a_job_tells_when_it_was_durable_and_each_attempt(
    open_page: Open, shop: Shop
) -> None:
    Printer(shop, message="")
    job = await shop.submit(task="write", retry={"max_attempts": 2, "initial": "1ms"})
    await shop.get(f"/v1/jobs/{job['id']}/wait?timeout=5s")
    page = await open_page(f"/jobs/{job['id']}", bypass_csp=True)

    life = page.locator(".life svg")
    told = await life.get_attribute("aria-label") or ""
    steps = [step.split(": ")[0] for step in re.sub(r"(attempt \d): ", r"\1 ", told).split("; ")]
    assert steps[0] == "made durable"
    assert [step for step in steps if step.startswith("attempt")] == [
        "attempt 1 failed",
        "attempt 2 failed",
    ]
    for width in range(1440, 700, -80):  # whatever its width, no label is over another one
        await page.set_viewport_size({"width": width, "height": 900})
        await page.wait_for_function(DRAWN)
        assert not await life.evaluate(OVERLAPS), width
    attempts = page.get_by_role("table", name="Ended attempts")
    await expect(attempts.get_by_role("cell", name="1 µs", exact=True)).to_have_count(2)
    await expect(attempts.get_by_role("cell", name="GatewayError")).to_have_count(2)
    await page.locator(".card", has=life).get_by_role("button", name="Show as table").click()
    table = page.get_by_role("table", name="What happened to the job")
    history = (await shop.get(f"/v1/jobs/{job['id']}/history")).json()["items"]
    await expect(table.locator("tbody tr")).to_have_count(len(history))
    await expect(table).to_contain_text("finished")


async def test_the_life_of_a_run_begins_at_its_instant_and_says_how_late_it_was_made(
    open_page: Open, shop: Shop
) -> None:
    job = await shop.submit(task="write")
    history = {
        "state": "queued",
        "items": [
            {"at": "2026-01-01T02:30:00.000000Z", "what": "due", "attempt": 1},
            {"at": "2026-01-01T02:30:02.000000Z", "what": "created"},
            {"at": "2026-01-01T02:30:03.000000Z", "what": "picked", "attempt": 1},
            {"at": "2026-01-01T02:30:03.000250Z", "what": "started", "attempt": 1},
            {"at": "2026-01-01T02:30:07.000250Z", "what": "finished", "outcome": "failed"},
        ],
    }
    page = await open_page("/login", bypass_csp=True)
    await page.route("**/history", lambda route: route.fulfill(json=history))

    await page.goto(f"{shop.url}/jobs/{job['id']}")

    life = page.locator(".life svg")
    await expect(life.locator("text", has_text=re.compile("^due"))).to_have_count(1)
    await expect(life.locator("text", has_text=re.compile("^created"))).to_have_count(1)
    label = await life.get_attribute("aria-label") or ""
    assert label.startswith("late: 2.00 s; late: 1.00 s; on its way: 250 µs")


async def test_who_changed_a_job_by_hand_is_in_its_life(
    open_page: Open, shop: Shop, axe: Axe
) -> None:
    ident = await submit_failing(shop)
    found = (await shop.get(f"/v1/jobs/{ident}/history")).json()
    [end] = [each["at"] for each in found["items"] if each["what"] == "ended"]
    changed = {"at": end, "what": "changed", "action": "retry_job", "by": HOSTILE, "via": "page"}
    found["items"] += [
        {**changed, "at": "2036-01-01T00:00:00.000000Z", "operation": ident, "via": None},
        {"at": "2036-01-01T00:00:00.000001Z", "what": "due", "attempt": 2},
        {"at": "2036-01-01T00:00:01.000001Z", "what": "picked", "attempt": 2},
        {"at": "2036-01-01T00:00:01.000251Z", "what": "started", "attempt": 2},
        {**changed, "at": "2036-01-01T00:00:02.000000Z", "action": "cancel_job", "by": "ada"},
    ]
    page = await open_page("/login", bypass_csp=True)
    await page.route("**/history", lambda route: route.fulfill(json=found))

    await page.goto(f"{shop.url}/jobs/{ident}")

    hands = page.locator(".hands li")
    await expect(hands.first).to_contain_text("ada via page: cancelled")
    await expect(hands.last).to_contain_text("with others: retried")
    await expect(hands.last).to_contain_text("<img src=x onerror=alert(1)>")
    label = await page.locator(".life svg").get_attribute("aria-label") or ""
    assert "late: 1.00 s; on its way: 250 µs" in label
    await axe(page)


async def test_progress_is_read_only_when_the_stream_tells_of_a_report(
    open_page: Open, shop: Shop
) -> None:
    await shop.seed()
    jobs = (await shop.get("/v1/jobs?state=running")).json()["items"][:2]
    first = await open_page("/login")
    second = await first.context.new_page()
    reads: list[str] = []

    def note(request: Request) -> None:
        if request.url.endswith("/progress"):
            reads.append(request.url)

    second.on("request", note)
    for page, job in zip((first, second), jobs, strict=True):
        await page.goto(f"{shop.url}/jobs/{job['id']}")
        await expect(page.locator(".connection")).to_have_text("live")
        await expect(page.locator(".why.now")).to_be_visible()

    for job, percent in zip(jobs, (30.0, 60.0), strict=True):
        key = LeaseKey(parse_id(job["id"]), 1, shop.engine.health().epoch)
        shop.engine.note_progress(Progress(key, ProgressUpdate(percent, "resizing")))

    await expect(second.locator(".why.now")).to_contain_text("60 %")
    ran = second.locator(".why.now p b")
    for _ in range(2):
        before = await ran.text_content() or ""
        await expect(ran).not_to_have_text(before)
    assert len(reads) == 2
    await expect(first.locator(".why.now")).to_contain_text("30 %")


async def test_what_a_job_says_is_shown_as_text(open_page: Open, shop: Shop) -> None:
    payload = {HOSTILE: HOSTILE, "large": 2**53 + 1}
    ident = await submit_failing(shop, payload=payload, meta={"note": HOSTILE})
    page = await open_page(f"/jobs/{ident}")

    lines = page.get_by_role("region", name="The lines of the output")
    await expect(lines).to_contain_text(SHOWN)
    await expect(lines.locator(".a-red")).to_have_text("red")
    await expect(page.get_by_role("region", name="The error")).to_have_text(f"{SHOWN}red")
    shown = page.get_by_role("region", name="The payload")
    await expect(shown).to_contain_text(r"</script>\u202e\u001b")
    await expect(shown).to_contain_text('"large": 9007199254740993')
    assert await page.locator("main img, main script").count() == 0
    await page.get_by_role("searchbox", name="Find in the output").fill("FIRST")
    await expect(lines.locator("mark")).to_have_text("first")


async def test_a_running_job_is_cancelled_only_after_a_question(
    open_page: Open, shop: Shop
) -> None:
    await shop.seed()
    [running, *_] = (await shop.get("/v1/jobs?state=running")).json()["items"]
    page = await open_page(f"/jobs/{running['id']}")

    await page.get_by_role("button", name="Cancel…").click()
    question = page.get_by_role("dialog")
    await expect(question).to_contain_text("while it runs")
    await page.keyboard.press("Escape")
    await expect(page.locator(".head .state")).to_have_text("running")
    await page.keyboard.press("c")
    await question.get_by_role("button", name="Cancel the job").click()

    await expect(page.locator(".head .state")).to_have_text("cancelled")


async def test_a_job_that_is_not_there_says_where_it_may_be(open_page: Open, shop: Shop) -> None:
    shop.expected += ["404"]
    page = await open_page("/jobs/0CR74H627D2G0")

    await expect(page.locator("h1")).to_have_text("There is no job 0CR74H627D2G0")
    await expect(page.locator(".connection")).to_have_text("live")


async def test_the_page_stays_live_when_the_job_that_it_shows_is_deleted(
    open_page: Open, shop: Shop
) -> None:
    shop.expected += ["404", "net::ERR"]
    job = await submit_failing(shop)
    page = await open_page(f"/jobs/{job}")
    await expect(page.locator(".connection")).to_have_text("live")
    await shop.hang_up()
    await expect(page.locator(".connection")).to_contain_text("reconnecting")
    assert (await shop.send("DELETE", f"/v1/jobs/{job}")).status == 204

    await shop.start_again()

    await expect(page.locator(".connection")).to_have_text("live")


async def test_a_job_has_no_barrier(open_page: Open, shop: Shop, axe: Axe) -> None:
    failed = await submit_failing(shop, payload={"order": 1})
    waiting = (await shop.submit(task="nobody_runs_it", tags=["vip"]))["id"]
    await shop.seed()
    [running, *_] = (await shop.get("/v1/jobs?state=running")).json()["items"]
    page = await open_page(f"/jobs/{failed}", bypass_csp=True)

    for ident in (failed, waiting, running["id"]):
        await page.goto(f"{shop.url}/jobs/{ident}")
        await expect(page.locator(".life svg, .life ol")).to_be_visible()
        await _check_both_themes(page, axe)


async def _check_both_themes(page: Page, axe: Axe) -> None:
    for width, theme in ((1440, "light"), (390, "dark")):
        await page.set_viewport_size({"width": width, "height": 900})
        await page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
        await axe(page)
        assert await page.evaluate("document.documentElement.scrollWidth") <= width


CASES = {
    "plain": [[["plain", ""]]],
    "\x1b[1;31mbold red\x1b[22m red\x1b[m no": [
        [["bold red", "a-red a-bold"], [" red", "a-red"], [" no", ""]]
    ],
    "\x1b[38;5;9ma\x1b[48;2;0;200;0mb\x1b[39;49mc": [
        [["a", "a-red"], ["b", "a-red a-on-green"], ["c", ""]]
    ],
    "10 %\r20 %\r\nend\n": [[["20 %", ""]], [["end", ""]]],
    "\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\": [[["link", ""]]],
    "a\x1b[2Jb\x08\x1b(Bc\x1b[?25l": [[["a", ""], ["b", ""], ["c", ""]]],
    "\x1b[999;38;5m\x1b[31mx\ny": [[["x", "a-red"]], [["y", "a-red"]]],
}


async def test_colours_of_terminals_become_classes_of_a_list(open_page: Open) -> None:
    page = await open_page("/login")
    shell = await page.content()
    module = re.findall(r"(/ui/\w+/)app.js", shell)[0] + "lib/ansi.js"

    for text, lines in CASES.items():
        found = await page.evaluate(
            "([module, text]) => import(module).then(({parseAnsi}) => parseAnsi(text)"
            ".map((line) => line.map((part) => [part.text, part.style])))",
            [module, text],
        )
        assert found == lines, repr(text)
