"""The http task: one signed request to a webhook, whose status decides the outcome.

The request carries the job's id as webhook-id and Idempotency-Key, the same in all attempts, so
that the receiver can recognize a repeated call. Expected statuses complete the job. 408, 425, 429,
5xx and network errors are retried, after Retry-After if the response has it. All other statuses
fail the job without a retry.
"""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any

import msgspec

from schedo.clock import SystemClock
from schedo.core import limits
from schedo.core.ids import render_id
from schedo.core.leases import (
    AttemptResult,
    CapturedOutput,
    Completed,
    Failed,
    Lease,
    Outcome,
    Stopped,
)
from schedo.core.model import Failure
from schedo.errors import BadJson, Invalid
from schedo.protocol.times import parse_duration, render_instant
from schedo.tasks.built_in import RunnerSettings
from schedo.tasks.checked_json import check_json
from schedo.tasks.http.client import ExchangeFailed, Request, Response, exchange
from schedo.tasks.http.egress import AddressRules, TargetRefused
from schedo.tasks.http.payload import HttpPayload, Url, check_http_payload, parse_url
from schedo.tasks.http.signatures import parse_secrets, render_signature
from schedo.tasks.payloads import refuse_payload
from schedo.tasks.runner import AttemptContext, BuiltInRunner
from schedo.tasks.shortage import Shortage, is_shortage

log = logging.getLogger("schedo.worker")

_RETRY_AFTER_US_MAX = limits.DAY
_RESULT_BODY_BYTES_MAX = 65_536
_LOOKUPS_MAX = 16  # at once, in threads of their own: a DNS server that hangs must not block others
_RETRIED_STATUSES = frozenset({408, 425, 429})
_KEPT_HEADERS = ("content-type", "content-length", "date", "etag", "location", "retry-after")
_WITH_LENGTH = frozenset({"POST", "PUT", "PATCH"})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Resolve = Callable[[str, int], Awaitable[list[str]]]


check_payload = check_http_payload


def make_runner(settings: RunnerSettings) -> HttpRunner:
    """Return the runner of one worker."""
    return HttpRunner(settings.webhook_allow, settings.user_agent, secrets=settings.webhook_secrets)


class HttpRunner(BuiltInRunner):
    """Runs http jobs; `allow` lists the private targets that they may call."""

    def __init__(
        self,
        allow: Sequence[str] = (),
        user_agent: str = "schedo",
        *,
        secrets: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        resolve: Resolve | None = None,
        now: Callable[[], int] | None = None,
    ) -> None:
        self._rules = AddressRules(allow)
        self._user_agent = user_agent
        self._secrets = {name: parse_secrets(text) for name, text in (secrets or {}).items()}
        self._tls = tls
        self._resolve = resolve or Resolver()
        self._now = now or SystemClock().now
        self._shortage = Shortage("no connection can be opened")

    async def __call__(self, context: AttemptContext) -> AttemptResult:
        """Send the request and return its result, with the response's body as output."""
        try:
            payload = check_http_payload(context.lease.payload or b"null")
        except Invalid as error:
            return AttemptResult(context.lease.key, refuse_payload(error))
        attempt = asyncio.create_task(self._run_attempt(context, payload))
        stopping = asyncio.create_task(context.stop.wait())
        try:
            await asyncio.wait((attempt, stopping), return_when=asyncio.FIRST_COMPLETED)
            result = (
                attempt.result() if attempt.done() else AttemptResult(context.lease.key, Stopped())
            )
        except (OSError, RuntimeError) as error:
            if not is_shortage(error):
                raise
            missing: Exception = error
        else:
            self._shortage.end()
            return result
        finally:
            attempt.cancel()
            stopping.cancel()
            await asyncio.wait((attempt, stopping))
        return AttemptResult(context.lease.key, await self._shortage.wait(missing, context.stop))

    def not_ready_reasons(self) -> list[str]:
        """Return why no request can be sent, as a list of at most one sentence."""
        return self._shortage.not_ready_reasons()

    def close(self) -> None:
        """End the threads that look up names."""
        if isinstance(self._resolve, Resolver):
            self._resolve.close()

    async def _run_attempt(self, context: AttemptContext, payload: HttpPayload) -> AttemptResult:
        lease, url = context.lease, parse_url(payload.url)
        try:
            request = self._prepare(lease, payload, url)
            timeout_us = parse_duration(payload.timeout)
            response = await self._send(request, timeout_us, context.confirm)
        except _UnknownSecret as error:
            return AttemptResult(lease.key, _fail("unknown-secret", str(error), retryable=False))
        except TargetRefused as error:
            job_id = render_id(lease.key.job_id)
            log.warning(
                "job %s (queue %s) may not call %s: %s", job_id, lease.queue, url.origin, error
            )
            return AttemptResult(lease.key, _fail("target-refused", str(error), retryable=False))
        except ExchangeFailed as error:
            return AttemptResult(
                lease.key, _fail(error.kind, f"{url.origin}: {error}", error.status)
            )
        except socket.gaierror as error:
            message = f"{url.host} cannot be resolved: {error.strerror}"
            return AttemptResult(lease.key, _fail("dns", message))
        except TimeoutError:
            message = f"{url.origin} took longer than {payload.timeout} to answer"
            return AttemptResult(lease.key, _fail("request-timeout", message))
        outcome = await _outcome_of(response, payload, url, self._now())
        return AttemptResult(lease.key, outcome, _capture(response))

    async def _send(
        self, request: Request, timeout_us: int, confirm: Callable[[], None]
    ) -> Response:
        async with asyncio.timeout(timeout_us / limits.SECOND):
            found = await self._find_addresses(request.host, request.port)
            addresses = self._rules.check(request.host, request.port, found)
            tls = self._tls_context() if request.is_tls else None
            return await exchange(request, addresses, tls, confirm)

    async def _find_addresses(self, host: str, port: int) -> list[str]:
        try:
            return [str(ipaddress.ip_address(host))]
        except ValueError:
            return await self._resolve(host, port)

    def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:  # it takes 1.7 MB, so it is made for the first https job
            self._tls = ssl.create_default_context()
        return self._tls

    def _prepare(self, lease: Lease, payload: HttpPayload, url: Url) -> Request:
        body, content_type = payload.content()
        method = payload.method or ("GET" if body is None else "POST")
        headers = {
            "host": url.host_header,
            "user-agent": self._user_agent,
            "accept": "*/*",
            "accept-encoding": "identity",
            "connection": "close",
        }
        if content_type is not None:
            headers["content-type"] = content_type
        if body is not None or method in _WITH_LENGTH:
            headers["content-length"] = str(len(body or b""))
        headers |= self._schedo_headers(lease, payload, body or b"")
        headers |= {name.lower(): value for name, value in payload.headers.items()}
        target, is_tls = url.target, url.is_tls
        items = tuple(headers.items())
        return Request(method, url.host, url.port, is_tls, target, items, body or b"")

    def _schedo_headers(self, lease: Lease, payload: HttpPayload, body: bytes) -> dict[str, str]:
        """Return the headers that identify the job and the attempt, and their signature."""
        job_id = render_id(lease.key.job_id)
        timestamp_s = self._now() // limits.SECOND
        headers = {
            "webhook-id": job_id,
            "webhook-timestamp": str(timestamp_s),
            "idempotency-key": f'"{job_id}"',
            "schedo-attempt": str(lease.key.attempt),
            "schedo-fence": str(lease.key.epoch),
            "schedo-scheduled-for": render_instant(lease.scheduled_for),
        }
        keys = self._find_keys(payload)
        if keys:
            signature = render_signature(keys, job_id, timestamp_s, body)
            headers["webhook-signature"] = signature
        if lease.options.traceparent is not None:
            headers["traceparent"] = lease.options.traceparent
            if lease.options.tracestate is not None:
                headers["tracestate"] = lease.options.tracestate
        return headers

    def _find_keys(self, payload: HttpPayload) -> list[bytes]:
        if payload.secret is not None:
            return parse_secrets(payload.secret)
        if payload.secret_name is None:
            return []
        if payload.secret_name not in self._secrets:
            raise _UnknownSecret(
                f"there is no secret named {payload.secret_name!r} in the worker's secrets file"
            )
        return self._secrets[payload.secret_name]


