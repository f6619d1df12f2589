"""The Idempotency-Key header: a repeated request gets the same response and has no second effect.

The record of the response is written in the commit that makes the job durable, so neither ever
exists without the other. Records are kept for 24 hours (Retention.idempotency_us).
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import orjson

from schedo.core.changes import IdempotencyRecord
from schedo.errors import BadRequest, KeyInProgress, KeyReused
from schedo.protocol.problems import PROBLEM_TYPE
from schedo.web.context import AppContext
from schedo.web.http import JSON_TYPE, Request, Response

T = TypeVar("T")

HEADER = b"idempotency-key"
_KEY_CHARACTERS_MAX = 255

StoreResponse = Callable[[int, bytes], IdempotencyRecord | None]


def read_key(text: str | None) -> str | None:
    """Return the key: a quoted Structured-Fields string or a bare token."""
    if text is None:
        return None
    key = text.strip()
    if len(key) >= 2 and key[0] == key[-1] == '"':
        key = key[1:-1].replace('\\"', '"').replace("\\\\", "\\")
    if not 1 <= len(key) <= _KEY_CHARACTERS_MAX or not (key.isascii() and key.isprintable()):
        raise BadRequest(
            f"an Idempotency-Key has 1 to {_KEY_CHARACTERS_MAX} printable ASCII characters"
        )
    return key


class IdempotentRequest:
    """One request whose effect happens once if it carries a key.

    The handler passes it the values of the body as they are read and checked, so the fingerprint
    needs no parser of its own and never sees malformed values.
    """

    def __init__(self, request: Request) -> None:
        self._key = read_key(request.find_header(HEADER))
        if self._key is not None:
            self._scope = f"{request.client_id} {request.operation} {self._key}"
            self._hash = hashlib.sha256(b"[")
            self._separator = b""

    def see(self, value: Any) -> None:
        """Add one checked value of the body to the fingerprint.

        The fingerprint is the SHA-256 of the values as canonical JSON: spaces and the order of keys
        do not change it.
        """
        if self._key is not None:
            self.see_canonical(orjson.dumps(value, option=orjson.OPT_SORT_KEYS))

    def see_canonical(self, values: bytes) -> None:
        """Add checked values, as canonical JSON with commas between them."""
        if self._key is not None:
            self._hash.update(self._separator)
            self._hash.update(values)
            self._separator = b","

    async def perform(
        self,
        context: AppContext,
        act: Callable[[StoreResponse | None], Awaitable[Response]],
        complete: Callable[[bytes], Awaitable[Response]] | None = None,
    ) -> Response:
        """Run `act` unless the key is known; `act` gets the function that makes the record.

        It submits at once: while it waits, another server could get the key and carry it out.
        `complete` makes the response from a record that lacks some of it.
        """
        if self._key is None:
            return await act(None)
        scope = self._scope
        if scope in context.keys_in_progress:
            raise KeyInProgress("the first request with this Idempotency-Key is not finished; wait")
        self._hash.update(b"]")
        fingerprint = self._hash.digest()
        context.keys_in_progress.add(scope)
        try:
            stored = await context.engine.find_response(scope, fingerprint)
            if stored is not None:
                return await _replay(stored, fingerprint, complete)
            now = context.engine.clock.now()
            return await act(
                lambda status, body: (
                    IdempotencyRecord(scope, fingerprint, status, body, now)
                    if status < 500
                    else None
                )
            )
        finally:
            context.keys_in_progress.discard(scope)


async def _replay(
    stored: IdempotencyRecord,
    fingerprint: bytes,
    complete: Callable[[bytes], Awaitable[Response]] | None,
) -> Response:
    if stored.fingerprint != fingerprint:
        raise KeyReused("this Idempotency-Key was used with another body")
    is_problem = stored.status >= 400
    if complete is not None and not is_problem:
        response = await complete(stored.body)
    else:
        content_type = PROBLEM_TYPE if is_problem else JSON_TYPE
        response = Response(stored.status, stored.body, content_type=content_type)
    return response.with_headers((b"idempotency-replayed", b"true"))


def make_record(
    record_of: StoreResponse | None, render: Callable[[Sequence[T]], Response]
) -> Callable[[Sequence[T]], IdempotencyRecord | None] | None:
    """Return the function that makes the record from the results; None without a key."""
    if record_of is None:
        return None

    def record(results: Sequence[T]) -> IdempotencyRecord | None:
        response = render(results)
        return record_of(response.status, response.body)

    return record
