"""The server's own heartbeat: it calls a URL while it is ready, so that a monitor notices its end.

The call follows no redirect and has a limit of time and size, as an http job has. The target may be
private, because the operator of the server has chosen it. A failed call changes nothing else; it is
logged when the calls begin to fail and once an hour after that.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable

from schedo.core.limits import SECOND
from schedo.tasks.http.client import ExchangeFailed, Request, exchange
from schedo.tasks.http.payload import Url, parse_url
from schedo.tasks.http.task import Resolver
from schedo.tasks.shortage import is_shortage
from schedo.version import __version__

log = logging.getLogger("schedo.heartbeat")

TIMEOUT_S = 10.0
_LOGGED_EVERY_S = 3_600.0

Sleep = Callable[[float], Awaitable[object]]


@contextlib.asynccontextmanager
async def beating(url: str, interval_us: int, is_ready: Callable[[], bool]) -> AsyncIterator[None]:
    """Call the URL while the block runs and the server is ready."""
    running = asyncio.create_task(Heartbeat(url, interval_us, is_ready).run())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.wait((running,))


class Heartbeat:
    """Calls the URL at an interval while the server is ready."""

    def __init__(
        self,
        url: str,
        interval_us: int,
        is_ready: Callable[[], bool],
        *,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._url: Url = parse_url(url)
        self._interval_s = interval_us / SECOND
        self._is_ready = is_ready
        self._sleep = sleep
        self._tls: ssl.SSLContext | None = None
        self._resolve = Resolver()
        self._failed = 0  # calls in a row

    async def run(self) -> None:
        """Call the URL until this is cancelled."""
        loop = asyncio.get_running_loop()
        next_at = loop.time()
        while True:
            if self._is_ready():
                await self.call()
            next_at = max(next_at + self._interval_s, loop.time())
            await self._sleep(next_at - loop.time())

    async def call(self) -> None:
        """Call the URL once; log an error that is new."""
        try:
            async with asyncio.timeout(min(TIMEOUT_S, self._interval_s)):
                problem = await self._send()
        except (OSError, ExchangeFailed) as error:
            problem = "it takes too long" if isinstance(error, TimeoutError) else str(error)
        if problem is None:
            if self._failed:
                log.info("the heartbeat URL at %s answers again", self._url.origin)
            self._failed = 0
            return
        if self._failed * self._interval_s % _LOGGED_EVERY_S < self._interval_s:
            log.warning("the heartbeat URL at %s cannot be called: %s", self._url.origin, problem)
        self._failed += 1

    async def _send(self) -> str | None:
        """Send the request; return what is wrong with the response, or None."""
        url = self._url
        headers = (
            ("host", url.host_header),
            ("user-agent", f"schedo/{__version__}"),
            ("accept", "*/*"),
            ("accept-encoding", "identity"),
            ("connection", "close"),
        )
        request = Request("GET", url.host, url.port, url.is_tls, url.target, headers)
        if url.is_tls and self._tls is None:
            self._tls = ssl.create_default_context()
        addresses = await self._find_addresses()
        response = await exchange(request, addresses, self._tls if url.is_tls else None)
        if 200 <= response.status < 300:
            return None
        return f"the status is {response.status}, not 2xx"

    async def _find_addresses(self) -> list[str]:
        try:
            return [str(ipaddress.ip_address(self._url.host))]
        except ValueError:
            return await self._look_up()

    async def _look_up(self) -> list[str]:
        try:
            return await self._resolve(self._url.host, self._url.port)
        except socket.gaierror as error:
            raise OSError(f"the host cannot be resolved: {error.strerror}") from None
        except RuntimeError as error:
            if not is_shortage(error):
                raise
            raise OSError(f"the host cannot be resolved: {error}") from None
