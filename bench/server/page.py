"""What the page costs a browser: the first visit, and each second that it stays open.

A server has run schedules and jobs for a while, and goes on. A real Chromium with an empty cache
opens the overview again and again: the first contentful paint, the first frame in which all parts
have their data, and the bytes that were sent. Then the overview stays open: Chromium's own counters
of script, layout and style, in processor time, divided by the number of ticks. With --slower 4
the browser's processor is that much slower.

At last another server is killed and started again and again while its overview is open; the figure
is the time from its readiness to the frame that shows what has happened since then.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import statistics
import time
from pathlib import Path

from playwright.async_api import Browser

from bench.server.chromium import (
    VIEWPORT,
    Visit,
    open_browser,
    open_session,
    read_metrics,
    visit,
)
from bench.server.connection import job_request, run, send_all
from bench.server.page_load import put_schedules, submitting
from bench.server.process import NOOP_APP, Server
from bench.server.script import Option, Results, positive, run_script

PARTS = {"script": "ScriptDuration", "layout": "LayoutDuration", "style": "RecalcStyleDuration"}
WARM_UP_S = 5.0  # before the first visit, so that there are figures to show
# A window of its own for each visit: Chromium draws its bars with half a second of processor time,
# which the page would share.
WINDOW_S = 1.5
SETTLE_S = 3.0  # between the opening of the page and the first tick that counts


def measure(arguments: argparse.Namespace, directory: Path, results: Results) -> None:
    """Measure visits and ticks."""
    with Server(directory, app=NOOP_APP) as server:
        run(_measure(server, arguments, results))
    killed = directory / "killed"
    killed.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]  # the page knows no other
    with Server(killed, "--port", str(port), app=NOOP_APP) as server:
        for number, seconds in enumerate(run(_time_returns(server, arguments.kills)), 1):
            results.add(f"after kill {number}: right again", seconds * 1_000_000, "us")


async def _measure(server: Server, arguments: argparse.Namespace, results: Results) -> None:
    await put_schedules(server)
    async with submitting(server, arguments.rate), open_browser() as browser:
        await asyncio.sleep(WARM_UP_S)
        await _visit_once(browser, server)  # the server zips its files for the first one
        visits = [await _visit_once(browser, server) for _ in range(arguments.visits)]
        for what, unit, values in (
            ("first contentful paint", "us", [each.painted_ms * 1000 for each in visits]),
            ("first data", "us", [each.ready_ms * 1000 for each in visits]),
            ("files, as sent", "bytes", [float(each.file_bytes) for each in visits]),
            ("data, as sent", "bytes", [float(each.data_bytes) for each in visits]),
            ("requests", "count", [float(each.requests) for each in visits]),
        ):
            results.add(f"first visit: {what}", statistics.median(values), unit)
        for what, seconds in (await _time_ticks(browser, server, arguments)).items():
            results.add(f"a tick: {what}", seconds * 1_000_000, "us")


async def _visit_once(browser: Browser, server: Server) -> Visit:
    """Open the overview as a browser that has never been there."""
    context = await browser.new_context(viewport=VIEWPORT)
    try:
        page = await context.new_page()
        await asyncio.sleep(WINDOW_S)
        return await visit(page, server.url + "/")
    finally:
        await context.close()


async def _time_ticks(
    browser: Browser, server: Server, arguments: argparse.Namespace
) -> dict[str, float]:
    """Return the processor time of each part for one tick, in seconds."""
    context = await browser.new_context(viewport=VIEWPORT)
    page = await context.new_page()
    session = await open_session(page)
    if arguments.slower > 1:
        await session.send("Emulation.setCPUThrottlingRate", {"rate": arguments.slower})
    await page.goto(server.url + "/")
    await page.locator(".connection", has_text="live").wait_for()
    await asyncio.sleep(SETTLE_S)
    before = await read_metrics(session)
    await asyncio.sleep(arguments.ticks)  # one a second
    after = await read_metrics(session)
    spent = {name: after[key] - before[key] for name, key in PARTS.items()}
    whole = {"script, layout and style": sum(spent.values())}
    whole["everything"] = after["TaskDuration"] - before["TaskDuration"]
    return {name: seconds / arguments.ticks for name, seconds in (spent | whole).items()}


async def _time_returns(server: Server, kills: int) -> list[float]:
    """Return how long the open page takes to be right after each kill, in seconds."""
    found = []
    async with open_browser() as browser:
        page = await browser.new_page(viewport=VIEWPORT)
        await page.goto(server.url + "/")
        await page.locator(".connection", has_text="live").wait_for()
        for number in range(kills):
            await asyncio.to_thread(server.kill)
            await page.locator(".connection", has_text="reconnecting").wait_for()
            await asyncio.to_thread(server.start_ready)
            began = time.perf_counter()
            job = {"task": "noop", "queue": f"new-{number}", "delay": "1h"}
            await send_all(server, [job_request(job)], 1)
            await page.get_by_role("link", name=f"new-{number}").wait_for()
            found.append(time.perf_counter() - began)
    return found


OPTIONS = (
    Option("visits", 10, 2, "first visits", positive),
    Option("ticks", 60, 3, "how many seconds the page stays open", positive),
    Option("rate", 40, 20, "jobs submitted a second", positive),
    Option("kills", 5, 1, "how often the server is killed", positive),
    Option("slower", 1, 1, "how many times slower the browser's processor is", positive),
)

if __name__ == "__main__":
    run_script(__doc__, measure, OPTIONS)
