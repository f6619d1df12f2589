"""A page of a server in a real Chromium, and what the browser counts about it."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from playwright.async_api import (
    Browser,
    CDPSession,
    Page,
    ViewportSize,
    async_playwright,
)

from bench.server.evidence import NotDone
from tests.browser.chromium import CHROMIUM, OPTIONS

VIEWPORT = ViewportSize(width=1440, height=900)
READY_S = 60.0
SHARED_WORKER = "shared_worker"


@asynccontextmanager
async def open_browser() -> AsyncIterator[Browser]:
    """Start Chromium; raise NotDone if there is none."""
    if CHROMIUM is None:
        raise NotDone("there is no Chromium: apt-get install chromium")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        try:
            yield browser
        finally:
            await browser.close()


async def read_metrics(session: CDPSession) -> dict[str, float]:
    """Return Chromium's counters of a page; times in seconds, sizes in bytes."""
    found = await session.send("Performance.getMetrics")
    return {each["name"]: each["value"] for each in found["metrics"]}


async def read_heap(session: CDPSession) -> dict[str, float]:
    """Collect the garbage of a page; return what is left of its heap, and its counters."""
    await session.send("HeapProfiler.collectGarbage")
    return await read_metrics(session)


async def open_session(page: Page) -> CDPSession:
    """Return a session of the protocol of Chromium's tools for a page."""
    session = await page.context.new_cdp_session(page)
    await session.send("Performance.enable", {"timeDomain": "threadTicks"})
    await session.send("HeapProfiler.enable")
    return session


class WorkerHeap:
    """The heap of the worker that all tabs share; messages to it go through the browser."""

    def __init__(self, browser: CDPSession, session: str) -> None:
        self._browser, self._session = browser, session
        self._numbers = itertools.count(1)
        self._answers: dict[int, dict[str, Any]] = {}

    @classmethod
    async def attach(cls, browser: Browser) -> WorkerHeap:
        """Find the one shared worker of the browser; raise NotDone if there is not one."""
        session = await browser.new_browser_cdp_session()
        targets = (await session.send("Target.getTargets"))["targetInfos"]
        workers = [each["targetId"] for each in targets if each["type"] == SHARED_WORKER]
        if len(workers) != 1:
            raise NotDone(f"there are {len(workers)} shared workers instead of one")
        attached = await session.send("Target.attachToTarget", {"targetId": workers[0]})
        made = cls(session, attached["sessionId"])
        session.on("Target.receivedMessageFromTarget", made._receive)
        return made

    def _receive(self, event: dict[str, Any]) -> None:
        message = json.loads(event["message"])
        if "id" in message:
            self._answers[message["id"]] = message

    async def _ask(self, method: str) -> dict[str, Any]:
        number = next(self._numbers)
        message = json.dumps({"id": number, "method": method})
        ask = {"sessionId": self._session, "message": message}
        await self._browser.send("Target.sendMessageToTarget", ask)
        while number not in self._answers:  # the messages arrive in order
            await self._browser.send("Target.getTargets")
        answer = self._answers.pop(number)
        if "error" in answer:
            raise NotDone(f"{method} of the shared worker: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    async def read_bytes(self) -> float:
        """Collect the garbage of the worker; return what is left of its heap."""
        await self._ask("HeapProfiler.collectGarbage")
        return float((await self._ask("Runtime.getHeapUsage"))["usedSize"])


class Visit(NamedTuple):
    """How a screen was opened: milliseconds since the navigation, and what was asked for it."""

    painted_ms: float  # the first contentful paint of the page
    ready_ms: float  # the first frame in which no part of the screen waits for its data
    file_bytes: int  # the bodies of the shell, the modules and the style sheets, as they were sent
    data_bytes: int
    requests: int
    calls: tuple[str, ...]  # paths of the API, with their queries


# Notes when the screen has become ready last: a part of it may begin to read a little later.
_WATCH = """
(() => {
  const has = (what) => document.querySelector(what) !== null;
  let wasReady = false;
  const look = () => {
    const ready = has('main h1') && !has('[aria-busy="true"]');
    if (ready && !wasReady) {
      requestAnimationFrame(() => setTimeout(() => { window.readyAt = performance.now(); }));
    }
    wasReady = ready;
  };
  new MutationObserver(look).observe(document, {subtree: true, childList: true, attributes: true});
})()
"""
_CLICK = """
(href) => {
  window.readyAt = undefined;
  performance.clearResourceTimings();
  const link = document.body.appendChild(Object.assign(document.createElement('a'), { href }));
  window.clickedAt = performance.now();
  link.click();
  link.remove();
}
"""
# Returns when the screen has been ready for a while, so that nothing else will be read.
_READ = """
async (calm) => {
  while (!(performance.now() - window.readyAt > calm)) {
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  const files = performance.getEntriesByType('resource');
  return {
    painted: performance.getEntriesByName('first-contentful-paint')[0].startTime,
    ready: window.readyAt - (window.clickedAt ?? 0),
    shell: performance.getEntriesByType('navigation')[0].encodedBodySize,
    files: files.map((each) => [each.name, each.encodedBodySize]),
  };
}
"""
_CALM_MS = 400
_API = "/v1/"


async def visit(page: Page, url: str) -> Visit:
    """Open an address in a tab that shows nothing yet, and wait until the screen is whole."""
    await page.add_init_script(_WATCH)
    await page.goto(url)
    return await _read_visit(page)


async def click(page: Page, url: str) -> Visit:
    """Go to another screen of the page as a click on a link does, and wait until it is whole."""
    await page.evaluate(_CLICK, url)
    return await _read_visit(page)


async def _read_visit(page: Page) -> Visit:
    async with asyncio.timeout(READY_S):
        found = await page.evaluate(_READ, _CALM_MS)
    sizes = {urlsplit(name): size for name, size in found["files"]}
    calls = [each for each in sizes if _API in each.path and not each.path.endswith("/events")]
    paths = (each.path + (f"?{each.query}" if each.query else "") for each in calls)
    return Visit(
        found["painted"],
        found["ready"],
        found["shell"] + sum(size for each, size in sizes.items() if _API not in each.path),
        sum(sizes[each] for each in calls),
        len(sizes) + 1,
        tuple(dict.fromkeys(paths)),
    )
