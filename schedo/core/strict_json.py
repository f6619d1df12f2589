"""Strict decoding of untrusted JSON.

It refuses invalid UTF-8, a byte order mark, NaN and Infinity, lone surrogates, U+0000, duplicate
keys, more than 64 levels, integers beyond 64 bits, numbers with more than 64 characters, and any
text after the value. orjson refuses only half of these: it keeps the last of two equal keys, and it
turns long integers into floats. This module finds the rest.

Most bodies need only cheap scans of their bytes. The scans can have false positives, but never miss
a fault. On a positive, the exact parser of the standard library reads the text again. Large request
bodies are checked piece by piece in protocol/pieces.py, by the same rules.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

import orjson

from schedo.errors import BadJson

DEPTH_MAX = 64
VALUES_MAX = (
    600_000  # more than fit into the body of one job; 8 MiB of [] would take 1 s and 250 MB
)
_PIECE_BYTES = 262_144
_BEFORE_VALUES = (b",", b"[", b"{")
_NUMBER_CHARACTERS_MAX = 64
_INTEGER_MIN, _INTEGER_MAX = -(2**63), 2**63 - 1
ALL_BUT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
OPENING = frozenset(b"[{")
_DIGITS_TO_ZERO = bytes(48 if 48 <= byte <= 57 else 32 for byte in range(256))
_LONG_NUMBER = b"0" * 19  # 2**63 has 19 digits


class CheckedJson(bytes):
    """A JSON text that these checks have already accepted."""


def decode_strictly(body: bytes, what: str = "the body") -> Any:
    """Return the value of a JSON text; raise BadJson with the fault. `what` names the text."""
    if not body:
        raise BadJson(f"{what} is empty; it must be a JSON value")
    check_count(body, what)
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        where = f"{error.msg} (line {error.lineno}, column {error.colno})"
        raise BadJson(explain(body, where, what)) from None
    if body.count(b"[") + body.count(b"{") > DEPTH_MAX:
        _check_depth(body, what)
    if lacks_colons(body, value) or has_odd_text(body):
        check_exactly(body)
    return value


def to_canonical(body: bytes) -> bytes | None:
    """Return a JSON text with sorted keys and without spaces, or None if it needs a closer look.

    A text that has a canonical form is one that decode_strictly accepts, except for its depth.
    """
    try:
        canonical = orjson.dumps(orjson.loads(body), option=orjson.OPT_SORT_KEYS)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return None
    has_all_keys = body.count(b":") == canonical.count(b":")  # see lacks_colons
    return canonical if has_all_keys and not has_odd_text(body) else None


def explain(body: bytes, message: str, what: str = "the body") -> str:
    """Return why the body is not JSON, given the message of the parser."""
    if body.startswith(b"\xef\xbb\xbf"):
        return f"{what} starts with a byte order mark; send plain UTF-8"
    try:
        body.decode()
    except UnicodeDecodeError as wrong:
        return f"{what} is not UTF-8: byte {wrong.start} is invalid"
    # The parsers have their own limits, and orjson runs out of memory on many open brackets.
    if any(said in message for said in ("depth", "ecursion", "allocate memory")):
        return f"{what} is nested deeper than {DEPTH_MAX} levels"
    return f"{what} is not JSON: {message}"


def check_count(body: bytes, what: str = "the body") -> None:
    """Refuse a text with more than VALUES_MAX values. Characters in strings do not count."""
    if len(body) > VALUES_MAX and _count_values(body) > VALUES_MAX:
        strings = (body.count(b'"') - body.count(b'\\"')) // 2
        if strings > 2 * VALUES_MAX or _count_values(without_strings(body)) > VALUES_MAX:
            raise BadJson(f"{what} holds more than {VALUES_MAX} values")


def _count_values(text: bytes) -> int:
    """Return the number of values, or some number above the limit."""
    count = 0
    for at in range(0, len(text), _PIECE_BYTES):
        count += sum(text.count(sign, at, at + _PIECE_BYTES) for sign in _BEFORE_VALUES)
        if count > VALUES_MAX:
            break
    return count


def _check_depth(body: bytes, what: str) -> None:
    """Refuse too many levels. Strings are removed first, since they may hold brackets."""
    depth = 0
    for sign in without_strings(body).translate(None, ALL_BUT_BRACKETS):
        depth += 1 if sign in OPENING else -1
        if depth > DEPTH_MAX:
            raise too_deep(what)


def too_deep(what: str = "the body") -> BadJson:
    """Return the error for too many levels."""
    return BadJson(f"{what} is nested deeper than {DEPTH_MAX} levels")


def mask_escapes(text: bytes) -> bytes:
    """Mask escapes, at the same length, so that each quote left begins or ends a string."""
    if b"\\" not in text:
        return text
    return text.replace(b"\\\\", b"__").replace(b'\\"', b"__")  # backslash pairs first


def without_strings(body: bytes) -> bytes:
    """Return valid JSON text without its strings: every other piece between quotes."""
    return b"".join(mask_escapes(body).split(b'"')[::2])


def lacks_colons(body: bytes, value: Any) -> bool:
    """Return whether a key may be duplicate: orjson drops one, so a colon is missing."""
    return body.count(b":") != orjson.dumps(value).count(b":")


def has_odd_text(body: bytes) -> bool:
    """Return whether there is a long number, U+0000, or an escaped colon (it hides a lost one)."""
    # The search for one byte is eight times as fast as the one for two.
    has_escape = b"\\" in body and b"\\u" in body
    return (has_escape and (b"u0000" in body or b"u003" in body)) or _LONG_NUMBER in body.translate(
        _DIGITS_TO_ZERO
    )


def check_exactly(body: bytes) -> None:
    """Refuse what orjson accepts, with the exact parser."""
    value = json.loads(
        body,
        object_pairs_hook=_refuse_duplicates,
        parse_int=_refuse_large,
        parse_float=_refuse_long,
        parse_constant=_refuse_constant,
    )
    if b"\\u0000" in body:
        _refuse_null_characters(value)


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for key, value in pairs:
        if key in members:
            raise BadJson(f"the key {key[:64]!r} occurs twice in one object")
        members[key] = value
    return members


def _refuse_large(text: str) -> int:
    number = int(text) if len(text) <= 20 else _INTEGER_MAX + 1
    if not _INTEGER_MIN <= number <= _INTEGER_MAX:
        raise BadJson(f"the number {text[:24]}... does not fit into 64 bits")
    return number


def _refuse_long(text: str) -> float:
    if len(text) > _NUMBER_CHARACTERS_MAX:
        raise BadJson(
            f"the number {text[:24]}... is longer than {_NUMBER_CHARACTERS_MAX} characters"
        )
    return float(text)


def _refuse_constant(text: str) -> NoReturn:
    raise BadJson(f"{text} is not JSON")


def _refuse_null_characters(value: Any) -> None:
    rest = [value]
    while rest:
        found = rest.pop()
        if isinstance(found, str):
            if "\0" in found:
                raise BadJson("the character U+0000 is not allowed in a string")
        elif isinstance(found, list):
            rest.extend(found)
        elif isinstance(found, dict):
            rest.extend(found)
            rest.extend(found.values())


def is_same_json(one: bytes, other: bytes) -> bool:
    """Return whether two texts that are JSON have one value; the order of keys does not matter."""
    if one == other:
        return True
    return json.dumps(json.loads(one), sort_keys=True) == json.dumps(
        json.loads(other), sort_keys=True
    )
