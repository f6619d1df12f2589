"""Large JSON texts, checked piece by piece, so that no text blocks the event loop for long.

A text is cut after commas outside of strings. Each piece is made whole with the
brackets that are open around it, and then checked as strictly as a small text. What can only be
seen over several pieces is remembered: which containers are open, and the keys of open objects.
The values of a piece are dropped with it, so a text takes no more memory than its bytes.
"""

from __future__ import annotations

import secrets
from collections.abc import Generator
from typing import Any, NamedTuple

import orjson

from schedo.core.strict_json import (
    ALL_BUT_BRACKETS,
    DEPTH_MAX,
    OPENING,
    check_exactly,
    explain,
    has_odd_text,
    lacks_colons,
    mask_escapes,
    too_deep,
)
from schedo.errors import BadJson

PIECE_BYTES = 16_384
_BEFORE_VALUES = (b",", b"[", b"{")
_SPACE = b" \t\r\n"
_ARRAY, _OBJECT = b"[{"
_CLOSING = {_ARRAY: b"]", _OBJECT: b"}"}
STRING_BYTES_MAX = 2_097_152  # with its escapes; checking one takes some milliseconds
VALUES_MAX = 800_000  # commas and opening brackets: more than a payload can hold
KEYS_MAX = 100_000  # of one object
_LONG_BYTES = 262_144

Steps = Generator[None, None, None]


class _Piece(NamedTuple):
    """A part of a text: from `at` to `end`, where a comma stands or the text ends."""

    at: int
    end: int
    outside: bytes  # the part of it outside of strings

    def count_values(self) -> int:
        return sum(map(self.outside.count, _BEFORE_VALUES)) + 1

    def is_last_of(self, text: bytes) -> bool:
        return self.end >= len(text)


def check_pieces(text: bytes) -> Steps:
    """Check the text as decode_strictly does, a piece a step; raise BadJson."""
    checked = _Checked(text)
    at = 0
    while at <= len(text):
        piece = yield from _cut(text, at)
        yield from checked.add(piece)
        yield
        at = piece.end + 1


def too_many_values() -> BadJson:
    """Return the error for a text with more values than are taken."""
    return BadJson(f"the body holds more than {VALUES_MAX} values")


def count_values(text: bytes) -> Generator[None, None, int]:
    """Return how many values a text holds, roughly: commas and opening brackets."""
    at, count = 0, 0
    while at <= len(text):
        piece = yield from _cut(text, at)
        count += piece.count_values()
        yield
        at = piece.end + 1
    return count


def _cut(text: bytes, at: int) -> Generator[None, None, _Piece]:
    """Return the piece that begins here, of about PIECE_BYTES unless a string is longer."""
    size = PIECE_BYTES
    while True:
        window = text[at : at + size]
        if len(window) > STRING_BYTES_MAX:
            raise BadJson(f"a string or a space is longer than {STRING_BYTES_MAX} bytes")
        masked = mask_escapes(window)
        if size > _LONG_BYTES:
            yield
        parts = masked.split(b'"')  # in turn outside and inside of strings
        if at + size >= len(text):
            return _Piece(at, len(text), b"".join(parts[::2]))
        end = len(window)
        for number in range(len(parts) - 1, -1, -1):
            end -= len(parts[number])
            comma = -1 if number % 2 else parts[number].rfind(b",")
            if comma >= 0:
                outside = b"".join((*parts[:number:2], parts[number][:comma]))
                return _Piece(at, at + end + comma, outside)
            end -= 1  # the quote
        size *= 2
        yield


def _check_parsed(whole: bytes, value: Any, is_long: bool) -> Steps:
    """Refuse what the parser takes although it is no JSON."""
    if is_long:
        yield
    is_suspicious = lacks_colons(whole, value)
    if is_long:
        yield
    if is_suspicious or has_odd_text(whole):
        if is_long:
            yield
        check_exactly(whole)


