"""The Idempotency-Key header: the same request again has the same answer and no second effect.

The stored answer is written in the commit that makes the job durable, so there is no moment at
which one exists without the other. Answers are kept for 24 hours (Retention.answers_us).
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable

import orjson

from schedo.core.changes import IdempotentAnswer
from schedo.errors import BadRequest, KeyInProgress, KeyReused
from schedo.web.messages import Answer, Request
from schedo.web.site import Site

HEADER = b"idempotency-key"
_KEY_CHARACTERS_MAX = 255

Keep = Callable[[int, bytes], IdempotentAnswer | None]


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


async def perform_once(
    site: Site, request: Request, act: Callable[[Keep | None], Awaitable[Answer]]
) -> Answer:
    """Do what the request asks, unless its key has been seen; `act` gets what makes the record."""
    key = read_key(request.find_header(HEADER))
    if key is None:
        return await act(None)
    scope = f"{request.client_id} {request.operation} {key}"
    if scope in site.keys_in_progress:
        raise KeyInProgress("the first request with this Idempotency-Key is not finished; wait")
    print_of_body = hashlib.sha256(_canonical(request)).digest()
    site.keys_in_progress.add(scope)
    try:
        stored = await site.engine.store.find_answer(scope)
        if stored is not None:
            return _replay(stored, print_of_body)
        now = site.engine.clock.now()
        return await act(
            lambda status, body: (
                IdempotentAnswer(scope, print_of_body, status, body, now) if status < 500 else None
            )
        )
    finally:
        site.keys_in_progress.discard(scope)


def _canonical(request: Request) -> bytes:
    lines = request.body.split(b"\n") if request.is_lines else [request.body]
    values = [orjson.loads(line) for line in lines if line.strip()]
    return orjson.dumps(values, option=orjson.OPT_SORT_KEYS)


def _replay(stored: IdempotentAnswer, print_of_body: bytes) -> Answer:
    if stored.fingerprint != print_of_body:
        raise KeyReused("this Idempotency-Key was used with another body")
    return Answer(stored.status, stored.body, ((b"idempotency-replayed", b"true"),))
