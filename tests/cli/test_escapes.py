"""Escaping of text for a terminal, and its width in columns."""

from __future__ import annotations

import pytest

from schedo.cli.escapes import escape, measure, truncate


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text", "plain text"),
        ("häßlich 漢字 🎉", "häßlich 漢字 🎉"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("a\r\nb\tc", r"a\r\nb\tc"),
        ("\x9b31m", r"\x9b31m"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("zero\u200bwidth", r"zero\u200bwidth"),
        ("line\u2028separator", r"line\u2028separator"),
        ("\ud800", r"\ud800"),
        ("\U000e0041", r"\U000e0041"),
        ("del\x7f", r"del\x7f"),
    ],
    ids=ascii,
)
def test_control_characters_are_escaped(text: str, shown: str) -> None:
    assert escape(text) == shown


def test_characters_to_keep_are_not_escaped() -> None:
    assert escape("a\tb\n\x1b", keep="\n\t") == "a\tb\n\\x1b"


@pytest.mark.parametrize(
    ("text", "columns"), [("abc", 3), ("漢字", 4), ("e\u0301", 1), ("", 0)], ids=ascii
)
def test_the_width_is_counted_in_columns(text: str, columns: int) -> None:
    assert measure(text) == columns


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("abcdef", 6, "abcdef"),
        ("abcdefg", 6, "abcde…"),
        ("漢字漢字", 6, "漢字…"),
        ("漢字漢字", 5, "漢字…"),
        ("ab", 1, "…"),
    ],
    ids=ascii,
)
def test_a_text_that_is_too_wide_ends_with_an_ellipsis(text: str, width: int, shown: str) -> None:
    assert truncate(text, width) == shown
    assert measure(shown) <= width