class _UnknownSecret(Exception):
    """The payload names a secret that the worker does not have."""


class Resolver:
    """Resolves host names in threads of its own."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_LOOKUPS_MAX, thread_name_prefix="schedo-lookup")

    async def __call__(self, host: str, port: int) -> list[str]:
        """Return all addresses of the host; raise socket.gaierror."""
        look_up = functools.partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        found = await asyncio.get_running_loop().run_in_executor(self._threads, look_up)
        return [str(address[0]) for *_, address in found]

    def close(self) -> None:
        """End the threads, without a wait for a look-up that hangs."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _fail(kind: str, message: str, status: int | None = None, *, retryable: bool = True) -> Failed:
    return Failed(Failure(kind, message, http_status=status), retryable)


async def _outcome_of(response: Response, payload: HttpPayload, url: Url, now: int) -> Outcome:
    status = response.status
    if payload.expects(status):
        return Completed(await _render_result(response))
    retryable = status in _RETRIED_STATUSES or status >= 500
    message = f"{url.origin} answered {_name_status(status)}"
    if status == 410:
        message += ": it accepts no more calls"
    elif 300 <= status < 400:
        message += ": redirects are not followed"
    failure = Failure("http-status", message, http_status=status)
    retry_in_us = parse_retry_after(response.headers.get("retry-after"), now) if retryable else None
    return Failed(failure, retryable, retry_in_us)


def _name_status(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def parse_retry_after(text: str | None, now: int) -> int | None:
    """Return the delay in µs, at most a day; None if the header is absent, past or invalid."""
    if text is None:
        return None
    if text.isascii() and text.isdigit():
        wait_us = int(text[:12]) * limits.SECOND
    else:
        try:
            at = parsedate_to_datetime(text)
        except (ValueError, OverflowError):
            return None
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
        wait_us = (at - _EPOCH) // timedelta(microseconds=1) - now
    return min(wait_us, _RETRY_AFTER_US_MAX) if wait_us > 0 else None


async def _render_result(response: Response) -> bytes:
    kept = {name: response.headers[name] for name in _KEPT_HEADERS if name in response.headers}
    result: dict[str, Any] = {"status": response.status, "headers": kept}
    media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_json = media_type == "application/json" or media_type.endswith("+json")
    if is_json and not response.is_cut and 0 < len(response.body) <= _RESULT_BODY_BYTES_MAX:
        try:
            body = msgspec.Raw(await check_json(response.body))
            # The body is nested one level deeper there, and the depth of JSON is limited.
            return await check_json(msgspec.json.encode({**result, "body": body}))
        except BadJson:  # the output still has the body unchanged
            result["body_is_json"] = False
    return msgspec.json.encode(result)


def _capture(response: Response) -> tuple[CapturedOutput, ...]:
    if not response.body:
        return ()
    return (CapturedOutput("body", response.body, b"", response.total_bytes),)