class _Checked:
    """The state of the check after the first pieces of a text."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._kinds = bytearray()  # of the containers that are open, outermost first
        self._keys: list[set[str]] = []  # of those that are objects; else empty
        self._mark = secrets.token_hex(8)  # a key that the text cannot hold
        self._values = 0

    def add(self, piece: _Piece) -> Steps:
        """Check the piece and what it adds to the open containers."""
        part = self._text[piece.at : piece.end]
        before = bytes(self._kinds)
        self._values += piece.count_values()
        if self._values > VALUES_MAX:
            raise too_many_values()
        kept = self._follow(piece.outside)
        if not piece.is_last_of(self._text):
            self._check_ends(part, bool(piece.at))
        elif before:
            self._check_begin(part)
        prefix = self._open(before)
        whole = prefix + part
        if not piece.is_last_of(self._text):
            whole += b"".join(_CLOSING[kind] for kind in reversed(self._kinds))
        try:
            value = orjson.loads(whole)
        except orjson.JSONDecodeError as error:
            raise BadJson(self._explain(piece.at, error, len(prefix))) from None
        yield from _check_parsed(whole, value, len(part) > _LONG_BYTES)
        self._compare_keys(value, len(before), kept)

    def _follow(self, outside: bytes) -> int:
        """Follow the brackets; return how many of the containers stayed open all the time."""
        kinds = self._kinds
        kept = len(kinds)
        for sign in outside.translate(None, ALL_BUT_BRACKETS):
            if sign in OPENING:
                kinds.append(sign)
                if len(kinds) > DEPTH_MAX:
                    raise too_deep()
            elif kinds:
                kinds.pop()
                kept = min(kept, len(kinds))
            else:  # the parser says what is wrong
                break
        return kept

    def _open(self, kinds: bytes) -> bytes:
        """Return the text that opens the containers around a piece."""
        outer = (b"[" if kind == _ARRAY else b'{"%b":' % self._mark.encode() for kind in kinds[:-1])
        return b"".join(outer) + kinds[-1:]

    def _check_begin(self, part: bytes) -> None:
        """Refuse a comma that nothing follows."""
        if part.lstrip(_SPACE)[:1] in (b"", b"]", b"}"):
            raise BadJson("the body is not JSON: a comma has no value behind it")

    def _check_ends(self, part: bytes, is_behind_comma: bool) -> None:
        """Refuse a comma that nothing follows or precedes, or that follows the value."""
        if is_behind_comma:
            self._check_begin(part)
        if not self._kinds or part.rstrip(_SPACE)[-1:] in (b"", b"[", b"{"):
            raise BadJson("the body is not JSON: a comma stands where none may be")

    def _compare_keys(self, value: Any, count: int, kept: int) -> None:
        """Refuse a key that an object has already; note those of the objects that stay open."""
        node = value
        for level in range(count):  # each but the last has the next one as its first member
            if isinstance(node, dict):
                self._note_keys(self._keys[level], node)
            if level == kept - 1:
                last = node
            if level < count - 1:
                node = node[self._mark] if isinstance(node, dict) else node[0]
        del self._keys[kept:]
        for level in range(kept, len(self._kinds)):  # each is the last member of the one before
            node = value if level == 0 else _last_member(last)
            self._keys.append(set(node) if isinstance(node, dict) else set())
            last = node

    def _note_keys(self, known: set[str], node: dict[str, Any]) -> None:
        found = node.keys() - {self._mark}
        twice = found & known
        if twice:
            raise BadJson(f"the key {min(twice)[:64]!r} occurs twice in one object")
        if len(found) + len(known) > KEYS_MAX:
            raise BadJson(f"an object has more than {KEYS_MAX} keys")
        known |= found

    def _explain(self, at: int, error: orjson.JSONDecodeError, added: int) -> str:
        """Return the error, with its position in the whole text."""
        line, column = error.lineno, error.colno
        if line == 1:
            begin = self._text.rfind(b"\n", 0, at) + 1
            column += len(self._text[begin:at].decode("utf-8", "replace")) - added
        line += self._text.count(b"\n", 0, at)
        return explain(self._text, f"{error.msg} (line {line}, column {max(column, 1)})")


def _last_member(node: Any) -> Any:
    return node[next(reversed(node))] if isinstance(node, dict) else node[-1]
