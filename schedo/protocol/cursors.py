"""Cursors: opaque positions in a list, bound to the filter of the list.

A cursor is the base64 of the last key of the page and of eight bytes of a hash of the filter. It is
neither secret nor signed: a forged cursor returns another page that the client may read anyway.
"""

from __future__ import annotations

import base64
import binascii
import hashlib

from schedo.core.ids import ID_MAX
from schedo.errors import BadRequest
from schedo.protocol.fields import is_name
from schedo.protocol.query import Values, bad_parameter

_HASH_BYTES = 8
CURSOR_CHARACTERS_MIN = 4 * (_HASH_BYTES + 1) // 3
CURSOR_CHARACTERS_MAX = 512
_ID_DIGITS_MAX = len(str(ID_MAX))
_NOT_THE_FILTER = frozenset({"cursor", "limit"})


def render_cursor(order: str, values: Values, last: str) -> str:
    """Return the cursor of the page after `last`, for this order and these parameters."""
    return base64.urlsafe_b64encode(_hash(order, values) + last.encode()).rstrip(b"=").decode()


def parse_name_cursor(order: str, values: Values) -> str | None:
    """Return the name that the cursor among the parameters stands for, or None if there is none."""
    last = _parse_cursor(order, values)
    if last is not None and not is_name(last):
        raise _forged()
    return last


def parse_number_cursor(order: str, values: Values) -> int | None:
    """Return the id that the cursor among the parameters stands for, or None if there is none."""
    last = _parse_cursor(order, values)
    if last is None:
        return None
    if not (last.isascii() and last.isdigit() and len(last) <= _ID_DIGITS_MAX):
        raise _forged()
    number = int(last)
    if number > ID_MAX:
        raise _forged()
    return number


def _parse_cursor(order: str, values: Values) -> str | None:
    text = values.get("cursor")
    if text is None:
        return None
    try:
        raw = _decode(text)
    except (ValueError, binascii.Error):
        raise _forged() from None
    if raw[:_HASH_BYTES] != _hash(order, values):
        raise bad_parameter("cursor", "the cursor belongs to a list with another filter")
    return raw[_HASH_BYTES:].decode("ascii", "replace")


def _forged() -> BadRequest:
    return bad_parameter("cursor", "this is not a cursor of this server")


def _decode(text: str) -> bytes:
    if len(text) > CURSOR_CHARACTERS_MAX:
        raise ValueError("too long")
    padded = text.encode("ascii") + b"=" * (-len(text) % 4)
    raw = base64.b64decode(padded, altchars=b"-_", validate=True)
    if len(raw) <= _HASH_BYTES:
        raise ValueError("too short")
    return raw


def _hash(order: str, values: Values) -> bytes:
    filters = sorted((name, value) for name, value in values.items() if name not in _NOT_THE_FILTER)
    return hashlib.sha256(repr((order, filters)).encode()).digest()[:_HASH_BYTES]
