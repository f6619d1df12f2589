"""Escapes text for a terminal, so that job data cannot move the cursor or hide text."""

from __future__ import annotations

import unicodedata

# Unicode categories: controls, invisible formatting (such as a change of the text's direction),
# lone surrogates, private use, unassigned characters, line and paragraph separators.
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def escape(text: str, keep: str = "") -> str:
    """Return the text with each unsafe character escaped, except those in `keep`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        _write(character)
        if unicodedata.category(character) in _UNSAFE and character not in keep
        else character
        for character in text
    )


def _write(character: str) -> str:
    if character in _SHORT:
        return _SHORT[character]
    number = ord(character)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def measure(text: str) -> int:
    """Return the number of terminal columns that the escaped text takes."""
    if text.isascii():
        return len(text)
    return sum(map(_columns, text))


def truncate(text: str, width: int) -> str:
    """Return the text, cut and ended with an ellipsis if it is wider than `width` columns."""
    if measure(text) <= width:
        return text
    kept, left = "", width - 1
    for character in text:
        left -= _columns(character)
        if left < 0:
            break
        kept += character
    return kept + "…"


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
