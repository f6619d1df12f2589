"""Cursors continue the same list, and are refused elsewhere."""

from __future__ import annotations

import pytest

from schedo.errors import BadRequest
from schedo.protocol.query import parse_name_cursor, parse_number_cursor, parse_query, render_cursor


def test_an_unknown_parameter_is_refused_with_a_similar_or_with_all_names() -> None:
    with pytest.raises(BadRequest, match=r"no such parameter here; did you mean state\?"):
        parse_query(b"stat=queued", ("state", "queue"))
    with pytest.raises(BadRequest, match="no such parameter here; known are: queue, state"):
        parse_query(b"colour=red", ("state", "queue"))


def test_a_character_that_no_text_of_a_store_can_have_is_refused() -> None:
    """PostgreSQL would refuse the search, and the client would get 503 and try again."""
    with pytest.raises(BadRequest, match=r"q: the character U\+0000 is not allowed"):
        parse_query(b"q=a%00b", ("q",))


def test_a_cursor_is_read_back_as_its_position() -> None:
    cursor = render_cursor("jobs", {"queue": "q", "limit": "5"}, "42")

    assert parse_number_cursor("jobs", {"queue": "q", "limit": "9", "cursor": cursor}) == 42
    assert parse_number_cursor("jobs", {}) is None


@pytest.mark.parametrize(
    ("order", "values"),
    [
        ("jobs", {"queue": "other"}),
        ("jobs", {}),
        ("jobs", {"task": "q"}),
        ("schedules", {"queue": "q"}),
    ],
)
def test_a_cursor_of_another_list_is_refused(order: str, values: dict[str, str]) -> None:
    cursor = render_cursor("jobs", {"queue": "q"}, "42")

    with pytest.raises(BadRequest, match="another filter"):
        parse_name_cursor(order, {**values, "cursor": cursor})


@pytest.mark.parametrize("text", ["", "a", "!!!!", "AAAA", "\u00e9", "A" * 513, "A A="])
def test_an_invalid_cursor_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="not a cursor"):
        parse_name_cursor("jobs", {"cursor": text})


@pytest.mark.parametrize("last", ["x", "-1", "\u0665", "9223372036854775808", "9" * 20])
def test_a_cursor_with_a_forged_position_is_refused(last: str) -> None:
    cursor = render_cursor("jobs", {}, last)

    with pytest.raises(BadRequest):
        parse_number_cursor("jobs", {"cursor": cursor})
