"""Ids: they only grow, and their text sorts as they do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedo.core.ids import ID_MAX, IdSource, parse_id, render_id
from schedo.core.limits import INSTANT_MAX
from schedo.errors import NotFound


def test_an_id_is_its_creation_time_in_microseconds_times_256() -> None:
    assert IdSource().next(1_000) == 256_000


def test_ids_of_one_instant_count_up_in_steps_of_64() -> None:
    ids = IdSource()

    assert [ids.next(10) for _ in range(3)] == [2_560, 2_624, 2_688]


def test_ids_grow_even_when_the_clock_goes_back() -> None:
    ids = IdSource()
    first = ids.next(1_000)

    assert ids.next(5) == first + 64


def test_ids_continue_after_the_largest_in_the_store() -> None:
    assert IdSource(last=999_999).next(1) == 1_000_000


@pytest.mark.parametrize("slot", [0, 1, 61, 62])
def test_the_low_6_bits_of_an_id_are_the_slot_of_its_server(slot: int) -> None:
    ids = IdSource(last=999_999, slot=slot)  # the last one may be of any slot

    assert {ids.next(now) % 64 for now in (1, 1, 7_000, 7_000, 3)} == {slot}


@pytest.mark.parametrize("slot", [-1, 64])
def test_a_slot_has_6_bits(slot: int) -> None:
    with pytest.raises(ValueError, match=f"a number from 0 to 63, not {slot}"):
        IdSource(slot=slot)


@given(st.lists(st.tuples(st.sampled_from([0, 1, 5, 61]), st.integers(0, 9)), max_size=80))
def test_servers_of_different_slots_never_make_the_same_id(calls: list[tuple[int, int]]) -> None:
    servers = {slot: IdSource(slot=slot) for slot, _ in calls}

    made = [(slot, servers[slot].next(now)) for slot, now in calls]

    assert len({ident for _, ident in made}) == len(made)
    for each in servers:
        own = [ident for slot, ident in made if slot == each]
        assert own == sorted(own)


def test_ids_last_for_a_thousand_years() -> None:
    assert IdSource().next(32_503_680_000_000_000) <= ID_MAX  # the year 3000
    assert INSTANT_MAX * 256 > ID_MAX


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0000000000000"),
        (31, "000000000000Z"),
        (32, "0000000000010"),
        (ID_MAX, "7ZZZZZZZZZZZZ"),
    ],
)
def test_an_id_is_13_characters_of_crockford_base32(number: int, text: str) -> None:
    assert render_id(number) == text
    assert parse_id(text) == number


@pytest.mark.parametrize("text", ["00000000000iL", "0OO0000000011", "o00000000001l"])
def test_letters_that_look_like_digits_are_decoded(text: str) -> None:
    assert parse_id(text) == 33


@pytest.mark.parametrize(
    "text",
    ["", "1", "00000000000000", "000000000000U", "000000000000-", "8000000000000", "é" * 13],
)
def test_a_text_that_cannot_be_an_id_is_refused(text: str) -> None:
    with pytest.raises(NotFound, match="there is no job"):
        parse_id(text)


def test_a_long_invalid_id_is_cut_in_the_error_message() -> None:
    with pytest.raises(NotFound) as caught:
        parse_id("x" * 1_000)

    assert len(str(caught.value)) < 120


@given(st.integers(0, ID_MAX), st.integers(0, ID_MAX))
def test_the_text_forms_of_ids_sort_like_their_numbers(one: int, other: int) -> None:
    assert (one < other) == (render_id(one) < render_id(other))
    assert parse_id(render_id(one).lower()) == one
